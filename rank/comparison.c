/* Plan: one pass through both lists of tensors, which are sorted by name, side by side. It notes every tensor that is
 * not known to be the same. A second pass reads those of unknown content, in the order of their sizes, and the list
 * then loses those that turn out to be the same. */
#include "rank/comparison.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/waiting.h"
#include "rank/tensor_source.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 128 * 1024, /* of each side, that are compared at once */
    PAIRS_PER_LOOK = 256      /* the comparison looks so often whether it is to end */
};

const char *td_change_name(enum td_change change)
{
    static const char *const names[TD_CHANGES] = {
        [TD_CHANGE_SAME] = "same",      [TD_CHANGE_ADDED] = "added", [TD_CHANGE_REMOVED] = "removed",
        [TD_CHANGE_DTYPE] = "dtype",    [TD_CHANGE_SHAPE] = "shape", [TD_CHANGE_CONTENT] = "content",
        [TD_CHANGE_UNKNOWN] = "unknown"};
    return names[change];
}

/* ---- what is known without reading ----------------------------------------------------------------------- */

/* The comparison, and what it needs while it runs. */
struct run {
    struct td_comparison *comparison;
    struct td_virtual_digests *digests;
    const struct td_comparison_limits *limits;
    struct td_tensor_sums a, b; /* of the pair that is being judged; else empty */
};

/* The tensors of one name, one of each side, by their numbers from 1 on. */
struct pair {
    struct td_tensor_ref a, b;
    uint32_t a_number, b_number;
};

