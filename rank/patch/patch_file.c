/* Plan: each tensor of the newer version is read beside the older one, window by window. Places and values of elements
 * that differ go to two spools, one after the other, since their number is not known before. If they are too many, both
 * spools are cut back to where the tensor began, and the tensor is read whole by clients. Then the header is known, and
 * a third spool takes it and the parts in the order of falling alignment, as safetensors writes files: its readers view
 * a tensor's bytes in place. */
#include "rank/patch/patch_file.h"

#include "core/array.h"
#include "core/checked.h"
#include "core/json/json.h"
#include "rank/patch/patch_diff.h"
#include "rank/patch/patch_part.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Raised when the same versions make another file. */
enum { PATCH_REVISION = 1 };

enum { WINDOW_BYTES = 128 * 1024, LENGTH_BYTES = 8, ALIGNMENT = 8, MAX_HEADER_BYTES = 100000000 };

/* Names of tensors that begin with this are safetensors' own. */
static const char metadata_name[] = "__metadata__";

/* The elements of a tensor that differ. */
struct entry {
    const struct td_patch_tensor *tensor; /* of the newer version */
    uint64_t count;
    uint64_t indices_at, values_at; /* in the spools */
    bool is_wide;                   /* indices are I64 */
};

/* One of the two tensors of the file that an entry makes. */
struct piece {
    const struct entry *entry;
    const struct td_dtype *dtype;
    bool has_values;
};

struct maker {
    const struct td_patch_order *order;
    const struct td_cancel *cancel;
    struct td_patch_progress *progress;
    struct td_patch_part since, version;
    struct td_spool indices, values;
    struct entry *entries; /* in the order of the part */
    size_t entry_count;
    const struct td_patch_tensor **whole; /* in the order of the part */
    size_t whole_count;
    /* of one window */
    uint8_t *before, *after, *chosen;
    uint32_t *places;
    uint8_t *wide; /* places as I32 or I64 */
};

bool td_patch_name(const struct td_patch_order *order, char name[TD_TAG_BYTES], struct td_error *err)
{
    char since[TD_TAG_BYTES];
    char version[TD_TAG_BYTES];
    const uint32_t revision = PATCH_REVISION;
    /* The tags that do not change when the files are hashed. */
    if (!td_rank_store_former_tag(&order->since, order->rank, since, err) ||
        !td_rank_store_former_tag(&order->version, order->rank, version, err))
        return false;
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "patch");
    td_digest_add(digest, &revision, sizeof revision);
    td_digest_add_cstring(digest, order->since_name);
    td_digest_add_cstring(digest, order->version_name);
    td_digest_add_cstring(digest, since);
    td_digest_add_cstring(digest, version);
    return td_digest_finish(digest, name) || td_error_no_memory(err);
}

/* ---- comparing ------------------------------------------------------------------------------------------ */

static bool has_same_form(const struct td_patch_tensor *x, const struct td_patch_tensor *y)
{
    return x->dtype == y->dtype && x->rank == y->rank &&
           (x->rank == 0 || memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0);
}

/* Returns whether both bodies are the same extents of the same blobs, such as files that are links to one file. */
static bool is_same_place(const struct td_body *x, const struct td_body *y)
{
    bool same = x->extent_count == y->extent_count;
    for (size_t i = 0; same && i < x->extent_count; i++) {
        const struct td_extent *a = &x->extents[i];
        const struct td_extent *b = &y->extents[i];
        same = a->blob == b->blob && a->off == b->off && a->len == b->len && a->count == b->count &&
               (a->count == 1 || a->stride == b->stride);
    }
    return same;
}

/* Appends the first `count` of the window's places to the spool, counted from the beginning of the tensor. */
static bool add_indices(struct maker *maker, const struct entry *entry, uint64_t first, size_t count,
                        struct td_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t index = first + maker->places[i];
        const uint32_t narrow_bits = htole32((uint32_t)index);
        const uint64_t wide_bits = htole64(index);
        if (entry->is_wide)
            memcpy(maker->wide + i * sizeof wide_bits, &wide_bits, sizeof wide_bits);
        else
            memcpy(maker->wide + i * sizeof narrow_bits, &narrow_bits, sizeof narrow_bits);
    }
    return td_spool_add(&maker->indices, maker->wide, count * (entry->is_wide ? sizeof(uint64_t) : sizeof(uint32_t)),
                        err);
}

/* Compares the bytes of a window, and appends the elements that differ. `first`: the number of its first element. */
static bool compare_window(struct maker *maker, struct entry *entry, uint64_t first, size_t len, struct td_error *err)
{
    const size_t element = entry->tensor->dtype->block_bytes;
    const size_t found = td_patch_diff(maker->before, maker->after, len / element, element, maker->places);
    entry->count += found;
    if (found == 0)
        return true;
    td_patch_gather(maker->after, element, maker->places, found, maker->chosen);
    return add_indices(maker, entry, first, found, err) &&
           td_spool_add(&maker->values, maker->chosen, found * element, err);
}

