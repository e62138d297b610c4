#include "parser/format/manifest.h"

#include "core/checked.h"
#include "core/json/json.h"
#include "core/utf8.h"
#include "parser/format/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void td_manifest_init(struct td_manifest *manifest, size_t memory_bytes)
{
    memset(manifest, 0, sizeof *manifest);
    manifest->split_number = manifest->split_count = -1;
    td_arena_init(&manifest->arena, memory_bytes);
}

void td_manifest_fini(struct td_manifest *manifest)
{
    td_arena_fini(&manifest->arena);
    memset(manifest, 0, sizeof *manifest);
}

struct td_tensor *td_manifest_add_tensor(struct td_manifest *manifest, const struct td_tensor *tensor, size_t *capacity,
                                         struct td_error *err)
{
    struct td_tensor *tensors =
        td_arena_grow(&manifest->arena, manifest->tensors, manifest->tensor_count, capacity, sizeof *tensors);
    if (tensors == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    manifest->tensors = tensors;
    tensors[manifest->tensor_count] = *tensor;
    return &tensors[manifest->tensor_count++];
}

static struct td_text tensor_name(const void *context, size_t i)
{
    const struct td_tensor *tensors = context;
    return td_tensor_name(&tensors[i]);
}

struct td_names td_tensor_names(const struct td_tensor *tensors, size_t count)
{
    return (struct td_names){.count = count, .context = tensors, .get = tensor_name};
}

bool td_tensor_is_row_major(const struct td_tensor *tensor, uint64_t elems)
{
    uint64_t step = 1;
    for (uint32_t i = tensor->rank; elems > 0 && i-- > 0;) {
        if (tensor->shape[i] > 1 && tensor->strides[i] != step)
            return false;
        step *= tensor->shape[i]; /* at most elems */
    }
    return true;
}

bool td_tensor_place(struct td_tensor *tensor, uint64_t begin, uint64_t end, uint64_t pos, struct td_error *err)
{
    uint64_t elems = 1;
    bool empty = false;
    bool fits = true;
    for (uint32_t i = 0; i < tensor->rank; i++)
        empty = empty || tensor->shape[i] == 0;
    for (uint32_t i = 0; i < tensor->rank && !empty; i++)
        fits = fits && td_mul_u64(elems, tensor->shape[i], &elems);
    if (empty)
        elems = 0;
    if (!fits || !td_dtype_nbytes(tensor->dtype, elems, &tensor->nbytes) || tensor->nbytes > INT64_MAX)
        return td_error_at(err, TD_INVALID_ARGUMENT, pos,
                           "tensor \"%.96s\": its shape does not make a whole number of %s elements of less "
                           "than 2^63 bytes",
                           tensor->name, tensor->dtype->name);
    if (tensor->strides != NULL && td_tensor_is_row_major(tensor, elems))
        tensor->strides = NULL;
    if (elems == 0)
        return true;
    uint64_t extent = tensor->nbytes; /* bytes from the first element to past the last */
    if (tensor->strides != NULL) {
        uint64_t last = 0;
        uint64_t reach;
        for (uint32_t i = 0; i < tensor->rank; i++)
            fits =
                fits && td_mul_u64(tensor->shape[i] - 1, tensor->strides[i], &reach) && td_add_u64(last, reach, &last);
        fits = fits && td_add_u64(last, 1, &last) && td_mul_u64(last, tensor->dtype->block_bytes, &extent);
    }
    if (!fits || tensor->offset < begin || !td_range_within(tensor->offset - begin, extent, end - begin))
        return td_error_at(err, TD_INVALID_ARGUMENT, pos,
                           "tensor \"%.96s\" leaves its storage: bytes %" PRIu64 " to %" PRIu64
                           " of the file are its storage",
                           tensor->name, begin, end);
    return true;
}

enum td_access td_tensor_access(const struct td_tensor *tensor)
{
    if (tensor->reason != NULL)
        return TD_ACCESS_NONE;
    const struct td_coding *coding = tensor->coding;
    if (coding != NULL && (coding->kind != TD_CODING_CHUNKS || coding->grid.filter_count > 0))
        return TD_ACCESS_DECODED;
    if (tensor->big_endian)
        return TD_ACCESS_SWAPPED;
    return coding != NULL || tensor->strides != NULL || tensor->piece_count > 0 ? TD_ACCESS_GATHERED : TD_ACCESS_DIRECT;
}

const char *td_access_name(enum td_access access)
{
    static const char *const names[] = {[TD_ACCESS_NONE] = "none",
                                        [TD_ACCESS_DIRECT] = "direct",
                                        [TD_ACCESS_GATHERED] = "gathered",
                                        [TD_ACCESS_SWAPPED] = "swapped",
                                        [TD_ACCESS_DECODED] = "decoded"};
    return names[access];
}

const char *td_tensor_stored(const struct td_tensor *tensor)
{
    if (tensor->coding != NULL)
        return tensor->coding->text;
    return tensor->big_endian ? "big-endian" : NULL;
}

struct td_coding *td_manifest_add_coding(struct td_manifest *manifest)
{
    struct td_coding *coding = td_arena_alloc(&manifest->arena, sizeof *coding);
    if (coding == NULL)
        return NULL;
    *coding = (struct td_coding){.number = manifest->coding_count++, .next = manifest->codings};
    manifest->codings = coding;
    return coding;
}

/* ---- copies ------------------------------------------------------------------------------------------------ */

/* Copies count items of `size` bytes; NULL stays NULL. Returns false when out of memory. */
static bool copy_array(struct td_arena *arena, const void *items, size_t count, size_t size, const void **out)
{
    *out = NULL;
    if (items == NULL)
        return true;
    void *copy = td_arena_array(arena, count, size);
    if (copy == NULL)
        return false;
    memcpy(copy, items, count * size);
    *out = copy;
    return true;
}

static bool copy_text(struct td_arena *arena, const char *text, const char **out)
{
    *out = text == NULL ? NULL : td_arena_strndup(arena, td_text_of(text));
    return text == NULL || *out != NULL;
}

static bool copy_numbers(struct td_arena *arena, const uint64_t *numbers, uint32_t count, const uint64_t **out)
{
    const void *copy;
    bool ok = copy_array(arena, numbers, count, sizeof *numbers, &copy);
    *out = copy;
    return ok;
}

static bool copy_grid(struct td_arena *arena, const struct td_coding_grid *from, struct td_coding_grid *to)
{
    const void *fill;
    const void *chunks;
    if (!copy_numbers(arena, from->shape, from->rank, &to->shape) ||
        !copy_numbers(arena, from->chunk_shape, from->rank, &to->chunk_shape) ||
        !copy_array(arena, from->fill, from->elem_bytes, 1, &fill) ||
        !copy_array(arena, from->chunks, from->chunk_count, sizeof *from->chunks, &chunks))
        return false;
    to->fill = fill;
    to->chunks = chunks;
    return true;
}

static struct td_coding *copy_coding(struct td_manifest *to, const struct td_coding *from)
{
    struct td_coding *made = td_manifest_add_coding(to);
    if (made == NULL)
        return NULL;
    const uint32_t number = made->number;
    struct td_coding *next = made->next;
    *made = *from;
    made->number = number;
    made->next = next;
    return copy_text(&to->arena, from->text, &made->text) && copy_grid(&to->arena, &from->grid, &made->grid) ? made
                                                                                                             : NULL;
}

bool td_manifest_copy_codings(struct td_manifest *to, const struct td_manifest *from, uint64_t off,
                              const struct td_coding ***copies, struct td_error *err)
{
    *copies = td_arena_array(&to->arena, from->coding_count, sizeof(**copies));
    if (*copies == NULL)
        return td_error_no_memory(err);
    for (const struct td_coding *coding = from->codings; coding != NULL; coding = coding->next) {
        struct td_coding *made = copy_coding(to, coding);
        if (made == NULL)
            return td_error_no_memory(err);
        if (!td_add_u64(made->base, off, &made->base))
            return td_error_set(err, TD_INVALID_ARGUMENT, "the storage of a tensor is past 2^64-1");
        (*copies)[coding->number] = made;
    }
    return true;
}

bool td_manifest_copy_tensor(struct td_manifest *to, const struct td_tensor *from, const char *name,
                             const struct td_coding *const *codings, uint64_t off, struct td_tensor *out,
                             struct td_error *err)
{
    struct td_tensor made = *from;
    made.name = name;
    made.name_len = (uint32_t)strlen(name);
    made.alias_of = NULL;
    made.pieces = NULL;
    made.piece_count = 0;
    if (!copy_numbers(&to->arena, from->shape, from->rank, &made.shape) ||
        !copy_numbers(&to->arena, from->strides, from->rank, &made.strides) ||
        !copy_text(&to->arena, from->reason, &made.reason))
        return td_error_no_memory(err);
    if (from->coding != NULL)
        made.coding = codings[from->coding->number];
    else if (!td_add_u64(from->offset, off, &made.offset))
        return td_error_set(err, TD_INVALID_ARGUMENT, "tensor \"%.96s\" is past 2^64-1", made.name);
    *out = made;
    return true;
}

/* ---- the end of a parse ------------------------------------------------------------------------------------- */

bool td_manifest_shift(struct td_manifest *manifest, uint64_t off, struct td_error *err)
{
    for (struct td_coding *coding = manifest->codings; coding != NULL; coding = coding->next)
        coding->base += off; /* reading checks that the sum fits */
    for (size_t i = 0; i < manifest->tensor_count; i++)
        if (manifest->tensors[i].coding == NULL &&
            !td_add_u64(manifest->tensors[i].offset, off, &manifest->tensors[i].offset))
            return td_error_set(err, TD_INVALID_ARGUMENT, "tensor \"%.96s\" is past 2^64-1", manifest->tensors[i].name);
    return true;
}

/* Returns 0 for a tensor without a coding, else a number from 1 on that is different for each coding. */
static uint64_t coding_rank(const struct td_tensor *tensor)
{
    return tensor->coding == NULL ? 0 : (uint64_t)tensor->coding->number + 1;
}

/* Returns the width of numbers that are stored big-endian, else 0. Tensors at one place with other widths have other
 * bytes. */
static unsigned swap_width(const struct td_tensor *tensor)
{
    struct td_swap swap = {0};
    return tensor->big_endian && td_dtype_swap(tensor->dtype, &swap) ? swap.width : 0;
}

/* Compares the places of two tensors. Returns 0 when they have the same bytes in the same order. */
static int compare_places(const struct td_tensor *x, const struct td_tensor *y)
{
    if (coding_rank(x) != coding_rank(y))
        return coding_rank(x) < coding_rank(y) ? -1 : 1;
    if (swap_width(x) != swap_width(y))
        return swap_width(x) < swap_width(y) ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->nbytes != y->nbytes)
        return x->nbytes < y->nbytes ? -1 : 1;
    if (x->strides == NULL || y->strides == NULL)
        return (x->strides != NULL) - (y->strides != NULL);
    if (x->dtype->block_bytes != y->dtype->block_bytes)
        return x->dtype->block_bytes < y->dtype->block_bytes ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    for (uint32_t i = 0; i < x->rank; i++)
        if (x->shape[i] != y->shape[i] || x->strides[i] != y->strides[i])
            return x->shape[i] < y->shape[i] || (x->shape[i] == y->shape[i] && x->strides[i] < y->strides[i]) ? -1 : 1;
    return 0;
}

