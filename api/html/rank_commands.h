/* Lines that fetch the file of rank 0 of an engine, for people who copy them from the page of ranks. */
#ifndef TD_API_HTML_RANK_COMMANDS_H
#define TD_API_HTML_RANK_COMMANDS_H

#include "api/call/call.h"
#include "rank/rank_store.h"

enum { TD_RANK_COMMANDS = 6 };

struct td_rank_command {
    const char *name, *label; /* static: "curl", and what the line does */
    char *text;               /* owned */
};

struct td_rank_commands {
    struct td_rank_command items[TD_RANK_COMMANDS];
    size_t count;
};

/* Makes the lines by which clients of this server can have the set's rank 0. `engine` is the engine's name as it was
 * asked for. Leaves out those of clients that have no name for the model, and that of S3 when its port is off. The
 * caller calls td_rank_commands_fini in every case. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_rank_commands_make(const struct td_call *call, const struct td_rank_set *set, struct td_text engine,
                           struct td_rank_commands *out, struct td_error *err);

/* Frees the texts. */
void td_rank_commands_fini(struct td_rank_commands *commands);

/* Appends the path of a rank's file, percent-encoded: /models/{id}/shards/{engine}/tp{n}/rank-{r}{ending}, with the
 * checkpoint if it is not the default one. */
void td_rank_write_path(struct td_buffer *out, const struct td_rank_set *set, struct td_text engine, uint64_t rank,
                        const char *ending);

#endif
