/* shows: security.md content-shard-index */
#include "parser/shard_index.h"

#include "core/buffer.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

/* An index and its expected result. `listing` is `tensor>file` for each tensor in byte order, then the files. A NULL
 * listing means a refusal: `at` is the text where the fault's position must be, `says` is part of the message. */
struct index_case {
    const char *name;
    const char *text;
    size_t len;
    const char *listing;
    const char *at;
    const char *says;
};

#define GOOD(name, text, listing)                         \
    {                                                     \
        name, text, sizeof(text) - 1, listing, NULL, NULL \
    }
#define BAD(name, text, at, says)                    \
    {                                                \
        name, text, sizeof(text) - 1, NULL, at, says \
    }
#define MAP(members) "{\"weight_map\":{" members "}}"

static const struct index_case cases[] = {
    GOOD("two_files", MAP("\"b\":\"m-2\",\"a\":\"m-1\",\"d\":\"m-2\",\"c\":\"m-1\""),
         "a>m-1 b>m-2 c>m-1 d>m-2 | m-1 m-2"),
    GOOD("as_written_by_transformers",
         "{\n  \"metadata\": {\n    \"total_size\": 144575840256\n  },\n  \"weight_map\": {\n"
         "    \"lm_head.weight\": \"model-00002-of-00002.safetensors\",\n    \"model.embed_tokens.weight\": "
         "\"model-00001-of-00002.safetensors\"\n  }\n}\n",
         "lm_head.weight>model-00002-of-00002.safetensors "
         "model.embed_tokens.weight>model-00001-of-00002.safetensors | "
         "model-00001-of-00002.safetensors model-00002-of-00002.safetensors"),
    GOOD("empty_map", MAP(""), " |"),
    GOOD("other_members_pass", "{\"x\":[{\"weight_map\":1}],\"weight_map\":{\"a\":\"f\"},\"metadata\":null,\"x\":2}",
         "a>f | f"),
    GOOD("escapes", MAP("\"caf\\u00e9\":\"m\\u002d1\",\"b\":\"m-1\",\"\\u0061\":\"m\\u002d2\""),
         "a>m-2 b>m-1 caf\xc3\xa9>m-1 | m-1 m-2"),
    GOOD("escaped_key", "{\"weight\\u005fmap\":{\"a\":\"f\"}}", "a>f | f"),
    GOOD("empty_tensor_name", MAP("\"\":\"f\""), ">f | f"),
    GOOD("dots_within_names", MAP("\"a\":\"..f\",\"b\":\"...\",\"c\":\".f\",\"d\":\"f..\""),
         "a>..f b>... c>.f d>f.. | ... ..f .f f.."),
    GOOD("file_like_another_tensor", MAP("\"f\":\"g\",\"g\":\"f\""), "f>g g>f | f g"),
    GOOD("files_alternate", MAP("\"a\":\"y\",\"b\":\"x\",\"c\":\"y\",\"d\":\"x\",\"e\":\"z\",\"f\":\"x\""),
         "a>y b>x c>y d>x e>z f>x | x y z"),

    GOOD("file_in_folder", MAP("\"a\":\"x/y\",\"b\":\"x/y\",\"c\":\"x\""), "a>x/y b>x/y c>x | x x/y"),
    GOOD("dots_and_slashes_that_change_nothing", MAP("\"a\":\"./f\",\"b\":\"f\",\"c\":\"./x//./y\",\"d\":\"x/y\""),
         "a>f b>f c>x/y d>x/y | f x/y"),

    BAD("nothing", "", NULL, "ends too early"),
    BAD("array", "[]", "[", "an object with weight_map"),
    BAD("no_map", "{\"metadata\":{}}", NULL, "weight_map is missing"),
    BAD("map_is_null", "{\"weight_map\":null}", "null", "must be an object of file names"),
    BAD("map_is_array", "{\"weight_map\":[\"f\"]}", "[", "must be an object of file names"),
    BAD("map_twice", "{\"weight_map\":{},\"weight_map\":{} }", "\"weight_map\":{} ", "given twice"),
    BAD("trailing", MAP("\"a\":\"f\"") "x", "x", "the end expected"),
    BAD("unclosed", "{\"weight_map\":{\"a\":\"f\"}", NULL, "ends too early"),
    BAD("duplicate_tensor", MAP("\"a\":\"f\",\"b\":\"f\",\"a\":\"f\" "), "\"a\":\"f\" ", "holds \"a\" twice"),
    BAD("duplicate_tensor_other_file", MAP("\"b\":\"f\",\"a\":\"f\",\"\\u0062\":\"g\""), "\"\\u0062",
        "holds \"b\" twice"),
    BAD("file_number", MAP("\"a\":1"), "1", "must be a file name"),
    BAD("file_null", MAP("\"a\":null"), "null", "must be a file name"),
    BAD("file_list", MAP("\"a\":[\"f\"]"), "[", "must be a file name"),
    BAD("file_empty", MAP("\"a\":\"\""), "\"\"", "file name is empty"),
    BAD("bad_32_parent", MAP("\"a\":\"../x\""), "\"../x", "\"../x\" does not lead to a file below"),
    BAD("bad_32_parent_escaped", MAP("\"a\":\"\\u002e\\u002e\\/x\""), "\"\\u002e",
        "\"../x\" does not lead to a file below"),
    BAD("bad_33_absolute", MAP("\"a\":\"/etc/passwd\""), "\"/etc", "does not lead to a file below"),
    BAD("file_above_a_folder", MAP("\"a\":\"x/../y\""), "\"x/..", "does not lead to a file below"),
    BAD("file_trailing_dot", MAP("\"a\":\"x/.\""), "\"x/", "does not lead to a file below"),
    BAD("file_of_dots", MAP("\"a\":\"./.\""), "\"./", "does not lead to a file below"),
    BAD("file_trailing_slash", MAP("\"a\":\"x/\""), "\"x/", "does not lead to a file below"),
    BAD("file_dot", MAP("\"a\":\".\""), "\".\"", "does not lead to a file below"),
    BAD("file_dot_dot", MAP("\"a\":\"..\""), "\"..\"", "does not lead to a file below"),
    BAD("file_slash", MAP("\"a\":\"\\/\""), "\"\\/", "does not lead to a file below"),
    BAD("file_nul", MAP("\"a\":\"x\\u0000.safetensors\""), "\"x\\u", "NUL"),
    BAD("tensor_nul", MAP("\"a\\u0000b\":\"x\""), "\"a\\u", "NUL"),
    BAD("tensor_not_utf8", MAP("\"a\xff\":\"x\""), "\xff", "not UTF-8"),
    BAD("tensor_surrogate", MAP("\"\\ud800\":\"x\""), "\\ud800", "surrogate"),
    BAD("raw_nul_after", MAP("\"a\":\"x\"") "\0", NULL, "the end expected"),
};

