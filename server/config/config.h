/* Configuration of `tensord serve`, put together from the command line, the environment, a file and defaults. An option
 * takes precedence over its environment variable, the variable over the file, and the file over the default. */
#ifndef TD_SERVER_CONFIG_CONFIG_H
#define TD_SERVER_CONFIG_CONFIG_H

#include "core/buffer.h"
#include "core/error.h"
#include "server/config/config_options.h"

#include <stdbool.h>
#include <stdio.h>

/* Fills *config from the defaults, the configuration file (--config, TENSORD_CONFIG), the environment and the arguments
 * after `serve`. Strings are borrowed from argv and the environment; those of the file live until td_config_fini, which
 * the caller calls after success alone. Errors: TD_INVALID_ARGUMENT for an unknown option, a missing value, a value
 * that an option does not take, no directory or more than one; the message says what is valid. As td_config_file_read.
 * The environment must not change during the call. */
bool td_config_parse(struct td_config *config, int argc, char **argv, struct td_error *err);

/* Frees the strings of the configuration file. */
void td_config_fini(struct td_config *config);

/* Changes *config to the values in *fresh of all options that may change while the server runs, and appends the names
 * of those that changed to `changed`, and of those that differ but may not change to `kept`, separated by commas. The
 * options that changed borrow nothing from *fresh. Returns whether any changed. When memory is short, names are
 * missing. */
bool td_config_update(struct td_config *config, const struct td_config *fresh, struct td_buffer *changed,
                      struct td_buffer *kept);

enum { TD_VARIABLE_BYTES = 64 };

/* Writes the name of an option's environment variable: TENSORD_STATE_DIR for "state-dir". */
void td_config_variable(const char *option, char out[TD_VARIABLE_BYTES]);

/* Returns the value of an option's environment variable, or NULL when the variable is missing or empty. `option` is the
 * name without dashes: "state-dir" for TENSORD_STATE_DIR. The environment must not change during the call. */
const char *td_config_environment(const char *option);

/* Returns whether the argument is an option of serve, with or without a value after "=": "--listen", "--listen=:80". */
bool td_config_has_option(const char *argument);

/* Returns whether the argument is an option of other servers for an address or a port: "-p", "--port=80". */
bool td_config_is_address_option(const char *argument);

enum td_variable {
    TD_VARIABLE_KNOWN,      /* the variable of an option, or not meant for this program */
    TD_VARIABLE_MISSPELLED, /* begins with TENSORD_ and resembles an option's variable */
    TD_VARIABLE_UNKNOWN,    /* begins with TENSORD_ and resembles none */
};

/* Finds environment variables ("NAME=value") that were meant for this program but have no effect. Variables with an
 * empty value are TD_VARIABLE_KNOWN, and so are those that Kubernetes and Docker set for a service that is called
 * tensord or tensord-something (TENSORD_PORT=tcp://10.0.0.1:80, TENSORD_SERVICE_HOST). With TD_VARIABLE_MISSPELLED,
 * `near` receives the name of the variable that was probably meant; else its content is undefined. */
enum td_variable td_config_judge_variable(const char *variable, char near[TD_VARIABLE_BYTES]);

/* Writes the options to `out`, one on a line, each with its meaning and default, for --help. */
void td_config_help(FILE *out);

/* Writes the configuration to `out` in the form that config->print asks for: a JSON object that --config accepts, one
 * key on a line, or a table of key, value and source. Errors: TD_FAILED_PRECONDITION when a value is not UTF-8, TD_IO
 * when `out` cannot be written to, TD_RESOURCE_EXHAUSTED. */
bool td_config_print(const struct td_config *config, FILE *out, struct td_error *err);

#endif
