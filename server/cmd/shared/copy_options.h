/* The options that the commands share which copy files from or to servers: patterns of files, connections and retries,
 * the token and TLS, and the output. */
#ifndef TD_SERVER_CMD_SHARED_COPY_OPTIONS_H
#define TD_SERVER_CMD_SHARED_COPY_OPTIONS_H

#include "server/cmd/shared/command_line.h"
#include "storage/fetch/fetch_client.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

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

/* Prints the help for these options from --include on; connections: "at once, to each server". token: the options
 * --token-file and its meaning, in whole lines. */
void td_copy_options_help(FILE *out, const char *connections, const char *token);

/* The servers of a command. */
struct td_copy_urls {
    char *list; /* owned; items point into it */
    const char *items[TD_FETCH_MAX_SERVERS];
    size_t count;
};

/* Splits URL[,URL...], and checks each URL. Returns false after printing a message; the caller frees with
 * td_copy_urls_fini in any case. */
bool td_copy_urls_read(const struct td_command_line *line, const char *list, struct td_copy_urls *out);
void td_copy_urls_fini(struct td_copy_urls *urls);

/* Returns whether the list ends with a comma, so that a space has cut it, and then prints a message that names the next
 * argument. */
bool td_copy_urls_refuse_space(const struct td_command_line *line, const char *list, const char *argument);

/* A command that copies one model from servers: how messages name it. */
struct td_copy_command {
    const char *name, *done;     /* "pull", "pulled" */
    const char *about_revisions; /* what to do instead of MODEL:REVISION: "a revision is given by --revision" */
};

/* The arguments of such a command, borrowed from argv. */
struct td_copy_model {
    const char *list, *model; /* URL[,URL...], not checked, and the id of a model */
    const char *directory;    /* of --output; without it the last part of the id */
};

/* Reads `URL[,URL...] MODEL [options]`. An option of the line sets out->directory. Returns false after printing a
 * message. */
bool td_copy_model_read(const struct td_copy_command *command, const struct td_command_line *line, int argc,
                        char **argv, struct td_copy_model *out);

/* Returns whether a file of this path matches one of --include, or none was given, and none of --exclude. */
bool td_copy_options_take(const struct td_copy_options *options, const char *path);

#endif
