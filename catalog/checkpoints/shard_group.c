#include "catalog/checkpoints/shard_group.h"

#include "catalog/model/plain_id.h"
#include "core/digits.h"
#include "core/text.h"
#include "parser/format/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads five digits as a number. Returns false when one is no digit. */
static bool five_digits(const char *p, unsigned *out)
{
    uint64_t value;
    if (!td_number_read(td_text_n(p, 5), 99999, &value))
        return false;
    *out = (unsigned)value;
    return true;
}

/* Reads the numbers at the end of a name without its extension. */
static bool read_numbers(struct td_text stem, struct td_shard_of *out)
{
    if (stem.len <= TD_SHARD_NUMBERS_BYTES)
        return false;
    out->stem_len = stem.len - TD_SHARD_NUMBERS_BYTES;
    const char *at = stem.p + out->stem_len;
    return at[0] == '-' && five_digits(at + 1, &out->number) && strncmp(at + 6, "-of-", 4) == 0 &&
           five_digits(at + 10, &out->total) && out->total > 0;
}

bool td_shard_of_name(const char *file_name, struct td_shard_of *out)
{
    const char *extension = strrchr(file_name, '.');
    return extension != NULL && read_numbers(td_text_n(file_name, (size_t)(extension - file_name)), out);
}

size_t td_shard_numbers_len(struct td_text stem)
{
    struct td_shard_of shard;
    return read_numbers(stem, &shard) ? TD_SHARD_NUMBERS_BYTES : 0;
}

bool td_shard_is_keras(const char *name)
{
    static const char extension[] = ".weights.h5";
    enum { NUMBER_BYTES = sizeof "_00000" - 1 };
    size_t len = strlen(name);
    if (!td_has_extension(name, extension) || len < sizeof extension + NUMBER_BYTES)
        return false;
    const char *number = name + len - (sizeof extension - 1) - NUMBER_BYTES;
    return number[0] == '_' && strspn(number + 1, "0123456789") == NUMBER_BYTES - 1;
}

size_t td_shard_stem_len(const char *file_name)
{
    struct td_shard_of shard;
    return td_shard_of_name(file_name, &shard) ? shard.stem_len : 0;
}

const char *td_shard_extension(const struct td_shard *shard)
{
    return shard->name + shard->of.stem_len + TD_SHARD_NUMBERS_BYTES;
}

bool td_shard_is_same_stem(const struct td_shard *x, const struct td_shard *y)
{
    return td_text_compare(td_text_n(x->name, x->of.stem_len), td_text_n(y->name, y->of.stem_len)) == 0 &&
           strcmp(td_shard_extension(x), td_shard_extension(y)) == 0;
}

int td_shard_group_compare(const struct td_shard *x, const struct td_shard *y)
{
    int order = td_text_compare(td_text_n(x->name, x->of.stem_len), td_text_n(y->name, y->of.stem_len));
    if (order == 0)
        order = strcmp(td_shard_extension(x), td_shard_extension(y));
    return order != 0 ? order : (x->of.total > y->of.total) - (x->of.total < y->of.total);
}

int td_shard_compare(const void *a, const void *b)
{
    const struct td_shard *x = a;
    const struct td_shard *y = b;
    int order = td_shard_group_compare(x, y);
    return order != 0 ? order : (x->of.number > y->of.number) - (x->of.number < y->of.number);
}

static bool has_number(const struct td_shard *shards, size_t count, unsigned number)
{
    for (size_t i = 0; i < count; i++)
        if (shards[i].of.number == number)
            return true;
    return false;
}

struct td_shard_range td_shard_range_of(const struct td_shard *shards, size_t count)
{
    const unsigned first = shards[0].of.number == 0 ? 0 : 1;
    const unsigned total = shards[0].of.total;
    const unsigned up_to_last = shards[count - 1].of.number + 1 - first;
    struct td_shard_range range = {.first = first, .count = total};
    if (count == up_to_last && up_to_last > total) /* the numbers have no gap */
        range.count = up_to_last;
    else if (first == 0 && has_number(shards, count, total))
        range.count = total + 1;
    return range;
}

bool td_shards_are_listed(const struct td_entry *index)
{
    return index != NULL && (index->file->kind == TD_FILE_DCP_METADATA || !index->file->index.by_group);
}

bool td_shard_split_agrees(const struct td_entry *part, size_t i, size_t shard_total, char *message, size_t capacity)
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
    return td_text_compare(td_tensor_name(x), td_tensor_name(y));
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

bool td_shards_metadata(struct td_checkpoint *checkpoint, size_t part_count, struct td_arena *arena,
                        struct td_error *err)
{
    enum { MERGE_MAX = 1024 };
    size_t total = 0;
    if (part_count == 0)
        return true;
    const struct td_manifest *first = &checkpoint->parts[0]->file->manifest;
    checkpoint->metadata = first->metadata;
    checkpoint->metadata_count = first->metadata_count;
    for (size_t i = 0; i < part_count; i++)
        total += checkpoint->parts[i]->file->manifest.metadata_count;
    if (part_count == 1 || total > MERGE_MAX)
        return true;
    struct td_metadata *merged = td_arena_array(arena, total, sizeof *merged);
    if (merged == NULL)
        return td_error_no_memory(err);
    size_t count = 0;
    for (size_t i = 0; i < part_count; i++) {
        const struct td_manifest *manifest = &checkpoint->parts[i]->file->manifest;
        for (size_t j = 0; j < manifest->metadata_count; j++) {
            size_t k = 0;
            while (k < count && strcmp(merged[k].key, manifest->metadata[j].key) != 0)
                k++;
            if (k == count)
                merged[count++] = manifest->metadata[j];
        }
    }
    checkpoint->metadata = merged;
    checkpoint->metadata_count = count;
    return true;
}

size_t td_shards_duplicate(const struct td_checkpoint *checkpoint)
{
    for (size_t i = 1; i < checkpoint->tensor_count; i++)
        if (ref_compare(&checkpoint->refs[i - 1], &checkpoint->refs[i]) == 0)
            return i;
    return 0;
}

void td_shards_add_tags(struct td_digest *digest, const struct td_model *model, const struct td_entry *const *parts,
                        size_t part_count, bool is_former)
{
    for (size_t i = 0; i < part_count; i++) {
        td_plain_path_digest(model, parts[i]->path, digest);
        td_digest_add_cstring(digest, is_former ? parts[i]->file->identity_tag : td_file_tag(parts[i]->file));
    }
}

bool td_shards_are_hashed(const struct td_entry *const *parts, size_t part_count, const struct td_entry *index)
{
    for (size_t i = 0; i < part_count; i++)
        if (td_file_sha256(parts[i]->file) == NULL)
            return false;
    return index == NULL || td_file_sha256(index->file) != NULL;
}

static bool has_files(const struct td_checkpoint *checkpoint, const struct td_entry *const *parts, size_t part_count)
{
    bool same = checkpoint->part_count == part_count;
    for (size_t i = 0; same && i < part_count; i++)
        same = checkpoint->parts[i]->file == parts[i]->file;
    return same;
}

struct td_joined_tensors *td_shards_find_join(const struct td_checkpoint *checkpoints, size_t count,
                                              const struct td_entry *const *parts, size_t part_count)
{
    for (size_t i = 0; i < count; i++)
        if (checkpoints[i].join != NULL && has_files(&checkpoints[i], parts, part_count))
            return checkpoints[i].join;
    return NULL;
}
