/* Repositories: the files of a snapshot as the facades for stock clients show them. A repository is
 *  - each commit of a Hugging Face cache folder;
 *  - the topmost directory on a path that directly holds a regular file, with everything below it; if that directory
 *    is deeper than two levels below the root (three in datasets/), the directory at that level. But NAME or
 *    datasets/NAME is one repository when each folder in it is named data, or like a split: train, validation,
 *    test ... (td_split_is_folder); NAME only if it holds files with rows and no checkpoint. Files directly in
 *    datasets/ belong to no repository;
 *  - a model with files directly in the root.
 * The root itself is not a repository. Texts are NUL-terminated and belong to the snapshot. After td_repos_build
 * nothing changes, so any thread may call the other functions; their results are valid as long as the snapshot. */
#ifndef TD_CATALOG_NAMES_REPO_H
#define TD_CATALOG_NAMES_REPO_H

#include "catalog/model/snapshot.h"
#include "core/digest.h"
#include "core/text.h"

/* A commit id in 40 hexadecimal digits, like Git's, and a NUL. */
enum { TD_COMMIT_BYTES = 41 };

/* Adds a file to the hash that becomes a commit id: its path in the repository, and its SHA-256 in lower-case
 * hexadecimal digits (or its identity tag, for an identity commit). Files are added in the order of their paths
 * (td_text_compare); td_digest_finish_text with TD_COMMIT_BYTES then writes the id. So the same paths and contents
 * have the same commit, whether a scan finds them or a client publishes them. */
void td_repo_commit_add(struct td_digest *commit, const char *path, const char *content);

/* The namespace of names with one segment: "local/demo" is another name for "demo", unless the path local/demo exists,
 * which then owns that name. */
#define TD_REPO_DEFAULT_NAMESPACE "local"

/* A name for a commit: "main", "v1.0", "refs/pr/1". */
struct td_repo_ref {
    const char *name, *commit;
};

struct td_repo {
    const char *id; /* "org/name"; "name" for a repository in the root */
    /* The id in answers of the Hub: "org/name", "local/name"; "name" when something else owns the name local/name. */
    const char *hub_id;
    /* The repository is below datasets/, or is a cache's datasets--org--name. Its id then lacks the datasets/. */
    bool is_dataset_folder;
    bool is_other_revision;          /* another revision of a cache than `main` */
    const char *folder;              /* path of its directory, as clients know it; for another revision, that of main */
    const char *revision;            /* its commit in a Hugging Face cache, or NULL */
    size_t first_entry, entry_count; /* its files, a run of snapshot->entries */
    size_t prefix_len;               /* length of the beginning of its entries' paths that repository paths lack */
    bool has_checkpoint;             /* has checkpoint files */
    bool has_data;                   /* has files that datasets are made of, see td_repo_files_are_data */
    size_t error_count;  /* number of files with td_file.error, and of problems of its models, such as incomplete sets;
                            may count a file twice */
    int64_t updated_ns;  /* mtime of the newest file, ns since 1970 */
    uint64_t file_bytes; /* at most 2^64-1 */
    /* The revision; else a hash over the paths and contents of its files, or over identities until all contents are
     * known. */
    char commit[TD_COMMIT_BYTES];
    /* A hash over paths and identities: what `commit` may have been before; equal to `commit` if a cache gives the
     * commit. */
    char identity_commit[TD_COMMIT_BYTES];
    /* The refs of a cache, sorted by name, which its main revision has; others have none. */
    const struct td_repo_ref *refs;
    size_t ref_count;
    size_t other_count; /* other revisions of the cache; they follow this one in the list, sorted by name */
    bool is_added;      /* of a family: no item of td_repos has its id */
    bool lacks_main;    /* of a family: no version can be its main revision, so no other member describes one */
};

/* A snapshot of a Hugging Face cache folder, as the walk found it. */
struct td_cache_folder {
    const char *path;   /* as clients know it: org/name; org/name@commit for another revision than main */
    const char *folder; /* the path of main */
    const char *id;     /* org/name, datasets/org/name */
    const char *commit;
    bool is_other_revision;
    bool is_known;          /* of a walk: the commit is as the snapshot before shows it, and was not walked */
    struct td_file_id seen; /* the commit's directory, before all of it was walked and shown without an error; else all
                               zero */
    const struct td_repo_ref *refs; /* sorted by name */
    size_t ref_count;
};

