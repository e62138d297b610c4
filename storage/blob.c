#include "storage/blob.h"

#include "core/waiting.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COPY_BYTES = 1024 * 1024 };

void td_blob_init(struct td_blob *blob, const struct td_blob_class *class, uint64_t len_bytes)
{
    blob->class = class;
    atomic_init(&blob->refs, 1);
    blob->bytes = NULL;
    blob->len_bytes = len_bytes;
}

struct td_blob *td_blob_ref(struct td_blob *blob)
{
    atomic_fetch_add_explicit(&blob->refs, 1, memory_order_relaxed);
    return blob;
}

void td_blob_unref(struct td_blob *blob)
{
    if (blob != NULL && atomic_fetch_sub_explicit(&blob->refs, 1, memory_order_acq_rel) == 1)
        blob->class->destroy(blob);
}

bool td_blob_is_shared(const struct td_blob *blob)
{
    return atomic_load_explicit(&blob->refs, memory_order_acquire) > 1;
}

/* Returns whether the running thread may read the blob: to generate bytes may take long. */
static bool may_read(const struct td_blob *blob, struct td_error *err)
{
    return blob->bytes != NULL || td_may_wait(err);
}

bool td_blob_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    assert(off <= blob->len_bytes && len <= blob->len_bytes - off);
    return len == 0 || (may_read(blob, err) && blob->class->read(blob, off, out, len, err));
}

bool td_blob_gather(struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count, uint64_t stride, void *out,
                    struct td_error *err)
{
    assert(count == 0 || len == 0 ||
           (off <= blob->len_bytes && len <= blob->len_bytes - off &&
            (count - 1) * stride <= blob->len_bytes - off - len));
    if (count > 1 && blob->class->gather != NULL)
        return may_read(blob, err) && blob->class->gather(blob, off, len, count, stride, out, err);
    uint8_t *to = out;
    for (uint64_t i = 0; i < count; i++, to += len)
        if (!td_blob_read(blob, off + i * stride, to, (size_t)len, err))
            return false;
    return true;
}

bool td_blob_copy_to(struct td_blob *blob, uint64_t off, uint64_t len,
                     bool (*take)(void *context, const void *bytes, size_t len, struct td_error *err), void *context,
                     struct td_error *err)
{
    char *bytes = malloc(len < COPY_BYTES ? (size_t)len + 1 : COPY_BYTES);
    bool ok = bytes != NULL || td_error_no_memory(err);
    while (ok && len > 0) {
        size_t n = len < COPY_BYTES ? (size_t)len : COPY_BYTES;
        ok = td_blob_read(blob, off, bytes, n, err) && take(context, bytes, n, err);
        off += n;
        len -= n;
    }
    free(bytes);
    return ok &&
           (td_blob_unchanged(blob) || td_error_set(err, TD_UNAVAILABLE, "the source has changed while it was copied"));
}

bool td_blob_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    return len == 0 || blob->class->prepare == NULL ||
           (td_may_wait(err) && blob->class->prepare(blob, off, len, for_head, err));
}

bool td_blob_unchanged(struct td_blob *blob)
{
    return blob->class->unchanged == NULL || blob->class->unchanged(blob);
}

bool td_blob_pinned(struct td_blob *blob)
{
    return blob->class->pinned == NULL || blob->class->pinned(blob);
}

bool td_blob_is_fixed(const struct td_blob *blob)
{
    return blob->class->fixed != NULL && blob->class->fixed(blob);
}

static void heap_destroy(struct td_blob *blob)
{
    free((void *)(uintptr_t)blob->bytes);
    free(blob);
}

static bool heap_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    (void)err;
    memcpy(out, blob->bytes + off, len);
    return true;
}

static const struct td_blob_class heap_class = {.destroy = heap_destroy, .read = heap_read};

/* A heap blob whose bytes were taken from a budget. */
struct budgeted {
    struct td_blob blob; /* first, so that a pointer to one is a pointer to the other */
    struct td_budget *budget;
};

static void budgeted_destroy(struct td_blob *blob)
{
    struct budgeted *mine = (struct budgeted *)(void *)blob;
    struct td_budget *budget = mine->budget;
    size_t len = (size_t)blob->len_bytes;
    heap_destroy(blob);
    td_budget_give(budget, len);
}

static const struct td_blob_class budgeted_class = {.destroy = budgeted_destroy, .read = heap_read};

bool td_blob_from_budget(char *data, size_t len, struct td_budget *budget, struct td_blob **out, struct td_error *err)
{
    struct budgeted *mine = malloc(sizeof *mine);
    if (mine == NULL) {
        free(data);
        td_budget_give(budget, len);
        return td_error_no_memory(err);
    }
    mine->budget = budget;
    td_blob_init(&mine->blob, &budgeted_class, len);
    mine->blob.bytes = (const uint8_t *)data;
    *out = &mine->blob;
    return true;
}

bool td_blob_from_heap(char *data, size_t len, struct td_blob **out, struct td_error *err)
{
    struct td_blob *blob = malloc(sizeof *blob);
    if (blob == NULL) {
        free(data);
        return td_error_no_memory(err);
    }
    td_blob_init(blob, &heap_class, len);
    blob->bytes = (const uint8_t *)data;
    *out = blob;
    return true;
}

bool td_blob_is_resident(struct td_blob *blob, uint64_t off, uint64_t len)
{
    return blob->class->resident == NULL || blob->class->resident(blob, off, len);
}

void td_blob_prefetch(struct td_blob *blob, uint64_t off, uint64_t len)
{
    if (blob->class->prefetch != NULL)
        blob->class->prefetch(blob, off, len);
}

void td_blob_will_need(const struct td_blob *blob, uint64_t off, uint64_t len)
{
    bool is_mapped = blob->class->descriptor != NULL && blob->bytes != NULL;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)blob->bytes + off) & ~(page - 1);
    if (is_mapped && len > 0)
        (void)madvise((void *)begin, (size_t)((uintptr_t)blob->bytes + off + len - begin), MADV_WILLNEED);
}

/* ---- blobs over a blob ---------------------------------------------------------------------------------- */

static struct td_blob_over *over_of(struct td_blob *blob)
{
    return (struct td_blob_over *)(void *)blob;
}

void td_blob_over_init(struct td_blob_over *over, const struct td_blob_class *class, uint64_t len_bytes,
                       struct td_blob *source, uint64_t off)
{
    td_blob_init(&over->blob, class, len_bytes);
    over->source = td_blob_ref(source);
    over->off = off;
}

void td_blob_over_destroy(struct td_blob *blob)
{
    td_blob_unref(over_of(blob)->source);
    free(blob);
}

bool td_blob_over_unchanged(struct td_blob *blob)
{
    return td_blob_unchanged(over_of(blob)->source);
}

bool td_blob_over_resident(struct td_blob *blob, uint64_t off, uint64_t len)
{
    return td_blob_is_resident(over_of(blob)->source, over_of(blob)->off + off, len);
}

void td_blob_over_prefetch(struct td_blob *blob, uint64_t off, uint64_t len)
{
    td_blob_prefetch(over_of(blob)->source, over_of(blob)->off + off, len);
}

bool td_blob_over_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    return td_blob_prepare(over_of(blob)->source, over_of(blob)->off + off, len, for_head, err);
}
