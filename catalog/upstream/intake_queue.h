/* The table of intakes by model id, and the queue in it: which model is listed next, which file is fetched next, how
 * much each client may ask for, and which answers are remembered. The caller holds the upstream's lock. The turns of
 * clients bound how many new names each client may ask for, and choose the client that is served next. So a client that
 * invents names neither fills the queue nor keeps others from being served. Memory is bounded: the queue remembers
 * TD_CLIENT_TURNS clients, and a new client replaces the one that may ask for most names. The turns are pure: the
 * caller passes the time (td_clock_ns). */
#ifndef TD_CATALOG_UPSTREAM_INTAKE_QUEUE_H
#define TD_CATALOG_UPSTREAM_INTAKE_QUEUE_H

#include "catalog/upstream/intake.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_CLIENT_TURNS = 256,    /* clients that are remembered */
    TD_CLIENT_NAMES = 64,     /* new names that a client may ask for at once */
    TD_CLIENT_NAME_MS = 1000, /* then one more in each period of so many ms */
};

/* All zeros: no client has asked. */
struct td_client_turns {
    struct td_client_turn {
        uint64_t client;
        uint64_t spent_until_ns; /* when the client may ask for TD_CLIENT_NAMES at once again */
        uint64_t turn;           /* its latest turn; 0: it had no turn yet */
    } clients[TD_CLIENT_TURNS];
    size_t count;
    uint64_t turn; /* the latest turn of any client */
};

/* Counts one more new name of the client. Returns false and counts nothing when the client has asked for too many; sets
 * *wait_ns to the time until it may ask for the next one. */
bool td_client_turns_count(struct td_client_turns *turns, uint64_t client, uint64_t now_ns, uint64_t *wait_ns);

/* Records that the client takes its turn. */
void td_client_turns_take(struct td_client_turns *turns, uint64_t client);

/* Returns the client's latest turn, a number that grows; 0: it had no turn, or is not remembered. */
uint64_t td_client_turns_latest(const struct td_client_turns *turns, uint64_t client);

struct td_intake_queue {
    struct td_intake **intakes; /* owned */
    size_t count, capacity;
    size_t max_names;         /* bound on intakes */
    size_t files_running;     /* files that are being fetched */
    uint64_t paused_until_ns; /* nothing is listed before: the upstream has asked clients to wait */
    uint64_t order;           /* order of the intake that was queued last */
    struct td_client_turns turns;
};

/* Reasons of td_intake_queue_begin to refuse a model. */
enum td_queue_refusal {
    TD_QUEUE_IS_FULL,         /* for all clients, or for this one, which already has models in it */
    TD_QUEUE_CLIENT_HAS_MANY, /* too many models of this client wait, or it has asked for too many new names */
    TD_QUEUE_NO_MEMORY,
};

/* A job of a worker: lists the model's files if `file` is SIZE_MAX, else fetches that file. */
struct td_intake_job {
    struct td_intake *intake;
    size_t file;
};

/* Frees all intakes. No thread may work for them. */
void td_intake_queue_fini(struct td_intake_queue *queue);

/* Returns the intake of a model, or NULL. */
struct td_intake *td_intake_queue_find(const struct td_intake_queue *queue, struct td_text id);

/* Queues a model for a client: as a new intake, or as `old`, which must hold a remembered answer. Sets *out. When the
 * queue is full, a client without a queued model takes the slot of the client with the most (at least two), whose
 * latest model is dropped. Returns false on refusal; *wait_ns is then a sensible time until the next try. */
bool td_intake_queue_begin(struct td_intake_queue *queue, struct td_text id, const char *via, uint64_t client,
                           struct td_intake *old, struct td_intake **out, enum td_queue_refusal *why,
                           uint64_t *wait_ns);

/* Chooses the next job; a listing takes its client's turn. Among queued models, the client with the oldest latest turn
 * comes first, but a turn from before the model was queued counts as taken when it was queued; ties go to the model
 * that was queued first. Files that readers wait for come before other files. Returns false when there is no job. */
bool td_intake_queue_choose(struct td_intake_queue *queue, struct td_intake_job *job);

/* Returns whether files wait to be fetched. */
bool td_intake_queue_has_files(const struct td_intake_queue *queue);

/* Return how many models are active (at most TD_UPSTREAM_MODELS), and how many wait. */
size_t td_intake_queue_active(const struct td_intake_queue *queue);
size_t td_intake_queue_waiting(const struct td_intake_queue *queue);

/* Returns how many files the active models have; each may have an open descriptor. */
size_t td_intake_queue_files(const struct td_intake_queue *queue);

/* Returns whether the intake only holds a remembered answer, which may have expired. */
bool td_intake_is_answer(const struct td_intake *intake);

/* Drops expired answers. A failure stays for longer than it is answered, so that the next failure of the model lasts
 * longer. */
void td_intake_queue_drop_old(struct td_intake_queue *queue);

/* Drops published models for which `is_found` returns true: the catalog's snapshot shows them. Returns whether some
 * remain. */
bool td_intake_queue_drop_found(struct td_intake_queue *queue,
                                bool (*is_found)(const void *context, const struct td_intake *intake),
                                const void *context);

#endif
