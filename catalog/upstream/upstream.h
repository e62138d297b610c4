/* The upstream: fetches models that are not in the served directory from another server while they are read, once for
 * all readers, and publishes each when it is complete. Thread-safe.
 *
 * td_upstream_ask begins a fetch and gives out the model as a snapshot of its own as soon as its list of files is
 * known. A few threads fetch; files that readers wait for come before others. When the last file is here and checked,
 * the model is renamed into the served directory, and the next scan makes it an ordinary one. */
#ifndef TD_CATALOG_UPSTREAM_UPSTREAM_H
#define TD_CATALOG_UPSTREAM_UPSTREAM_H

#include "catalog/catalog.h"
#include "catalog/upstream/upstream_source.h"
#include "catalog/upstream/upstream_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_UPSTREAM_MODELS = 4,           /* models that are fetched at once; more wait */
    TD_UPSTREAM_QUEUE = 32,           /* models that wait; more are refused */
    TD_UPSTREAM_WORKERS = 16,         /* threads that fetch */
    TD_UPSTREAM_FILES = 14,           /* files at once that readers wait for */
    TD_UPSTREAM_BACKGROUND_FILES = 4, /* files at once that no reader waits for */
    TD_UPSTREAM_NAMES = 4096,         /* names of models that are remembered, also absent ones */
    TD_UPSTREAM_ABSENT_S = 60,        /* an answer of the upstream's that there is no such model is kept so long */
};

struct td_upstream_config {
    struct td_upstream_source source; /* borrowed; outlives the upstream */
    struct td_upstream_store *store;  /* borrowed */
    struct td_catalog *catalog;       /* borrowed; is told of digests and of what was published; NULL: none */
    uint64_t wait_ns;                 /* td_upstream_ask waits so long for a list of files */
    uint64_t absent_ns;               /* TD_UPSTREAM_ABSENT_S, but for tests */
    size_t max_names;                 /* TD_UPSTREAM_NAMES, but for tests */
};

/* Why fetches have failed, for metrics. */
enum td_upstream_failure {
    TD_UPSTREAM_FAILED_SPACE,       /* the disk or --cache-max-bytes has no room */
    TD_UPSTREAM_FAILED_CONTENT,     /* the upstream's bytes or answers are wrong */
    TD_UPSTREAM_FAILED_UNREACHABLE, /* the upstream does not answer */
    TD_UPSTREAM_FAILED_OTHER,
    TD_UPSTREAM_FAILURES
};

struct td_upstream_status {
    size_t fetching, waiting;  /* models */
    uint64_t begun, published; /* models, since the start */
    uint64_t absent;           /* times that the upstream had no such model */
    uint64_t fetched_bytes;    /* that have arrived from the upstream, since the start */
    uint64_t early_requests;   /* requests that were answered from a model on its way */
    uint64_t evicted;          /* models */
    uint64_t failures[TD_UPSTREAM_FAILURES];
    uint64_t kept_bytes; /* of all pulled models */
    size_t kept_count;
};

enum td_upstream_answer {
    TD_UPSTREAM_HAS_NOT, /* the upstream has no such model, or it is not asked for one of this name */
    TD_UPSTREAM_SENDS,   /* the model is on its way, or has just been published */
    TD_UPSTREAM_SENT,    /* the model was pulled and is in the served directory: a newer snapshot has it */
};

struct td_upstream_progress {
    uint64_t arrived_bytes, total_bytes;
    bool is_listed; /* the sizes are known */
};

struct td_upstream;

/* Starts the threads. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_upstream_create(const struct td_upstream_config *config, struct td_upstream **out, struct td_error *err);

/* Ends all fetches; what is on disk stays. Readers that wait fail. td_upstream_ask fails from now on. */
void td_upstream_stop(struct td_upstream *upstream);

/* Stops, and frees the upstream. No request may use it any more. NULL is allowed. */
void td_upstream_destroy(struct td_upstream *upstream);

/* Asks for a model that is not in the caller's snapshot. `via` is the request's field TD_UPSTREAM_VIA, empty without
 * one. TD_UPSTREAM_SENDS sets *snapshot, with a reference for the caller. Waits until the list of files is known, at
 * most for wait_ns; a thread that may not wait is refused (td_may_wait) where it would wait. Returns false on failure.
 * Errors: TD_UNAVAILABLE when the list takes longer, too much is asked for, or the last fetch failed a short while ago;
 * TD_RESOURCE_EXHAUSTED when there is no room for the model. */
bool td_upstream_ask(struct td_upstream *upstream, struct td_text id, struct td_text via,
                     enum td_upstream_answer *answer, struct td_snapshot **snapshot, struct td_error *err);

/* Sets *out to how far a model on its way is. Returns false when there is no such model. Never waits. */
bool td_upstream_get_progress(struct td_upstream *upstream, struct td_text id, struct td_upstream_progress *out);

/* Returns whether an answer with this entity tag, quotes included, had bytes that turned out to be wrong: whoever was
 * cut off in it must begin anew. */
bool td_upstream_was_wrong(struct td_upstream *upstream, struct td_text etag);

/* As td_upstream_store_find and td_upstream_store_note_read. */
bool td_upstream_find(struct td_upstream *upstream, struct td_text id, struct td_pulled *out);
void td_upstream_note_read(struct td_upstream *upstream, struct td_text id);

/* Copies the numbers for metrics. */
void td_upstream_get_status(struct td_upstream *upstream, struct td_upstream_status *status);

#endif
