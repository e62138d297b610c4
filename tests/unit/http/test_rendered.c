/* The oracle is the whole text, which write_all writes row by row into one buffer. */
#include "http/rendered.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

enum { CACHE_BYTES = 1024 * 1024 };

/* Rows of very different lengths, some of them left out. */
struct rows {
    size_t count;
    size_t *written; /* counts rows that were rendered */
    bool *destroyed;
    bool has_edges; /* a head and a tail */
};

static size_t row_len(size_t row)
{
    return row % 7 == 3 ? 0 : row % 101 == 5 ? 40000 : 10 + row % 90;
}

static void write_head(void *context, struct td_buffer *out)
{
    const struct rows *rows = context;
    if (rows->has_edges)
        td_buffer_printf(out, "head of %zu;", rows->count);
}

static size_t write_row(void *context, size_t row, size_t shown, struct td_buffer *out)
{
    const struct rows *rows = context;
    size_t len = row_len(row);
    (*rows->written)++;
    if (len > 0)
        td_buffer_printf(out, "%zu.%zu:", shown, row);
    for (size_t i = 0; i < len; i++)
        td_buffer_putc(out, (char)('a' + (row + i) % 26));
    return row + 1 + (row % 13 == 0 ? 2 : 0); /* a row may skip its followers */
}

static void write_tail(void *context, const struct td_rendered_end *end, struct td_buffer *out)
{
    const struct rows *rows = context;
    if (rows->has_edges)
        td_buffer_printf(out, "tail %zu %zu %zu", end->next_row, end->shown == 0 ? 0 : end->last_shown, end->shown);
}

static void destroy(void *context)
{
    struct rows *rows = context;
    *rows->destroyed = true;
    free(rows);
}

static const struct td_rendered_class rows_class = {write_head, write_row, write_tail, destroy};

static size_t written;
static bool destroyed;

static struct rows *rows_create(size_t count, bool has_edges)
{
    struct rows *rows = malloc(sizeof *rows);
    assert_non_null(rows);
    *rows = (struct rows){.count = count, .written = &written, .destroyed = &destroyed, .has_edges = has_edges};
    destroyed = false;
    return rows;
}

/* Writes the whole text. */
static void write_all(const struct td_rendered_rows *limits, bool has_edges, struct td_buffer *out)
{
    struct rows *rows = rows_create(limits->end, has_edges);
    struct td_rendered_end end = {.next_row = limits->first};
    td_buffer_init(out);
    write_head(rows, out);
    while (end.next_row < limits->end && end.shown < limits->most_shown) {
        size_t len = out->len;
        size_t next = write_row(rows, end.next_row, end.shown, out);
        if (out->len > len) {
            end.last_shown = end.next_row;
            end.shown++;
        }
        end.next_row = next;
    }
    write_tail(rows, &end, out);
    destroy(rows);
}

static struct td_blob *create(const struct td_rendered_rows *limits, bool has_edges, struct td_lru *cache, char *tag)
{
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    assert_true(
        td_rendered_create(&rows_class, rows_create(limits->end, has_edges), limits, cache, "key", &blob, tag, &err));
    return blob;
}

static void check_range(struct td_blob *blob, const struct td_buffer *whole, uint64_t off, size_t len)
{
    struct td_error err = TD_ERROR_INIT;
    char *bytes = malloc(len + 1);
    assert_non_null(bytes);
    assert_true(td_blob_read(blob, off, bytes, len, &err));
    CHECK(len == 0 || memcmp(bytes, whole->data + off, len) == 0, "%zu bytes at %llu", len, (unsigned long long)off);
    free(bytes);
}

