/* Helpers of commands: exit codes, arguments, and the end of their output. */
#ifndef TD_SERVER_CMD_SHARED_COMMAND_LINE_H
#define TD_SERVER_CMD_SHARED_COMMAND_LINE_H

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

enum { TD_OPTION_VALUES = 64 }; /* the most values of one option */

/* The values of an option that may be given several times; borrowed from argv. */
struct td_option_values {
    const char *items[TD_OPTION_VALUES];
    size_t count;
};

/* An option: its name, and where its value goes, which one of the pointers says. */
struct td_command_option {
    const char *name;                /* "--tokens", or "-o" */
    const char **value;              /* of an option with a value; the last one counts; borrowed from argv */
    struct td_option_values *values; /* of an option with a value that may be given several times */
    bool *flag;                      /* of an option without a value */
    bool may_be_empty;               /* so may the value */
};

/* The command line of a command. A NULL name ends a list of options. */
struct td_command_line {
    const struct td_command_option *options, *shared; /* of this command, and with other commands; shared may be NULL */
    const char *usage;                                /* the right usage, for messages */
};

/* Prints a message about wrong usage: `fault` and `what` (an argument, or ""; at most 200 bytes of it), the option that
 * was probably meant, and the right usage. Returns false. */
bool td_command_line_refuse(const struct td_command_line *line, const char *fault, const char *what);

/* Reads the arguments: sets the values of the options, and `others`, which has room for most + 1, to the arguments that
 * are no options, and *count to their number, up to most + 1; does not look at arguments after that. "-" is no option.
 * Returns false after it printed a message about an unknown option or a missing value. */
bool td_command_line_read(const struct td_command_line *line, int argc, char **argv, const char **others, size_t most,
                          size_t *count);

/* Does what td_command_line_refuse does, for the names of options without dashes; NULL ends them. Returns
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
