/* `tensord verify PATH URL MODEL`: compares each tensor of a local checkpoint, in any format, with the SHA-256 that a
 * server states, or that a file with a server's answer does. */
#ifndef TD_SERVER_CMD_VERIFY_TENSORS_H
#define TD_SERVER_CMD_VERIFY_TENSORS_H

#include "catalog/remote/remote_digests.h"
#include "server/cmd/shared/copy_options.h"

/* All texts are borrowed. */
struct td_verify_tensors {
    const char *path;                     /* of a checkpoint file, or of the directory of one model */
    const char *recorded;                 /* a file with an answer; NULL: the servers are asked */
    struct td_copy_urls urls;             /* of the servers */
    struct td_remote_digests_query query; /* to them; its checkpoint is chosen here, too */
    struct td_copy_options options;
};

/* Prints the problems and a summary to standard output; advice, notes, progress and errors to standard error. Returns
 * the exit code. */
int td_verify_tensors(const struct td_verify_tensors *wanted);

#endif
