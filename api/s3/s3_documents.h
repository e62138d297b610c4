/* The documents that clients of S3 send: lists of parts and of keys, and the configuration of a bucket. Source: Amazon
 * S3 API Reference. Pure; texts live in an arena. Private to api/s3/. */
#ifndef TD_API_S3_S3_DOCUMENTS_H
#define TD_API_S3_S3_DOCUMENTS_H

#include "api/s3/s3_checksum.h"
#include "core/arena.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TD_S3_MOST_PARTS = 10000,
    TD_S3_MOST_KEYS = 1000,
    TD_S3_DOCUMENT_BYTES = 4 * 1024 * 1024, /* of the longest document: 10,000 parts with their checksums */
};

enum td_s3_document_fault {
    TD_S3_DOCUMENT_OK,
    TD_S3_DOCUMENT_MALFORMED,
    TD_S3_DOCUMENT_TOO_MANY, /* parts or keys */
    TD_S3_DOCUMENT_NO_MEMORY
};

/* A part of CompleteMultipartUpload. */
struct td_s3_listed_part {
    unsigned number;                /* 1 to TD_S3_MOST_PARTS */
    struct td_text etag;            /* with or without quotes */
    enum td_s3_algorithm algorithm; /* of `sum`; TD_S3_NO_ALGORITHM: none is given */
    struct td_text sum;             /* in base64 */
};

struct td_s3_part_list {
    struct td_s3_listed_part *items; /* in the arena, in the document's order */
    size_t count;
};

/* Reads a CompleteMultipartUpload. A sum of an algorithm that is not implemented is malformed. */
enum td_s3_document_fault td_s3_read_parts(struct td_text document, struct td_arena *arena,
                                           struct td_s3_part_list *list);

/* An object of DeleteObjects. */
struct td_s3_listed_key {
    struct td_text key;
    struct td_text version_id; /* empty: none */
    struct td_text etag;       /* a condition; empty: none */
    bool has_other_condition;  /* LastModifiedTime or Size */
};

struct td_s3_key_list {
    struct td_s3_listed_key *items; /* in the arena */
    size_t count;
    bool is_quiet; /* the answer lists failures alone */
};

/* Reads a Delete. */
enum td_s3_document_fault td_s3_read_keys(struct td_text document, struct td_arena *arena, struct td_s3_key_list *list);

/* Returns whether a body of CreateBucket is one: empty, or a CreateBucketConfiguration. */
bool td_s3_is_bucket_configuration(struct td_text document);

#endif
