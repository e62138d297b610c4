/* Hugging Face cache folders: models--org--name/{blobs,refs,snapshots/<commit>}, and datasets--org--name. */
#ifndef TD_CATALOG_MODEL_HUB_CACHE_H
#define TD_CATALOG_MODEL_HUB_CACHE_H

#include "storage/served_root.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* Writes the id of a cache folder to id[capacity]: "org/name" for models--org--name, "gpt2" for models--gpt2,
 * "datasets/org/name" for datasets--org--name. Returns false when `name` is no such name or the id does not fit.
 * Source: huggingface_hub file_download.py repo_folder_name. */
bool td_hub_cache_id(const char *name, char *id, size_t capacity);

/* Writes the commit of the cache folder at `path` that the server publishes, with a NUL, to commit[capacity]: the one
 * that refs/main names if its snapshot exists, else the snapshot that was changed last. Returns false when the folder
 * holds no snapshot. */
bool td_hub_cache_commit(const struct td_root *root, const char *path, char *commit, size_t capacity);

/* Calls `visit` for every commit that has a snapshot in the folder. Stops and returns false when `visit` does. */
bool td_hub_cache_commits(const struct td_root *root, const char *path,
                          bool (*visit)(void *context, const char *commit), void *context);

enum {
    TD_HUB_CACHE_REFS = 1000,      /* most items of refs/ that are read; more are left out */
    TD_HUB_CACHE_REF_FOLDERS = 16, /* folders of refs/ that certainly all are read */
};

/* Calls `visit` for every ref in refs/ ("main", "v1.0", "refs/pr/1") with the commit that the ref names. Stops and
 * returns false when `visit` does. */
bool td_hub_cache_refs(const struct td_root *root, const char *path,
                       bool (*visit)(void *context, const char *name, const char *commit), void *context);

/* Calls `visit` for each unfinished download in the folder, also for one that its client has ended early. Clients of
 * the Hub write a blob to blobs/NAME.incomplete first, and rename the file when it is whole. `physical` is the file's
 * path below the root, `id` its identity. Stops and returns false when `visit` does.
 * Source: huggingface_hub file_download.py _download_to_tmp_and_move. */
bool td_hub_cache_downloads(const struct td_root *root, const char *path,
                            bool (*visit)(void *context, const char *physical, const struct td_file_id *id),
                            void *context);

/* The place of a snapshot of a cache, or of a directory in one. */
struct td_hub_place {
    char folder[PATH_MAX]; /* path of models--org--name; the snapshot's files are symlinks into it */
    char below[PATH_MAX];  /* path of the place below that folder: snapshots/<commit>, or deeper */
    char id[PATH_MAX]; /* id under which a server on the whole cache shows the place: org/name, datasets/org/name, or
                          deeper */
    char commit[NAME_MAX + 1];
};

/* Splits an absolute path without symlinks into the members of *place. Returns false when the path is not in a snapshot
 * of a cache, or a member would be too long. */
bool td_hub_cache_place(const char *path, struct td_hub_place *place);

#endif
