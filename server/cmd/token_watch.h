/* The tokens of a server: reads the tokens file at the start, on SIGHUP, and when the file has changed. A file with a
 * fault changes nothing. Threads: one at a time. */
#ifndef TD_SERVER_CMD_TOKEN_WATCH_H
#define TD_SERVER_CMD_TOKEN_WATCH_H

#include "api/call/state.h"
#include "core/error.h"
#include "server/host/option_file.h"

struct td_token_watch {
    const char *path; /* borrowed; empty: the server has no tokens */
    struct td_file_change change;
    struct td_token_set *first; /* the tokens read at the start, until td_token_watch_begin passes them on */
};

/* Reads the file. An empty path is allowed: then no file is ever read. Errors as td_token_file_read. */
bool td_token_watch_init(struct td_token_watch *watch, const char *path, struct td_error *err);

/* Passes the tokens that were read to the API. Call once. */
void td_token_watch_begin(struct td_token_watch *watch, struct td_api *api);

/* Reads the file again if it has changed (server/host/option_file.h), or in any case with `always`. Passes the new
 * tokens to the API, or logs why the old ones stay. Returns whether it passed new ones on. */
bool td_token_watch_look(struct td_token_watch *watch, struct td_api *api, bool always);

/* Frees the tokens that td_token_watch_begin has not passed on. Allowed for zeros. */
void td_token_watch_fini(struct td_token_watch *watch);

#endif