/* Returns whether the entry takes as many bytes as its whole tensor. */
static bool is_too_large(const struct entry *entry)
{
    const uint64_t each = entry->tensor->dtype->block_bytes + (entry->is_wide ? sizeof(uint64_t) : sizeof(uint32_t));
    return entry->count >= (entry->tensor->nbytes + each - 1) / each;
}

/* Compares two tensors of one form. Sets *is_whole: the tensor has changed, and is better read whole. Without elements
 * of a size that td_patch_takes, the first difference decides. */
static bool compare_bodies(struct maker *maker, const struct td_body *before, const struct td_body *after,
                           struct entry *entry, bool *is_whole, struct td_error *err)
{
    struct td_body_cursor at_before = {0};
    struct td_body_cursor at_after = {0};
    const struct td_dtype *dtype = entry->tensor->dtype;
    const bool takes = dtype->block_elems == 1 && td_patch_takes(dtype->block_bytes);
    *is_whole = false;
    for (uint64_t at = 0; at < entry->tensor->nbytes && !*is_whole;) {
        const uint64_t left = entry->tensor->nbytes - at;
        const size_t len = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        if (td_cancel_is_asked(maker->cancel))
            return td_error_set(err, TD_UNAVAILABLE, "the server is stopping");
        if (!td_body_read(before, &at_before, maker->before, len, err) ||
            !td_body_read(after, &at_after, maker->after, len, err))
            return false;
        if (!takes)
            *is_whole = memcmp(maker->before, maker->after, len) != 0;
        else if (!compare_window(maker, entry, at / dtype->block_bytes, len, err))
            return false;
        else
            *is_whole = entry->count > 0 && is_too_large(entry);
        at += len;
        atomic_fetch_add(&maker->progress->done_bytes, len);
    }
    return (td_body_unchanged(before) && td_body_unchanged(after)) ||
           td_error_set(err, TD_UNAVAILABLE, "a file changed while it was compared; try again");
}

/* Compares a tensor with that of the older version. Sets *is_whole as compare_bodies does. */
static bool compare_tensor(struct maker *maker, const struct td_patch_tensor *older,
                           const struct td_patch_tensor *tensor, bool *is_whole, struct td_error *err)
{
    struct td_body before;
    struct td_body after;
    struct entry entry = {
        .tensor = tensor,
        .indices_at = td_spool_bytes(&maker->indices),
        .values_at = td_spool_bytes(&maker->values),
        .is_wide = tensor->nbytes / (tensor->dtype->block_bytes == 0 ? 1 : tensor->dtype->block_bytes) > INT32_MAX};
    td_body_init(&before);
    td_body_init(&after);
    *is_whole = false;
    bool ok = td_patch_part_read(&maker->since, older, &before, err) &&
              td_patch_part_read(&maker->version, tensor, &after, err);
    if (ok && !is_same_place(&before, &after))
        ok = compare_bodies(maker, &before, &after, &entry, is_whole, err);
    td_body_fini(&before);
    td_body_fini(&after);
    if (ok && *is_whole) {
        td_spool_cut(&maker->indices, entry.indices_at);
        td_spool_cut(&maker->values, entry.values_at);
    } else if (ok && entry.count > 0) {
        maker->entries[maker->entry_count++] = entry;
    }
    return ok;
}

/* Compares all tensors. */
static bool compare(struct maker *maker, struct td_error *err)
{
    bool ok = true;
    uint64_t done = 0;
    for (size_t i = 0; ok && i < maker->version.count; i++) {
        const struct td_patch_tensor *tensor = &maker->version.tensors[i];
        struct td_patch_tensor *older = td_patch_part_find(&maker->since, tensor->name);
        bool is_whole = true;
        if (older != NULL)
            older->is_known = true;
        if (older != NULL && has_same_form(older, tensor))
            ok = compare_tensor(maker, older, tensor, &is_whole, err);
        if (is_whole)
            maker->whole[maker->whole_count++] = tensor;
        done += tensor->nbytes;
        atomic_store(&maker->progress->done_bytes, done);
    }
    return ok;
}

/* ---- the file ------------------------------------------------------------------------------------------- */

/* Orders pieces as safetensors orders tensors: by falling size of their elements, and then by name. */
static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a;
    const struct piece *y = b;
    const size_t number_x = td_dtype_number(x->dtype);
    const size_t number_y = td_dtype_number(y->dtype);
    if (number_x != number_y)
        return number_x > number_y ? -1 : 1;
    const int order = strcmp(x->entry->tensor->name, y->entry->tensor->name);
    return order != 0 ? order : (int)x->has_values - (int)y->has_values;
}

