/* Options of commands, as --NAME VALUE or --NAME=VALUE. */
#ifndef TD_SERVER_CMD_TAKE_OPTION_H
#define TD_SERVER_CMD_TAKE_OPTION_H

#include <stdbool.h>

/* Returns whether argv[*i] is the option `name` ("--tokens"). If so, sets *value to the text after '=' or to the next
 * argument, to which *i moves, or to NULL when no argument follows. Borrowed from argv. */
bool td_take_option(int argc, char **argv, int *i, const char *name, const char **value);

#endif
