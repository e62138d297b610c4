/* Hashes the content of files without pushing served files out of the page cache, and compares the hashes with names
 * of files in a Hugging Face cache, which are such hashes. Thread-safe. */
#ifndef TD_CATALOG_MODEL_CONTENT_HASH_H
#define TD_CATALOG_MODEL_CONTENT_HASH_H

#include "core/digest.h"
#include "core/error.h"
#include "storage/served_root.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TD_GIT_SHA1_BYTES = 20 };

struct td_content_sums {
    uint8_t sha256[TD_SHA256_BYTES];
    uint8_t git_sha1[TD_GIT_SHA1_BYTES]; /* of "blob SIZE", a NUL byte and the content: Git's object id */
};

/* Options of td_content_hash, which always computes the SHA-256. */
struct td_content_hash_options {
    bool git_sha1;                  /* computes sums->git_sha1, too; else that is not valid */
    const _Atomic bool *stop;       /* hashing ends early with TD_UNAVAILABLE when this becomes true; may be NULL */
    _Atomic uint64_t *hashed_bytes; /* grows by every byte that is hashed; may be NULL */
};

/* Reads the file at `path` below the root and writes its hashes to *sums. The file must have the identity `id` before
 * and after. Errors as td_root_open_file; TD_UNAVAILABLE when the file changed or *stop became true; TD_IO;
 * TD_RESOURCE_EXHAUSTED. */
bool td_content_hash(const struct td_root *root, const char *path, const struct td_file_id *id,
                     const struct td_content_hash_options *options, struct td_content_sums *sums, struct td_error *err);

/* Writes the strong validator of a file whose content has no hash yet: a tag over device, inode, size, mtime and ctime
 * in ns. Returns false when memory is short. */
bool td_file_identity_tag(const struct td_file_id *id, char tag[TD_TAG_BYTES]);

/* The meaning of a blob's name in a Hugging Face cache: none, the SHA-256 of the content, or the Git object id. */
enum td_blob_name { TD_BLOB_NAME_NONE, TD_BLOB_NAME_SHA256, TD_BLOB_NAME_GIT_SHA1 };

/* Finds the name of the blob that the file at `path` is a symlink to. Copies the name to name[TD_SHA256_TEXT_BYTES] and
 * returns its kind; TD_BLOB_NAME_NONE when the file is no symlink from a cache's snapshots/ to a blob that is named by
 * a hash. */
enum td_blob_name td_cache_blob_name_of(const struct td_root *root, const char *path, char name[TD_SHA256_TEXT_BYTES]);

/* Returns whether the content has the hash that the blob's name claims; true for TD_BLOB_NAME_NONE. */
bool td_cache_blob_name_fits(enum td_blob_name kind, const char *name, const struct td_content_sums *sums);

#endif
