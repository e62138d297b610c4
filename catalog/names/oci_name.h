/* Names of repositories for clients of OCI registries, which know lower-case names alone. A repository's name is its
 * id, changed as little as the grammar of the OCI distribution specification asks for: letters become lower case; other
 * forbidden bytes, and separators that may not stand together, become '-'; separators at the ends of a component go,
 * and "x" takes the place of an empty component. Where the names of several repositories meet, all but the one whose id
 * is spelled so get '-' and the first 8 hexadecimal digits of the SHA-256 of the id. So do names that would be longer
 * than 255 bytes, after a cut.
 *
 * Dataset folders and other revisions of a cache have no names. After td_oci_names_build nothing changes, so any thread
 * may call the other functions; what they return is valid as long as the snapshot. */
#ifndef TD_CATALOG_NAMES_OCI_NAME_H
#define TD_CATALOG_NAMES_OCI_NAME_H

#include "catalog/names/repo.h"

enum { TD_OCI_NAME_MAX = 255 }; /* the length of a name, as most clients limit it */

struct td_oci_name {
    const char *name;
    const struct td_repo *repo;
};

/* The names of a snapshot. */
struct td_oci_names {
    struct td_snapshot_part part;
    struct td_oci_name *items; /* sorted by name */
    size_t count;
};

/* Returns the snapshot's names; none before td_oci_names_build. Any thread. */
const struct td_oci_names *td_oci_names_of(const struct td_snapshot *snapshot);

/* Makes the names of the snapshot. Call once, after td_repos_build and td_families_build. Takes
 * n log n time for n repositories. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_oci_names_build(struct td_snapshot *snapshot, struct td_error *err);

/* Returns the repository that a client means: the one with this very id (clients of GGUF models send ids as they are
 * spelled), else the one with this name. A name of one segment may have the default namespace before it, as for
 * td_repo_find. Returns NULL when no repository matches. */
const struct td_repo *td_oci_name_find(const struct td_snapshot *snapshot, struct td_text name);

/* Returns the index in the list of the first name that is greater than the given one (where a page continues). */
size_t td_oci_names_after(const struct td_snapshot *snapshot, struct td_text name);

/* Returns whether the text is a name by the grammar of the specification, and not too long. */
bool td_oci_name_is_valid(struct td_text name);

#endif
