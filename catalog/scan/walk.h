/* The walk: finds every regular file below the root, under the path that clients know. Uses no recursion. Follows
 * symlinks that stay inside the root; loops end. */
#ifndef TD_CATALOG_SCAN_WALK_H
#define TD_CATALOG_SCAN_WALK_H

#include "catalog/model/hub_cache.h"
#include "catalog/model/snapshot.h"
#include "catalog/names/repo.h"
#include "storage/tree_watch.h"

struct td_found {
    const char *path;         /* as clients know it, below the root */
    const char *physical;     /* path of the file on disk, below the root */
    const char *revision;     /* commit of a Hugging Face cache, or NULL */
    bool other_revision;      /* of another revision of the cache than main */
    const char *kept_version; /* the version that its folder keeps (td_walk_limits.keeps_versions), or NULL */
    bool is_of_subfolder;     /* this version is a subfolder at the upstream */
    bool has_arrived;         /* came by a rename and was not changed since, see storage/tree_watch.h */
    struct td_file_id id;     /* with an error: of the link, FIFO ... itself */
    const char *error;        /* why it cannot be served (a link that leaves the root, a FIFO ...), or NULL */
};

/* A directory of a commit of a Hugging Face cache: the commit's own, or one below it. */
struct td_found_folder {
    const char *path;     /* as clients know it, with a '/' at its end */
    const char *physical; /* path on disk, below the root */
    const char *revision; /* the commit; the same pointer as in the commit's files */
    struct td_file_id id; /* after its items were listed */
    bool has_arrived;     /* came by a rename, and no name in it was changed since */
    bool is_watched;      /* each change of a name in it is reported, whichever process makes it */
};

/* The result of a walk. */
struct td_walk {
    struct td_arena *names;  /* holds paths, revisions and errors of files; the snapshot's */
    struct td_arena scratch; /* holds physical paths, and the paths of folders; freed with the walk */
    struct td_found *found;  /* sorted by path, paths unique */
    size_t count, capacity;
    struct td_found_folder *folders; /* sorted by path, paths unique */
    size_t folder_count, folder_capacity;
    struct td_cache_folder *caches; /* those that hold a snapshot, one for each commit; sorted by path, paths unique */
    size_t cache_count, cache_capacity;
    bool has_known; /* some of these commits were not walked (is_known) */
    struct td_problems *problems;
};

struct td_walk_limits {
    size_t max_files, max_directories; /* the rest is left out, and is a problem; a commit that lacks something then is
                                          left out whole */
    bool all_revisions;  /* walks every commit of a cache folder: main as org/name, others as org/name@commit; false:
                            main alone */
    bool keeps_versions; /* folders with names of td_version_split_folder, in the root or one level below it, are
                            versions that --upstream has fetched */
    struct td_tree_watch *watch; /* watches each directory; borrowed; NULL: none */
    /* Returns whether a commit of a cache that was published by this program is known, with nothing below it to report:
     * the walk then lists the commit, and none of its files. NULL: all commits are walked. */
    bool (*is_known)(const void *context, const struct td_cache_folder *folder);
    const void *known_context;
};

/* Returns whether the walk ignores items of this name: hidden items, except those of a distributed checkpoint, and
 * unfinished downloads. */
bool td_walk_ignores(const char *name);

/* Walks `root`. When `place` is not NULL, `root` is a cache folder, and only that place in it is walked. Adds to
 * `names` and `problems`, which belong to the snapshot that is being built; counts found files in *files_found. Ends
 * early when *stop becomes true. A directory below the root that cannot be opened is a problem. Errors: those of
 * td_root_open_directory for the root; TD_IO when a directory cannot be listed to its end; TD_RESOURCE_EXHAUSTED;
 * TD_UNAVAILABLE for *stop. Call td_walk_fini in every case. */
bool td_walk_run(struct td_walk *walk, const struct td_root *root, const struct td_hub_place *place,
                 struct td_arena *names, struct td_problems *problems, const struct td_walk_limits *limits,
                 _Atomic uint64_t *files_found, const _Atomic bool *stop, struct td_error *err);

/* Returns whether the found file number i is a .metadata without a part of a distributed checkpoint beside it: a
 * dot-file like others, which is not listed. */
bool td_walk_passes_over(const struct td_walk *walk, size_t i);

/* Frees the lists and the physical paths. */
void td_walk_fini(struct td_walk *walk);

#endif