struct parsed {
    struct td_shard_index index;
    struct td_error err;
    bool ok;
    struct alloc_count memory;
    char *text; /* a block of exactly the text's size */
};

static void parse(const char *text, size_t len, size_t fail_at, struct parsed *p)
{
    p->text = malloc(len + (len == 0));
    assert_non_null(p->text);
    memcpy(p->text, text, len);
    td_error_init(&p->err);
    alloc_count_start();
    alloc_fail_at(fail_at);
    p->ok = td_shard_index_parse(&p->index, TD_SHARD_INDEX_TENSORS, td_text_n(p->text, len), &p->err);
    alloc_fail_at(0);
    p->memory = alloc_count_get();
    assert_int_equal(p->ok, p->err.code == TD_OK);
}

static void parsed_fini(struct parsed *p)
{
    td_shard_index_fini(&p->index);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    assert_null(p->index.entries);
    free(p->text);
}

static void check_listing(const struct td_shard_index *index, const char *wanted)
{
    struct td_buffer out;
    td_buffer_init(&out);
    for (size_t i = 0; i < index->entry_count; i++) {
        assert_true(index->entries[i].file < index->file_count);
        assert_int_equal(strlen(index->entries[i].tensor), index->entries[i].tensor_len);
        td_buffer_printf(&out, "%s%s>%s", i > 0 ? " " : "", index->entries[i].tensor,
                         index->files[index->entries[i].file]);
    }
    td_buffer_puts(&out, " |");
    for (size_t i = 0; i < index->file_count; i++)
        td_buffer_printf(&out, " %s", index->files[i]);
    assert_string_equal(td_buffer_terminate(&out), wanted);
    td_buffer_fini(&out);
}