static bool have_equal_shapes(const struct td_tensor *a, const struct td_tensor *b)
{
    return a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

/* Returns whether both files are known to have the same bytes. */
static bool are_files_equal(const struct td_entry *a, const struct td_entry *b)
{
    if (a->file == b->file)
        return true;
    const char *a_sha256 = td_file_sha256(a->file);
    const char *b_sha256 = td_file_sha256(b->file);
    return a_sha256 != NULL && b_sha256 != NULL && strcmp(a_sha256, b_sha256) == 0;
}

/* Returns whether two tensors of one type and shape, at one offset of files with the same bytes, are read in the same
 * way. Tensors in several pieces are left to their content keys. */
static bool are_read_alike(const struct td_tensor *a, const struct td_tensor *b)
{
    if (td_tensor_access(a) == TD_ACCESS_DIRECT && td_tensor_access(b) == TD_ACCESS_DIRECT)
        return true;
    return a->piece_count == 0 && b->piece_count == 0 && a->big_endian == b->big_endian &&
           (a->strides == NULL) == (b->strides == NULL) &&
           (a->strides == NULL || memcmp(a->strides, b->strides, a->rank * sizeof *a->strides) == 0) &&
           (a->coding == NULL) == (b->coding == NULL) && (a->coding == NULL || a->coding->number == b->coding->number);
}

/* Returns whether two tensors of one type and shape are known to have the same bytes, since files with the same bytes
 * have them in the same place. */
static bool are_stored_alike(const struct td_comparison *comparison, const struct pair *pair)
{
    const struct td_entry *a = comparison->a.checkpoint->parts[pair->a.part];
    const struct td_entry *b = comparison->b.checkpoint->parts[pair->b.part];
    return pair->a.tensor->offset == pair->b.tensor->offset && a->file->format == b->file->format &&
           are_files_equal(a, b) && are_read_alike(pair->a.tensor, pair->b.tensor);
}

/* Judges the content of two tensors by their content keys and known digests. */
static bool judge_by_digest(struct run *run, const struct pair *pair, enum td_change *change, struct td_error *err)
{
    *change = TD_CHANGE_UNKNOWN;
    if (!td_tensor_sums_add(&run->a, pair->a_number - 1, err) || !td_tensor_sums_add(&run->b, pair->b_number - 1, err))
        return false;
    if (td_tensor_sums_last_equal(&run->a, &run->b))
        *change = TD_CHANGE_SAME;
    else if (td_tensor_sums_find(&run->a, run->digests) && td_tensor_sums_find(&run->b, run->digests))
        *change = memcmp(run->a.items->sum, run->b.items->sum, sizeof run->a.items->sum) == 0 ? TD_CHANGE_SAME
                                                                                              : TD_CHANGE_CONTENT;
    td_tensor_sums_drop_last(&run->a);
    td_tensor_sums_drop_last(&run->b);
    return true;
}

/* Judges a pair without reading its bytes. Errors as td_tensor_sums_add. */
static bool judge(struct run *run, const struct pair *pair, enum td_change *change, struct td_error *err)
{
    const struct td_tensor *a = pair->a.tensor;
    const struct td_tensor *b = pair->b.tensor;
    *change = a == NULL                  ? TD_CHANGE_ADDED
              : b == NULL                ? TD_CHANGE_REMOVED
              : a->dtype != b->dtype     ? TD_CHANGE_DTYPE
              : !have_equal_shapes(a, b) ? TD_CHANGE_SHAPE
                                         : TD_CHANGE_UNKNOWN;
    if (*change != TD_CHANGE_UNKNOWN || td_tensor_access(a) == TD_ACCESS_NONE || td_tensor_access(b) == TD_ACCESS_NONE)
        return true;
    if (a->nbytes == 0 || are_stored_alike(run->comparison, pair)) {
        *change = TD_CHANGE_SAME;
        return true;
    }
    return judge_by_digest(run, pair, change, err);
}

/* Returns the tensor with this number, from 1 on, or one whose tensor is NULL past the last. */
static struct td_tensor_ref tensor_at(const struct td_tensor_sums_source *side, size_t number)
{
    if (number > side->checkpoint->tensor_count)
        return (struct td_tensor_ref){0};
    return td_checkpoint_tensor(side->checkpoint, number - 1);
}

/* Sets *pair to the tensors of the next name; *a and *b are the numbers of the next tensors, and move on. Returns false
 * at the end. */
static bool next_pair(const struct td_comparison *comparison, uint32_t *a, uint32_t *b, struct pair *pair)
{
    *pair = (struct pair){.a = tensor_at(&comparison->a, *a), .b = tensor_at(&comparison->b, *b)};
    if (pair->a.tensor != NULL && pair->b.tensor != NULL) {
        int order = td_text_compare(td_tensor_name(pair->a.tensor), td_tensor_name(pair->b.tensor));
        pair->a.tensor = order > 0 ? NULL : pair->a.tensor;
        pair->b.tensor = order < 0 ? NULL : pair->b.tensor;
    }
    pair->a_number = pair->a.tensor != NULL ? (*a)++ : 0;
    pair->b_number = pair->b.tensor != NULL ? (*b)++ : 0;
    return pair->a.tensor != NULL || pair->b.tensor != NULL;
}

static bool add_item(struct td_comparison *comparison, const struct pair *pair, enum td_change change,
                     struct td_error *err)
{
    if (change == TD_CHANGE_SAME)
        return true;
    if (!td_array_reserve(&comparison->items, &comparison->capacity, comparison->count + 1, sizeof *comparison->items,
                          comparison->budget, err))
        return false;
    comparison->items[comparison->count++] =
        (struct td_compared){.a = pair->a_number, .b = pair->b_number, .change = change};
    return true;
}

static bool is_asked_to_end(const struct run *run, struct td_error *err)
{
    return td_cancel_is_asked(run->limits->cancel) && !td_error_set(err, TD_UNAVAILABLE, "the comparison was ended");
}

/* Notes the differences that show without reading tensors. */
static bool compare_lists(struct run *run, struct td_error *err)
{
    struct td_comparison *comparison = run->comparison;
    struct pair pair;
    enum td_change change;
    uint32_t a = 1;
    uint32_t b = 1;
    for (size_t i = 0; next_pair(comparison, &a, &b, &pair); i++) {
        if (i % PAIRS_PER_LOOK == 0 && is_asked_to_end(run, err))
            return false;
        if (!judge(run, &pair, &change, err) || !add_item(comparison, &pair, change, err))
            return false;
        comparison->counts[change]++;
    }
    return true;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

/* Ends reading when the comparison is to end, and when its time is over. */
struct reading_end {
    const struct td_cancel *cancel;
    uint64_t until_ns;
};

static bool is_reading_over(void *context)
{
    const struct reading_end *end = context;
    return td_cancel_is_asked(end->cancel) || td_clock_ns() >= end->until_ns;
}

static bool open_tensor(const struct td_tensor_sums_source *side, uint32_t number, const struct td_cancel *cancel,
                        struct td_blob **blob, uint64_t *base, struct td_error *err)
{
    return td_tensor_open(side->catalog, side->snapshot, side->checkpoint,
                          td_checkpoint_tensor(side->checkpoint, number - 1), cancel, blob, base, err);
}

/* Compares len bytes of two blobs. Sets *equal. chunks: 2 * CHUNK_BYTES bytes of memory. Errors as td_blob_read. */
static bool compare_bytes(struct td_blob *a, uint64_t a_off, struct td_blob *b, uint64_t b_off, uint64_t len,
                          const struct td_cancel *cancel, char *chunks, bool *equal, struct td_error *err)
{
    *equal = true;
    for (uint64_t at = 0; *equal && at < len; at += CHUNK_BYTES) {
        size_t n = len - at < CHUNK_BYTES ? (size_t)(len - at) : CHUNK_BYTES;
        if (td_cancel_is_asked(cancel))
            return td_error_set(err, TD_UNAVAILABLE, "reading was ended");
        if (!td_blob_read(a, a_off + at, chunks, n, err) || !td_blob_read(b, b_off + at, chunks + CHUNK_BYTES, n, err))
            return false;
        *equal = memcmp(chunks, chunks + CHUNK_BYTES, n) == 0;
    }
    return (td_blob_unchanged(a) && td_blob_unchanged(b)) || td_error_set(err, TD_UNAVAILABLE, "a file has changed");
}

/* Reads the tensors of an item of unknown content, which have nbytes bytes each, and sets its change. It stays unknown
 * after an error: as td_tensor_open and td_blob_read. */
static bool read_item(const struct td_comparison *comparison, struct td_compared *item, uint64_t nbytes,
                      const struct td_cancel *cancel, char *chunks, struct td_error *err)
{
    struct td_blob *a = NULL;
    struct td_blob *b = NULL;
    uint64_t a_base;
    uint64_t b_base;
    bool equal;
    bool ok = open_tensor(&comparison->a, item->a, cancel, &a, &a_base, err) &&
              open_tensor(&comparison->b, item->b, cancel, &b, &b_base, err) &&
              compare_bytes(a, a_base, b, b_base, nbytes, cancel, chunks, &equal, err);
    if (ok)
        item->change = equal ? TD_CHANGE_SAME : TD_CHANGE_CONTENT;
    td_blob_unref(a);
    td_blob_unref(b);
    return ok;
}

/* Returns the bytes that have to be read of each tensor of an item; 0: nothing can be read. Equal types and shapes have
 * equal numbers of bytes where these are known. */
static uint64_t bytes_to_read(const struct td_comparison *comparison, const struct td_compared *item)
{
    if (item->change != TD_CHANGE_UNKNOWN)
        return 0;
    const struct td_tensor *a = td_checkpoint_tensor(comparison->a.checkpoint, item->a - 1).tensor;
    const struct td_tensor *b = td_checkpoint_tensor(comparison->b.checkpoint, item->b - 1).tensor;
    bool can_read = td_tensor_access(a) != TD_ACCESS_NONE && td_tensor_access(b) != TD_ACCESS_NONE;
    return can_read && a->nbytes == b->nbytes ? a->nbytes : 0;
}

static int compare_sizes(const void *x, const void *y, void *context)
{
    const struct td_comparison *comparison = context;
    const uint32_t i = *(const uint32_t *)x;
    const uint32_t k = *(const uint32_t *)y;
    const uint64_t a = bytes_to_read(comparison, &comparison->items[i]);
    const uint64_t b = bytes_to_read(comparison, &comparison->items[k]);
    return a != b ? (a < b ? -1 : 1) : i < k ? -1 : 1;
}

/* Reads the items whose numbers are in `order`, the smallest first, as far as the limits allow. */
static bool read_in_order(struct run *run, const uint32_t *order, size_t count, char *chunks, struct td_error *err)
{
    struct td_comparison *comparison = run->comparison;
    struct reading_end end = {.cancel = run->limits->cancel, .until_ns = td_clock_ns() + run->limits->read_ns};
    const struct td_cancel over = {.is_asked = is_reading_over, .context = &end};
    uint64_t left = run->limits->read_bytes;
    for (size_t i = 0; i < count; i++) {
        struct td_compared *item = &comparison->items[order[i]];
        const uint64_t nbytes = bytes_to_read(comparison, item);
        struct td_error failure = TD_ERROR_INIT;
        if (nbytes > left || is_reading_over(&end))
            break;
        left -= nbytes;
        if (!read_item(comparison, item, nbytes, &over, chunks, &failure) && failure.code == TD_RESOURCE_EXHAUSTED)
            return td_error_copy(err, &failure);
        comparison->counts[TD_CHANGE_UNKNOWN]--;
        comparison->counts[item->change]++;
    }
    return !is_asked_to_end(run, err);
}

/* Removes the items that turned out to be the same. */
static void drop_same(struct td_comparison *comparison)
{
    size_t to = 0;
    for (size_t i = 0; i < comparison->count; i++)
        if (comparison->items[i].change != TD_CHANGE_SAME)
            comparison->items[to++] = comparison->items[i];
    comparison->count = to;
}

/* Puts the items that can be read in order, and reads them. chunks: memory for the bytes of two chunks and, after
 * these, for the numbers of all items of unknown content. */
static bool read_items(struct run *run, char *chunks, struct td_error *err)
{
    struct td_comparison *comparison = run->comparison;
    uint32_t *order = (uint32_t *)(void *)(chunks + 2 * (size_t)CHUNK_BYTES);
    size_t count = 0;
    for (size_t i = 0; i < comparison->count; i++)
        if (bytes_to_read(comparison, &comparison->items[i]) > 0)
            order[count++] = (uint32_t)i;
    qsort_r(order, count, sizeof *order, compare_sizes, comparison);
    return read_in_order(run, order, count, chunks, err);
}

/* Reads the tensors of unknown content. */
static bool compare_contents(struct run *run, struct td_error *err)
{
    struct td_comparison *comparison = run->comparison;
    struct td_budget *budget = comparison->budget;
    const size_t bytes = (size_t)comparison->counts[TD_CHANGE_UNKNOWN] * sizeof(uint32_t) + 2 * (size_t)CHUNK_BYTES;
    if (comparison->counts[TD_CHANGE_UNKNOWN] == 0)
        return true;
    if (!td_budget_take(budget, bytes))
        return td_budget_refuse(budget, bytes, err);
    char *chunks = malloc(bytes);
    bool ok = chunks != NULL ? read_items(run, chunks, err) : td_error_no_memory(err);
    free(chunks);
    td_budget_give(budget, bytes);
    drop_same(comparison);
    return ok;
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

bool td_comparison_make(struct td_comparison *comparison, const struct td_tensor_sums_source *a,
                        const struct td_tensor_sums_source *b, struct td_virtual_digests *digests,
                        const struct td_comparison_limits *limits, struct td_budget *budget, struct td_error *err)
{
    struct run run = {.comparison = comparison, .digests = digests, .limits = limits};
    *comparison = (struct td_comparison){.a = *a, .b = *b, .budget = budget};
    if (!td_may_wait(err))
        return false;
    td_tensor_sums_init(&run.a, a, budget);
    td_tensor_sums_init(&run.b, b, budget);
    bool ok = compare_lists(&run, err) && compare_contents(&run, err);
    td_tensor_sums_fini(&run.a);
    td_tensor_sums_fini(&run.b);
    return ok;
}

void td_comparison_fini(struct td_comparison *comparison)
{
    free(comparison->items);
    td_budget_give(comparison->budget, comparison->capacity * sizeof *comparison->items);
    comparison->items = NULL;
    comparison->count = comparison->capacity = 0;
}