static uint64_t bytes_of(const struct piece *piece)
{
    return piece->entry->count * piece->dtype->block_bytes; /* less than the tensor has */
}

static void begin_list(struct td_buffer *list)
{
    td_buffer_clear(list);
    td_buffer_putc(list, '[');
}

static void add_to_list(struct td_buffer *list, const char *name)
{
    if (list->len > 1)
        td_buffer_putc(list, ',');
    td_json_write_cstring(list, name);
}

/* Ends a JSON list, and appends it as the text of a member of __metadata__. */
static void end_list(struct td_buffer *list, const char *key, struct td_buffer *out)
{
    td_buffer_putc(list, ']');
    td_buffer_putc(out, ',');
    td_json_write_cstring(out, key);
    td_buffer_putc(out, ':');
    td_json_write_string(out, td_buffer_text(list));
    out->failed = out->failed || list->failed;
}

static void write_metadata(const struct maker *maker, struct td_buffer *list, struct td_buffer *out)
{
    td_json_write_cstring(out, metadata_name);
    td_buffer_puts(out, ":{\"format\":\"patch\",\"since\":");
    td_json_write_cstring(out, maker->order->since_name);
    td_buffer_puts(out, ",\"version\":");
    td_json_write_cstring(out, maker->order->version_name);
    begin_list(list);
    for (size_t i = 0; i < maker->whole_count; i++)
        add_to_list(list, maker->whole[i]->name);
    end_list(list, "whole", out);
    begin_list(list);
    for (size_t i = 0; i < maker->since.count; i++)
        if (!maker->since.by_name[i]->is_known)
            add_to_list(list, maker->since.by_name[i]->name);
    end_list(list, "removed", out);
    td_buffer_putc(out, '}');
}

/* Writes the member of one piece. */
static void write_piece(const struct piece *piece, uint64_t begin, struct td_buffer *name, struct td_buffer *out)
{
    td_buffer_clear(name);
    td_buffer_puts(name, piece->entry->tensor->name);
    td_buffer_puts(name, piece->has_values ? ".values" : ".indices");
    out->failed = out->failed || name->failed;
    td_buffer_putc(out, ',');
    td_json_write_string(out, td_buffer_text(name));
    td_buffer_puts(out, ":{\"dtype\":");
    td_json_write_cstring(out, piece->dtype->name);
    td_buffer_puts(out, ",\"shape\":[");
    td_buffer_u64(out, piece->entry->count);
    td_buffer_puts(out, "],\"data_offsets\":[");
    td_buffer_u64(out, begin);
    td_buffer_putc(out, ',');
    td_buffer_u64(out, begin + bytes_of(piece));
    td_buffer_puts(out, "]}");
}

/* Writes the header: its length in little-endian order, and JSON, padded with spaces. */
static bool write_header(const struct maker *maker, const struct piece *pieces, size_t count, struct td_buffer *out,
                         struct td_error *err)
{
    struct td_buffer text;
    uint64_t at = 0;
    td_buffer_init_budget(&text, out->budget);
    td_buffer_puts(out, "        {");
    write_metadata(maker, &text, out);
    for (size_t i = 0; i < count && out->len <= MAX_HEADER_BYTES; i++) {
        write_piece(&pieces[i], at, &text, out);
        at += bytes_of(&pieces[i]);
    }
    td_buffer_fini(&text);
    td_buffer_putc(out, '}');
    while (out->len % ALIGNMENT != 0 && !out->failed)
        td_buffer_putc(out, ' ');
    if (out->failed)
        return td_buffer_refuse(out, err);
    if (out->len > MAX_HEADER_BYTES)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "the patch would have a header of more than %d bytes, which safetensors refuses",
                            (int)MAX_HEADER_BYTES);
    const uint64_t length = htole64(out->len - LENGTH_BYTES);
    memcpy(out->data, &length, sizeof length);
    return true;
}

/* Appends bytes to the file and to its digest. */
static bool append(struct td_spool *file, struct td_digest *digest, const void *bytes, size_t len, struct td_error *err)
{
    td_digest_add_content(digest, bytes, len);
    return td_spool_add(file, bytes, len, err);
}

/* Appends the bytes of a piece. */
static bool append_piece(struct maker *maker, const struct piece *piece, struct td_spool *file,
                         struct td_digest *digest, struct td_error *err)
{
    struct td_spool *from = piece->has_values ? &maker->values : &maker->indices;
    const uint64_t begin = piece->has_values ? piece->entry->values_at : piece->entry->indices_at;
    const uint64_t total = bytes_of(piece);
    for (uint64_t at = 0; at < total;) {
        const size_t len = total - at < WINDOW_BYTES ? (size_t)(total - at) : WINDOW_BYTES;
        if (td_cancel_is_asked(maker->cancel))
            return td_error_set(err, TD_UNAVAILABLE, "the server is stopping");
        if (!td_spool_read(from, begin + at, maker->after, len, err) || !append(file, digest, maker->after, len, err))
            return false;
        at += len;
    }
    return true;
}

