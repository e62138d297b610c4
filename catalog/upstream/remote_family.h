/* A family of versions (catalog/names/family.h) as the upstream lists it. Its models have the facts of the list alone:
 * sizes, times, and what a delta changes; they have no id, no files and no checkpoints. Immutable and
 * reference-counted, but for the state of its list. */
#ifndef TD_CATALOG_UPSTREAM_REMOTE_FAMILY_H
#define TD_CATALOG_UPSTREAM_REMOTE_FAMILY_H

#include "catalog/names/family.h"
#include "catalog/remote/remote_versions.h"
#include "core/budget.h"

#include <stdatomic.h>

struct td_remote_family {
    struct td_family family;
    struct td_arena arena; /* of all texts and arrays of the family */
    _Atomic int refs;
    _Atomic(char *) state; /* family.list_state points here */
};

/* Makes the family `id` of a list, with one reference; copies everything. budget: of its memory; borrowed as long as
 * the family; NULL: none. Errors: TD_INVALID_ARGUMENT when two versions have one name, or `latest` names no version;
 * TD_FAILED_PRECONDITION or TD_RESOURCE_EXHAUSTED past a bound on memory. */
bool td_remote_family_create(const char *id, const struct td_remote_versions *list, struct td_budget *budget,
                             struct td_remote_family **out, struct td_error *err);

/* Makes a copy, without a budget, of the versions for which `shows` returns true. Its latest is the highest of these
 * that is no delta, unless the family's own is shown. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_remote_family_filter(const struct td_remote_family *from,
                             bool (*shows)(const void *context, const struct td_version *version), const void *context,
                             struct td_remote_family **out, struct td_error *err);

/* Adds a reference, and returns the family. */
struct td_remote_family *td_remote_family_ref(struct td_remote_family *family);

/* Drops a reference; the last one frees the family. NULL: does nothing. */
void td_remote_family_unref(struct td_remote_family *family);

#endif
