/* Groups of shards by their names: stem-00001-of-00003.safetensors, or with another format's extension. */
#ifndef TD_CATALOG_SHARD_GROUP_H
#define TD_CATALOG_SHARD_GROUP_H

#include "catalog/snapshot.h"

enum { TD_SHARD_NUMBERS_BYTES = sizeof "-00001-of-00003" - 1 };

/* What the name of a shard says. */
struct td_shard_of {
    size_t stem_len;
    unsigned number, total;
};

/* A file that by its name is one of a group. */
struct td_shard {
    const char *name;
    size_t candidate; /* its number in the caller's list */
    struct td_shard_of of;
};

/* Returns what follows the numbers: ".safetensors". */
const char *td_shard_extension(const struct td_shard *shard);

bool td_shard_is_same_stem(const struct td_shard *x, const struct td_shard *y); /* and extension */

/* Orders groups: shards of one group have the same stem, extension and total. */
int td_shard_group_compare(const struct td_shard *x, const struct td_shard *y);

/* Orders shards by group and number, for qsort. */
int td_shard_compare(const void *a, const void *b);

/* Returns false when the name is not a shard's. */
bool td_shard_of_name(const char *file_name, struct td_shard_of *out);

/* The length of "stem" in stem-00001-of-00003.safetensors; 0: no such name. */
size_t td_shard_stem_len(const char *file_name);

/* Returns whether a shard of a split GGUF, which is the i-th (from 0) of shard_total by its name, says the same of
 * itself. If not, `message` is the reason. */
bool td_shard_split_agrees(const struct td_entry *part, size_t i, size_t shard_total, char *message, size_t capacity);

/* Lists all tensors of the checkpoint's parts as its refs, sorted by name. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_shards_merge(struct td_checkpoint *checkpoint, struct td_error *err);

/* Sets the checkpoint's metadata to those of its first part_count parts, each key once: the first part that has it
 * wins. Past 1,024 keys the first part's stand for all. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_shards_metadata(struct td_checkpoint *checkpoint, size_t part_count, struct td_arena *arena,
                        struct td_error *err);

/* Index of the first tensor that has the same name as the one before it, or 0. */
size_t td_shards_duplicate(const struct td_checkpoint *checkpoint);

#endif