static void one_case(void **state)
{
    const struct index_case *c = *state;
    struct parsed p;
    parse(c->text, c->len, 0, &p);
    CHECK(p.memory.peak_bytes <= 6144 + 16 * c->len, "%s: %zu bytes", c->name, p.memory.peak_bytes);
    if (c->listing != NULL) {
        CHECK(p.ok, "%s: %s", c->name, p.err.message);
        struct alloc_count before = alloc_count_get();
        check_listing(&p.index, c->listing);
        assert_int_equal(alloc_count_get().live_bytes, before.live_bytes);
    } else {
        CHECK(!p.ok, "%s: accepted", c->name);
        assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
        check_error(&p.err, c->len, true, c->name);
        check_says(&p.err, c->says, c->name);
        const char *at = c->at != NULL ? strstr(c->text, c->at) : NULL;
        CHECK(c->at == NULL || (at != NULL && p.err.pos == (uint64_t)(at - c->text)), "%s: at %llu", c->name,
              (unsigned long long)p.err.pos);
    }
    parsed_fini(&p);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct index_case *c = &cases[i];
        size_t len = c->len;
        while (len > 0 && c->text[len - 1] == '\n')
            len--;
        for (size_t cut = 0; c->listing != NULL && cut < len; cut++) {
            struct parsed p;
            parse(c->text, cut, 0, &p);
            CHECK(!p.ok, "%s: %zu bytes accepted", c->name, cut);
            assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
            check_error(&p.err, cut, true, c->name);
            parsed_fini(&p);
        }
    }
}

/* The map of Keras names groups, each with a file or a list of files. */
static void groups(void **state)
{
    (void)state;
    static const struct {
        const char *text, *files; /* NULL: refused */
    } maps[] = {
        {MAP("\"/a/vars\":\"m_1\",\"/b/vars\":[\"m_1\",\"m_0\"],\"/c/vars\":[]"), " | m_0 m_1"},
        {MAP("\"/a/vars\":[\"./m\"]"), " | m"},
        {MAP(""), " |"},
        {MAP("\"/a/vars\":[\"../m\"]"), NULL},
        {MAP("\"/a/vars\":[[\"m\"]]"), NULL},
        {MAP("\"/a/vars\":1"), NULL},
        {MAP("\"/a/vars\":[\"m\""), NULL},
    };
    for (size_t i = 0; i < COUNT_OF(maps); i++) {
        struct td_shard_index index;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_shard_index_parse(&index, TD_SHARD_INDEX_GROUPS, td_text_of(maps[i].text), &err);
        CHECK(ok == (maps[i].files != NULL) && index.by_group, "%s: %s", maps[i].text, err.message);
        if (ok)
            check_listing(&index, maps[i].files);
        td_shard_index_fini(&index);
    }
}

/* The metadata that slime (slime/utils/disk_delta.py) and ModelExpress (canonical_delta.py) write, and values that
 * nobody writes. Of members that are given twice the last one counts, as in Python's json.load. */
