/* The files of a commit, as a sorted list: what a client orders, applied to the files that were there before. Touches
 * no disk. Threads: one per list. */
#ifndef TD_CATALOG_PUBLISH_COMMIT_LIST_H
#define TD_CATALOG_PUBLISH_COMMIT_LIST_H

#include "catalog/names/repo.h"
#include "core/arena.h"
#include "core/digest.h"
#include "core/error.h"
#include "storage/fetch/fetch_path.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_COMMIT_MAX_FILES = 100000,
    TD_COMMIT_MAX_FOLDERS = 100000,
    TD_COMMIT_PATH_BYTES = TD_FETCH_PATH_BYTES, /* longest path of a file, without a NUL */
    TD_COMMIT_PATH_PARTS = TD_FETCH_PATH_PARTS,
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
    const char *from;     /* a revision or commit: a new revision begins with its files; NULL: with no files. A revision
                             that exists ignores it */
    bool keep;            /* files that are not named stay; else the revision has exactly `files` */
    bool allows_hidden;   /* paths may be such that no list shows them, such as .metadata.tmp */
    bool ignores_missing; /* paths to delete need not be there */
    bool is_dry_run;      /* the commit is checked, and not made */
    bool renews_times;    /* files that are named count as written now, also those that do not change (S3) */
    const struct td_commit_file *files;
    size_t file_count;
    size_t max_files;             /* that the server lists in all; 0: no bound */
    size_t other_files;           /* of these, files outside of this repository */
    const char *const *deletions; /* paths of files, and of folders, which end in '/': the commit removes them from the
                                     files before, and then adds `files` */
    size_t deletion_count;
    const char *message; /* "" : none */
    const char *token;   /* the name of the token that asks; "": none */
    /* Called when the commit's snapshot is in its place, before the revision names it. NULL: nothing is called. */
    void (*on_snapshot)(void *context, const char *commit);
    void *context;
};

/* Checks a path that a client gives a file, by td_fetch_path_fault. Unless allows_hidden, it must be one that lists
 * show (td_walk_ignores). Errors: TD_INVALID_ARGUMENT. */
bool td_commit_check_path(const char *path, bool allows_hidden, struct td_error *err);

struct td_commit_entry {
    const char *path;
    uint8_t sha256[TD_SHA256_BYTES];
    size_t number;  /* of the file in the order; SIZE_MAX: not from there */
    bool has_link;  /* the list before has the same path and digest, and its link stays */
    bool has_blob;  /* the repository has the blob, once somebody has looked */
    uint64_t bytes; /* the blob's size */
};

/* A list of files, at first zeros. */
struct td_commit_list {
    struct td_arena paths; /* those that are not borrowed */
    struct td_commit_entry *entries;
    size_t count, capacity;
    uint8_t *deleted; /* private, while a list is made */
};

void td_commit_list_fini(struct td_commit_list *list);

/* Appends a file with a copy of its path. Errors: TD_FAILED_PRECONDITION past TD_COMMIT_MAX_FILES,
 * TD_RESOURCE_EXHAUSTED. */
bool td_commit_list_add(struct td_commit_list *list, const char *path, const uint8_t sha256[TD_SHA256_BYTES],
                        struct td_error *err);

/* Sorts the list by path, as td_text_compare. */
void td_commit_list_sort(struct td_commit_list *list);

/* Makes the list that the order asks for, from the sorted list of the files before. *list, zeros at first, borrows
 * paths of both. Errors: TD_INVALID_ARGUMENT for a path (td_commit_check_path) and for a path twice; TD_NOT_FOUND for
 * the first path to delete that is not there; TD_CONFLICT for a path that is a file and a folder;
 * TD_FAILED_PRECONDITION with *is_too_large for more than TD_COMMIT_MAX_FILES or TD_COMMIT_MAX_FOLDERS;
 * TD_RESOURCE_EXHAUSTED. */
bool td_commit_list_make(const struct td_commit_list *before, const struct td_commit_order *order,
                         struct td_commit_list *list, bool *is_too_large, struct td_error *err);

/* Writes the commit id of the sorted list. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_commit_list_id(const struct td_commit_list *list, char commit[TD_COMMIT_BYTES], struct td_error *err);

/* Returns whether two sorted lists have the same paths and digests. */
bool td_commit_list_equal(const struct td_commit_list *a, const struct td_commit_list *b);

#endif
