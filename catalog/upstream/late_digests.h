/* Late digests: kept models of which the upstream had no digests when they were fetched are compared with the digests
 * that it has later. An upstream that hashes its files itself, as a tensord does, has none in its first minutes. */
#ifndef TD_CATALOG_UPSTREAM_LATE_DIGESTS_H
#define TD_CATALOG_UPSTREAM_LATE_DIGESTS_H

#include "catalog/catalog.h"
#include "catalog/upstream/upstream_source.h"
#include "catalog/upstream/upstream_store.h"

struct td_late_digests {
    /* Set by the caller before the first check; all borrowed. */
    struct td_upstream_source source;
    struct td_upstream_store *store;
    struct td_catalog *catalog; /* knows digests of files here, and is told of models that were removed; NULL: none */
    const char *via;            /* the value of TD_UPSTREAM_VIA to send */
    uint64_t first_ns;        /* a model is compared so long after it came, or after the start; then ever more rarely */
    const _Atomic bool *stop; /* a check ends early when this becomes true */
    /* The rest is of this module; zero at first. */
    _Atomic bool is_running;
    _Atomic uint64_t wrong_count; /* models whose bytes were not the upstream's, since the start */
};

/* Compares one model whose time has come, if there is one, and no other thread compares one. Asks the upstream for its
 * list of files. If that has a digest for each file of the model and all are those of our bytes, the model is verified
 * from now on. If a file of the same length has another digest, the log says so, and the model is removed, unless the
 * operator has changed it; the next request fetches it anew, and that copy is compared after twice the time. In any
 * other case the model is compared again after twice the time. Waits for the upstream and the disk. Thread-safe. */
void td_late_digests_check(struct td_late_digests *late);

/* Returns how many models were found to have wrong bytes. Never waits. */
uint64_t td_late_digests_wrong(const struct td_late_digests *late);

#endif
