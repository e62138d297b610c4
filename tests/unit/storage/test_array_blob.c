#include "storage/array_blob.h"

#include "parser/format/dtype.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

/* Returns a blob of bytes that depend on their positions. */
static struct td_blob *source_create(size_t len)
{
    struct td_blob *blob = NULL;
    char *data = malloc(len);
    assert_non_null(data);
    for (size_t i = 0; i < len; i++)
        data[i] = (char)(i * 131 + (i >> 8) * 17);
    assert_true(td_blob_from_heap(data, len, &blob, NULL));
    return blob;
}

/* ---- strides ------------------------------------------------------------------------------------------- */

enum { STRIDED_BYTES = 4096 };

/* Writes the elements one by one, as strides are defined. */
static size_t reference(const struct td_blob *source, uint64_t off, uint32_t elem, uint32_t rank, const uint64_t *shape,
                        const uint64_t *strides, uint8_t *out)
{
    uint64_t index[8] = {0};
    uint64_t count = 1;
    size_t used = 0;
    for (uint32_t i = 0; i < rank; i++)
        count *= shape[i];
    for (uint64_t n = 0; n < count; n++) {
        uint64_t at = 0;
        for (uint32_t i = 0; i < rank; i++)
            at += index[i] * strides[i];
        memcpy(out + used, source->bytes + off + at * elem, elem);
        used += elem;
        for (uint32_t i = rank; i-- > 0 && ++index[i] == shape[i];)
            index[i] = 0;
    }
    return used;
}

struct array {
    uint64_t off;
    uint32_t elem, rank;
    uint64_t shape[6], strides[6];
};

static const struct array arrays[] = {
    {0, 4, 0, {0}, {0}},
    {3, 1, 1, {10}, {1}},
    {3, 2, 1, {10}, {3}},
    {8, 4, 2, {5, 7}, {7, 1}} /* row-major */,
    {8, 4, 2, {7, 5}, {1, 7}} /* transposed */,
    {1, 8, 2, {4, 6}, {9, 1}} /* rows with gaps */,
    {16, 2, 3, {3, 4, 5}, {20, 5, 1}},
    {16, 2, 3, {5, 3, 4}, {1, 20, 5}},
    {16, 2, 3, {3, 5, 4}, {20, 1, 5}},
    {5, 3, 3, {2, 3, 2}, {40, 7, 2}} /* an odd element */,
    {64, 4, 3, {3, 1, 4}, {0, 0, 1}} /* expanded */,
    {64, 4, 2, {6, 1}, {0, 99}},
    {64, 16, 2, {6, 2}, {2, 1}},
    {0, 1, 4, {2, 2, 2, 2}, {1, 2, 4, 8}},
    {0, 1, 4, {2, 2, 2, 2}, {8, 1, 4, 2}},
    {0, 4, 2, {0, 5}, {1000000, 1}} /* no elements, so the offset is not checked */,
    {4092, 4, 1, {1}, {1}},
    {100, 2, 2, {4, 3}, {1, 1}} /* overlapping */,
};

static void elements_follow_in_logical_order(void **state)
{
    (void)state;
    struct td_blob *source = source_create(STRIDED_BYTES);
    for (size_t i = 0; i < COUNT_OF(arrays); i++) {
        const struct array *a = &arrays[i];
        struct td_blob *blob;
        uint8_t wanted[STRIDED_BYTES];
        uint8_t got[STRIDED_BYTES];
        size_t len = reference(source, a->off, a->elem, a->rank, a->shape, a->strides, wanted);
        CHECK(td_blob_strided(source, a->off, a->elem, a->rank, a->shape, a->strides, &blob, NULL), "array %zu", i);
        assert_int_equal(blob->len_bytes, len);
        assert_true(td_blob_unchanged(blob) && blob->bytes == NULL);
        for (size_t off = 0; off <= len; off++) {
            for (size_t n = 0; n <= len - off; n += 1 + n / 5) {
                memset(got, 0x5a, sizeof got);
                assert_true(td_blob_read(blob, off, got, n, NULL));
                CHECK(memcmp(got, wanted + off, n) == 0 && got[n] == 0x5a, "array %zu at %zu, %zu bytes", i, off, n);
            }
        }
        td_blob_unref(blob);
    }
    td_blob_unref(source);
}

static void arrays_stay_within_their_source(void **state)
{
    (void)state;
    static const struct array bad[] = {
        {4093, 4, 0, {0}, {0}},
        {0, 4, 1, {1025}, {1}},
        {0, 4, 1, {2}, {1024}},
        {4, 4, 1, {2}, {1023}},
        {UINT64_MAX, 1, 1, {1}, {1}},
        {0, 1, 2, {UINT64_C(1) << 33, UINT64_C(1) << 33}, {0, 0}},
        {0, 1, 2, {2, 2}, {UINT64_MAX, 1}},
        {0, 4, 1, {3}, {UINT64_C(1) << 62}},
        {0, 8, 2, {2, 2}, {UINT64_C(1) << 61, UINT64_C(1) << 61}},
        {0, 0, 1, {1}, {1}},
        {0, 1, TD_STRIDED_MAX_RANK + 1, {1}, {1}},
    };
    struct td_blob *source = source_create(STRIDED_BYTES);
    struct td_blob *blob = NULL;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        const struct array *a = &bad[i];
        struct td_error err = TD_ERROR_INIT;
        CHECK(!td_blob_strided(source, a->off, a->elem, a->rank, a->shape, a->strides, &blob, &err), "array %zu", i);
        assert_int_equal(err.code, TD_INTERNAL);
    }
    assert_int_equal(source->refs, 1);
    td_blob_unref(source);
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    static const uint64_t shape[] = {2, 2};
    static const uint64_t strides[] = {1, 2};
    struct td_blob *source = source_create(STRIDED_BYTES);
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    alloc_fail_at(1);
    assert_false(td_blob_strided(source, 0, 4, 2, shape, strides, &blob, &err));
    alloc_fail_at(0);
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_int_equal(source->refs, 1);
    td_blob_unref(source);
}

/* ---- byte order ---------------------------------------------------------------------------------------- */

enum { SWAPPED_BYTES = 4200 };

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
    struct td_blob *source = source_create(SWAPPED_BYTES);
    for (size_t k = 0; k < COUNT_OF(swaps); k++) {
        const struct td_swap *swap = &swaps[k];
        struct td_blob *blob;
        const uint64_t off = 3;
        size_t len = (size_t)4000 / swap->block_bytes * swap->block_bytes;
        uint8_t got[SWAPPED_BYTES];
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
    struct td_blob *source = source_create(SWAPPED_BYTES);
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
    struct td_blob *source = source_create(SWAPPED_BYTES);
    struct td_blob *blob;
    struct td_error err;
    static const struct {
        uint64_t off, len;
        struct td_swap swap;
    } cases[] = {
        {0, 10, {4, 0, 4, 1}},
        {SWAPPED_BYTES - 3, 4, {4, 0, 4, 1}},
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
        cmocka_unit_test(elements_follow_in_logical_order),
        cmocka_unit_test(arrays_stay_within_their_source),
        cmocka_unit_test(lack_of_memory_is_an_error),
        cmocka_unit_test(every_range_is_turned_round),
        cmocka_unit_test(runs_are_gathered),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(every_plain_type_has_an_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
