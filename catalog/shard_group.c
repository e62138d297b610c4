#include "catalog/shard_group.h"

#include "core/digits.h"
#include "parser/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads five digits as a number; false when one is none. */
static bool five_digits(const char *p, unsigned *out)
{
    uint64_t value;
    if (!td_number_read(p, 5, 99999, &value))
        return false;
    *out = (unsigned)value;
    return true;
}

bool td_shard_of_name(const char *file_name, struct td_shard_of *out)
{
    const char *extension = strrchr(file_name, '.');
    if (extension == NULL || (size_t)(extension - file_name) <= TD_SHARD_NUMBERS_BYTES)
        return false;
    const char *at = extension - TD_SHARD_NUMBERS_BYTES;
    out->stem_len = (size_t)(at - file_name);
    return at[0] == '-' && five_digits(at + 1, &out->number) && strncmp(at + 6, "-of-", 4) == 0 &&
           five_digits(at + 10, &out->total) && out->total > 0;
}

size_t td_shard_stem_len(const char *file_name)
{
    struct td_shard_of shard;
    return td_shard_of_name(file_name, &shard) ? shard.stem_len : 0;
}

bool td_shard_split_agrees(const struct td_entry *part, size_t i, size_t shard_total, char *message,
                           size_t capacity)
{
    const struct td_manifest *manifest = &part->file->manifest;
    size_t number = manifest->split_number < 0 ? i : (size_t)manifest->split_number;
    size_t total = manifest->split_count < 0 ? shard_total : (size_t)manifest->split_count;
    if (number == i && total == shard_total)
        return true;
    (void)snprintf(message, capacity,
                   "shard %zu of %zu by its name says that it is split.no %zu of split.count %zu, so this "
                   "sharded checkpoint is not published",
                   i + 1, shard_total, number, total);
    return false;
}

static int ref_compare(const void *a, const void *b)
{
    const struct td_tensor *x = ((const struct td_tensor_ref *)a)->tensor;
    const struct td_tensor *y = ((const struct td_tensor_ref *)b)->tensor;
    return td_name_compare(x->name, x->name_len, y->name, y->name_len);
}

bool td_shards_merge(struct td_checkpoint *checkpoint, struct td_error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < checkpoint->part_count; i++)
        total += checkpoint->parts[i]->file->manifest.tensor_count;
    checkpoint->refs = malloc((total + 1) * sizeof *checkpoint->refs);
    if (checkpoint->refs == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < checkpoint->part_count; i++) {
        const struct td_manifest *manifest = &checkpoint->parts[i]->file->manifest;
        for (size_t j = 0; j < manifest->tensor_count; j++)
            checkpoint->refs[checkpoint->tensor_count++] =
                (struct td_tensor_ref){.tensor = &manifest->tensors[j], .part = (uint32_t)i};
    }
    qsort(checkpoint->refs, checkpoint->tensor_count, sizeof *checkpoint->refs, ref_compare);
    return true;
}

size_t td_shards_duplicate(const struct td_checkpoint *checkpoint)
{
    for (size_t i = 1; i < checkpoint->tensor_count; i++)
        if (ref_compare(&checkpoint->refs[i - 1], &checkpoint->refs[i]) == 0)
            return i;
    return 0;
}
