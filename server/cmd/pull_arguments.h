/* The arguments of `tensord pull`. */
#ifndef TD_SERVER_CMD_PULL_ARGUMENTS_H
#define TD_SERVER_CMD_PULL_ARGUMENTS_H

#include "storage/fetch/fetch_client.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_PULL_PATTERNS = 64,   /* of --include, and of --exclude */
    TD_PULL_CONNECTIONS = 8, /* default of --connections */
    TD_PULL_RETRY_S = 60,    /* default of --retry-for */
    TD_PULL_REVISION_BYTES = 256,
};

struct td_pull_arguments {
    char *url_list; /* owned; urls[] point into it */
    const char *urls[TD_FETCH_MAX_SERVERS];
    size_t url_count;
    const char *model; /* borrowed from argv, as all texts below */
    const char *directory;
    char revision[TD_PULL_REVISION_BYTES]; /* to ask for */
    bool has_rank;
    bool reads_states; /* with has_rank: the engine expects the weights as model-rank-{rank}-part-0.safetensors */
    uint64_t rank;
    const char *token_file, *ca, *cert, *key;
    uint64_t connections, retry_s, stall_s;
    const char *include[TD_PULL_PATTERNS], *exclude[TD_PULL_PATTERNS];
    size_t include_count, exclude_count;
    bool json, quiet;
};

/* Reads the arguments. Returns false after printing a message; the caller frees with td_pull_arguments_fini in any
 * case.
 */
bool td_pull_arguments_read(int argc, char **argv, struct td_pull_arguments *out);

void td_pull_arguments_fini(struct td_pull_arguments *arguments);

#endif
