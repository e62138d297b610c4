/* The index of a version, model.safetensors.index.json: which file has which tensor, which version the directory is,
 * and, of a delta, to what it applies and how. */
#ifndef TD_CATALOG_DELTA_DELTA_INDEX_H
#define TD_CATALOG_DELTA_DELTA_INDEX_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"
#include "parser/shard_index.h"

#include <stdbool.h>

/* All texts are in the arena of `map`; NULL: the index does not say it. */
struct td_delta_index {
    struct td_shard_index map;
    const char *version;
    const char *base_version;
    const char *encoding; /* "xor"; NULL: the directory is a full version */
    const char *compression;
    const char *checksum;
};

/* Parses the text of an index. Call td_delta_index_fini in every case. Errors: those of td_shard_index_parse, and
 * TD_INVALID_ARGUMENT when `metadata` is given twice or is neither an object nor null, or when one of the texts above
 * is given twice, is empty, or is neither a text nor a number. */
bool td_delta_index_parse(struct td_delta_index *index, struct td_text text, struct td_error *err);
void td_delta_index_fini(struct td_delta_index *index);

/* Appends the text of an index that td_delta_index_parse accepts to `out`, as that of a full version: with this version
 * in place of its own, without the other texts above, since they are not true of the new bytes, and with all else as it
 * is. */
void td_delta_index_rewrite(struct td_text text, const char *version, struct td_buffer *out);

#endif
