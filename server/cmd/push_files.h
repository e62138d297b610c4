/* The files of a push: which ones, and their digests. */
#ifndef TD_SERVER_CMD_PUSH_FILES_H
#define TD_SERVER_CMD_PUSH_FILES_H

#include "catalog/remote/remote_push.h"
#include "core/arena.h"
#include "core/error.h"
#include "server/cmd/shared/copying.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file of the push. */
struct td_push_file {
    const char *path;           /* in the model */
    const char *physical;       /* below the root */
    struct td_file_id id;       /* as it was found; the file must stay as it is */
    struct td_remote_blob blob; /* the digest is set by td_push_files_hash */
    bool is_hashed;
};

/* Sorted by path. Zeroed at first. */
struct td_push_files {
    struct td_root *root; /* owned, as all below */
    struct td_arena names;
    struct td_push_file *files;
    size_t count;
    struct td_push_file **by_digest; /* one file for each digest, sorted by digest; NULL until all are hashed */
    size_t digest_count;
    uint64_t digest_bytes; /* of these files */
};

/* Finds the files below the directory that a server would list and that the patterns take. Notes what is left out, such
 * as symlinks that lead out of the directory. Errors: as td_root_create and td_walk_run; TD_NOT_FOUND when there are
 * no files; TD_FAILED_PRECONDITION when a part of the directory cannot be read, or is the folder of a Hugging Face
 * cache. */
bool td_push_files_find(struct td_push_files *out, const char *directory, struct td_copying *copying,
                        struct td_error *err);

/* Computes the digests of all files, on several threads, with progress, and sets by_digest. Leaves copying's done_bytes
 * at 0. Errors: as td_root_open_file; TD_FAILED_PRECONDITION when a file changes; TD_IO; TD_CONFLICT when cancelled;
 * TD_RESOURCE_EXHAUSTED. */
bool td_push_files_hash(struct td_push_files *files, const char *directory, struct td_copying *copying,
                        struct td_error *err);

/* Opens a file, and checks that it is what was hashed. Sets *fd, which the caller closes. Errors: as
 * td_root_open_file; TD_FAILED_PRECONDITION when it has changed. */
bool td_push_file_open(const struct td_push_files *files, const struct td_push_file *file, int *fd,
                       struct td_error *err);

/* Checks that the open file is what was hashed. Errors: TD_FAILED_PRECONDITION. */
bool td_push_file_check(const struct td_push_file *file, int fd, struct td_error *err);

/* Returns the file that brings the bytes of this digest, or NULL. */
struct td_push_file *td_push_files_of_digest(const struct td_push_files *files, const uint8_t sha256[TD_SHA256_BYTES]);

void td_push_files_fini(struct td_push_files *files);

#endif
