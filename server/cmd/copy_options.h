/* The options that the commands share which copy files from or to servers: patterns of files, connections and retries,
 * the token and TLS, and the output. */
#ifndef TD_SERVER_CMD_COPY_OPTIONS_H
#define TD_SERVER_CMD_COPY_OPTIONS_H

#include "server/cmd/command_line.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TD_COPY_CONNECTIONS = 8, /* default of --connections */
    TD_COPY_RETRY_S = 60,    /* default of --retry-for */
    TD_COPY_ROWS = 12,       /* of the list of options, with its end */
};

/* All texts are borrowed from argv. */
struct td_copy_options {
    struct td_option_values include, exclude;
    const char *token_file, *ca, *cert, *key; /* NULL: not given */
    uint64_t connections, retry_s, stall_s;
    bool json, quiet;
    struct { /* as they were given; NULL: not given */
        const char *connections, *retry_for, *stall;
    } given;
};

/* Fills in the list of these options, for td_command_line_read, which sets *options by it. */
void td_copy_options_list(struct td_copy_options *options, struct td_command_option rows[TD_COPY_ROWS]);

/* Checks the options that td_command_line_read has set, and sets the numbers and their defaults. Returns false after
 * printing a message. */
bool td_copy_options_check(const struct td_command_line *line, struct td_copy_options *options);

/* Returns whether a file of this path matches one of --include, or none was given, and none of --exclude. */
bool td_copy_options_take(const struct td_copy_options *options, const char *path);

#endif
