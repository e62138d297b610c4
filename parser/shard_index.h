/* Shard indexes, which say which file of a sharded checkpoint has which tensor: model.safetensors.index.json and, with
 * the same rules, pytorch_model.bin.index.json. The map that Keras writes, model.weights.json, is one too, but maps
 * groups of tensors to files (keras/src/saving/saving_lib.py, ShardedH5IOStore). */
#ifndef TD_PARSER_SHARD_INDEX_H
#define TD_PARSER_SHARD_INDEX_H

#include "core/arena.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The index of the safetensors files that libraries load; the one that says whether a folder is a delta. */
#define TD_SAFETENSORS_INDEX_NAME "model.safetensors.index.json"

struct td_shard_entry {
    const char *tensor; /* UTF-8 name */
    uint32_t tensor_len;
    uint32_t file; /* index into files */
};

struct td_shard_index {
    struct td_arena arena;          /* owns all that follows */
    struct td_shard_entry *entries; /* sorted by tensor name, unique */
    size_t entry_count;
    const char **files; /* distinct paths below the index's directory (td_is_path_below), sorted */
    size_t file_count;
    bool by_group; /* the index maps groups and has no entries; the checkpoint has all tensors of its files */
    /* The files hold changes to another version of the model, as slime and ModelExpress write them: the index's
     * metadata have delta_encoding. */
    bool is_delta;
    const char *base_version; /* of a delta: that version, as the metadata write it; NULL: they name none */
};

/* Most bytes of base_version, with its NUL: it may be the name of a folder. */
enum { TD_SHARD_VERSION_BYTES = 256 };

/* Which names an index maps to file names. */
enum td_shard_index_kind {
    TD_SHARD_INDEX_TENSORS, /* names of tensors, each to the name of its file */
    TD_SHARD_INDEX_GROUPS,  /* names of groups, each to the name of a file, or to a list of names */
};

/* Parses the text: an object with a member "weight_map", an object that maps names to file names, each a path below the
 * index's own directory, with or without "." components. Of "metadata", reads delta_encoding and base_version, a text
 * or a number, unless the index maps groups; of members that are given twice, the last one. Skips other members. Copies
 * what it needs of the text; sets no limit of its own on memory. Call td_shard_index_fini in every case. Errors:
 * TD_INVALID_ARGUMENT with the position, also for a delta whose base_version is no such value; TD_RESOURCE_EXHAUSTED.
 */
bool td_shard_index_parse(struct td_shard_index *index, enum td_shard_index_kind kind, struct td_text text,
                          struct td_error *err);
/* Frees all that the index owns. The index is then empty. */
void td_shard_index_fini(struct td_shard_index *index);

#endif
