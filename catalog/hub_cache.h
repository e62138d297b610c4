/* Hugging Face cache folders: models--org--name/{blobs,refs,snapshots/<commit>}, and datasets--org--name. */
#ifndef TD_CATALOG_HUB_CACHE_H
#define TD_CATALOG_HUB_CACHE_H

#include "storage/served_root.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* When `name` is models--org--name, writes the id org/name ("gpt2" for models--gpt2) to id[capacity]; for
 * datasets--org--name datasets/org/name. False when it is not such a name. Source: huggingface_hub file_download.py
 * repo_folder_name. */
bool td_hub_cache_id(const char *name, char *id, size_t capacity);

/* The commit to publish of the cache folder at `path`: what refs/main names if that snapshot is there, else the
 * snapshot changed last. False when it holds no snapshot. */
bool td_hub_cache_commit(const struct td_root *root, const char *path, char *commit, size_t capacity);

/* Calls visit for every commit that the folder holds a snapshot of; ends early, false, when it returns false. */
bool td_hub_cache_commits(const struct td_root *root, const char *path,
                          bool (*visit)(void *context, const char *commit), void *context);

enum { TD_HUB_CACHE_REFS = 1000 }; /* more are left out */

/* Calls visit for every ref in refs/ ("main", "v1.0", "refs/pr/1") with the commit that it names; ends early, false,
 * when it returns false. */
bool td_hub_cache_refs(const struct td_root *root, const char *path,
                       bool (*visit)(void *context, const char *name, const char *commit), void *context);

/* A snapshot, or a directory in one. */
struct td_hub_place {
    char folder[PATH_MAX]; /* path of models--org--name; the snapshot's files are symlinks into it */
    char below[PATH_MAX];  /* of the place, from there: snapshots/<commit>, or deeper */
    char id[PATH_MAX];     /* as a server on the cache shows it: org/name, datasets/org/name, or deeper */
    char commit[NAME_MAX + 1];
};

/* Takes an absolute path without symlinks apart; false when it does not lie in a snapshot. */
bool td_hub_cache_place(const char *path, struct td_hub_place *place);

#endif
