#include "parser/manifest.h"

#include "parser/limits.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

static void limits_have_the_references_default(void **state)
{
    (void)state;
    struct td_limits limits = td_limits_default();
    assert_true(limits.max_header_bytes == 100000000); /* tensor.rs: MAX_HEADER_SIZE */
    assert_true(limits.max_memory_bytes >= 4 * limits.max_header_bytes);
}

static void names_compare_as_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int order;
    } cases[] = {
        {"", "", 0},
        {"", "a", -1},
        {"a", "a", 0},
        {"a", "b", -1},
        {"a", "ab", -1},
        {"b", "ab", 1},
        {"Z", "a", -1},
        {"a.10", "a.9", -1},
        {"~", "\xc3\xa9", -1} /* bytes are unsigned */,
        {"\xc3\xa9", "\xf0\x9f\x98\x80", -1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int forth = td_name_compare(cases[i].a, strlen(cases[i].a), cases[i].b, strlen(cases[i].b));
        int back = td_name_compare(cases[i].b, strlen(cases[i].b), cases[i].a, strlen(cases[i].a));
        assert_int_equal((forth > 0) - (forth < 0), cases[i].order);
        assert_int_equal((back > 0) - (back < 0), -cases[i].order);
    }
}

/* A manifest with these names in this order; tensor i has sizes[i] bytes, or i when sizes is NULL. */
static void fill(struct td_manifest *manifest, const char *const *names, const uint64_t *sizes, size_t count)
{
    td_manifest_init(manifest, 0);
    manifest->tensors = td_arena_array(&manifest->arena, count, sizeof *manifest->tensors);
    assert_non_null(manifest->tensors);
    for (size_t i = 0; i < count; i++)
        manifest->tensors[i] =
            (struct td_tensor){.name = td_arena_strndup(&manifest->arena, names[i], strlen(names[i])),
                               .name_len = (uint32_t)strlen(names[i]),
                               .nbytes = sizes != NULL ? sizes[i] : i,
                               .offset = 1000 + i};
    manifest->tensor_count = count;
}

static void finish_sorts_and_sums(void **state)
{
    (void)state;
    static const char *const names[] = {"b.weight", "a", "c", "b", "", "a.0"};
    static const char *const sorted[] = {"", "a", "a.0", "b", "b.weight", "c"};
    static const size_t came[] = {4, 1, 5, 3, 0, 2};
    struct td_manifest manifest;
    struct td_error err;
    td_error_init(&err);
    fill(&manifest, names, NULL, COUNT_OF(names));
    assert_true(td_manifest_finish(&manifest, &err));
    assert_true(manifest.total_bytes == 0 + 1 + 2 + 3 + 4 + 5);
    for (size_t i = 0; i < COUNT_OF(sorted); i++) {
        const struct td_tensor *t = &manifest.tensors[i];
        assert_string_equal(t->name, sorted[i]);
        assert_true(t->nbytes == came[i] && t->offset == 1000 + came[i]);
        assert_ptr_equal(td_manifest_find(&manifest, sorted[i], strlen(sorted[i])), t);
    }
    static const char *const absent[] = {"b.", "A", "aa", "d", "b.weightx", "b.weigh", "a.00"};
    for (size_t i = 0; i < COUNT_OF(absent); i++)
        assert_null(td_manifest_find(&manifest, absent[i], strlen(absent[i])));
    assert_null(td_manifest_find(&manifest, "a\0", 2));
    td_manifest_fini(&manifest);
    assert_null(manifest.tensors);
}

static void empty_manifest_is_one(void **state)
{
    (void)state;
    struct td_manifest manifest;
    struct td_error err;
    td_error_init(&err);
    td_manifest_init(&manifest, 0);
    assert_true(td_manifest_finish(&manifest, &err));
    assert_true(manifest.total_bytes == 0);
    assert_null(td_manifest_find(&manifest, "", 0));
    td_manifest_fini(&manifest);
}

static void duplicate_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"x", "layer\n", "a", "layer\n"};
    struct td_manifest manifest;
    struct td_error err;
    td_error_init(&err);
    fill(&manifest, names, NULL, COUNT_OF(names));
    assert_false(td_manifest_finish(&manifest, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "\"layer\\x0a\""));
    check_error(&err, 0, false, "duplicate");
    td_manifest_fini(&manifest);
}

static void sum_must_fit_64_bits(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    static const uint64_t most[] = {UINT64_MAX - 5, 3, 2};
    static const uint64_t more[] = {UINT64_MAX - 5, 3, 3};
    struct td_manifest manifest;
    struct td_error err;
    td_error_init(&err);
    fill(&manifest, names, most, COUNT_OF(names));
    assert_true(td_manifest_finish(&manifest, &err));
    assert_true(manifest.total_bytes == UINT64_MAX);
    td_manifest_fini(&manifest);
    fill(&manifest, names, more, COUNT_OF(names));
    assert_false(td_manifest_finish(&manifest, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_manifest_fini(&manifest);
}

static void finish_reports_want_of_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"c", "b", "a"};
    size_t k = 1;
    for (bool ok = false; !ok; k++) {
        struct td_manifest manifest;
        struct td_error err;
        td_error_init(&err);
        alloc_count_start();
        fill(&manifest, names, NULL, COUNT_OF(names));
        alloc_fail_at(k);
        ok = td_manifest_finish(&manifest, &err);
        alloc_fail_at(0);
        assert_int_equal(err.code, ok ? TD_OK : TD_RESOURCE_EXHAUSTED);
        td_manifest_fini(&manifest);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
    assert_true(k > 2);
}

/* As torch, NumPy and HDF5 count: with strides of 0 one byte makes a tensor of any size. */
static void a_tensor_has_less_than_2_63_bytes(void **state)
{
    (void)state;
    static const uint64_t none[] = {0, 0};
    static const struct {
        const char *dtype;
        uint64_t shape[2];
        bool ok;
    } rows[] = {
        {"U8", {INT64_MAX, 1}, true},
        {"U8", {(uint64_t)1 << 62, 2}, false},
        {"U8", {4294967295, 4294967297}, false},
        {"U8", {(uint64_t)1 << 62, 3}, false},
        {"F32", {INT64_MAX / 4, 1}, true},
        {"F32", {(uint64_t)1 << 61, 1}, false},
        {"U8", {(uint64_t)1 << 62, 4}, false},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct td_error err;
        struct td_tensor tensor = {.name = "w",
                                   .name_len = 1,
                                   .rank = 2,
                                   .dtype = td_dtype_find(rows[i].dtype, strlen(rows[i].dtype)),
                                   .shape = rows[i].shape,
                                   .strides = none};
        td_error_init(&err);
        CHECK(td_tensor_place(&tensor, 0, 16, 7, &err) == rows[i].ok, "%zu: %s", i, err.message);
        if (!rows[i].ok)
            assert_true(err.code == TD_INVALID_ARGUMENT && err.pos == 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_have_the_references_default),
        cmocka_unit_test(a_tensor_has_less_than_2_63_bytes),
        cmocka_unit_test(names_compare_as_bytes),
        cmocka_unit_test(finish_sorts_and_sums),
        cmocka_unit_test(empty_manifest_is_one),
        cmocka_unit_test(duplicate_is_named),
        cmocka_unit_test(sum_must_fit_64_bits),
        cmocka_unit_test(finish_reports_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
