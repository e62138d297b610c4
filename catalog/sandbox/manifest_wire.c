/* Reading restates what parsers guarantee, in the order in which the parts depend on each other: codings, the names of
 * other files, metadata, tensors. What follows from other values (order, total, aliases, sizes) is computed again by
 * the functions that parsers use, and must be equal. */
#include "catalog/sandbox/manifest_wire.h"

#include "core/checked.h"

#include <string.h>

/* The least bytes of one item on the wire. */
enum { TENSOR_BYTES = 36, METADATA_BYTES = 16, CODING_BYTES = 49, CHUNK_BYTES = 24 };

/* Bits of a tensor. */
enum { HAS_STRIDES = 1, BIG_ENDIAN = 2, ALL_FLAGS = 3 };

/* Bits of a manifest. */
enum { IS_BARE = 1, SHARES_BYTES = 2, HAS_STARTS = 4, ALL_MARKS = 7 };

/* ---- writing ------------------------------------------------------------------------------------------- */

static void write_grid(const struct td_coding_grid *grid, struct td_wire_writer *out)
{
    td_wire_put_u32(out, grid->rank);
    td_wire_put_u32(out, grid->elem_bytes);
    td_wire_put_numbers(out, grid->shape, grid->rank);
    td_wire_put_numbers(out, grid->chunk_shape, grid->rank);
    td_wire_put_u8(out, grid->fill != NULL);
    if (grid->fill != NULL)
        td_wire_put(out, grid->fill, grid->elem_bytes);
    td_wire_put_u32(out, grid->filter_count);
    for (uint32_t i = 0; i < grid->filter_count; i++) {
        td_wire_put_u8(out, (uint8_t)grid->filters[i].kind);
        td_wire_put_u32(out, grid->filters[i].elem_bytes);
    }
    td_wire_put_u64(out, grid->chunk_count);
    for (size_t i = 0; i < grid->chunk_count; i++) {
        td_wire_put_u64(out, grid->chunks[i].number);
        td_wire_put_u64(out, grid->chunks[i].offset);
        td_wire_put_u32(out, grid->chunks[i].bytes);
        td_wire_put_u32(out, grid->chunks[i].skipped_filters);
    }
}

static void write_coding(const struct td_coding *coding, struct td_wire_writer *out)
{
    td_wire_put_u32(out, coding->number);
    td_wire_put_u8(out, (uint8_t)coding->kind);
    td_wire_put_text(out, td_text_of(coding->text));
    td_wire_put_u64(out, coding->size_bytes);
    td_wire_put_u64(out, coding->base);
    td_wire_put_u64(out, coding->offset);
    td_wire_put_u64(out, coding->stored_bytes);
    td_wire_put_u32(out, coding->crc32);
    if (coding->kind == TD_CODING_CHUNKS)
        write_grid(&coding->grid, out);
}

static void write_tensor(const struct td_tensor *tensor, struct td_wire_writer *out)
{
    unsigned flags = (tensor->strides != NULL ? HAS_STRIDES : 0) | (tensor->big_endian ? BIG_ENDIAN : 0);
    td_wire_put_text(out, td_tensor_name(tensor));
    td_wire_put_u8(out, (uint8_t)td_dtype_number(tensor->dtype));
    td_wire_put_u8(out, (uint8_t)tensor->rank);
    td_wire_put_u8(out, (uint8_t)flags);
    td_wire_put_numbers(out, tensor->shape, tensor->rank);
    if (tensor->strides != NULL)
        td_wire_put_numbers(out, tensor->strides, tensor->rank);
    td_wire_put_u64(out, tensor->nbytes);
    td_wire_put_u64(out, tensor->offset);
    td_wire_put_u32(out, tensor->coding == NULL ? 0 : tensor->coding->number + 1);
    td_wire_put_u32(out, tensor->file);
    td_wire_put_string(out, tensor->reason);
}

