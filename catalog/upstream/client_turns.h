/* The clients that ask for models: how many new names each may ask for, and whose turn it is. So a client that makes
 * names up neither fills the queue nor keeps others from getting a place. Memory is bounded: of more clients than
 * TD_CLIENT_TURNS, those that asked for least lately are forgotten. Pure: the caller tells the time (td_clock_ns), and
 * sees to it that calls do not overlap. */
#ifndef TD_CATALOG_UPSTREAM_CLIENT_TURNS_H
#define TD_CATALOG_UPSTREAM_CLIENT_TURNS_H

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

#endif
