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

/* A pattern of paths, and the split that the files belong to. Texts are in the arena. */
struct td_card_pattern {
    const char *split;   /* "train"; "CONFIG/train" for another configuration than the default one */
    const char *pattern; /* a glob below the configuration's folder, without "./" */
};

/* A configuration: a set of splits over some of the dataset's files. The arena owns the texts. */
struct td_card_config {
    const char *name;      /* prefix of its splits' names; NULL: the default configuration */
    struct td_text folder; /* `data_dir` below the dataset, with a '/' at its end; empty: the whole dataset */
    size_t first, count;   /* its patterns, a run of td_card_splits.items */
    bool has_patterns;     /* it has `data_files`; otherwise the files' paths name its splits */
};

struct td_card_splits {
    struct td_card_pattern *items;
    size_t count;
    struct td_card_config *configs; /* those that are understood, in the card's order */
    size_t config_count;
    const char *fault; /* the first thing in the card that is not understood, as a line in the arena; NULL: none */
};

/* Reads the configurations of a card's front matter, a JSON object. Skips what it does not understand and describes the
 * first such thing in out->fault. The list is empty when the card declares nothing. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_card_splits_read(struct td_text json, struct td_arena *arena, struct td_card_splits *out, struct td_error *err);

/* Returns whether the card says where data files are: by a pattern or by a folder. */
bool td_card_splits_declare(const struct td_card_splits *splits);

/* Returns whether the pattern names the file at this path. A '*', '?' or set ("[a-z]", "[!a]") does not match '/', but
 * "**" does, and "**" and a '/' may stand for nothing. Adds to *steps how much work it was: 8, and at most the product
 * of both lengths, of some 2 ns each. */
bool td_card_pattern_matches(const char *pattern, struct td_text path, uint64_t *steps);

/* Returns whether path and pattern have the same number of hidden parts (which begin with '.') and of folders that
 * begin with "__". By this rule the datasets library skips files in folders such as __pycache__ unless the pattern
 * names such a folder. */
bool td_card_pattern_shows(struct td_text pattern, struct td_text path);

#endif
