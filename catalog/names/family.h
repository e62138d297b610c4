/* Families of versions: the models of a snapshot that are states of one thing, such as the steps of a training run.
 *
 *  - A folder M is a family if direct subfolders of it are models and have names of versions
 *    (catalog/model/version_name.h). These models are its versions, and the names of the subfolders are their names. M
 *    itself may be a model as well, or not; but its id must be one that a model can have (td_id_is_reserved).
 *  - The versions of M that --upstream keeps, in folders M@VERSION (td_version_split_folder), are versions of M as
 * well, whatever their names.
 *  - A repository of a Hugging Face cache without such subfolders is a family, too: each of its snapshots that is a
 *    model is a version. The version has the name of the ref with a version's name (of several, the highest), else the
 *    name of the snapshot's folder. A snapshot is left out when its only name is a ref to another snapshot.
 *
 * Versions are in the order of lists: those without a number first, by name; then by number, then by name.
 *
 * Clients of the Hub and of registries know a family as a repository, and its versions as revisions of that:
 * td_families_build adds these repositories to the snapshot's td_repos, which finds them.
 *
 * After td_families_build nothing changes, so any thread may call the other functions; what they return is valid as
 * long as the snapshot. */
#ifndef TD_CATALOG_NAMES_FAMILY_H
#define TD_CATALOG_NAMES_FAMILY_H

#include "catalog/model/snapshot.h"
#include "catalog/model/version_name.h"

#include <stdatomic.h>

/* The word that stands for a family's newest version. */
#define TD_VERSION_LATEST "latest"

struct td_version {
    const char *name;
    bool has_number; /* the name is a version's name (td_version_name_parse) */
    uint64_t number;
    const struct td_model *model;
    const char *commit;      /* the folder of the snapshot in a cache; NULL for a version that is a subfolder */
    const char *const *refs; /* the refs to that snapshot, sorted */
    size_t ref_count;
};

/* A text that leads to a version: its name, a ref, or the folder of its snapshot. */
struct td_version_alias {
    const char *name;
    size_t version; /* its place in the family's list */
};

struct td_family {
    const char *id; /* the id that its model has or would have: "run", "org/run", "org/name" */
    bool is_cache;
    const struct td_version *versions;
    size_t count;
    const struct td_version *latest; /* the highest version that is served without an error; of a cache's versions
                                        without numbers that with the plain id alone; NULL: none */
    const struct td_version_alias *aliases; /* sorted by name, each name once */
    size_t alias_count;
    _Atomic(char *) *list_state; /* the tag of the whole list, set by the first caller that computes it; the part owns
                                    the text; NULL: not computed */
};

/* The families of a snapshot. */
struct td_families {
    struct td_snapshot_part part;
    const struct td_version_prefixes *prefixes; /* borrowed, may be NULL */
    struct td_family *items;                    /* sorted by id */
    size_t count;
    _Atomic(char *) *states; /* the list_state of each */
};

/* Returns the snapshot's families; none before td_families_build. */
const struct td_families *td_families_of(const struct td_snapshot *snapshot);

/* Makes the families of the snapshot from its models and its repositories. Call once, after td_repos_build. Takes
 * n log n time for n models, refs and snapshots of caches, and time in proportion to the files of the versions. Borrows
 * `prefixes` (may be NULL) as long as the snapshot. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_families_build(struct td_snapshot *snapshot, const struct td_version_prefixes *prefixes, struct td_error *err);

/* Sets the aliases of a family whose versions are set, in the arena. Takes n log n time. Errors: TD_RESOURCE_EXHAUSTED.
 */
bool td_family_list_aliases(struct td_family *family, struct td_arena *arena, struct td_error *err);

/* Returns the family with this id, or NULL. */
const struct td_family *td_family_find(const struct td_snapshot *snapshot, struct td_text id);

/* Returns the family whose id is the longest beginning of the path that ends at a '/' or at its end, or NULL. Sets
 * *rest to the position after that '/', or to the path's length. */
const struct td_family *td_family_route(const struct td_snapshot *snapshot, struct td_text path, size_t *rest);

enum td_version_found {
    TD_VERSION_FOUND,
    TD_VERSION_UNKNOWN,
    TD_VERSION_AMBIGUOUS, /* several versions have the number */
};

/* Finds the version that the text stands for, and sets *out. The text is the first that fits of: a version's name, a
 * ref or the folder of a snapshot, a number of at most TD_VERSION_DIGITS digits, TD_VERSION_LATEST. With
 * TD_VERSION_AMBIGUOUS, *out is the first of the versions with that number, which the others follow. */
enum td_version_found td_family_find_version(const struct td_family *family, struct td_text text,
                                             const struct td_version **out);

/* Returns the place of the first version that comes after a version of this name in the order of the list (where a page
 * continues); there need be none of this name. */
size_t td_family_after(const struct td_snapshot *snapshot, const struct td_family *family, struct td_text name);

#endif
