/* `tensord serve --print-config`: prints the configuration that would be used. */
#ifndef TD_SERVER_CMD_PRINT_CONFIG_H
#define TD_SERVER_CMD_PRINT_CONFIG_H

#include "server/config/config.h"

#include <stdbool.h>
#include <stdio.h>

/* Writes the configuration to `out` in the form that config->print asks for: a JSON object that --config accepts, one
 * key on a line, or a table of key, value and source. Errors: TD_FAILED_PRECONDITION when a value is not UTF-8, TD_IO
 * when `out` cannot be written to, TD_RESOURCE_EXHAUSTED. */
bool td_print_config(const struct td_config *config, FILE *out, struct td_error *err);

#endif
