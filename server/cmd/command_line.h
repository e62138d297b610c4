/* Helpers of commands: exit codes, arguments, and the end of their output. */
#ifndef TD_SERVER_CMD_COMMAND_LINE_H
#define TD_SERVER_CMD_COMMAND_LINE_H

#include "core/buffer.h"
#include "core/error.h"

#include <stdbool.h>

enum {
    TD_EXIT_OK = 0,
    TD_EXIT_FAILED = 1,  /* could not start, refused a file or a plan, found a difference, or is not healthy */
    TD_EXIT_USAGE = 2,   /* wrong usage */
    TD_EXIT_NOTHING = 3, /* verify had nothing to compare */
};

/* Returns whether argv[*i] is the option `name` ("--tokens"), as --NAME VALUE or --NAME=VALUE. If so, sets *value to
 * the text after '=' or to the next argument, to which *i moves, or to NULL when no argument follows. Borrowed from
 * argv. */
bool td_take_option(int argc, char **argv, int *i, const char *name, const char **value);

/* An option with a value: its name, and where the value goes. */
struct td_value_option {
    const char *name;
    const char **value;
};

/* Returns the option of a list that argv[*i] is, after what td_take_option does, or NULL. A NULL name ends the list. */
const struct td_value_option *td_take_value(int argc, char **argv, int *i, const struct td_value_option *options);

/* Prints a message about wrong usage: `fault` and `what` (an argument, or ""; at most 200 bytes of it), the option that
 * was probably meant, and the right usage. `options` are the names without dashes; NULL ends them. Returns
 * TD_EXIT_USAGE. */
int td_refuse_usage(const char *fault, const char *what, const char *const *options, const char *usage);

/* Refuses a URL, and a path that does not exist. `command` is the command's name, for the message. Errors:
 * TD_NOT_FOUND, with advice. */
bool td_local_path_check(const char *path, const char *command, struct td_error *err);

/* Checks that all that was printed to standard output has been written. Errors: TD_IO. */
bool td_output_flush(struct td_error *err);

/* Prints a JSON document and a line feed to standard output. Erases and frees the document in any case, since it may
 * hold a token. Errors: TD_IO, as td_buffer_refuse. */
bool td_output_json(struct td_buffer *document, struct td_error *err);

#endif
