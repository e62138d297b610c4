/* Groups of shards by their names: stem-00001-of-00003.safetensors, or with another format's extension. */
#ifndef TD_CATALOG_CHECKPOINTS_SHARD_GROUP_H
#define TD_CATALOG_CHECKPOINTS_SHARD_GROUP_H

#include "catalog/model/snapshot.h"

enum { TD_SHARD_NUMBERS_BYTES = sizeof "-00001-of-00003" - 1 };

/* The parts of a shard's name. */
struct td_shard_of {
    size_t stem_len;        /* length of "stem" */
    unsigned number, total; /* 1 and 3 in 00001-of-00003; the number may be 0 or greater than the total */
};

/* The numbers that the shards of a complete group have: `count` of them from `first` on. */
struct td_shard_range {
    unsigned first; /* 0 or 1 */
    unsigned count;
};

/* A file with the name of a shard. */
struct td_shard {
    const char *name;
    size_t candidate; /* the file's number in the caller's list */
    struct td_shard_of of;
};

/* Returns the part of the name after the numbers: ".safetensors". Borrowed from the name. */
const char *td_shard_extension(const struct td_shard *shard);

/* Returns whether both names have the same stem and the same extension. */
bool td_shard_is_same_stem(const struct td_shard *x, const struct td_shard *y);

/* Orders groups: shards of one group have the same stem, extension and total. Returns <0, 0 or >0. */
int td_shard_group_compare(const struct td_shard *x, const struct td_shard *y);

/* Orders shards by group and number, for qsort. */
int td_shard_compare(const void *a, const void *b);

/* Returns the numbers that a complete group with these shards has. The shards must be sorted by number, and count be at
 * least 1. A group counts from 0 if it has a shard 0, else from 1. The total in the names is the number of shards or
 * the last number, so a group that counts from 0 may have one shard more than its total. */
struct td_shard_range td_shard_range_of(const struct td_shard *shards, size_t count);

/* Splits the name of a shard. Returns false when the file has no such name. */
bool td_shard_of_name(const char *file_name, struct td_shard_of *out);

/* Returns the length of "stem" in stem-00001-of-00003.safetensors; 0 when the file has no such name. */
size_t td_shard_stem_len(const char *file_name);

/* Returns the length of "-00001-of-00003" at the end of a name without its extension; 0 when the name does not end so.
 */
size_t td_shard_numbers_len(struct td_text stem);

/* Returns whether this index or .metadata lists the tensors of its files. False for NULL, which stands for a group, and
 * for the map of Keras, which lists groups of tensors. */
bool td_shards_are_listed(const struct td_entry *index);

/* Returns whether Keras gives this name to a shard: STEM_00000.weights.h5. */
bool td_shard_is_keras(const char *name);

/* Returns whether the metadata of a split GGUF's shard agree with its name, by which it is the i-th (from 0) of
 * shard_total. Writes the reason to message[capacity] if not. True for files without such metadata. */
bool td_shard_split_agrees(const struct td_entry *part, size_t i, size_t shard_total, char *message, size_t capacity);

/* Sets the checkpoint's refs to all tensors of its parts, sorted by name. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_shards_merge(struct td_checkpoint *checkpoint, struct td_error *err);

/* Sets the checkpoint's metadata to those of its first part_count parts, each key once: the first part that has a key
 * wins. With more than 1,024 keys in all, takes those of the first part alone. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_shards_metadata(struct td_checkpoint *checkpoint, size_t part_count, struct td_arena *arena,
                        struct td_error *err);

/* Adds the plain paths and the tags of a model's parts to a digest. is_former: the tags that they have until they are
 * hashed. */
void td_shards_add_tags(struct td_digest *digest, const struct td_model *model, const struct td_entry *const *parts,
                        size_t part_count, bool is_former);

/* Returns whether the SHA-256 of every part, and of the index (NULL: none), is known. */
bool td_shards_are_hashed(const struct td_entry *const *parts, size_t part_count, const struct td_entry *index);

/* Returns the joined tensors of that one of `count` checkpoints which was made of the same files, or NULL. */
struct td_joined_tensors *td_shards_find_join(const struct td_checkpoint *checkpoints, size_t count,
                                              const struct td_entry *const *parts, size_t part_count);

/* Returns the index of the first of the checkpoint's refs that has the same name as the one before it, or 0. */
size_t td_shards_duplicate(const struct td_checkpoint *checkpoint);

#endif
