#include "parser/format/manifest.h"

#include "parser/format/limits.h"
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
        int forth = td_text_compare(td_text_of(cases[i].a), td_text_of(cases[i].b));
        int back = td_text_compare(td_text_of(cases[i].b), td_text_of(cases[i].a));
        assert_int_equal((forth > 0) - (forth < 0), cases[i].order);
        assert_int_equal((back > 0) - (back < 0), -cases[i].order);
    }
}

/* Makes a manifest with these names in this order. Tensor i has sizes[i] bytes, or i when sizes is NULL. */
static void fill(struct td_manifest *manifest, const char *const *names, const uint64_t *sizes, size_t count)
{
    td_manifest_init(manifest, 0);
    manifest->tensors = td_arena_array(&manifest->arena, count, sizeof *manifest->tensors);
    assert_non_null(manifest->tensors);
    for (size_t i = 0; i < count; i++)
        manifest->tensors[i] = (struct td_tensor){.name = td_arena_strndup(&manifest->arena, td_text_of(names[i])),
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
    struct td_error err = TD_ERROR_INIT;
    fill(&manifest, names, NULL, COUNT_OF(names));
    assert_true(td_manifest_finish(&manifest, &err));
    assert_true(manifest.total_bytes == 0 + 1 + 2 + 3 + 4 + 5);
    for (size_t i = 0; i < COUNT_OF(sorted); i++) {
        const struct td_tensor *t = &manifest.tensors[i];
        assert_string_equal(t->name, sorted[i]);
        assert_true(t->nbytes == came[i] && t->offset == 1000 + came[i]);
        assert_ptr_equal(td_manifest_find(&manifest, td_text_of(sorted[i])), t);
    }
    static const char *const absent[] = {"b.", "A", "aa", "d", "b.weightx", "b.weigh", "a.00"};
    for (size_t i = 0; i < COUNT_OF(absent); i++)
        assert_null(td_manifest_find(&manifest, td_text_of(absent[i])));
    assert_null(td_manifest_find(&manifest, TD_TEXT("a\0")));
    td_manifest_fini(&manifest);
    assert_null(manifest.tensors);
}

static void empty_manifest_is_one(void **state)
{
    (void)state;
    struct td_manifest manifest;
    struct td_error err = TD_ERROR_INIT;
    td_manifest_init(&manifest, 0);
    assert_true(td_manifest_finish(&manifest, &err));
    assert_true(manifest.total_bytes == 0);
    assert_null(td_manifest_find(&manifest, TD_TEXT("")));
    td_manifest_fini(&manifest);
}

static void duplicate_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"x", "layer\n", "a", "layer\n"};
    struct td_manifest manifest;
    struct td_error err = TD_ERROR_INIT;
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
    struct td_error err = TD_ERROR_INIT;
    fill(&manifest, names, most, COUNT_OF(names));
    assert_true(td_manifest_finish(&manifest, &err));
    assert_true(manifest.total_bytes == UINT64_MAX);
    td_manifest_fini(&manifest);
    fill(&manifest, names, more, COUNT_OF(names));
    assert_false(td_manifest_finish(&manifest, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_manifest_fini(&manifest);
}

/* Makes a manifest of a tensor in chunks, as HDF5's reader makes them, one in a deflated stream, and a plain one. */
static void fill_coded(struct td_manifest *manifest)
{
    static const char *const names[] = {"chunked", "deflated", "plain"};
    static const uint64_t numbers[] = {4, 6, 2, 3};
    static const struct td_coding_chunk chunks[] = {{.number = 1, .offset = 7, .bytes = 24},
                                                    {.number = 3, .offset = 40}};
    struct td_arena *arena = &manifest->arena;
    fill(manifest, names, NULL, COUNT_OF(names));
    uint64_t *sizes = td_arena_array(arena, COUNT_OF(numbers), sizeof *sizes);
    struct td_coding_chunk *kept = td_arena_array(arena, COUNT_OF(chunks), sizeof *kept);
    uint8_t *filled = td_arena_alloc(arena, 4);
    struct td_coding *grid = td_manifest_add_coding(manifest);
    struct td_coding *stream = td_manifest_add_coding(manifest);
    assert_true(sizes != NULL && kept != NULL && filled != NULL && grid != NULL && stream != NULL);
    memcpy(sizes, numbers, sizeof numbers);
    memcpy(kept, chunks, sizeof chunks);
    memcpy(filled, "fill", 4);
    grid->kind = TD_CODING_CHUNKS;
    grid->text = td_arena_strndup(arena, TD_TEXT("chunked"));
    grid->grid = (struct td_coding_grid){.rank = 2,
                                         .elem_bytes = 4,
                                         .shape = sizes,
                                         .chunk_shape = sizes + 2,
                                         .fill = filled,
                                         .chunks = kept,
                                         .chunk_count = COUNT_OF(chunks)};
    stream->base = 50;
    stream->text = td_arena_strndup(arena, TD_TEXT("compressed (deflate)"));
    manifest->tensors[0].coding = grid;
    manifest->tensors[0].shape = sizes;
    manifest->tensors[0].strides = sizes + 2;
    manifest->tensors[0].rank = 2;
    manifest->tensors[1].coding = stream;
    manifest->tensors[1].alias_of = names[0];
    manifest->tensors[2].reason = td_arena_strndup(arena, TD_TEXT("why not"));
}

/* Copies all tensors of a manifest and frees the manifest, so that AddressSanitizer sees a use of its memory. */
static bool copy_all(struct td_manifest *to, struct td_tensor tensors[3], struct td_error *err)
{
    struct td_manifest from;
    const struct td_coding **codings;
    bool ok = true;
    fill_coded(&from);
    td_manifest_init(to, 0);
    assert_non_null(td_manifest_add_coding(to)); /* so that numbers do not begin at 0 */
    ok = td_manifest_copy_codings(to, &from, 1000, &codings, err);
    for (size_t i = 0; ok && i < 3; i++) {
        const char *name = td_arena_strndup(&to->arena, td_tensor_name(&from.tensors[i]));
        ok = name != NULL ? td_manifest_copy_tensor(to, &from.tensors[i], name, codings, 1000, &tensors[i], err)
                          : td_error_no_memory(err);
    }
    td_manifest_fini(&from);
    return ok;
}

/* shows: security.md content-inner-files */
static void copies_outlive_what_they_came_from(void **state)
{
    (void)state;
    struct td_manifest to;
    struct td_tensor t[3];
    struct td_error err = TD_ERROR_INIT;
    assert_true(copy_all(&to, t, &err));
    const struct td_coding_grid *grid = &t[0].coding->grid;
    assert_string_equal(t[0].name, "chunked");
    assert_true(t[0].rank == 2 && t[0].shape[0] == 4 && t[0].shape[1] == 6 && t[0].strides[1] == 3);
    assert_true(t[0].offset == 1000 && t[0].coding->base == 1000 && t[0].coding->number == 2);
    assert_string_equal(t[0].coding->text, "chunked");
    assert_true(grid->shape[1] == 6 && grid->chunk_shape[0] == 2 && memcmp(grid->fill, "fill", 4) == 0);
    assert_true(grid->chunk_count == 2 && grid->chunks[0].bytes == 24 && grid->chunks[1].offset == 40);
    assert_true(t[1].offset == 1001 && t[1].coding->base == 1050 && t[1].coding->number == 1 && t[1].alias_of == NULL);
    assert_string_equal(t[1].coding->text, "compressed (deflate)");
    assert_true(t[2].offset == 2002 && t[2].coding == NULL);
    assert_string_equal(t[2].reason, "why not");
    assert_true(to.coding_count == 3 && to.codings->next->next->next == NULL);
    td_manifest_fini(&to);
}

static void copies_report_want_of_memory(void **state)
{
    (void)state;
    struct td_tensor t[3];
    size_t refused = 0;
    for (size_t limit = 1;; limit += 16, refused++) {
        struct td_manifest from;
        struct td_manifest to;
        const struct td_coding **codings;
        struct td_error err = TD_ERROR_INIT;
        fill_coded(&from);
        td_manifest_init(&to, limit);
        bool ok = td_manifest_copy_codings(&to, &from, 0, &codings, &err);
        for (size_t i = 0; ok && i < 3; i++)
            ok = td_manifest_copy_tensor(&to, &from.tensors[i], "", codings, 0, &t[i], &err);
        td_manifest_fini(&from);
        td_manifest_fini(&to);
        if (ok)
            break;
        assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    }
    assert_true(refused >= 20);
}

/* shows: security.md content-inner-files */
static void copies_past_2_64_are_refused(void **state)
{
    (void)state;
    struct td_manifest from;
    struct td_manifest to;
    struct td_tensor t;
    const struct td_coding **codings;
    struct td_error err = TD_ERROR_INIT;
    fill_coded(&from);
    td_manifest_init(&to, 0);
    assert_false(td_manifest_copy_codings(&to, &from, UINT64_MAX - 49, &codings, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_error_init(&err);
    assert_false(td_manifest_copy_tensor(&to, &from.tensors[2], "plain", NULL, UINT64_MAX - 1001, &t, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_manifest_fini(&from);
    td_manifest_fini(&to);
}

static void finish_reports_want_of_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"c", "b", "a"};
    size_t k = 1;
    for (bool ok = false; !ok; k++) {
        struct td_manifest manifest;
        struct td_error err = TD_ERROR_INIT;
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

/* The limit is that of torch, NumPy and HDF5. With strides of 0 one byte makes a tensor of any size. */
/* shows: security.md content-tensor-size */
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
        struct td_error err = TD_ERROR_INIT;
        struct td_tensor tensor = {.name = "w",
                                   .name_len = 1,
                                   .rank = 2,
                                   .dtype = td_dtype_find(td_text_of(rows[i].dtype)),
                                   .shape = rows[i].shape,
                                   .strides = none};
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
        cmocka_unit_test(copies_outlive_what_they_came_from),
        cmocka_unit_test(copies_report_want_of_memory),
        cmocka_unit_test(copies_past_2_64_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
