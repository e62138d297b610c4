/* A body is a list of extents, and an extent is `count` runs of `len` bytes at equal distances. The functions below
 * avoid work per run, since an extent may have millions of runs: a cut makes at most three extents of one (a partial
 * first run, whole runs, a partial last run), and reads gather whole runs in one call. */
#include "storage/body.h"

#include "core/array.h"
#include "core/checked.h"
#include "storage/fault_guard.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void td_body_init(struct td_body *body)
{
    memset(body, 0, sizeof *body);
}

void td_body_fini(struct td_body *body)
{
    for (size_t i = 0; i < body->extent_count; i++)
        td_blob_unref(body->extents[i].blob);
    free(body->extents);
    memset(body, 0, sizeof *body);
}

bool td_body_append_runs(struct td_body *body, struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count,
                         uint64_t stride, struct td_error *err)
{
    if (len == 0 || count == 0)
        return true;
    if (count == 1)
        stride = 0;
    uint64_t last;
    uint64_t bytes;
    uint64_t total;
    if (!td_mul_u64(count - 1, stride, &last) || !td_add_u64(last, off, &last) ||
        !td_range_within(last, len, blob->len_bytes) || !td_mul_u64(count, len, &bytes) ||
        !td_add_u64(body->total_bytes, bytes, &total))
        return td_error_set(err, TD_INTERNAL, "an extent leaves its file");
    if (!TD_ARRAY_GROW(body->extents, body->extent_count, body->capacity, err))
        return false;
    body->extents[body->extent_count++] =
        (struct td_extent){.blob = td_blob_ref(blob), .off = off, .len = len, .count = count, .stride = stride};
    body->total_bytes = total;
    return true;
}

bool td_body_append(struct td_body *body, struct td_blob *blob, uint64_t off, uint64_t len, struct td_error *err)
{
    return td_body_append_runs(body, blob, off, len, 1, 0, err);
}

bool td_body_append_heap(struct td_body *body, char *data, size_t len, struct td_error *err)
{
    struct td_blob *blob;
    if (!td_blob_from_heap(data, len, &blob, err))
        return false;
    bool ok = td_body_append(body, blob, 0, len, err);
    td_blob_unref(blob);
    return ok;
}

/* Appends the part [from, from+len) of one extent. */
static bool cut_extent(const struct td_extent *extent, uint64_t from, uint64_t len, struct td_body *out,
                       struct td_error *err)
{
    uint64_t run = from / extent->len;
    uint64_t within = from % extent->len;
    if (within > 0) {
        uint64_t head = extent->len - within < len ? extent->len - within : len;
        if (!td_body_append(out, extent->blob, extent->off + run * extent->stride + within, head, err))
            return false;
        len -= head;
        run++;
    }
    uint64_t whole = len / extent->len;
    if (whole > 0 && !td_body_append_runs(out, extent->blob, extent->off + run * extent->stride, extent->len, whole,
                                          extent->stride, err))
        return false;
    run += whole;
    return td_body_append(out, extent->blob, extent->off + run * extent->stride, len % extent->len, err);
}

/* Returns the bytes of the cursor's extent that the cursor has passed. */
static uint64_t passed_bytes(const struct td_body *body, const struct td_body_cursor *cursor)
{
    return cursor->run * body->extents[cursor->extent].len + cursor->within;
}

/* Moves the cursor to this byte of its extent, or behind the extent. */
static void move_to(const struct td_body *body, struct td_body_cursor *cursor, uint64_t passed)
{
    const struct td_extent *extent = &body->extents[cursor->extent];
    cursor->run = passed / extent->len;
    cursor->within = passed % extent->len;
    if (cursor->run < extent->count)
        return;
    *cursor = (struct td_body_cursor){.extent = cursor->extent + 1};
}

/* Returns how many of the next len bytes are in the cursor's extent; 0 at the end. */
static uint64_t left_of_extent(const struct td_body *body, const struct td_body_cursor *cursor, uint64_t len)
{
    if (cursor->extent >= body->extent_count)
        return 0;
    const struct td_extent *extent = &body->extents[cursor->extent];
    uint64_t left = extent->len * extent->count - passed_bytes(body, cursor);
    return left < len ? left : len;
}

void td_body_skip(const struct td_body *body, struct td_body_cursor *cursor, uint64_t len)
{
    for (uint64_t n; len > 0 && (n = left_of_extent(body, cursor, len)) > 0; len -= n)
        move_to(body, cursor, passed_bytes(body, cursor) + n);
}