void td_manifest_write(const struct td_manifest *manifest, struct td_wire_writer *out)
{
    unsigned marks = (manifest->bare ? IS_BARE : 0) | (manifest->shares_bytes ? SHARES_BYTES : 0) |
                     (manifest->starts != NULL ? HAS_STARTS : 0);
    td_wire_put_u8(out, (uint8_t)marks);
    td_wire_put_u32(out, (uint32_t)manifest->split_number);
    td_wire_put_u32(out, (uint32_t)manifest->split_count);
    td_wire_put_u64(out, manifest->coding_count);
    for (const struct td_coding *coding = manifest->codings; coding != NULL; coding = coding->next)
        write_coding(coding, out);
    td_wire_put_paths(out, manifest->files, manifest->file_count);
    td_wire_put_u64(out, manifest->metadata_count);
    for (size_t i = 0; i < manifest->metadata_count; i++) {
        td_wire_put_text(out, td_text_of(manifest->metadata[i].key));
        td_wire_put_text(out, td_text_of(manifest->metadata[i].value));
    }
    td_wire_put_u64(out, manifest->tensor_count);
    for (size_t i = 0; i < manifest->tensor_count; i++)
        write_tensor(&manifest->tensors[i], out);
    for (size_t i = 0; manifest->starts != NULL && i < manifest->tensor_count; i++)
        td_wire_put_numbers(out, manifest->starts[i], manifest->tensors[i].rank);
    td_wire_put_u64(out, manifest->total_bytes);
}

/* ---- codings ------------------------------------------------------------------------------------------- */

/* Computes the product of the sizes and elem_bytes. Returns false on an overflow and for a size of 0. */
static bool multiply_sizes(const uint64_t *sizes, uint32_t rank, uint64_t elem_bytes, uint64_t *out)
{
    bool fits = sizes != NULL && elem_bytes > 0;
    *out = elem_bytes;
    for (uint32_t i = 0; fits && i < rank; i++)
        fits = sizes[i] > 0 && td_mul_u64(*out, sizes[i], out);
    return fits;
}

/* Computes the number of chunks of the whole array. */
static bool count_chunks(const struct td_coding_grid *grid, uint64_t *count)
{
    bool fits = true;
    *count = 1;
    for (uint32_t i = 0; fits && i < grid->rank; i++)
        fits = td_mul_u64(*count, (grid->shape[i] - 1) / grid->chunk_shape[i] + 1, count);
    return fits;
}

static void read_filters(struct td_wire_reader *in, struct td_coding_grid *grid)
{
    grid->filter_count = td_wire_get_u32(in);
    if (!td_wire_check(in, grid->filter_count <= TD_CODING_FILTERS_MAX))
        grid->filter_count = 0;
    for (uint32_t i = 0; i < grid->filter_count; i++) {
        uint8_t kind = td_wire_get_u8(in);
        grid->filters[i].elem_bytes = td_wire_get_u32(in);
        if (td_wire_check(in, kind <= TD_FILTER_LZF))
            grid->filters[i].kind = (enum td_filter_kind)kind;
    }
}

/* Reads the list of chunks. Each must be inside the file, and in order. */
static void read_chunks(struct td_wire_reader *in, struct td_coding_grid *grid, uint64_t base, uint64_t size_bytes,
                        struct td_arena *arena)
{
    uint64_t most;
    grid->chunk_count = td_wire_get_count(in, CHUNK_BYTES);
    if (!td_wire_check(in, count_chunks(grid, &most) && grid->chunk_count <= most))
        return;
    struct td_coding_chunk *chunks = td_wire_get_array(in, arena, grid->chunk_count, sizeof *chunks);
    grid->chunks = chunks;
    for (size_t i = 0; i < grid->chunk_count && !in->failed; i++) {
        uint64_t begin;
        chunks[i].number = td_wire_get_u64(in);
        chunks[i].offset = td_wire_get_u64(in);
        chunks[i].bytes = td_wire_get_u32(in);
        chunks[i].skipped_filters = td_wire_get_u32(in);
        (void)td_wire_check(in, chunks[i].number < most && (i == 0 || chunks[i - 1].number < chunks[i].number) &&
                                    td_add_u64(base, chunks[i].offset, &begin) &&
                                    td_range_within(begin, chunks[i].bytes, size_bytes));
    }
}

