/* The data files that a dataset's card declares: `configs` in the front matter of its README.md, as the Hub documents
 * it ("Manual configuration"). */
#ifndef TD_CATALOG_DATASET_CARD_SPLITS_H
#define TD_CATALOG_DATASET_CARD_SPLITS_H

#include "core/arena.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A pattern of paths, and the split that the files belong to. Texts lie in the arena. */
struct td_card_pattern {
    const char *split;   /* "train"; "CONFIG/train" for another configuration than the default one */
    const char *pattern; /* a glob below the dataset, without "./" */
};

struct td_card_splits {
    struct td_card_pattern *items;
    size_t count;
};

/* Reads the patterns of a card's front matter, a JSON object. Leaves out what it does not understand; an empty list
 * when the card declares nothing. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_card_splits_read(struct td_text json, struct td_arena *arena, struct td_card_splits *out, struct td_error *err);

/* Returns whether the pattern names the file at this path. A '*', '?' or set ("[a-z]", "[!a]") does not match '/', but
 * "**" does, and "**" and a '/' may stand for nothing. Adds to *steps how much work it was: 8, and at most the product
 * of both lengths, of some 2 ns each. */
bool td_card_pattern_matches(const char *pattern, struct td_text path, uint64_t *steps);

#endif