static int compare_order(const void *context, size_t a, size_t b)
{
    const struct td_tensor *tensors = context;
    return compare_places(&tensors[a], &tensors[b]);
}

/* Sets alias_of. The tensors are sorted by name and the sort by place is stable, so of those at one place the first has
 * the first name. */
static bool find_aliases(struct td_manifest *manifest, struct td_error *err)
{
    struct td_tensor *tensors = manifest->tensors;
    struct td_order *order = malloc((manifest->tensor_count + 1) * sizeof *order);
    if (order == NULL)
        return td_error_no_memory(err);
    size_t count = 0;
    for (size_t i = 0; i < manifest->tensor_count; i++)
        if (tensors[i].nbytes > 0 && tensors[i].reason == NULL)
            order[count++] = (struct td_order){.key = tensors[i].offset, .index = i};
    bool ok = td_order_sort(order, count, compare_order, tensors, err);
    for (size_t i = 1, first = 0; ok && i < count; i++) {
        if (compare_order(tensors, order[first].index, order[i].index) == 0)
            tensors[order[i].index].alias_of = tensors[order[first].index].name;
        else
            first = i;
    }
    free(order);
    return ok;
}

bool td_manifest_note_omitted(struct td_manifest *manifest, size_t omitted, struct td_error *err)
{
    char text[32];
    if (omitted == 0)
        return true;
    struct td_metadata *last = &manifest->metadata[TD_METADATA_MAX - 1];
    (void)snprintf(text, sizeof text, "%zu", omitted + 1); /* with the one that is replaced */
    last->key = "(further entries)";
    last->value = td_arena_strndup(&manifest->arena, td_text_of(text));
    return last->value != NULL || td_error_no_memory(err);
}

