/* The upstream: fetches models that are not in the served directory from another server while they are read, once for
 * all readers, and publishes each when it is complete. Thread-safe.
 *
 * td_upstream_ask begins a fetch and returns the model as a snapshot of its own as soon as its list of files is known.
 * A few threads fetch; files that readers wait for come before others. When the last file is complete and verified, the
 * model is renamed into the served directory, and the next scan finds it there. */
#ifndef TD_CATALOG_UPSTREAM_UPSTREAM_H
#define TD_CATALOG_UPSTREAM_UPSTREAM_H

#include "catalog/upstream/remote_family.h"
#include "catalog/upstream/upstream_config.h"
#include "catalog/upstream/upstream_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The client that asks for a model. */
struct td_upstream_asker {
    uint64_t client;    /* identifies the client: each client may ask for a bounded number of models */
    struct td_text via; /* the request's field TD_UPSTREAM_VIA; empty without one */
};

enum td_upstream_answer {
    TD_UPSTREAM_HAS_NOT,     /* the upstream has no such model, or is not asked for models with this name */
    TD_UPSTREAM_SENDS,       /* the model is on its way, or has just been published */
    TD_UPSTREAM_SENT,        /* the model is in the served directory: a newer snapshot has it */
    TD_UPSTREAM_IS_TAKEN,    /* something else has the name, or a part of it, in the served directory */
    TD_UPSTREAM_HAS_NO_ROOM, /* no room on the disk or in --cache-max-bytes, or too few descriptors */
    TD_UPSTREAM_IS_TOO_MUCH, /* the client has asked for too many models */
    TD_UPSTREAM_LATER,       /* the queue is full, the list takes long, or the last fetch failed a short while ago */
};

struct td_upstream_reply {
    enum td_upstream_answer answer;
    struct td_snapshot *snapshot; /* of TD_UPSTREAM_SENDS, with a reference for the caller; else NULL */
    unsigned retry_after_s;       /* of the last three answers: when to ask again; 0: it never fits, do not ask */
    char why[384];                /* of the last four answers, for the client: no address, nothing of other models */
};

struct td_upstream_progress {
    uint64_t arrived_bytes, total_bytes;
    uint64_t left_ns; /* estimated time that the rest takes; UINT64_MAX: unknown */
    bool is_listed;   /* the sizes are known */
};

struct td_upstream;

/* Starts the threads. Errors: TD_RESOURCE_EXHAUSTED; TD_INTERNAL without random bytes. */
bool td_upstream_create(const struct td_upstream_config *config, struct td_upstream **out, struct td_error *err);

/* Ends all waits for lists of files: from now on td_upstream_ask answers at once with what is known. Fetches continue.
 * Any thread may call it. */
void td_upstream_end_waits(struct td_upstream *upstream);

/* Ends all fetches; files on disk stay. Readers that wait fail. td_upstream_ask answers TD_UPSTREAM_LATER from now
 * on. */
void td_upstream_stop(struct td_upstream *upstream);

/* Stops, and frees the upstream. No request may use it any more. NULL is allowed. */
void td_upstream_destroy(struct td_upstream *upstream);

/* Asks for a model or a version that is not in the caller's snapshot, by its kept id (td_kept_id_split). Sets *reply.
 * Waits until the list of files is known, at most for wait_ns; a thread that may not wait is refused (td_may_wait)
 * where it would wait. */
void td_upstream_ask(struct td_upstream *upstream, const struct td_upstream_asker *asker, struct td_text id,
                     struct td_upstream_reply *reply);

/* Looks for the upstream's list of the versions of a model or folder. Returns TD_UPSTREAM_SENT, and sets *out, with a
 * reference for the caller; TD_UPSTREAM_HAS_NOT; or TD_UPSTREAM_IS_TOO_MUCH or TD_UPSTREAM_LATER, and sets *reply.
 * Waits as td_upstream_ask. */
enum td_upstream_answer td_upstream_find_family(struct td_upstream *upstream, const struct td_upstream_asker *asker,
                                                struct td_text id, struct td_remote_family **out,
                                                struct td_upstream_reply *reply);

/* Sets *out to the progress of a model on its way. Returns false when no such model is on its way. Never waits. */
bool td_upstream_get_progress(struct td_upstream *upstream, struct td_text id, struct td_upstream_progress *out);

/* A model on its way. */
struct td_upstream_arrival {
    char id[TD_UPSTREAM_ID_BYTES];
    struct td_upstream_progress progress;
};

/* Copies the models on their way that have begun to arrive, at most `capacity` of them. Returns their number. Never
 * waits. */
size_t td_upstream_get_arrivals(struct td_upstream *upstream, struct td_upstream_arrival *out, size_t capacity);

/* Returns whether a response with this entity tag, quotes included, had bytes that turned out to be wrong. A client
 * that was cut off in it must fetch the file again from its start. */
bool td_upstream_was_wrong(struct td_upstream *upstream, struct td_text etag);

/* As td_upstream_store_find and td_upstream_store_note_read. */
bool td_upstream_find(struct td_upstream *upstream, struct td_text id, struct td_kept_model *out);
void td_upstream_note_read(struct td_upstream *upstream, struct td_text id);

/* Copies the numbers for metrics. */
void td_upstream_get_status(struct td_upstream *upstream, struct td_upstream_status *status);

#endif
