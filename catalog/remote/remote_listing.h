/* The files of a model on a remote server, as the Hub's tree lists them: hostile JSON and hostile paths. Pure. */
#ifndef TD_CATALOG_REMOTE_REMOTE_LISTING_H
#define TD_CATALOG_REMOTE_REMOTE_LISTING_H

#include "core/arena.h"
#include "core/error.h"
#include "core/text.h"
#include "storage/fetch/fetch_file.h"
#include "storage/fetch/fetch_path.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of a file that a server may list. */
#define TD_REMOTE_MAX_FILE_BYTES (UINT64_C(1) << 48)

enum {
    TD_REMOTE_MAX_FILES = 1000000,
    TD_REMOTE_MAX_PATH_BYTES = TD_FETCH_PATH_BYTES,
    TD_REMOTE_MAX_DEPTH = TD_FETCH_PATH_PARTS,       /* parts of a path */
    TD_REMOTE_MAX_PAGE_BYTES = 32 * 1024 * 1024,     /* of one page of a tree */
    TD_REMOTE_MAX_LISTING_BYTES = 512 * 1024 * 1024, /* memory of a listing */
};

struct td_remote_file {
    const char *path; /* relative, NUL-terminated; in the listing's arena */
    struct td_fetch_expected expected;
};

struct td_remote_listing {
    struct td_arena arena;
    struct td_remote_file *files; /* owned; sorted by path after td_remote_listing_finish */
    size_t count, capacity;
    size_t item_count; /* of files and directories that pages have named */
    uint64_t total_bytes;
};

void td_remote_listing_init(struct td_remote_listing *listing);
void td_remote_listing_fini(struct td_remote_listing *listing);

/* Returns whether the path may be written below a directory: one by td_fetch_path_fault, without a part ".git" and
 * names of tensord's own hidden files (".tensord-upstream", ".NAME.tensord-part"). Otherwise sets the error. Errors:
 * TD_INVALID_ARGUMENT. */
bool td_remote_path_check(struct td_text path, struct td_error *err);

/* Adds the files of one page of a tree, the JSON array that /api/models/{id}/tree/{revision} answers. git_oids: the oid
 * of a file outside of LFS is its Git object id, as on the Hub; a tensord sends other values there. Errors:
 * TD_INVALID_ARGUMENT with the position for JSON or members that are wrong, a path as above, sums of sizes that
 * overflow; TD_FAILED_PRECONDITION past a limit; TD_RESOURCE_EXHAUSTED. */
bool td_remote_listing_add_page(struct td_remote_listing *listing, struct td_text page, bool git_oids,
                                struct td_error *err);

/* Sorts the files. Errors, TD_INVALID_ARGUMENT: two files have one path, or a file is also a directory of another. */
bool td_remote_listing_finish(struct td_remote_listing *listing, struct td_error *err);

/* Removes the files from the listing that `keeps` rejects by their path. */
void td_remote_listing_keep(struct td_remote_listing *listing, bool (*keeps)(const char *path));

/* Returns the file of this path in a listing that is sorted, or NULL. */
const struct td_remote_file *td_remote_listing_find(const struct td_remote_listing *listing, const char *path);

#endif