bool td_manifest_finish(struct td_manifest *manifest, struct td_error *err)
{
    size_t count = manifest->tensor_count;
    struct td_tensor *tensors = manifest->tensors;
    struct td_names names = td_tensor_names(tensors, count);
    if (!td_names_sort(&names, tensors, sizeof *tensors, err))
        return false;
    size_t twice = td_names_duplicate(&names, NULL);
    if (twice < count)
        return td_error_set(err, TD_INVALID_ARGUMENT, "two tensors are named \"%.96s\"; names must be unique",
                            tensors[twice].name);
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        if (!td_add_u64(total, tensors[i].nbytes, &total))
            return td_error_set(err, TD_INVALID_ARGUMENT, "the tensors' sizes add up to more than 2^64-1 bytes");
    manifest->total_bytes = total;
    return !manifest->shares_bytes || find_aliases(manifest, err);
}

const struct td_tensor *td_manifest_find(const struct td_manifest *manifest, struct td_text name)
{
    struct td_names names = td_tensor_names(manifest->tensors, manifest->tensor_count);
    bool found;
    size_t at = td_names_search(&names, name, &found);
    return found ? &manifest->tensors[at] : NULL;
}

/* ---- metadata ---- */

static struct td_text metadata_key(const void *context, size_t i)
{
    const struct td_metadata *metadata = context;
    return td_text_of(metadata[i].key);
}

struct td_names td_metadata_keys(const struct td_metadata *metadata, size_t count)
{
    return (struct td_names){.count = count, .context = metadata, .get = metadata_key};
}

const char *td_metadata_find(const struct td_metadata *metadata, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(metadata[i].key, key) == 0)
            return metadata[i].value;
    return NULL;
}

void td_metadata_write_text(struct td_buffer *out, struct td_text shown, bool is_utf8, uint64_t len)
{
    char escaped[4 * TD_METADATA_TEXT_MAX + 1];
    if (shown.len < len) {
        td_buffer_puts(out, "{\"length\":");
        td_buffer_u64(out, len);
        td_buffer_puts(out, ",\"first\":");
    }
    if (is_utf8) {
        td_json_write_string(out, shown);
    } else {
        td_utf8_escape(shown, escaped, sizeof escaped);
        td_json_write_cstring(out, escaped);
    }
    if (shown.len < len)
        td_buffer_putc(out, '}');
}
