/* The configuration file of `tensord serve`: one JSON object. Its keys are the names of options without dashes, and
 * "directory". */
#ifndef TD_SERVER_CONFIG_CONFIG_FILE_H
#define TD_SERVER_CONFIG_CONFIG_FILE_H

#include "server/config/config_options.h"

enum { TD_CONFIG_FILE_BYTES = 1024 * 1024 }; /* a longer file is refused */

/* Sets the options that the file names. Their strings live in config->strings. On failure some of the options may be
 * set. Errors, all with the path: TD_INVALID_ARGUMENT with line and column for text that is not JSON, an unknown key, a
 * key that is given twice, and a value that its option does not take; TD_FAILED_PRECONDITION for a file that is too
 * long or not a regular file; TD_IO; TD_RESOURCE_EXHAUSTED. */
bool td_config_file_read(struct td_config *config, const char *path, struct td_error *err);

#endif