bool td_body_take(const struct td_body *body, struct td_body_cursor *cursor, uint64_t len, struct td_body *out,
                  struct td_error *err)
{
    for (uint64_t n; len > 0 && (n = left_of_extent(body, cursor, len)) > 0; len -= n) {
        uint64_t from = passed_bytes(body, cursor);
        if (!cut_extent(&body->extents[cursor->extent], from, n, out, err))
            return false;
        move_to(body, cursor, from + n);
    }
    return true;
}

bool td_body_cut(const struct td_body *body, uint64_t off, uint64_t len, struct td_body *out, struct td_error *err)
{
    struct td_body_cursor cursor = {0};
    assert(td_range_within(off, len, body->total_bytes));
    td_body_skip(body, &cursor, off);
    return td_body_take(body, &cursor, len, out, err);
}

void td_body_next(const struct td_body *body, struct td_body_cursor *cursor, uint64_t max_len, struct td_blob **blob,
                  uint64_t *off, uint64_t *len)
{
    *len = 0;
    if (cursor->extent >= body->extent_count)
        return;
    const struct td_extent *extent = &body->extents[cursor->extent];
    uint64_t left = extent->len - cursor->within;
    uint64_t take = left < max_len ? left : max_len;
    *blob = extent->blob;
    *off = extent->off + cursor->run * extent->stride + cursor->within;
    *len = take;
    cursor->within += take;
    if (cursor->within < extent->len)
        return;
    cursor->within = 0;
    if (++cursor->run < extent->count)
        return;
    cursor->run = 0;
    cursor->extent++;
}

/* Returns how many whole runs at the cursor, of one extent, fit into len bytes. Returns 0 within a run. */
static uint64_t whole_runs(const struct td_body *body, const struct td_body_cursor *cursor, size_t len)
{
    if (cursor->extent >= body->extent_count || cursor->within > 0)
        return 0;
    const struct td_extent *extent = &body->extents[cursor->extent];
    uint64_t left = extent->count - cursor->run;
    return len / extent->len < left ? len / extent->len : left;
}

/* Copies that many runs in one call, so that the fault guard is set up once for all of them. Sets *taken to the
 * bytes. */
static bool read_runs(const struct td_body *body, struct td_body_cursor *cursor, uint64_t runs, void *out,
                      size_t *taken, struct td_error *err)
{
    const struct td_extent *extent = &body->extents[cursor->extent];
    uint64_t off = extent->off + cursor->run * extent->stride;
    *taken = (size_t)(runs * extent->len);
    cursor->run += runs;
    if (cursor->run == extent->count) {
        cursor->run = 0;
        cursor->extent++;
    }
    return td_blob_gather(extent->blob, off, extent->len, runs, extent->stride, out, err);
}

/* Copies the rest of one run, but at most *taken bytes. Sets *taken to the bytes that were copied. */
static bool read_piece(const struct td_body *body, struct td_body_cursor *cursor, void *out, size_t *taken,
                       struct td_error *err)
{
    struct td_blob *blob = NULL;
    uint64_t off = 0;
    uint64_t piece;
    td_body_next(body, cursor, *taken, &blob, &off, &piece);
    if (piece == 0)
        return td_error_set(err, TD_INTERNAL, "a body ended before its length");
    *taken = (size_t)piece;
    return td_blob_read(blob, off, out, *taken, err);
}

bool td_body_read(const struct td_body *body, struct td_body_cursor *cursor, void *out, size_t len,
                  struct td_error *err)
{
    uint8_t *to = out;
    while (len > 0) {
        size_t taken = len;
        uint64_t runs = whole_runs(body, cursor, len);
        if (!(runs > 1 ? read_runs(body, cursor, runs, to, &taken, err) : read_piece(body, cursor, to, &taken, err)))
            return false;
        to += taken;
        len -= taken;
    }
    return true;
}

/* Returns whether the blob of extent i is that of one of the two extents before it, so that it need not be asked again.
 * A multipart answer alternates one file with text. */
static bool asked_before(const struct td_body *body, size_t i)
{
    const struct td_blob *blob = body->extents[i].blob;
    return (i >= 1 && body->extents[i - 1].blob == blob) || (i >= 2 && body->extents[i - 2].blob == blob);
}

