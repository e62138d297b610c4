/* Decodes the content coding aws-chunked of S3: chunks with sizes, and maybe with signatures and a trailer. Sources:
 * Amazon S3 API Reference, "Signature calculations for the Authorization header: transferring payload in multiple
 * chunks" and "... including trailing headers". Takes the body in pieces of any size, in memory that does not depend on
 * it. Threads: one at a time per decoder. */
#ifndef TD_HTTP_AUTH_AWS_CHUNKED_H
#define TD_HTTP_AUTH_AWS_CHUNKED_H

#include "core/digest.h"
#include "core/text.h"
#include "http/auth/sigv4_chain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_aws_chunked_fault {
    TD_AWS_CHUNKED_OK,
    TD_AWS_CHUNKED_MALFORMED,
    TD_AWS_CHUNKED_LENGTH,    /* the chunks have more or fewer bytes than were announced, or the last one is missing */
    TD_AWS_CHUNKED_SIGNATURE, /* a chunk or the trailer has another signature, or none */
    TD_AWS_CHUNKED_NO_MEMORY,
    TD_AWS_CHUNKED_STOPPED /* `take` returned false */
};

enum { TD_AWS_CHUNKED_LINE_BYTES = 512, TD_AWS_CHUNKED_TRAILER_BYTES = 1024 };

struct td_aws_chunked {
    bool is_signed, has_trailer;
    struct td_sigv4_chain *chain; /* borrowed; NULL: signatures must be there, and are not checked */
    uint64_t announced_bytes;     /* of the decoded content */
    /* private from here on */
    uint64_t got_bytes, chunk_left;
    int state;
    enum td_aws_chunked_fault fault;
    struct td_digest *digest; /* of the chunk */
    size_t line_len, trailer_len, signature_len;
    char line[TD_AWS_CHUNKED_LINE_BYTES];
    char signature[2 * TD_SHA256_BYTES];
    char trailer[TD_AWS_CHUNKED_TRAILER_BYTES]; /* lines "name:value\n" */
};

/* Takes decoded bytes, at least one. Returns false to stop. */
typedef bool td_aws_chunked_take(void *context, const char *bytes, size_t len);

/* Begins a body. */
void td_aws_chunked_begin(struct td_aws_chunked *decoder, bool is_signed, bool has_trailer,
                          struct td_sigv4_chain *chain, uint64_t announced_bytes);

/* Decodes the next bytes of the body. The bytes of a chunk are passed on before its signature is checked, so that the
 * content counts only after td_aws_chunked_end. Returns false from the first fault on, which decoder->fault names. */
bool td_aws_chunked_write(struct td_aws_chunked *decoder, const char *bytes, size_t len, td_aws_chunked_take *take,
                          void *context);

/* Returns whether the body is whole after its last byte: all chunks, the announced length, and the trailer. */
bool td_aws_chunked_end(struct td_aws_chunked *decoder);

/* Frees what a chunk that was cut has taken. */
void td_aws_chunked_fini(struct td_aws_chunked *decoder);

/* Takes the next field off *rest, which is at first td_aws_chunked_trailer of the decoder. Returns false at
 * the end. The signature of the trailer is not among them. */
bool td_aws_chunked_next_field(struct td_text *rest, struct td_text *name, struct td_text *value);

/* Returns the fields of the trailer, for td_aws_chunked_next_field. */
struct td_text td_aws_chunked_trailer(const struct td_aws_chunked *decoder);

#endif
