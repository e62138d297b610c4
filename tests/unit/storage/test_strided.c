#include "storage/array_blob.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

enum { SOURCE_BYTES = 4096 };

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
    struct td_blob *source = source_create();
    for (size_t i = 0; i < COUNT_OF(arrays); i++) {
        const struct array *a = &arrays[i];
        struct td_blob *blob;
        uint8_t wanted[SOURCE_BYTES];
        uint8_t got[SOURCE_BYTES];
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
    struct td_blob *source = source_create();
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
    struct td_blob *source = source_create();
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    alloc_fail_at(1);
    assert_false(td_blob_strided(source, 0, 4, 2, shape, strides, &blob, &err));
    alloc_fail_at(0);
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_int_equal(source->refs, 1);
    td_blob_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_follow_in_logical_order),
        cmocka_unit_test(arrays_stay_within_their_source),
        cmocka_unit_test(lack_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