static void every_part_is_that_of_the_whole(void **state)
{
    (void)state;
    static const struct td_rendered_rows limits[] = {
        {.first = 0, .end = 0, .most_shown = SIZE_MAX, .most_marks = 256},
        {.first = 0, .end = 1, .most_shown = SIZE_MAX, .most_marks = 256},
        {.first = 3, .end = 4, .most_shown = SIZE_MAX, .most_marks = 256}, /* only a row without text */
        {.first = 0, .end = 5000, .most_shown = SIZE_MAX, .most_marks = SIZE_MAX},
        {.first = 0, .end = 5000, .most_shown = SIZE_MAX, .most_marks = 2},
        {.first = 0, .end = 5000, .most_shown = SIZE_MAX, .most_marks = 3},
        {.first = 17, .end = 5000, .most_shown = 700, .most_marks = 16},
        {.first = 17, .end = 5000, .most_shown = 1, .most_marks = 16},
        {.first = 0, .end = 300, .most_shown = SIZE_MAX, .keep_bytes = 1000000, .most_marks = 16},
        {.first = 0, .end = 5000, .most_shown = SIZE_MAX, .keep_bytes = 100000, .most_marks = 16},
    };
    uint64_t seed = 3;
    for (size_t i = 0; i < 2 * COUNT_OF(limits); i++) {
        const struct td_rendered_rows *l = &limits[i / 2];
        struct td_buffer whole;
        char tag[TD_TAG_BYTES], expected[TD_TAG_BYTES];
        write_all(l, i % 2 == 0, &whole);
        struct td_blob *blob = create(l, i % 2 == 0, NULL, tag);
        CHECK(blob->len_bytes == whole.len, "case %zu: %llu bytes, not %zu", i, (unsigned long long)blob->len_bytes,
              whole.len);
        struct td_digest *digest = td_digest_create();
        td_digest_add_content(digest, whole.data, whole.len);
        assert_true(td_digest_finish(digest, expected));
        assert_string_equal(tag, expected);
        check_range(blob, &whole, 0, whole.len);
        for (size_t k = 0; k < 300 && whole.len > 0; k++) {
            size_t off = random_below(&seed, whole.len);
            size_t len = random_below(&seed, whole.len - off + 1);
            check_range(blob, &whole, off, k % 3 == 0 ? len : len % 100);
        }
        assert_false(destroyed);
        td_blob_unref(blob);
        assert_true(destroyed);
        td_buffer_fini(&whole);
    }
}

/* A text that fits in keep_bytes is not rendered again to be sent, and a cached index saves the measuring. */
static void nothing_is_rendered_in_vain(void **state)
{
    (void)state;
    struct td_rendered_rows limits = {.end = 3000, .most_shown = SIZE_MAX, .most_marks = SIZE_MAX};
    struct td_lru cache;
    struct td_buffer whole;
    write_all(&limits, true, &whole);
    assert_true(td_lru_init(&cache, &td_rendered_index_class, CACHE_BYTES));
    written = 0;
    struct td_blob *first = create(&limits, true, &cache, NULL);
    size_t once = written;
    check_range(first, &whole, 0, whole.len);
    CHECK(written <= 2 * once && written + 3 > 2 * once, "%zu of %zu rows", written,
          once); /* a read skips last rows without text */
    written = 0;
    struct td_blob *second = create(&limits, true, &cache, NULL);
    assert_int_equal(written, 0);
    td_lru_fini(&cache); /* the blobs keep the index */
    check_range(second, &whole, 0, whole.len);
    CHECK(written <= once && written + 3 > once, "%zu of %zu rows", written, once);
    written = 0;
    check_range(second, &whole, whole.len / 2, 10);
    CHECK(written < once / 10, "%zu of %zu rows", written, once);
    td_blob_unref(first);
    td_blob_unref(second);
    limits.keep_bytes = whole.len;
    first = create(&limits, true, NULL, NULL);
    written = 0;
    check_range(first, &whole, 0, whole.len);
    assert_int_equal(written, 0);
    td_blob_unref(first);
    td_buffer_fini(&whole);
}

static void want_of_memory_is_an_error(void **state)
{
    (void)state;
    static const struct td_rendered_rows limits = {
        .end = 400, .most_shown = SIZE_MAX, .keep_bytes = 50000, .most_marks = 4};
    size_t failures = 0;
    for (size_t k = 1;; k++) {
        struct td_blob *blob = NULL;
        struct td_error err = TD_ERROR_INIT;
        struct td_lru cache;
        char byte;
        alloc_count_start();
        struct rows *rows = rows_create(limits.end, true);
        assert_true(td_lru_init(&cache, &td_rendered_index_class, CACHE_BYTES));
        alloc_fail_at(k);
        bool ok = td_rendered_create(&rows_class, rows, &limits, &cache, "key", &blob, NULL, &err) &&
                  td_blob_read(blob, blob->len_bytes / 2, &byte, 1, &err);
        alloc_fail_at(0);
        td_blob_unref(blob);
        td_lru_fini(&cache);
        assert_true(destroyed);
        assert_int_equal(alloc_count_get().live_bytes, 0);
        assert_int_equal(err.code, ok ? TD_OK : TD_RESOURCE_EXHAUSTED);
        if (ok && k > 40) /* a failed allocation of the cache is no error */
            break;
        failures += ok ? 0 : 1;
    }
    assert_true(failures > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_that_of_the_whole),
        cmocka_unit_test(nothing_is_rendered_in_vain),
        cmocka_unit_test(want_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
