/* Repositories: the files of a snapshot as the facades for stock clients know them. A folder of a Hugging Face cache is
 * one for each commit in it; so is the topmost directory on a path that directly holds a regular file, with all below
 * it, or the directory two levels below the root when that lies deeper; and a model whose files lie directly in the
 * root. The root itself is none. */
#ifndef TD_CATALOG_REPO_H
#define TD_CATALOG_REPO_H

#include "catalog/snapshot.h"
#include "core/text.h"

/* In hexadecimal, as Git's, and a NUL. */
enum { TD_COMMIT_BYTES = 41 };

/* The namespace of names with one segment: "local/demo" is another name for "demo", unless something is at the path
 * local/demo, which then owns that name. */
#define TD_REPO_DEFAULT_NAMESPACE "local"

/* A name for a commit: "main", "v1.0", "refs/pr/1". */
struct td_repo_ref {
    const char *name, *commit;
};

struct td_repo {
    const char *id; /* "org/name"; of one in the root "name" */
    /* The id in answers of the Hub: "org/name", "local/name"; "name" when something else owns the name local/name. */
    const char *hub_id;
    /* It lies below datasets/, or is a cache's datasets--org--name; its id has no datasets/ then. */
    bool is_dataset_folder;
    bool is_other_revision;          /* of a cache: not what `main` means */
    const char *folder;              /* where it lies, as clients know it; of other revisions, where main's does */
    const char *revision;            /* its commit in a Hugging Face cache, or NULL */
    size_t first_entry, entry_count; /* its files, a run of the snapshot's entries */
    size_t prefix_len;               /* of its entries' paths that is not part of their paths in it */
    bool has_checkpoint;             /* has checkpoint files */
    bool has_data;                   /* has files that datasets are made of: td_repo_files_are_data */
    size_t error_count;  /* files that are not what their names say (td_file.error), and problems of its models: sets
                          * that are not whole among them. A file may count twice */
    int64_t updated_ns;  /* mtime of the newest file */
    uint64_t file_bytes; /* 2^64-1 for more */
    /* The revision; else made of its files' paths and contents, of their identities until all contents are known. */
    char commit[TD_COMMIT_BYTES];
    /* Made of identities: what `commit` may have been before; equal for a cache. */
    char identity_commit[TD_COMMIT_BYTES];
    /* Of a cache's main revision; others have none. */
    const struct td_repo_ref *refs;
    size_t ref_count;
    size_t other_count; /* other revisions of the cache; they follow it, by name */
};

/* What the walk met of Hugging Face caches. */
struct td_cache_folder {
    const char *path;   /* as clients know it: org/name, org/name@commit for another revision than main's */
    const char *folder; /* the path of main's */
    const char *id;     /* org/name, datasets/org/name */
    const char *commit;
    bool is_other_revision;
    const struct td_repo_ref *refs; /* in the snapshot's arena */
    size_t ref_count;
};

/* Sets snapshot->repos, sorted; entries and models are there. Everything lives in the snapshot. Of several folders with
 * one id the one nearest to the root is it, of those as near the first by path; the others are problems. */
bool td_repos_build(struct td_snapshot *snapshot, const struct td_cache_folder *caches, size_t cache_count,
                    struct td_error *err);

/* Resolves the default namespace: "local/demo/rest" becomes "demo/rest" when demo is a repository and nothing is at the
 * path local/demo. Returns the path itself, or its end; *len is then the length of that. */
const char *td_repo_resolve(const struct td_snapshot *snapshot, const char *path, size_t *len);

/* The repository of this id (one segment: also with the default namespace before it) as `main` means it; NULL when
 * there is none, or one of the other kind. One without checkpoints may be asked for as either kind. */
const struct td_repo *td_repo_find(const struct td_snapshot *snapshot, bool as_dataset, struct td_text id);

/* The repository that has something at this path below its id, as org/name has for "org/name/unet"; *folder is the rest
 * of the path ("unet"). NULL when there is none. */
const struct td_repo *td_repo_above(const struct td_snapshot *snapshot, bool as_dataset, struct td_text path,
                                    const char **folder);

/* The same repository at another commit of its cache, or by a ref of it; itself for "main", "HEAD" and its own commits.
 * NULL: no such revision. */
const struct td_repo *td_repo_at(const struct td_repo *repo, struct td_text revision);

/* Whether clients should see it as a dataset. */
bool td_repo_is_dataset(const struct td_repo *repo);

/* Returns whether a run of entries holds files that datasets are made of: .parquet, .jsonl, .arrow, .json or .csv.
 * Beside a config.json (at prefix_len) the last two say nothing, since models have them as well. */
bool td_repo_files_are_data(const struct td_snapshot *snapshot, size_t first, size_t count, size_t prefix_len);

/* An entry's path in the repository. */
const char *td_repo_relative(const struct td_repo *repo, const struct td_entry *entry);

#endif
