/* Makes a full version of a model from a base and deltas, for the commands that do so. */
#ifndef TD_SERVER_CMD_APPLY_VERSIONS_H
#define TD_SERVER_CMD_APPLY_VERSIONS_H

#include "catalog/delta/delta_output.h"
#include "core/error.h"
#include "server/cmd/pull_directory.h"
#include "server/cmd/shared/copying.h"

#include <stdbool.h>
#include <stddef.h>

/* The version to make, and the directories that it is made from. All texts are borrowed. */
struct td_apply_wanted {
    const char *base_version;       /* of the base; NULL: as td_delta_chain_open finds it */
    const char *output;             /* the new directory */
    const char *const *directories; /* the base, then the deltas in their order */
    size_t count;                   /* of directories, from 2 */
};

struct td_apply_place;

/* A version that is made. The members are for reading, after td_apply_versions. */
struct td_apply {
    const struct td_apply_wanted *wanted; /* borrowed */
    struct td_copying *copying;           /* borrowed */
    struct td_apply_place *places;        /* one for each directory; owned, as are all below */
    struct td_delta_chain chain;
    struct td_delta_output output;
    struct td_pull_directory directory;
};

/* Prepares. The caller calls td_apply_fini in any case. */
void td_apply_init(struct td_apply *apply, const struct td_apply_wanted *wanted, struct td_copying *copying);

/* Makes the new directory, which appears complete. The whole chain is checked before anything is written. After a
 * failure nothing of it remains. The counts of bytes of `copying` are 0. Errors: as td_delta_chain_open,
 * td_delta_output_list, td_pull_directory_open_alone, td_delta_output_write and td_pull_directory_publish;
 * TD_INVALID_ARGUMENT for a new directory inside one that is only read; TD_CONFLICT when stopped. */
bool td_apply_versions(struct td_apply *apply, struct td_error *err);

void td_apply_fini(struct td_apply *apply);

#endif
