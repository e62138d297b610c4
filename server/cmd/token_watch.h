/* The tokens of a server: reads the tokens file at the start, on SIGHUP, and when the file has changed. A file with a
 * fault changes nothing. Threads: one at a time. */
#ifndef TD_SERVER_CMD_TOKEN_WATCH_H
#define TD_SERVER_CMD_TOKEN_WATCH_H

#include "api/call/state.h"
#include "core/error.h"
#include "server/host/file_change.h"

struct td_token_watch {
    const char *path; /* borrowed; empty: the server has no tokens */
    struct td_file_change change;
    bool is_waiting;            /* the file could not be read, and is tried until it can; the log has told of that */
    struct td_token_set *first; /* what was read at the start, until td_token_watch_begin gives it away */
};

/* Reads the file. An empty path is allowed: nothing is read then, ever. Errors as td_token_file_read. */
bool td_token_watch_init(struct td_token_watch *watch, const char *path, struct td_error *err);

/* Gives the tokens that were read to the api. Call once. */
void td_token_watch_begin(struct td_token_watch *watch, struct td_api *api);

/* Reads the file again if it has changed (server/host/file_change.h), or in any case with `always`.
 * Gives the api the new tokens, or logs why the former ones stay. */
void td_token_watch_look(struct td_token_watch *watch, struct td_api *api, bool always);

/* Frees what td_token_watch_begin has not given away. Allowed for zeros. */
void td_token_watch_fini(struct td_token_watch *watch);

#endif