bool td_body_unchanged(const struct td_body *body)
{
    for (size_t i = 0; i < body->extent_count; i++)
        if (!asked_before(body, i) && !td_blob_unchanged(body->extents[i].blob))
            return false;
    return true;
}

bool td_body_is_pinned(const struct td_body *body)
{
    for (size_t i = 0; i < body->extent_count; i++)
        if (!asked_before(body, i) && (body->extents[i].blob->bytes == NULL || !td_blob_pinned(body->extents[i].blob)))
            return false;
    return true;
}

uint64_t td_body_run_count(const struct td_body *body)
{
    uint64_t runs = 0;
    for (size_t i = 0; i < body->extent_count; i++)
        if (!td_add_u64(runs, body->extents[i].count, &runs))
            return UINT64_MAX;
    return runs;
}

/* Returns whether an extent is in memory: all that it spans, or run by run where the gaps are long. */
static bool extent_is_resident(const struct td_extent *extent)
{
    enum { GAP_BYTES = 64 * 1024 };
    struct td_blob *blob = extent->blob;
    if (blob->class->resident == NULL)
        return true;
    if (extent->count == 1 || extent->stride <= extent->len || extent->stride - extent->len <= GAP_BYTES)
        return blob->class->resident(blob, extent->off, extent->stride * (extent->count - 1) + extent->len);
    for (uint64_t run = 0; run < extent->count; run++)
        if (!blob->class->resident(blob, extent->off + run * extent->stride, extent->len))
            return false;
    return true;
}

bool td_body_is_resident(const struct td_body *body)
{
    for (size_t i = 0; i < body->extent_count; i++)
        if (body->extents[i].blob->bytes == NULL || !extent_is_resident(&body->extents[i]))
            return false;
    return true;
}

/* Returns whether four bytes of an extent, evenly spread, are in memory. */
static bool sample_is_resident(const struct td_extent *extent)
{
    enum { SAMPLES = 4 };
    struct td_blob *blob = extent->blob;
    uint64_t span = extent->stride * (extent->count - 1) + extent->len;
    if (blob->class->resident == NULL || span == 0)
        return true;
    for (uint64_t i = 0; i < SAMPLES; i++)
        if (!blob->class->resident(blob, extent->off + (span - 1) / (SAMPLES - 1) * i, 1))
            return false;
    return true;
}

bool td_body_is_cached(const struct td_body *body)
{
    for (size_t i = 0; i < body->extent_count; i++)
        if (!sample_is_resident(&body->extents[i]))
            return false;
    return true;
}

/* Prefetches the extent's first len bytes. Returns how many bytes were read, gaps included, at most len. */
static uint64_t prefetch_extent(const struct td_extent *extent, uint64_t len)
{
    enum { GAP_BYTES = 64 * 1024 }; /* gaps up to this are read too: one request instead of many */
    uint64_t done = 0;
    bool dense = extent->stride <= extent->len || extent->stride - extent->len <= GAP_BYTES;
    uint64_t piece = dense ? extent->stride * (extent->count - 1) + extent->len : extent->len;
    for (uint64_t run = 0; run < (dense ? 1 : extent->count) && done < len; run++) {
        uint64_t n = piece < len - done ? piece : len - done;
        td_blob_prefetch(extent->blob, extent->off + run * extent->stride, n);
        done += n;
    }
    return done;
}

void td_body_prefetch(const struct td_body *body, uint64_t len)
{
    for (size_t i = 0; i < body->extent_count && len > 0; i++)
        len -= prefetch_extent(&body->extents[i], len);
}

void td_body_touch(const struct td_body *body)
{
    struct td_body_cursor cursor = {0};
    struct td_blob *blob = NULL;
    uint64_t off = 0;
    uint64_t len;
    for (td_body_next(body, &cursor, SIZE_MAX, &blob, &off, &len); len > 0;
         td_body_next(body, &cursor, SIZE_MAX, &blob, &off, &len))
        if (blob->bytes != NULL)
            (void)td_fault_guard_touch(blob->bytes + off, (size_t)len);
}

bool td_body_prepare(const struct td_body *body, bool for_head, struct td_error *err)
{
    for (size_t i = 0; i < body->extent_count && i < TD_PREPARE_LOOKAHEAD; i++) {
        const struct td_extent *extent = &body->extents[i];
        if (extent->blob->class->prepare != NULL)
            return td_blob_prepare(extent->blob, extent->off, extent->len, for_head, err);
    }
    return true;
}
