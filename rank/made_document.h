/* Documents that are built from the state of some files, such as the manifests of OCI registries and the configurations
 * that these name. Clients ask for them by the SHA-256 of their bytes. Documents that were built together are one entry
 * of a store of bounded size (http/lru.h). Immutable once it is in the store; any thread. */
#ifndef TD_RANK_MADE_DOCUMENT_H
#define TD_RANK_MADE_DOCUMENT_H

#include "core/buffer.h"
#include "core/digest.h"
#include "http/lru.h"
#include "rank/virtual_digests.h"
#include "storage/blob.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { TD_MADE_MOST = 5, TD_MADE_STORE_BYTES = 32 * 1024 * 1024 };

struct td_made_document {
    const char *media_type;            /* static */
    bool is_manifest;                  /* clients ask for manifests and for other bytes by different paths */
    struct td_blob *bytes;             /* a reference; a heap blob */
    char sha256[TD_SHA256_TEXT_BYTES]; /* of the bytes, in hexadecimal */
};

/* A virtual file that documents name by its digest. */
struct td_made_virtual {
    struct td_virtual_key key;
    struct td_virtual_digest digest;
};

/* Documents that were built together. The last one names the others. */
struct td_made_documents {
    _Atomic int refs;
    struct td_virtual_revision origin; /* the virtual revision that they are of; kind TD_REVISION_FILES: of none */
    uint64_t owner;                    /* td_virtual_owner of the repository that has this revision */
    size_t count;
    struct td_made_document items[TD_MADE_MOST];
    struct td_made_virtual *virtual_files; /* owned; those that the documents name, in the order of the manifest */
    size_t virtual_count;
};

/* For a store of struct td_made_documents. */
extern const struct td_lru_class td_made_documents_class;

/* Returns an empty set with one reference; NULL when memory is short (sets *err). */
struct td_made_documents *td_made_documents_create(struct td_error *err);

/* Drops a reference, which the store's td_lru_get gives; the last one frees the set. NULL: does nothing. */
void td_made_documents_unref(struct td_made_documents *made);

/* Adds a document of the buffer's contents, which must have no budget, and leaves the buffer empty. At most
 * TD_MADE_MOST. Errors: TD_RESOURCE_EXHAUSTED, also for a buffer that has failed. */
bool td_made_documents_add(struct td_made_documents *made, const char *media_type, bool is_manifest,
                           struct td_buffer *text, struct td_error *err);

/* Returns the document with this SHA-256, in hexadecimal, among the manifests or among the others; or NULL. */
const struct td_made_document *td_made_documents_find(const struct td_made_documents *made, bool is_manifest,
                                                      struct td_text sha256);

/* Returns whether a document of the set, or a virtual file that the documents name, has this SHA-256. */
bool td_made_documents_know(const struct td_made_documents *made, const uint8_t sum[TD_SHA256_BYTES]);

/* Makes room for the virtual files that the documents name, and sets virtual_count; the caller fills them in. Call at
 * most once. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_made_documents_reserve_virtual(struct td_made_documents *made, size_t count, struct td_error *err);

/* Returns the number of the virtual file with this SHA-256, in hexadecimal, or virtual_count. */
size_t td_made_documents_find_virtual(const struct td_made_documents *made, struct td_text sha256);

/* Adds to the table those digests of the set's virtual files that it has dropped, so that a client that reads the
 * documents can get the files they name. Equal keys mean equal bytes, so these digests stay right. */
void td_made_documents_note_virtual(const struct td_made_documents *made, struct td_virtual_digests *digests);

/* Returns how many bytes the set takes. */
size_t td_made_documents_bytes(const struct td_made_documents *made);

#endif
