/* Commits of published repositories: a list of paths and blobs becomes a revision's content by one rename. This module
 * alone writes snapshots/, refs/ and commits/. The caller has opened the repository, so nobody else changes it. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_COMMIT_H
#define TD_CATALOG_PUBLISH_PUBLISH_COMMIT_H

#include "catalog/names/repo.h"
#include "catalog/publish/publish_disk.h"
#include "core/arena.h"
#include "core/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_COMMIT_MAX_FILES = 100000,
    TD_COMMIT_PATH_BYTES = 1024, /* longest path of a file, without a NUL */
    TD_COMMIT_PATH_PARTS = 32,
    TD_COMMIT_MESSAGE_BYTES = 4096, /* longer messages are cut */
};

struct td_commit_file {
    const char *path; /* in the repository */
    uint8_t sha256[TD_SHA256_BYTES];
    uint64_t size_bytes;
    bool has_size; /* the caller knows the size, and the blob must have it */
};

/* An order for a commit; all is borrowed. */
struct td_commit_order {
    const char *revision; /* "main", "weight_v000012", "refs/pr/1"; made if it is not there */
    const char *parent;   /* the commit that the revision must be at; "": it must not be there yet; NULL: any */
    const char *from;     /* revision or commit whose files a new revision begins with; NULL: none */
    bool keep;            /* files that are not named stay; else the revision has exactly `files` */
    bool allows_hidden;   /* paths may be such that no list shows them, such as .metadata.tmp */
    bool ignores_missing; /* paths to delete need not be there */
    const struct td_commit_file *files;
    size_t file_count;
    const char *const *deletions; /* paths of files, and of folders when they end in '/' */
    size_t deletion_count;
    const char *message; /* "" : none */
    const char *token;   /* the name of the token that asks; "": none */
};

enum td_commit_verdict {
    TD_COMMIT_MOVED,       /* the revision is at another commit now, or was made */
    TD_COMMIT_UNCHANGED,   /* it was at this commit already */
    TD_COMMIT_LACKS_BLOBS, /* blobs are not here: `missing` has them; nothing was changed */
    TD_COMMIT_WRONG_PARENT /* the revision is at another commit than `parent` says: `parent` below has it */
};

struct td_commit_result {
    enum td_commit_verdict verdict;
    char commit[TD_COMMIT_BYTES];
    char parent[TD_COMMIT_BYTES]; /* where the revision was before; empty: it was not there */
    uint64_t file_count, file_bytes;
    size_t *missing; /* numbers of order->files, each digest once; owned */
    size_t missing_count;
};

/* Checks a path that a client gives a file: it is not empty, not absolute, and has no empty part, ".", "..", control
 * character, and at most TD_COMMIT_PATH_BYTES bytes, TD_COMMIT_PATH_PARTS parts and TD_FETCH_NAME_BYTES bytes in a
 * part. Unless allows_hidden, it must be one that lists show (td_walk_ignores). Errors: TD_INVALID_ARGUMENT. */
bool td_commit_check_path(const char *path, bool allows_hidden, struct td_error *err);

/* Checks the name of a revision: parts of letters, digits and "._-+" (no leading dot, no "..", no ".lock" at the end)
 * separated by '/', at most 200 bytes; and not 40 hexadecimal digits, which name commits. Errors: TD_INVALID_ARGUMENT.
 */
bool td_commit_check_revision(const char *revision, struct td_error *err);

/* Makes the commit. It is durable, and visible to scans, when this returns TD_COMMIT_MOVED; a crash at any moment
 * leaves the revision at the old commit or at the new one. The same paths and digests are the same commit. Files that
 * do not change keep their links. Call td_commit_result_fini in any case. Errors: TD_INVALID_ARGUMENT for paths, a path
 * twice, a path that is a file and a folder, too many files, a size that is not the blob's; TD_NOT_FOUND for a path to
 * delete, for `from`, and for a repository that does not exist; TD_CONFLICT when the revision's name is that of a
 * folder of revisions; TD_RESOURCE_EXHAUSTED for memory or a full disk; TD_IO. */
bool td_publish_commit(struct td_publish_repo *repo, const struct td_commit_order *order,
                       struct td_commit_result *result, struct td_error *err);
void td_commit_result_fini(struct td_commit_result *result);

/* Sets a revision or tag to a commit, which another revision or the commit's id names: makes it or moves it. `moves`:
 * it may exist already; else that is TD_CONFLICT. Errors: TD_NOT_FOUND, as td_commit_check_revision, TD_IO. */
bool td_publish_set_ref(struct td_publish_repo *repo, const char *revision, const char *target, bool moves,
                        struct td_error *err);

/* Removes a revision or tag; its commit stays for a while (publish_collect.h). Errors: TD_NOT_FOUND;
 * TD_FAILED_PRECONDITION for "main"; TD_IO. */
bool td_publish_delete_ref(struct td_publish_repo *repo, const char *revision, struct td_error *err);

/* Writes the commit that a revision, or a commit's id, names to commit. Returns false when there is none. */
bool td_publish_resolve(const struct td_publish_repo *repo, const char *revision, char commit[TD_COMMIT_BYTES]);

/* The content of commits/COMMIT. Texts are in the arena. */
struct td_commit_note {
    char commit[TD_COMMIT_BYTES];
    char parent[TD_COMMIT_BYTES]; /* empty: none */
    const char *message, *token;  /* "": none */
    int64_t time_s;               /* since 1970 */
};

/* Sets *notes to the notes of all commits of the repository that have a snapshot, the newest first, and *count. The
 * caller frees the array; texts live in the arena. Errors: TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_publish_list_commits(const struct td_publish_repo *repo, struct td_arena *arena, struct td_commit_note **notes,
                             size_t *count, struct td_error *err);

/* Calls `visit` with each revision and its commit, by name. Stops and returns false when `visit` does. */
bool td_publish_each_ref(const struct td_publish_repo *repo,
                         bool (*visit)(void *context, const char *name, const char *commit), void *context);

#endif
