/* Names of versions, as trainers give them to the folders of their checkpoints and to refs: "weight_v000012",
 * "step-100", "checkpoint_500", "7". A name is a prefix and a number of 1 to 18 digits. */
#ifndef TD_CATALOG_MODEL_VERSION_NAME_H
#define TD_CATALOG_MODEL_VERSION_NAME_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most digits of a version's number, which therefore is below 10^18. */
enum { TD_VERSION_DIGITS = 18 };

/* The most prefixes that a user may add to the known ones, and the most bytes of one. */
enum { TD_VERSION_PREFIXES = 32, TD_VERSION_PREFIX_BYTES = 64 };

/* Prefixes that the user added with --version-prefix. Borrowed. {0}: none. */
struct td_version_prefixes {
    const char *const *items;
    size_t count;
};

/* Sets *number to the number of the version with this name, one segment of a path. Known prefixes are the empty one,
 * "weight_v" and "v"; then "version", "step", "global_step", "globalstep", "checkpoint", "iter", "epoch" and "delta",
 * each alone or with "-" or "_" behind it; then those in `more`, which may be NULL. If several prefixes fit, the first
 * one in this order counts. Returns false, and does not change *number, for a text that is no version's name. `number`
 * may be NULL. */
bool td_version_name_parse(struct td_text name, const struct td_version_prefixes *more, uint64_t *number);

/* Splits the name of a folder in which --upstream keeps a fetched version: NAME@VERSION of a version that is a revision
 * there, NAME@@VERSION of one that is a subfolder; the first '@' counts. Returns false for any other name. VERSION is
 * the end of the text. */
bool td_version_split_folder(struct td_text folder, struct td_text *name, struct td_text *version, bool *is_subfolder);

/* Compares two versions in the order of lists: by number, then by name (td_text_compare). Returns a number below, equal
 * to or above 0. */
int td_version_name_compare(uint64_t a_number, struct td_text a, uint64_t b_number, struct td_text b);

#endif
