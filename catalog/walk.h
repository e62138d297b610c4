/* The walk: every regular file below the root, under the path by which clients know it. No recursion; symlinks
 * are followed while they stay inside; loops end. */
#ifndef TD_CATALOG_WALK_H
#define TD_CATALOG_WALK_H

#include "catalog/hub_cache.h"
#include "catalog/repo.h"
#include "catalog/snapshot.h"

struct td_found {
    const char *path;     /* as clients know it */
    const char *physical; /* below the root */
    const char *revision; /* commit of a Hugging Face cache, or NULL */
    bool other_revision;  /* of the cache than the one that has the plain id */
    struct td_file_id id;
    const char *error; /* why it cannot be served (a link that leaves the root, a FIFO ...), or NULL */
};

struct td_walk {
    struct td_arena *names;  /* where path, revision and error are kept */
    struct td_arena scratch; /* physical paths; gone with the walk */
    struct td_found *found;  /* sorted by path, paths unique */
    size_t count, capacity;
    struct td_cache_folder *caches; /* those that hold something, one for each commit that is walked */
    size_t cache_count, cache_capacity;
    struct td_problems *problems;
};

struct td_walk_limits {
    size_t max_files, max_directories;
    bool all_revisions; /* of cache folders, not the chosen one alone: the others as org/name@commit */
};

/* Walks root, or, when place is not NULL, that directory alone of the cache folder that root is. names and problems
 * belong to the snapshot being built. Call fini in every case. */
bool td_walk_run(struct td_walk *walk, const struct td_root *root, const struct td_hub_place *place,
                 struct td_arena *names, struct td_problems *problems, const struct td_walk_limits *limits,
                 _Atomic uint64_t *files_found, const _Atomic bool *stop, struct td_error *err);
void td_walk_fini(struct td_walk *walk);

#endif