static void deltas(void **state)
{
    (void)state;
    static const struct {
        const char *metadata; /* NULL: the index has none */
        bool is_delta;
        const char *base;
        bool is_refused;
    } indexes[] = {
        {"{\"version\":\"000002\",\"base_version\":\"000001\",\"delta_encoding\":\"xor\","
         "\"compression_format\":\"zstd\",\"checksum_format\":\"xxh3-128\"}",
         true, "000001", false},
        {"{\"delta_encoding\":\"overwrite\",\"base_version\":7}", true, "7", false},
        {"{\"delta_encoding\":\"xor\"}", true, NULL, false},
        {"{\"delta_encoding\":\"xor\",\"base_version\":null}", true, NULL, false},
        {"{\"delta\\u005fencoding\":\"xor\",\"base_version\":\"\\u0061\"}", true, "a", false},
        {"{\"delta_encoding\":{\"a\":[1]},\"base_version\":\"a\"}", true, "a", false},
        {"{\"delta_encoding\":null,\"base_version\":\"a\"}", false, NULL, false},
        {"{\"base_version\":{\"delta_encoding\":\"xor\"},\"total_size\":1}", false, NULL, false},
        {"{\"delta_encoding\":\"xor\",\"delta_encoding\":null}", false, NULL, false},
        {"{\"delta_encoding\":\"xor\",\"base_version\":\"a\",\"base_version\":\"b\"}", true, "b", false},
        {"{\"delta_encoding\":\"xor\"},\"metadata\":{}", false, NULL, false},
        {"[{\"delta_encoding\":\"xor\"}]", false, NULL, false},
        {"\"delta_encoding\"", false, NULL, false},
        {NULL, false, NULL, false},
        {"{\"delta_encoding\":\"xor\",\"base_version\":[\"a\"]}", true, NULL, true},
        {"{\"delta_encoding\":\"xor\",\"base_version\":true}", true, NULL, true},
        {"{\"delta_encoding\":\"xor\",\"base_version\":\"a\\u0000b\"}", true, NULL, true},
    };
    for (size_t i = 0; i < COUNT_OF(indexes); i++) {
        for (int after = 0; after < 2; after++) { /* the metadata come before or after the map */
            char text[512];
            char metadata[256];
            (void)snprintf(metadata, sizeof metadata, "\"metadata\":%s",
                           indexes[i].metadata == NULL ? "null" : indexes[i].metadata);
            (void)snprintf(text, sizeof text, after ? "{%2$s,%1$s}" : "{%1$s,%2$s}", metadata,
                           "\"weight_map\":{\"a\":\"f\"}");
            struct parsed p;
            parse(text, strlen(text), 0, &p);
            CHECK(p.ok != indexes[i].is_refused, "%s: %s", text, p.err.message);
            CHECK(!p.ok || p.index.is_delta == indexes[i].is_delta, "%s", text);
            bool same = p.index.base_version == NULL || indexes[i].base == NULL
                            ? p.index.base_version == indexes[i].base
                            : strcmp(p.index.base_version, indexes[i].base) == 0;
            CHECK(same, "%s: %s", text, p.index.base_version == NULL ? "none" : p.index.base_version);
            if (p.ok)
                check_listing(&p.index, "a>f | f");
            parsed_fini(&p);
        }
    }
}

/* A base_version of 255 bytes is read, escaped or not; one of 256 bytes is refused. */
static void base_versions_are_bounded(void **state)
{
    (void)state;
    for (size_t len = 255; len <= 256; len++) {
        for (int escaped = 0; escaped < 2; escaped++) {
            struct td_buffer text;
            td_buffer_init(&text);
            td_buffer_puts(&text, "{\"metadata\":{\"delta_encoding\":\"xor\",\"base_version\":\"");
            for (size_t i = 0; i < len; i++)
                td_buffer_puts(&text, escaped ? "\\u0061" : "a");
            td_buffer_puts(&text, "\"},\"weight_map\":{}}");
            struct parsed p;
            parse(text.data, text.len, 0, &p);
            CHECK(p.ok == (len == 255), "%zu bytes, %d: %s", len, escaped, p.err.message);
            CHECK(!p.ok || strlen(p.index.base_version) == len, "%zu bytes, %d", len, escaped);
            parsed_fini(&p);
            td_buffer_fini(&text);
        }
    }
}

/* shows: security.md content-parse-memory */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    size_t failed = 0;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bool done = false;
        for (size_t k = 1; !done; k++) {
            struct parsed p;
            parse(cases[i].text, cases[i].len, k, &p);
            done = p.memory.calls < k;
            if (!done) {
                failed++;
                CHECK(p.err.code == TD_RESOURCE_EXHAUSTED, "%s, allocation %zu: %s", cases[i].name, k, p.err.message);
            } else {
                assert_int_equal(p.ok, cases[i].listing != NULL);
            }
            parsed_fini(&p);
        }
    }
    assert_true(failed > 2 * COUNT_OF(cases));
}