static void read_grid(struct td_wire_reader *in, struct td_coding *coding, uint64_t size_bytes, struct td_arena *arena)
{
    struct td_coding_grid *grid = &coding->grid;
    uint64_t array_bytes = 0;
    uint64_t chunk_bytes = 0;
    grid->rank = td_wire_get_u32(in);
    grid->elem_bytes = td_wire_get_u32(in);
    if (!td_wire_check(in, grid->rank >= 1 && grid->rank <= TD_CODING_RANK_MAX))
        return;
    grid->shape = td_wire_get_numbers(in, grid->rank, arena);
    grid->chunk_shape = td_wire_get_numbers(in, grid->rank, arena);
    if (!td_wire_check(in, multiply_sizes(grid->shape, grid->rank, grid->elem_bytes, &array_bytes) &&
                               multiply_sizes(grid->chunk_shape, grid->rank, grid->elem_bytes, &chunk_bytes) &&
                               array_bytes == coding->size_bytes))
        return;
    if (td_wire_get_bool(in) && td_wire_check(in, grid->elem_bytes <= (size_t)(in->end - in->p))) {
        void *fill = td_wire_need(in, td_arena_alloc(arena, grid->elem_bytes));
        if (fill != NULL)
            td_wire_get(in, fill, grid->elem_bytes);
        grid->fill = fill;
    }
    read_filters(in, grid);
    (void)td_wire_check(in, grid->filter_count == 0 || chunk_bytes <= TD_CODING_CHUNK_MAX_BYTES);
    if (!in->failed)
        read_chunks(in, grid, coding->base, size_bytes, arena);
}

/* Reads one coding into its place in the list, which has the latest first. */
static void read_coding(struct td_wire_reader *in, struct td_coding *coding, uint64_t size_bytes,
                        struct td_arena *arena)
{
    uint64_t begin = 0;
    (void)td_wire_check(in, td_wire_get_u32(in) == coding->number);
    uint8_t kind = td_wire_get_u8(in);
    coding->text = td_wire_get_copy(in, arena);
    coding->size_bytes = td_wire_get_u64(in);
    coding->base = td_wire_get_u64(in);
    coding->offset = td_wire_get_u64(in);
    coding->stored_bytes = td_wire_get_u64(in);
    coding->crc32 = td_wire_get_u32(in);
    if (!td_wire_check(in, kind == TD_CODING_DEFLATE || kind == TD_CODING_CHUNKS))
        return;
    coding->kind = (enum td_coding_kind)kind;
    if (coding->kind == TD_CODING_CHUNKS)
        read_grid(in, coding, size_bytes, arena);
    else
        (void)td_wire_check(in, coding->size_bytes <= TD_CODING_STREAM_MAX_BYTES &&
                                    td_add_u64(coding->base, coding->offset, &begin) &&
                                    td_range_within(begin, coding->stored_bytes, size_bytes));
}

/* Reads all codings. Sets *codings to them by number, in the arena. */
static void read_codings(struct td_wire_reader *in, struct td_manifest *manifest, uint64_t size_bytes,
                         const struct td_coding ***codings)
{
    size_t count = td_wire_get_count(in, CODING_BYTES);
    (void)td_wire_check(in, count <= UINT32_MAX);
    *codings = td_wire_get_array(in, &manifest->arena, count, sizeof(**codings));
    for (size_t i = 0; i < count && !in->failed; i++)
        (*codings)[i] = td_wire_need(in, td_manifest_add_coding(manifest));
    for (struct td_coding *coding = manifest->codings; coding != NULL && !in->failed; coding = coding->next)
        read_coding(in, coding, size_bytes, &manifest->arena);
}

