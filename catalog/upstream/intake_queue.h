/* The table of intakes by model id, and the queue in it: which model is listed next, which file is fetched next, how
 * much each client may ask for, and which answers are remembered. The caller holds the upstream's lock. *
 * The turns of clients: how many new names each may ask for, and whose turn it is. So a client that makes names up
 * neither fills the queue nor keeps others from getting a place. Memory is bounded: of more clients than
 * TD_CLIENT_TURNS, those that asked for least lately are forgotten. Pure: the caller tells the time (td_clock_ns). */
#ifndef TD_CATALOG_UPSTREAM_INTAKE_QUEUE_H
#define TD_CATALOG_UPSTREAM_INTAKE_QUEUE_H

#include "catalog/upstream/intake.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_CLIENT_TURNS = 256,    /* clients that are remembered */
    TD_CLIENT_NAMES = 64,     /* new names at once; then one */
    TD_CLIENT_NAME_MS = 1000, /* in so many ms */
};

/* All zeros: nobody has asked. */
struct td_client_turns {
    struct td_client_turn {
        uint64_t client;
        uint64_t spent_until_ns; /* when the client may ask for TD_CLIENT_NAMES at once again */
        uint64_t turn;           /* of its latest place; 0: none yet */
    } clients[TD_CLIENT_TURNS];
    size_t count;
    uint64_t turn; /* of the latest place that anybody got */
};

/* Counts one more new name of the client. Returns false, with nothing counted, when it has asked for too many; *wait_ns
 * is then the time until it may ask for the next one. */
bool td_client_turns_count(struct td_client_turns *turns, uint64_t client, uint64_t now_ns, uint64_t *wait_ns);

/* Notes that the client has got a place. */
void td_client_turns_take(struct td_client_turns *turns, uint64_t client);

/* Returns when the client got its latest place, as a number that grows; 0: never, or it is forgotten. */
uint64_t td_client_turns_latest(const struct td_client_turns *turns, uint64_t client);

struct td_intake_queue {
    struct td_intake **intakes; /* owned */
    size_t count, capacity;
    size_t max_names;         /* most intakes */
    size_t files_running;     /* files that are being fetched */
    uint64_t paused_until_ns; /* the upstream has asked for patience: nothing is listed before */
    uint64_t order;           /* of the intake that was queued last */
    struct td_client_turns turns;
};

/* Why td_intake_queue_begin has refused. */
enum td_queue_refusal {
    TD_QUEUE_IS_FULL,         /* for everybody, or for this client, which has models there already */
    TD_QUEUE_CLIENT_HAS_MANY, /* too much of this client's waits, or it has asked for too many new names */
    TD_QUEUE_NO_MEMORY,
};

/* A job: `file` SIZE_MAX lists. */
struct td_intake_job {
    struct td_intake *intake;
    size_t file;
};

/* Frees all intakes, for which no thread may work. */
void td_intake_queue_fini(struct td_intake_queue *queue);

/* Returns the intake of a model, or NULL. */
struct td_intake *td_intake_queue_find(const struct td_intake_queue *queue, struct td_text id);

/* Queues a model for a client: anew, or `old`, which is an answer. Sets *out. When the queue is full, a client for whom
 * no model waits displaces the latest one of the client that has most, at least two, there. Returns false on refusal;
 * *wait_ns is then a time after which asking again makes sense. */
bool td_intake_queue_begin(struct td_intake_queue *queue, struct td_text id, const char *via, uint64_t client,
                           struct td_intake *old, struct td_intake **out, enum td_queue_refusal *why,
                           uint64_t *wait_ns);

/* Chooses the next job, and counts the place that a listing takes. Of the models that wait, the one whose client got a
 * place longest ago is next, where no client's is counted as longer ago than the model waits; among these the one that
 * was asked for first. Of files, those that readers wait for come first. Returns false when there is none. */
bool td_intake_queue_choose(struct td_intake_queue *queue, struct td_intake_job *job);

/* Returns whether files wait to be fetched. */
bool td_intake_queue_has_files(const struct td_intake_queue *queue);

/* Return how many models have one of the TD_UPSTREAM_MODELS places, and how many wait for one. */
size_t td_intake_queue_active(const struct td_intake_queue *queue);
size_t td_intake_queue_waiting(const struct td_intake_queue *queue);

/* Returns how many files the models on their way have, for which descriptors may be open. */
size_t td_intake_queue_files(const struct td_intake_queue *queue);

/* Returns whether the intake only keeps an answer, whose time may be over. */
bool td_intake_is_answer(const struct td_intake *intake);

/* Drops answers whose time is over. A failure is remembered for longer, so that the next one is kept for longer. */
void td_intake_queue_drop_old(struct td_intake_queue *queue);

/* Drops published models that `is_found` says are shown without them. Returns whether some are left. */
bool td_intake_queue_drop_found(struct td_intake_queue *queue,
                                bool (*is_found)(const void *context, const struct td_intake *intake),
                                const void *context);

#endif