/* Makes the list of the file's tensors, in its order, in the arena of the newer part. */
static struct piece *list_pieces(struct maker *maker, struct td_error *err)
{
    struct piece *pieces = td_arena_array(&maker->version.arena, maker->entry_count, 2 * sizeof *pieces);
    if (pieces == NULL) {
        (void)td_arena_refuse(&maker->version.arena, "the patch", err);
        return NULL;
    }
    for (size_t i = 0; i < maker->entry_count; i++) {
        const struct entry *entry = &maker->entries[i];
        pieces[2 * i] =
            (struct piece){.entry = entry, .dtype = td_dtype_find(entry->is_wide ? TD_TEXT("I64") : TD_TEXT("I32"))};
        pieces[2 * i + 1] = (struct piece){.entry = entry, .dtype = entry->tensor->dtype, .has_values = true};
    }
    if (maker->entry_count > 0)
        qsort(pieces, 2 * maker->entry_count, sizeof *pieces, compare_pieces);
    return pieces;
}

/* Writes the file, and makes it a patch. */
static bool write_file(struct maker *maker, struct td_spool *file, const char *name, struct td_budget *budget,
                       struct td_patch **out, struct td_error *err)
{
    uint8_t sum[TD_SHA256_BYTES];
    struct td_buffer header;
    const struct piece *pieces = list_pieces(maker, err);
    if (pieces == NULL)
        return false;
    td_buffer_init_budget(&header, budget);
    struct td_digest *digest = td_digest_create();
    bool ok = write_header(maker, pieces, 2 * maker->entry_count, &header, err) &&
              append(file, digest, header.data, header.len, err);
    for (size_t i = 0; ok && i < 2 * maker->entry_count; i++)
        ok = append_piece(maker, &pieces[i], file, digest, err);
    td_buffer_fini(&header);
    if (!td_digest_finish_binary(digest, sum))
        return td_error_no_memory(err);
    return ok && td_spool_become(file, name, sum, out, err);
}

/* ---- both ----------------------------------------------------------------------------------------------- */

/* Allocates what the comparison needs: of the tensors from the newer part's arena. */
static bool allocate(struct maker *maker, struct td_error *err)
{
    struct td_arena *arena = &maker->version.arena;
    maker->entries = td_arena_array(arena, maker->version.count, sizeof *maker->entries);
    maker->whole = td_arena_array(arena, maker->version.count, sizeof(struct td_patch_tensor *));
    maker->before = td_arena_alloc(arena, WINDOW_BYTES);
    maker->after = td_arena_alloc(arena, WINDOW_BYTES);
    maker->chosen = td_arena_alloc(arena, WINDOW_BYTES);
    maker->places = td_arena_array(arena, WINDOW_BYTES, sizeof *maker->places);
    maker->wide = td_arena_array(arena, WINDOW_BYTES, sizeof(uint64_t));
    return (maker->entries != NULL && maker->whole != NULL && maker->before != NULL && maker->after != NULL &&
            maker->chosen != NULL && maker->places != NULL && maker->wide != NULL) ||
           td_arena_refuse(arena, "the patch", err);
}

bool td_patch_make(struct td_rank_store *ranks, struct td_patch_disk *disk, const struct td_patch_order *order,
                   const char *name, const struct td_cancel *cancel, struct td_patch_progress *progress,
                   struct td_patch **out, struct td_error *err)
{
    struct maker maker = {.order = order, .cancel = cancel, .progress = progress, .indices.fd = -1, .values.fd = -1};
    struct td_spool file = {.fd = -1};
    bool ok = td_patch_part_open(ranks, &order->since, order->rank, cancel, &maker.since, err) &&
              td_patch_part_open(ranks, &order->version, order->rank, cancel, &maker.version, err) &&
              allocate(&maker, err) && td_spool_open(disk, false, &maker.indices, err) &&
              td_spool_open(disk, false, &maker.values, err) && td_spool_open(disk, true, &file, err);
    if (ok)
        atomic_store(&progress->total_bytes, maker.version.total_bytes);
    ok = ok && compare(&maker, err) && write_file(&maker, &file, name, &ranks->live, out, err);
    const size_t used_bytes = maker.since.arena.used_bytes + maker.version.arena.used_bytes;
    td_spool_close(&file);
    td_spool_close(&maker.values);
    td_spool_close(&maker.indices);
    td_patch_part_close(&maker.version);
    td_patch_part_close(&maker.since);
    td_rank_store_trim(used_bytes);
    return ok;
}
