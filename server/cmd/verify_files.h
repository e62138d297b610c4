/* `tensord verify DIR`: compares whole files with the digests that a server recorded, and with the names of blobs in a
 * Hugging Face cache. */
#ifndef TD_SERVER_CMD_VERIFY_FILES_H
#define TD_SERVER_CMD_VERIFY_FILES_H

#include <stdbool.h>

/* All texts are borrowed. */
struct td_verify_files {
    const char *directory;
    const char *state_dir; /* NULL: none */
    bool state_dir_given;  /* as an option, not by the environment */
    bool json;
};

/* Prints the problems and a summary to standard output, and advice and errors to standard error. Returns the exit
 * code. */
int td_verify_files(const struct td_verify_files *wanted);

#endif