/* ---- metadata ------------------------------------------------------------------------------------------ */

static void read_metadata(struct td_wire_reader *in, struct td_manifest *manifest)
{
    size_t count = td_wire_get_count(in, METADATA_BYTES);
    manifest->metadata = td_wire_get_array(in, &manifest->arena, count, sizeof *manifest->metadata);
    for (size_t i = 0; i < count && !in->failed; i++) {
        struct td_metadata *pair = &manifest->metadata[i];
        pair->key = td_wire_get_copy(in, &manifest->arena);
        pair->value = td_wire_get_copy(in, &manifest->arena);
        if (pair->value != NULL)
            td_wire_check_json(in, pair->value, '\0');
        manifest->metadata_count = i + 1;
    }
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

/* Returns whether the bytes of a servable tensor are inside the file, or inside the decoded bytes of its coding. */
static bool is_servable(const struct td_tensor *tensor, uint64_t size_bytes)
{
    struct td_tensor copy = *tensor;
    struct td_error none = TD_ERROR_INIT;
    struct td_swap swap;
    uint64_t end = tensor->coding == NULL ? size_bytes : tensor->coding->size_bytes;
    return tensor->dtype->block_bytes > 0 && (tensor->strides == NULL || tensor->dtype->block_elems == 1) &&
           (!tensor->big_endian || td_dtype_swap(tensor->dtype, &swap)) &&
           td_tensor_place(&copy, 0, end, TD_ERROR_POS_NONE, &none) && copy.nbytes == tensor->nbytes &&
           copy.strides == tensor->strides;
}

/* Returns whether a tensor in another file is one that can be served once the catalog has found that file. */
static bool is_external(const struct td_tensor *tensor, const struct td_manifest *manifest)
{
    struct td_tensor here = *tensor;
    here.offset = 0;
    return tensor->file <= manifest->file_count && tensor->coding == NULL && tensor->strides == NULL &&
           strcmp(tensor->reason, TD_REASON_OTHER_FILE) == 0 && is_servable(&here, UINT64_MAX);
}

static bool is_tensor(const struct td_tensor *tensor, const struct td_manifest *manifest, uint64_t size_bytes)
{
    if (tensor->file != 0)
        return tensor->reason != NULL && is_external(tensor, manifest);
    if (tensor->reason != NULL)
        return tensor->reason[0] != '\0' && tensor->nbytes <= INT64_MAX; /* a size to show, and to add up */
    return is_servable(tensor, size_bytes);
}

/* Reads the rank and what depends on it. */
static void read_shape(struct td_wire_reader *in, struct td_tensor *tensor, struct td_arena *arena)
{
    tensor->rank = td_wire_get_u8(in);
    uint8_t flags = td_wire_get_u8(in);
    if (!td_wire_check(in, tensor->rank <= TD_MAX_RANK && flags <= ALL_FLAGS))
        return;
    tensor->big_endian = (flags & BIG_ENDIAN) != 0;
    tensor->shape = td_wire_get_numbers(in, tensor->rank, arena);
    if ((flags & HAS_STRIDES) != 0 && td_wire_check(in, tensor->rank > 0))
        tensor->strides = td_wire_get_numbers(in, tensor->rank, arena);
}

static void read_tensor(struct td_wire_reader *in, struct td_manifest *manifest, const struct td_coding **codings,
                        uint64_t size_bytes, struct td_tensor *tensor)
{
    *tensor = (struct td_tensor){0};
    struct td_text name = td_wire_get_text(in);
    tensor->name = td_wire_need(in, td_arena_strndup(&manifest->arena, name));
    tensor->name_len = (uint32_t)name.len;
    tensor->dtype = td_dtype_at(td_wire_get_u8(in));
    (void)td_wire_check(in, name.len <= UINT32_MAX && tensor->dtype != NULL);
    read_shape(in, tensor, &manifest->arena);
    tensor->nbytes = td_wire_get_u64(in);
    tensor->offset = td_wire_get_u64(in);
    uint32_t coding = td_wire_get_u32(in);
    tensor->file = td_wire_get_u32(in);
    tensor->reason = td_wire_get_string(in, &manifest->arena);
    if (!td_wire_check(in, coding <= manifest->coding_count))
        return;
    tensor->coding = coding == 0 ? NULL : codings[coding - 1];
    (void)td_wire_check(in, is_tensor(tensor, manifest, size_bytes));
}

/* Returns whether a tensor's name comes before the next one's. */
static bool are_in_order(const struct td_tensor *first, const struct td_tensor *second)
{
    return td_text_compare(td_tensor_name(first), td_tensor_name(second)) < 0;
}

static void read_tensors(struct td_wire_reader *in, struct td_manifest *manifest, const struct td_coding **codings,
                         uint64_t size_bytes)
{
    size_t count = td_wire_get_count(in, TENSOR_BYTES);
    manifest->tensors = td_wire_get_array(in, &manifest->arena, count, sizeof *manifest->tensors);
    for (size_t i = 0; i < count && !in->failed; i++) {
        struct td_tensor *tensor = &manifest->tensors[i];
        read_tensor(in, manifest, codings, size_bytes, tensor);
        (void)td_wire_check(in, !in->failed && (i == 0 || are_in_order(tensor - 1, tensor)));
        manifest->tensor_count = i + (in->failed ? 0 : 1);
    }
}

/* Reads the position of each tensor's box in a larger tensor. */
static void read_starts(struct td_wire_reader *in, struct td_manifest *manifest)
{
    const uint64_t **starts = td_wire_get_array(in, &manifest->arena, manifest->tensor_count + 1, sizeof *starts);
    for (size_t i = 0; i < manifest->tensor_count && !in->failed; i++) {
        const struct td_tensor *tensor = &manifest->tensors[i];
        uint64_t end;
        starts[i] = td_wire_get_numbers(in, tensor->rank, &manifest->arena);
        for (uint32_t k = 0; k < tensor->rank && !in->failed; k++)
            (void)td_wire_check(in, td_add_u64(starts[i][k], tensor->shape[k], &end));
    }
    manifest->starts = starts;
}

/* Reads a number that is -1 when the file does not say it. */
static int32_t read_split(struct td_wire_reader *in)
{
    uint32_t number = td_wire_get_u32(in);
    return td_wire_check(in, number <= INT32_MAX || number == UINT32_MAX) && number <= INT32_MAX ? (int32_t)number : -1;
}

bool td_manifest_read(struct td_wire_reader *in, uint64_t size_bytes, struct td_manifest *manifest,
                      struct td_error *err)
{
    const struct td_coding **codings = NULL;
    uint8_t marks = td_wire_get_u8(in);
    (void)td_wire_check(in, marks <= ALL_MARKS);
    manifest->bare = (marks & IS_BARE) != 0;
    manifest->shares_bytes = (marks & SHARES_BYTES) != 0;
    manifest->split_number = read_split(in);
    manifest->split_count = read_split(in);
    read_codings(in, manifest, size_bytes, &codings);
    if (!in->failed)
        manifest->files = td_wire_get_paths(in, &manifest->arena, &manifest->file_count);
    if (!in->failed)
        read_metadata(in, manifest);
    if (!in->failed)
        read_tensors(in, manifest, codings, size_bytes);
    if (!in->failed && (marks & HAS_STARTS) != 0)
        read_starts(in, manifest);
    uint64_t total = td_wire_get_u64(in);
    if (!td_wire_check(in, !manifest->bare || manifest->tensor_count == 1))
        return td_wire_refuse(in, err);
    return td_manifest_finish(manifest, err) &&
           (td_wire_check(in, manifest->total_bytes == total) || td_wire_refuse(in, err));
}
