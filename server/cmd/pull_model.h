/* Pulls a model, or the files of one rank, from servers into a directory, for the commands that do so. */
#ifndef TD_SERVER_CMD_PULL_MODEL_H
#define TD_SERVER_CMD_PULL_MODEL_H

#include "catalog/remote/remote_model.h"
#include "core/error.h"
#include "server/cmd/pull_directory.h"
#include "server/cmd/pull_files.h"
#include "server/cmd/shared/copying.h"
#include "storage/fetch/fetch_session.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_PULL_REVISION_BYTES = 256 };

/* The model to pull, and the directory for it. All texts are borrowed. */
struct td_pull_wanted {
    const char *model;
    const char *directory;
    char revision[TD_PULL_REVISION_BYTES]; /* to ask for */
    bool has_rank;
    bool reads_states; /* with has_rank: the engine expects the weights as model-rank-{rank}-part-0.safetensors */
    uint64_t rank;
};

/* A pull. The members are for reading, after td_pull_model. */
struct td_pull {
    const struct td_pull_wanted *wanted; /* borrowed */
    struct td_copying *copying;          /* borrowed */
    struct td_fetch_session *session;    /* owned, as are all below */
    struct td_remote_model model;
    struct td_pull_directory directory;
    struct td_pull_files list;
    _Atomic size_t next; /* the next file of the threads that fetch */
};

/* Prepares a pull. The files that it takes, and the number of connections, are those of copying->options. The caller
 * calls td_pull_fini in any case. */
void td_pull_init(struct td_pull *pull, const struct td_pull_wanted *wanted, struct td_copying *copying);

/* Fetches all files. A directory that is not there appears when it is complete; one that is there gets each file when
 * the file is complete. `copying` has been connected, and its counts of bytes are 0. After a failure the fetched files
 * are kept (td_pull_directory_kept), and the same pull resumes from there. Errors: as td_remote_model_list,
 * td_pull_directory_open, td_fetch_target_check, td_remote_model_fetch and td_pull_directory_publish; TD_NOT_FOUND for
 * a model without files that the options take; TD_FAILED_PRECONDITION for a model that changes again and again. */
bool td_pull_model(struct td_pull *pull, struct td_error *err);

void td_pull_fini(struct td_pull *pull);

#endif
