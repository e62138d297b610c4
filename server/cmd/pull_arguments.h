/* The arguments of `tensord pull`. */
#ifndef TD_SERVER_CMD_PULL_ARGUMENTS_H
#define TD_SERVER_CMD_PULL_ARGUMENTS_H

#include "server/cmd/copy_options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_PULL_REVISION_BYTES = 256 };

struct td_pull_arguments {
    struct td_copy_urls urls;
    const char *model; /* borrowed from argv, as all texts below */
    const char *directory;
    char revision[TD_PULL_REVISION_BYTES]; /* to ask for */
    bool has_rank;
    bool reads_states; /* with has_rank: the engine expects the weights as model-rank-{rank}-part-0.safetensors */
    uint64_t rank;
    struct td_copy_options copy;
};

/* Reads the arguments. Returns false after printing a message; the caller frees with td_pull_arguments_fini in any
 * case.
 */
bool td_pull_arguments_read(int argc, char **argv, struct td_pull_arguments *out);

void td_pull_arguments_fini(struct td_pull_arguments *arguments);

#endif
