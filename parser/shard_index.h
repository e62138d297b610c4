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
};

/* Which names an index maps to file names. */
enum td_shard_index_kind {
    TD_SHARD_INDEX_TENSORS, /* names of tensors, each to the name of its file */
    TD_SHARD_INDEX_GROUPS,  /* names of groups, each to the name of a file, or to a list of names */
};

/* Parses the text: an object with a member "weight_map", an object that maps names to file names, each a path below the
 * index's own directory, with or without "." components. Skips other members ("metadata"). Copies what it needs of the
 * text; sets no limit of its own on memory. Call td_shard_index_fini in every case. Errors: TD_INVALID_ARGUMENT with
 * the position, TD_RESOURCE_EXHAUSTED. */
bool td_shard_index_parse(struct td_shard_index *index, enum td_shard_index_kind kind, struct td_text text,
                          struct td_error *err);
/* Frees all that the index owns. The index is then empty. */
void td_shard_index_fini(struct td_shard_index *index);

#endif