static void deep_json_is_refused_without_recursion(void **state)
{
    (void)state;
    static const char *const before[] = {"", "{\"metadata\":", "{\"weight_map\":", "{\"weight_map\":{\"a\":"};
    for (size_t i = 0; i < COUNT_OF(before); i++) {
        struct td_buffer text;
        td_buffer_init(&text);
        td_buffer_puts(&text, before[i]);
        for (size_t n = 0; n < 100000; n++)
            td_buffer_putc(&text, '[');
        struct parsed p;
        parse(text.data, text.len, 0, &p);
        assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
        parsed_fini(&p);
        td_buffer_fini(&text);
    }
}

/* Builds an index of count tensors. Tensor i is number i * step % count, in file number i % files. */
static void build_index(struct td_buffer *text, size_t count, size_t step, size_t files)
{
    td_buffer_init(text);
    td_buffer_puts(text, "{\"weight_map\":{");
    for (size_t i = 0; i < count; i++)
        td_buffer_printf(text, "%s\"model.layers.%06zu.mlp.weight\":\"model-%06zu.safetensors\"", i > 0 ? "," : "",
                         i * step % count, i % files);
    td_buffer_puts(text, "}}");
    assert_non_null(td_buffer_terminate(text));
}

static double parse_seconds(size_t count, size_t step, size_t files)
{
    struct td_buffer text;
    build_index(&text, count, step, files);
    double best = 1e9;
    for (int round = 0; round < 3; round++) {
        struct td_shard_index index;
        struct td_error err = TD_ERROR_INIT;
        alloc_count_start();
        double before = cpu_seconds();
        CHECK(td_shard_index_parse(&index, TD_SHARD_INDEX_TENSORS, td_buffer_text(&text), &err), "%s", err.message);
        double seconds = cpu_seconds() - before;
        best = seconds < best ? seconds : best;
        assert_int_equal(index.entry_count, count);
        assert_int_equal(index.file_count, files);
        CHECK(alloc_count_get().peak_bytes <= 8192 + 4 * text.len, "%zu bytes for a text of %zu",
              alloc_count_get().peak_bytes, text.len);
        td_shard_index_fini(&index);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
    td_buffer_fini(&text);
    return best;
}

/* Four times the tensors may take at most eight times as long; quadratic growth would take sixteen times. A busy
 * machine may spoil a try; quadratic time fails them all. */
static void check_growth(size_t step, bool many_files)
{
    double small = 0, large = 0;
    for (int attempt = 0; attempt < 5; attempt++) {
        small = parse_seconds(20000, step, many_files ? 20000 : 20);
        large = parse_seconds(80000, step, many_files ? 80000 : 20);
        if (large <= 8 * small)
            return;
    }
    fail_msg("step %zu: %.6f s, then %.6f s at four times the size", step, small, large);
}

/* The memory shows that a file's name is stored once, not once per tensor. */
static void one_file_of_many_tensors_is_kept_once(void **state)
{
    (void)state;
    struct td_buffer text;
    struct parsed p;
    build_index(&text, 10000, 1, 1);
    parse(text.data, text.len, 0, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(p.index.file_count, 1);
    CHECK(p.memory.peak_bytes <= text.len + text.len / 4, "%zu bytes for a text of %zu", p.memory.peak_bytes, text.len);
    parsed_fini(&p);
    td_buffer_fini(&text);
}

static void time_is_linear(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 7919}; /* in order, and shuffled: 7919 is prime */
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        check_growth(steps[i], false);
        check_growth(steps[i], true);
    }
}

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(groups),
        cmocka_unit_test(deltas),
        cmocka_unit_test(base_versions_are_bounded),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(deep_json_is_refused_without_recursion),
        cmocka_unit_test(one_file_of_many_tensors_is_kept_once),
        cmocka_unit_test(time_is_linear),
    };
    struct CMUnitTest tests[COUNT_OF(cases) + COUNT_OF(others)];
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = one_case, .initial_state = (void *)(uintptr_t)&cases[i]};
    memcpy(tests + COUNT_OF(cases), others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
