
#include "parser/format/dtype.h"
#include "storage/array_blob.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

enum { SOURCE_BYTES = 4200 };

static struct td_blob *source_create(void)
{
    struct td_blob *blob = NULL;
    char *data = malloc(SOURCE_BYTES);
    assert_non_null(data);
    for (size_t i = 0; i < SOURCE_BYTES; i++)
        data[i] = (char)(i * 131 + (i >> 8) * 17);
    assert_true(td_blob_from_heap(data, SOURCE_BYTES, &blob, NULL));
    return blob;
}

/* Returns the position in the source of byte i of the result, as a swap is defined. */
static size_t from(const struct td_swap *swap, size_t i)
{
    size_t block = i / swap->block_bytes * swap->block_bytes;
    size_t at = i - block;
    if (at < swap->off || at >= swap->off + (size_t)swap->width * swap->count)
        return i;
    size_t number = (at - swap->off) / swap->width;
    size_t byte = (at - swap->off) % swap->width;
    return block + swap->off + number * swap->width + (swap->width - 1 - byte);
}

static const struct td_swap swaps[] = {
    {1, 0, 1, 1},  {2, 0, 2, 1},   {4, 0, 4, 1},  {8, 0, 8, 1},   {16, 0, 16, 1},   {4, 0, 2, 2},
    {16, 0, 8, 2}, {32, 0, 16, 2}, {18, 0, 2, 1}, {144, 0, 2, 2}, {210, 208, 2, 1}, {17, 0, 1, 1},
};

static void every_range_is_turned_round(void **state)
{
    (void)state;
    struct td_blob *source = source_create();
    for (size_t k = 0; k < COUNT_OF(swaps); k++) {
        const struct td_swap *swap = &swaps[k];
        struct td_blob *blob;
        const uint64_t off = 3;
        size_t len = (size_t)4000 / swap->block_bytes * swap->block_bytes;
        uint8_t got[SOURCE_BYTES];
        assert_true(td_blob_swapped(source, off, len, swap, &blob, NULL));
        assert_int_equal(blob->len_bytes, len);
        for (size_t a = 0; a < len; a += a < 40 ? 1U : 97U)
            for (size_t n = 1; n <= len - a; n += n < 40 ? 1U : 211U) {
                assert_true(td_blob_read(blob, a, got, n, NULL));
                for (size_t i = 0; i < n; i++)
                    CHECK(got[i] == source->bytes[off + from(swap, a + i)], "swap %zu: byte %zu of %zu+%zu", k, i, a,
                          n);
            }
        td_blob_unref(blob);
    }
    td_blob_unref(source);
}

/* Runs that begin on blocks are gathered in one call, other runs one by one: both give the same bytes. */
static void runs_are_gathered(void **state)
{
    (void)state;
    struct td_blob *source = source_create();
    struct td_blob *blob;
    uint8_t got[600];
    static const uint64_t runs[][4] = {{0, 8, 10, 40}, {4, 4, 30, 12}, {3, 5, 10, 17}, {8, 6, 5, 8}};
    assert_true(td_blob_swapped(source, 0, 4000, &swaps[2], &blob, NULL));
    for (size_t k = 0; k < COUNT_OF(runs); k++) {
        const uint64_t *r = runs[k];
        assert_true(td_blob_gather(blob, r[0], r[1], r[2], r[3], got, NULL));
        for (uint64_t i = 0; i < r[2]; i++)
            for (uint64_t j = 0; j < r[1]; j++)
                assert_int_equal(got[i * r[1] + j], source->bytes[from(&swaps[2], r[0] + i * r[3] + j)]);
    }
    td_blob_unref(blob);
    td_blob_unref(source);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct td_blob *source = source_create();
    struct td_blob *blob;
    struct td_error err;
    static const struct {
        uint64_t off, len;
        struct td_swap swap;
    } cases[] = {
        {0, 10, {4, 0, 4, 1}},
        {SOURCE_BYTES - 3, 4, {4, 0, 4, 1}},
        {UINT64_MAX, 4, {4, 0, 4, 1}},
        {0, 4, {4, 2, 4, 1}},
        {0, 0, {0, 0, 0, 0}},
        {0, 1024, {1024, 0, 2, 512}},
        {0, 4, {4, 0, UINT16_MAX, UINT16_MAX}},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        td_error_init(&err);
        assert_false(td_blob_swapped(source, cases[k].off, cases[k].len, &cases[k].swap, &blob, &err));
        assert_int_equal(err.code, TD_INTERNAL);
    }
    td_error_init(&err);
    alloc_fail_at(1);
    assert_false(td_blob_swapped(source, 0, 4, &swaps[2], &blob, &err));
    alloc_fail_at(0);
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    td_blob_unref(source);
}

/* Every type of a format that can be big-endian has a valid byte order. */
static void every_plain_type_has_an_order(void **state)
{
    (void)state;
    struct td_swap swap;
    for (size_t i = 0; td_dtype_at(i) != NULL; i++) {
        const struct td_dtype *dtype = td_dtype_at(i);
        bool known = td_dtype_swap(dtype, &swap);
        CHECK(known || dtype->block_elems > 1 || dtype->block_bytes == 0, "%s", dtype->name);
        if (known)
            CHECK(swap.block_bytes == dtype->block_bytes && swap.off + swap.width * swap.count <= swap.block_bytes,
                  "%s", dtype->name);
    }
    assert_true(td_dtype_swap(td_dtype_find(TD_TEXT("C64")), &swap));
    assert_true(swap.width == 4 && swap.count == 2);
    assert_true(td_dtype_swap(td_dtype_find(TD_TEXT("Q6_K")), &swap));
    assert_true(swap.off == 208 && swap.width == 2 && swap.count == 1);
    assert_false(td_dtype_swap(td_dtype_find(TD_TEXT("IQ1_M")), &swap));
    assert_false(td_dtype_swap(td_dtype_find(TD_TEXT("STRING")), &swap));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_range_is_turned_round),
        cmocka_unit_test(runs_are_gathered),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(every_plain_type_has_an_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
