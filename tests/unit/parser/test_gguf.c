/* GGUF files by the real writer, split ones too, checked against the real reader's listing, and damaged. */
/* shows: security.md content-all-formats */
#include "tests/unit/parser/format_fixture.h"
#include "tests/unit/parser/gguf_case.h"

/* Returns the length that a file needs: up to the end of its last tensor, or without tensors of its pairs. The padding
 * after that may be missing. */
static uint64_t needed_bytes(const struct td_manifest *m, const char *bytes, size_t len)
{
    uint64_t end = 0;
    for (size_t i = 0; i < m->tensor_count; i++)
        if (m->tensors[i].offset + m->tensors[i].nbytes > end)
            end = m->tensors[i].offset + m->tensors[i].nbytes;
    while (m->tensor_count == 0 && bytes[len - 1] == 0) /* each of these files ends with text */
        len--;
    return m->tensor_count == 0 ? len : end;
}

/* ---- files by the real writer -------------------------------------------------------------------------- */

static const char *const fixtures[] = {
    "types",    "values", "alignment", "none", "split-00001-of-00003", "split-00002-of-00003", "split-00003-of-00003",
    "version2",
};

static struct sample load(const char *name)
{
    size_t len;
    char *bytes = read_file("gguf", name, ".gguf", &len);
    return gguf_sample(name, bytes, len);
}

/* Returns a listing of the manifest as tests/data/make_gguf.py writes it. The caller frees it. */
static char *list_manifest(const struct td_manifest *m)
{
    struct td_buffer out = {0};
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct td_tensor *t = &m->tensors[i];
        assert_int_equal(strlen(t->name), t->name_len);
        assert_ptr_equal(td_manifest_find(m, td_tensor_name(t)), t);
        assert_true(t->strides == NULL && t->reason == NULL && t->alias_of == NULL);
        assert_true((t->rank == 0) == (t->shape == NULL));
        td_buffer_printf(&out, "%s %s ", t->name, t->dtype->name);
        list_shape(&out, t->shape, t->rank);
        td_buffer_printf(&out, " %" PRIu64 "+%" PRIu64 "\n", t->offset, t->nbytes);
    }
    for (size_t i = 0; i < m->metadata_count; i++)
        td_buffer_printf(&out, "%s=%s\n", m->metadata[i].key, m->metadata[i].value);
    assert_non_null(td_buffer_terminate(&out));
    return out.data;
}

static void fixture_is_as_the_real_reader_says(void **state)
{
    struct sample file = load(*state);
    char *wanted = read_text("gguf", file.name, ".txt");
    struct parsed p;
    parse_bytes(file.format, file.bytes, file.len, &p);
    CHECK(p.ok, "%s: %s", file.name, p.err.message);
    char *listing = list_manifest(&p.manifest);
    assert_string_equal(listing, wanted);
    free(listing);
    __real_free(wanted);
    check_memory(&file, &p);
    parsed_fini(&p);
    __real_free(file.bytes);
}

/* Only the padding after the last tensor may be missing: the reference reads each tensor's own bytes. */
static void every_prefix_of_a_fixture_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(fixtures); i++) {
        struct sample file = load(fixtures[i]);
        struct parsed p;
        parse_bytes(file.format, file.bytes, file.len, &p);
        uint64_t needed = needed_bytes(&p.manifest, file.bytes, file.len);
        parsed_fini(&p);
        check_each_prefix(&file, needed);
        __real_free(file.bytes);
    }
}

static void every_byte_of_a_fixture_changed(void **state)
{
    (void)state;
    static const uint8_t others[] = {0, 1, 2, 7, 8, 9, 13, 0x7F, 0x80, 0xFF};
    for (size_t i = 0; i < COUNT_OF(fixtures); i++) {
        struct sample file = load(fixtures[i]);
        struct changes changes = {.end = file.len, .step = 1, .by = others, .count = sizeof others};
        if (file.len > 2000) {
            changes.step = 5;
            changes.begin = i % changes.step;
        }
        check_each_change(&file, &changes);
        __real_free(file.bytes);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    size_t failed = 0;
    for (size_t i = 0; i < COUNT_OF(fixtures); i++) {
        struct sample file = load(fixtures[i]);
        failed += check_each_allocation(&file, TD_OK);
        __real_free(file.bytes);
    }
    assert_true(failed > 3 * COUNT_OF(fixtures));
}

static void error_may_be_left_out(void **state)
{
    (void)state;
    struct sample file = load("values");
    for (size_t cut = file.len; cut > 0; cut /= 2)
        check_without_error(&file, cut, cut == file.len);
    __real_free(file.bytes);
}

/* The manifest has the numbers with which the catalog checks a set of split files. */
static void pairs_133_134_of_splits_are_in_the_manifest(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct sample file = load(fixtures[4 + i]);
        struct parsed p;
        parse_bytes(file.format, file.bytes, file.len, &p);
        size_t found = 0;
        for (size_t k = 0; k < p.manifest.metadata_count; k++) {
            const struct td_metadata *pair = &p.manifest.metadata[k];
            if (strcmp(pair->key, TD_GGUF_SPLIT_NO) == 0)
                found += strtoul(pair->value, NULL, 10) == i;
            if (strcmp(pair->key, TD_GGUF_SPLIT_COUNT) == 0)
                found += strcmp(pair->value, "3") == 0;
        }
        assert_int_equal(found, 2);
        assert_true(p.manifest.split_number == (int32_t)i && p.manifest.split_count == 3);
        parsed_fini(&p);
        __real_free(file.bytes);
    }
}

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(every_prefix_of_a_fixture_is_refused),
        cmocka_unit_test(every_byte_of_a_fixture_changed),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(error_may_be_left_out),
        cmocka_unit_test(pairs_133_134_of_splits_are_in_the_manifest),
    };
    struct CMUnitTest tests[COUNT_OF(fixtures) + COUNT_OF(others)];
    for (size_t i = 0; i < COUNT_OF(fixtures); i++)
        tests[i] = (struct CMUnitTest){.name = fixtures[i],
                                       .test_func = fixture_is_as_the_real_reader_says,
                                       .initial_state = (void *)(uintptr_t)fixtures[i]};
    memcpy(tests + COUNT_OF(fixtures), others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