/* The repositories of a snapshot. */
struct td_repos {
    struct td_snapshot_part part;
    struct td_repo *items; /* sorted by id, dataset folders last */
    size_t count;
    struct td_cache_folder *caches; /* the folders of Hugging Face caches, in the snapshot's arena */
    size_t cache_count;
    size_t problem_first, problem_count; /* the run of the snapshot's problems that td_repos_build added */
    /* Repositories whose revisions are versions (catalog/names/family.h), sorted by id; each takes the place of the
     * item with its id, if there is one, for all functions that find repositories. In the snapshot's arena. */
    const struct td_repo *const *families;
    size_t family_count;
};

/* Returns the snapshot's repositories; none before td_repos_build. Any thread. */
const struct td_repos *td_repos_of(const struct td_snapshot *snapshot);

/* Makes the repositories of the snapshot. Call once, when the snapshot has its entries and models. `caches` are
 * borrowed for the call; their texts and refs must live in the snapshot's arena. When several folders have one id, the
 * one nearest to the root gets it, among equally near ones the first by path; the others become problems of the
 * snapshot. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_repos_build(struct td_snapshot *snapshot, const struct td_cache_folder *caches, size_t cache_count,
                    struct td_error *err);

/* Counts the files and problems of a repository whose id, run of entries and prefix_len are set, and sets both of its
 * commits and hub_id. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_repo_describe(struct td_snapshot *snapshot, struct td_repo *repo, struct td_error *err);

/* Sets the list of repositories whose revisions are versions, which is borrowed. For td_families_build. */
void td_repos_set_families(struct td_snapshot *snapshot, const struct td_repo *const *families, size_t count);

/* Removes the default namespace from a path of *len bytes: "local/demo/rest" becomes "demo/rest" when demo is a
 * repository and the path local/demo does not exist. Returns a pointer into the path, and sets *len to the length from
 * there on; else returns the path and leaves *len alone. */
const char *td_repo_resolve(const struct td_snapshot *snapshot, const char *path, size_t *len);

/* Returns the main revision of the repository with this id, as a model or as a dataset. An id of one segment may have
 * the default namespace before it. Returns NULL when there is no such repository, or it is of the other kind. A
 * repository outside datasets/ without checkpoints counts as either kind. */
const struct td_repo *td_repo_find(const struct td_snapshot *snapshot, bool as_dataset, struct td_text id);

/* Finds the repository that holds something at this path below its id: org/name for "org/name/unet". Sets *folder to
 * the rest of the path ("unet"), a pointer into `path`. Returns NULL, and leaves *folder alone, when no repository
 * does. */
const struct td_repo *td_repo_above(const struct td_snapshot *snapshot, bool as_dataset, struct td_text path,
                                    const char **folder);

/* Returns the revision of the repository that `revision` names: another commit of its cache, or a ref ("v1.0"). `repo`
 * is a main revision, as td_repo_find returns, and not a copy, because the other revisions follow it. Returns `repo`
 * itself for "main", "HEAD" and its own commits, and NULL when there is no such revision. "latest" is the main revision
 * of a cache with checkpoints, unless a ref or a commit has that name. */
const struct td_repo *td_repo_at(const struct td_repo *repo, struct td_text revision);

/* Returns the revision that one of the repository's own refs leads to, or NULL when its commit is not there. Takes less
 * time than td_repo_at. */
const struct td_repo *td_repo_of_ref(const struct td_repo *repo, const struct td_repo_ref *ref);

/* Returns whether clients should see the repository as a dataset: a dataset folder, or data without checkpoints. */
bool td_repo_is_dataset(const struct td_repo *repo);

/* Returns whether a run of snapshot->entries holds files that datasets are made of: .parquet, .jsonl, .arrow, .json or
 * .csv. prefix_len is the length of the run's directory with its '/'. Beside a config.json there, .json and .csv do not
 * count, because models have such files as well. */
bool td_repo_files_are_data(const struct td_snapshot *snapshot, size_t first, size_t count, size_t prefix_len);

/* Returns the path in the repository of an entry that belongs to it: the end of the entry's path. */
const char *td_repo_relative(const struct td_repo *repo, const struct td_entry *entry);

#endif
