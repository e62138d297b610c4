/* Hashing a file's content: reading it once without pushing what is served out of the page cache. */
#ifndef TD_CATALOG_CONTENT_HASH_H
#define TD_CATALOG_CONTENT_HASH_H

#include "core/digest.h"
#include "core/error.h"
#include "storage/served_root.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TD_GIT_SHA1_BYTES = 20 };

struct td_content_sums {
    uint8_t sha256[TD_SHA256_BYTES];
    uint8_t git_sha1[TD_GIT_SHA1_BYTES]; /* of "blob SIZE", a NUL and the content, as Git names it */
};

/* Why a content is hashed, besides its SHA-256. */
struct td_content_hash_options {
    bool git_sha1;
    const _Atomic bool *stop;       /* ends it early with TD_UNAVAILABLE; may be NULL */
    _Atomic uint64_t *hashed_bytes; /* counts up; may be NULL */
};

/* The file at `path` (below the root), which must be the one that `id` names before and after. Errors as
 * td_root_open_file; TD_UNAVAILABLE when it changed, TD_IO, TD_RESOURCE_EXHAUSTED. */
bool td_content_hash(const struct td_root *root, const char *path, const struct td_file_id *id,
                     const struct td_content_hash_options *options, struct td_content_sums *sums, struct td_error *err);

/* Writes the strong validator of a file whose content has no hash yet: a tag over device, inode, size, mtime and ctime
 * in ns. Returns false for want of memory. */
bool td_file_identity_tag(const struct td_file_id *id, char tag[TD_TAG_BYTES]);

/* What the name of a Hugging Face cache's blob says of its content. */
enum td_blob_name { TD_BLOB_NAME_NONE, TD_BLOB_NAME_SHA256, TD_BLOB_NAME_GIT_SHA1 };

/* When the file at `path` is a symlink to a blob: the kind of its name, which is copied to name[TD_SHA256_TEXT_BYTES].
 */
enum td_blob_name td_cache_blob_name_of(const struct td_root *root, const char *path, char name[TD_SHA256_TEXT_BYTES]);

/* Whether the content is what the blob's name says; true for TD_BLOB_NAME_NONE. */
bool td_cache_blob_name_fits(enum td_blob_name kind, const char *name, const struct td_content_sums *sums);

#endif
