#include "parser/gguf.h"

#include "core/json.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/gguf_file.h"

#include <inttypes.h>

/* What one parse may hold at its peak: a window, an arena's first chunks, and a few times what is really there. */
static size_t memory_bound(size_t file_bytes)
{
    return 8192 + 8 * file_bytes;
}

struct parsed {
    struct td_manifest manifest;
    struct td_error err;
    bool ok;
    struct alloc_count memory; /* of the parse, before fini */
};

static void parse_input(const struct td_input *input, const struct td_limits *limits, struct parsed *out)
{
    memset(out, 0, sizeof *out);
    td_error_init(&out->err);
    alloc_count_start();
    td_manifest_init(&out->manifest, limits->max_memory_bytes);
    out->ok = td_format_gguf.parse(input, limits, &out->manifest, &out->err);
    out->memory = alloc_count_get();
    assert_int_equal(out->ok, out->err.code == TD_OK);
    assert_true(out->manifest.arena.limit_bytes == limits->max_memory_bytes); /* left as it was */
}

static void parsed_fini(struct parsed *p)
{
    td_manifest_fini(&p->manifest);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

/* From a block of exactly len bytes, so that reading on is seen. */
static void parse(const void *bytes, size_t len, struct parsed *out)
{
    uint8_t *copy = malloc(len + (len == 0));
    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, bytes, len);
    struct td_input input = td_input_memory(copy, len);
    struct td_limits limits = td_limits_default();
    parse_input(&input, &limits, out);
    __real_free(copy); /* not counted: it was there before */
}

/* A file may end where its last tensor ends, or without tensors its pairs: the padding behind them may be missing. */
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
    "types",
    "values",
    "alignment",
    "none",
    "split-00001-of-00003",
    "split-00002-of-00003",
    "split-00003-of-00003",
    "version2",
};

static char *load(const char *name, const char *suffix, size_t *len)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/gguf/%s%s", TD_TEST_DATA, name, suffix);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL, "cannot open %s", path);
    static char bytes[1 << 17];
    *len = fread(bytes, 1, sizeof bytes - 1, file);
    bytes[*len] = '\0';
    (void)fclose(file);
    char *copy = __real_malloc(*len + 1);
    assert_non_null(copy);
    memcpy(copy, bytes, *len + 1);
    return copy;
}

/* What a manifest says, as tests/data/make_gguf.py writes it. */
static char *list_manifest(const struct td_manifest *m)
{
    struct td_buffer out = {0};
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct td_tensor *t = &m->tensors[i];
        assert_int_equal(strlen(t->name), t->name_len);
        assert_ptr_equal(td_manifest_find(m, t->name, t->name_len), t);
        assert_true(t->strides == NULL && t->reason == NULL && t->alias_of == NULL);
        td_buffer_printf(&out, "%s %s [", t->name, t->dtype->name);
        for (uint32_t d = 0; d < t->rank; d++)
            td_buffer_printf(&out, d > 0 ? ",%" PRIu64 : "%" PRIu64, t->shape[d]);
        assert_true((t->rank == 0) == (t->shape == NULL));
        td_buffer_printf(&out, "] %" PRIu64 "+%" PRIu64 "\n", t->offset, t->nbytes);
    }
    for (size_t i = 0; i < m->metadata_count; i++)
        td_buffer_printf(&out, "%s=%s\n", m->metadata[i].key, m->metadata[i].value);
    assert_non_null(td_buffer_terminate(&out));
    return out.data;
}

static void fixture_is_as_the_real_reader_says(void **state)
{
    const char *name = *state;
    size_t len, listing_len;
    char *bytes = load(name, ".gguf", &len);
    char *wanted = load(name, ".txt", &listing_len);
    struct parsed p;
    parse(bytes, len, &p);
    CHECK(p.ok, "%s: %s", name, p.err.message);
    assert_string_equal(p.manifest.format, "gguf");
    char *listing = list_manifest(&p.manifest);
    assert_string_equal(listing, wanted);
    free(listing);
    __real_free(wanted);
    CHECK(p.memory.peak_bytes <= memory_bound(len), "%s: %zu bytes for %zu", name, p.memory.peak_bytes, len);
    parsed_fini(&p);
    __real_free(bytes);
}

/* Only the padding after the last tensor may be missing: the reference reads each tensor's own bytes. */
static void every_prefix_of_a_fixture_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(fixtures); i++) {
        size_t len;
        char *bytes = load(fixtures[i], ".gguf", &len);
        struct parsed p;
        parse(bytes, len, &p);
        uint64_t needed = needed_bytes(&p.manifest, bytes, len);
        parsed_fini(&p);
        for (size_t cut = 0; cut < len; cut++) {
            parse(bytes, cut, &p);
            CHECK(p.ok == (cut >= needed), "%s: %zu of %zu bytes: %s", fixtures[i], cut, len, p.err.message);
            if (!p.ok) {
                assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
                check_error(&p.err, cut, true, fixtures[i]);
            }
            parsed_fini(&p);
        }
        __real_free(bytes);
    }
}

/* Every byte of every header turned into a few others: refused or a sound manifest, never anything else. */
static void every_byte_of_a_fixture_changed(void **state)
{
    (void)state;
    static const uint8_t others[] = {0, 1, 2, 7, 8, 9, 13, 0x7F, 0x80, 0xFF};
    for (size_t i = 0; i < COUNT_OF(fixtures); i++) {
        size_t len;
        char *bytes = load(fixtures[i], ".gguf", &len);
        size_t step = len > 2000 ? 5 : 1;
        for (size_t at = i % step; at < len; at += step) {
            char kept = bytes[at];
            for (size_t k = 0; k < sizeof others; k++) {
                bytes[at] = (char)others[k];
                struct parsed p;
                parse(bytes, len, &p);
                if (!p.ok)
                    check_error(&p.err, len, true, fixtures[i]);
                for (size_t t = 0; p.ok && t < p.manifest.tensor_count; t++)
                    assert_true(p.manifest.tensors[t].offset + p.manifest.tensors[t].nbytes <= len);
                assert_true(p.memory.peak_bytes <= memory_bound(len));
                parsed_fini(&p);
            }
            bytes[at] = kept;
        }
        __real_free(bytes);
    }
}

/* Each allocation in turn fails: an error that says so, and nothing left behind. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    size_t failed = 0;
    for (size_t i = 0; i < COUNT_OF(fixtures); i++) {
        size_t len;
        char *bytes = load(fixtures[i], ".gguf", &len);
        struct td_input input = td_input_memory(bytes, len);
        struct td_limits limits = td_limits_default();
        bool done = false;
        for (size_t k = 1; !done; k++) {
            struct parsed p;
            alloc_fail_at(k);
            parse_input(&input, &limits, &p);
            alloc_fail_at(0);
            done = p.memory.calls < k; /* there is no k-th */
            if (!done) {
                failed++;
                CHECK(p.err.code == TD_RESOURCE_EXHAUSTED, "%s, allocation %zu: %s", fixtures[i], k,
                      p.err.message);
                check_error(&p.err, len, false, fixtures[i]);
            } else {
                CHECK(p.ok, "%s: %s", fixtures[i], p.err.message);
            }
            parsed_fini(&p);
        }
        __real_free(bytes);
    }
    assert_true(failed > 3 * COUNT_OF(fixtures));
}

static void error_may_be_left_out(void **state)
{
    (void)state;
    size_t len;
    char *bytes = load("values", ".gguf", &len);
    for (size_t cut = len; cut > 0; cut /= 2) {
        struct td_input input = td_input_memory(bytes, cut);
        struct td_limits limits = td_limits_default();
        struct td_manifest manifest;
        td_manifest_init(&manifest, 0);
        assert_int_equal(td_format_gguf.parse(&input, &limits, &manifest, NULL), cut == len);
        td_manifest_fini(&manifest);
    }
    __real_free(bytes);
}

/* ---- bad inputs ---------------------------------------------------------------------------------------- */

static void version(struct td_buffer *out, uint32_t value)
{
    td_buffer_puts(out, "GGUF");
    put_u32(out, value);
    put_u64(out, 0);
    put_u64(out, 0);
}

static void build_109_magic(struct td_buffer *out)
{
    td_buffer_puts(out, "FUGG");
    put_u32(out, 3);
    put_u64(out, 0);
    put_u64(out, 0);
}

static void build_109_ggml(struct td_buffer *out) /* the format before */
{
    td_buffer_puts(out, "lmgg");
    put_u64(out, 0);
}

static void build_110_version_0(struct td_buffer *out)
{
    version(out, 0);
}

static void build_110_version_1(struct td_buffer *out)
{
    version(out, 1);
}

static void build_110_version_4(struct td_buffer *out)
{
    version(out, 4);
}

static void build_110_big_endian(struct td_buffer *out)
{
    version(out, 0x03000000);
}

static void build_110_big_endian_2(struct td_buffer *out)
{
    version(out, 0x02000000);
}

static void build_111(struct td_buffer *out)
{
    put_head(out, UINT64_MAX, 0);
}

static void build_111_one_too_many(struct td_buffer *out)
{
    put_head(out, 2, 0);
    put_data(out, 39); /* and the number of pairs: 47 bytes, where two infos take 48 */
}

static void build_112(struct td_buffer *out)
{
    put_head(out, 0, UINT64_MAX);
}

static void build_112_large(struct td_buffer *out)
{
    put_head(out, 0, UINT64_C(1) << 60);
}

static void build_113(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_u64(out, UINT64_MAX);
    put_data(out, 20);
}

static void build_113_too_long(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_u64(out, 65536);
    for (size_t i = 0; i < 65536; i++)
        td_buffer_putc(out, 'k');
    put_u32(out, V_U8);
    td_buffer_putc(out, 1);
}

static void build_114(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "", V_U32);
    put_u64(out, 1);
}

static void build_115(struct td_buffer *out)
{
    put_head(out, 0, 3);
    put_key(out, "b", V_U8);
    td_buffer_putc(out, 1);
    put_key(out, "a", V_U8);
    td_buffer_putc(out, 1);
    put_key(out, "b", V_U8);
    td_buffer_putc(out, 1);
}

static void build_115_key_nul(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_text_n(out, "a\0b", 3);
    put_u32(out, V_U8);
    td_buffer_putc(out, 1);
}

static void build_116(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "key", 13);
    put_u64(out, 0);
}

static void build_116_last(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "key", UINT32_MAX);
    put_u64(out, 0);
}

static void build_116_items(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", 13, 0);
}

static void build_117(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_F64, UINT64_C(1) << 61); /* times 8 is 0 */
    put_data(out, 64);
}

static void build_117_strings(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_STRING, 9);
    put_data(out, 64);
}

static void build_117_cut(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_U32, 100);
    put_data(out, 399);
}

static void build_117_string_length(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "key", V_STRING);
    put_u64(out, UINT64_MAX);
}

static void build_117_hidden_string_length(struct td_buffer *out) /* past those that are shown */
{
    put_head(out, 0, 1);
    put_array(out, "key", V_STRING, 65);
    for (int i = 0; i < 64; i++)
        put_text(out, "");
    put_u64(out, UINT64_MAX);
}

static void build_118(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_ARRAY, 1);
    put_u32(out, V_U8);
    put_u64(out, 0);
}

static void alignment(struct td_buffer *out, uint32_t type, uint32_t value)
{
    put_head(out, 0, 1);
    put_key(out, "general.alignment", type);
    put_u32(out, value);
}

static void build_119_zero(struct td_buffer *out)
{
    alignment(out, V_U32, 0);
}

static void build_119_13(struct td_buffer *out)
{
    alignment(out, V_U32, 13);
}

static void build_119_int32(struct td_buffer *out)
{
    alignment(out, V_I32, 32);
}

static void build_119_array(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "general.alignment", V_U32, 1);
    put_u32(out, 32);
}

static void build_120(struct td_buffer *out)
{
    alignment(out, V_U32, UINT32_C(1) << 31);
}

/* One tensor, whose data are there if they take 64 bytes. */
static void one(struct td_buffer *out, struct info info)
{
    put_head(out, 1, 0);
    put_info(out, info);
    put_padding(out, 32);
    put_data(out, 64);
}

static void rank(struct td_buffer *out, uint32_t value)
{
    put_head(out, 1, 0);
    put_text(out, "a");
    put_u32(out, value);
    put_data(out, 100);
}

static void build_121_five(struct td_buffer *out)
{
    rank(out, 5);
}

static void build_121_most(struct td_buffer *out)
{
    rank(out, UINT32_MAX);
}

static void build_122(struct td_buffer *out)
{
    one(out, (struct info){"a", 2, {INT64_MAX, 2}, G_I8, 0});
}

static void build_122_alone(struct td_buffer *out)
{
    one(out, (struct info){"a", 1, {INT64_MAX}, G_I8, 0});
}

static void build_122_to_zero(struct td_buffer *out) /* 2^32 * 2^32 * 2 wraps to 0 */
{
    one(out, (struct info){"a", 3, {UINT64_C(1) << 32, UINT64_C(1) << 32, 2}, G_I8, 0});
}

static void build_122_negative(struct td_buffer *out)
{
    one(out, (struct info){"a", 2, {UINT64_MAX, UINT64_MAX}, G_I8, 0}); /* -1 * -1 */
}

static void build_122_bytes(struct td_buffer *out)
{
    one(out, (struct info){"a", 1, {UINT64_C(1) << 61}, G_I64, 0});
}

static void build_123_negative_beside_0(struct td_buffer *out)
{
    one(out, (struct info){"a", 2, {0, UINT64_MAX}, G_I8, 0});
}

static void build_124(struct td_buffer *out)
{
    one(out, (struct info){"a", 1, {32}, 31, 0});
}

static void build_124_past(struct td_buffer *out)
{
    one(out, (struct info){"a", 1, {32}, 43, 0});
}

static void build_124_most(struct td_buffer *out)
{
    one(out, (struct info){"a", 1, {32}, UINT32_MAX, 0});
}

static void build_125(struct td_buffer *out)
{
    one(out, (struct info){"a", 1, {33}, G_Q4_0, 0});
}

static void build_125_rows(struct td_buffer *out) /* whole blocks, but not by row */
{
    one(out, (struct info){"a", 2, {16, 2}, G_Q4_0, 0});
}

static void build_125_scalar(struct td_buffer *out)
{
    one(out, (struct info){"a", 0, {0}, G_Q4_0, 0});
}

static void build_126(struct td_buffer *out) /* 2^64 - 8 bytes, padded: 0 */
{
    one(out, (struct info){"a", 1, {(UINT64_C(1) << 61) - 1}, G_I64, 0});
}

static void build_127(struct td_buffer *out)
{
    uint64_t half = (UINT64_C(1) << 63) - 64;
    put_head(out, 2, 0);
    put_info(out, (struct info){"a", 1, {half}, G_I8, 0});
    put_info(out, (struct info){"b", 1, {half}, G_I8, half});
    put_padding(out, 32);
    put_data(out, 64);
}

static void build_127_three(struct td_buffer *out) /* the third begins at 2^64 - 128 and wraps */
{
    uint64_t half = (UINT64_C(1) << 63) - 64;
    put_head(out, 3, 0);
    put_info(out, (struct info){"a", 1, {half}, G_I8, 0});
    put_info(out, (struct info){"b", 1, {half}, G_I8, half});
    put_info(out, (struct info){"c", 1, {128}, G_I8, 2 * half});
    put_padding(out, 32);
    put_data(out, 256);
}

static void two(struct td_buffer *out, const char *second, uint64_t offset)
{
    put_head(out, 2, 0);
    put_info(out, (struct info){"a", 1, {3}, G_I8, 0});
    put_info(out, (struct info){second, 1, {4}, G_I8, offset});
    put_padding(out, 32);
    put_data(out, 128);
}

static void build_128_late(struct td_buffer *out)
{
    two(out, "b", 64);
}

static void build_128_overlap(struct td_buffer *out)
{
    two(out, "b", 0);
}

static void build_128_unpadded(struct td_buffer *out)
{
    two(out, "b", 3);
}

static void build_128_first(struct td_buffer *out)
{
    one(out, (struct info){"a", 1, {3}, G_I8, 32});
}

static void build_129(struct td_buffer *out)
{
    two(out, "a", 32);
}

static void build_130(struct td_buffer *out)
{
    static const char name[] = "0123456789012345678901234567890123456789012345678901234567890123";
    one(out, (struct info){name, 1, {3}, G_I8, 0});
}

static void build_130_most(struct td_buffer *out)
{
    put_head(out, 1, 0);
    put_u64(out, UINT64_MAX);
    put_data(out, 100);
}

static void build_131(struct td_buffer *out)
{
    put_head(out, 1, 0);
    put_text_n(out, "a\0b", 3);
    put_u32(out, 0);
    put_u32(out, G_I8);
    put_u64(out, 0);
    put_padding(out, 32);
    put_data(out, 32);
}

static void build_132(struct td_buffer *out)
{
    put_head(out, 1, 0);
    put_info(out, (struct info){"a", 1, {40}, G_F32, 0});
    put_padding(out, 32);
    put_data(out, 159);
}

static void build_132_nothing(struct td_buffer *out) /* not even the padding before the data */
{
    put_head(out, 1, 0);
    put_info(out, (struct info){"a", 1, {0}, G_F32, 0});
}

static void build_132_empty_past_the_end(struct td_buffer *out)
{
    put_head(out, 2, 0);
    put_info(out, (struct info){"a", 1, {1}, G_I8, 0});
    put_info(out, (struct info){"b", 1, {0}, G_I8, 32});
    put_padding(out, 32);
    put_data(out, 1);
}

static void build_135(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "key", V_BOOL);
    td_buffer_putc(out, 2);
}

static void build_135_in_array(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_BOOL, 3);
    td_buffer_append(out, "\1\0\xff", 3);
}

static void build_135_hidden(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_BOOL, 100);
    for (int i = 0; i < 99; i++)
        td_buffer_putc(out, 1);
    td_buffer_putc(out, 2);
}

/* All refused as the file's fault, at `pos`. */
static const struct bad_case {
    const char *name;
    void (*build)(struct td_buffer *out);
    uint64_t pos;
    const char *says;
} bad_cases[] = {
    {"bad_109_magic", build_109_magic, 0, "not with \"GGUF\""},
    {"bad_109_the_format_before", build_109_ggml, 0, "6c 6d 67 67"},
    {"bad_110_version_0", build_110_version_0, 4, "GGUF version 0; versions 2 and 3"},
    {"bad_110_version_1", build_110_version_1, 4, "GGUF version 1;"},
    {"bad_110_version_4", build_110_version_4, 4, "GGUF version 4;"},
    {"bad_110_big_endian", build_110_big_endian, 4, "big-endian GGUF file (version 0x03000000)"},
    {"bad_110_big_endian_2", build_110_big_endian_2, 4, "big-endian GGUF file (version 0x02000000)"},
    {"bad_111_tensors_minus_1", build_111, 8, "the number of tensors is -1"},
    {"bad_111_tensors_one_too_many", build_111_one_too_many, 8, "the number of tensors is 2"},
    {"bad_112_pairs_minus_1", build_112, 16, "key-value pairs is -1"},
    {"bad_112_pairs_2_60", build_112_large, 16, "key-value pairs is 1152921504606846976"},
    {"bad_113_key_length_2_64_minus_1", build_113, 24, "a key of 18446744073709551615 bytes"},
    {"bad_113_key_length_65536", build_113_too_long, 24, "a key of 65536 bytes; it must have 1 to 65535"},
    {"bad_114_empty_key", build_114, 24, "a key of 0 bytes"},
    {"bad_115_duplicate_key", build_115, 52, "two pairs have the key \"b\""},
    {"key_with_nul", build_115_key_nul, 24, "the key \"a\" goes on after a NUL"},
    {"bad_116_value_type_13", build_116, 35, "\"key\": there is no value type 13"},
    {"bad_116_value_type_2_32_minus_1", build_116_last, 35, "no value type 4294967295"},
    {"bad_116_value_type_13_of_items", build_116_items, 39, "no value type 13"},
    {"bad_117_array_of_2_61", build_117, 43, "the length of an array is 2305843009213693952"},
    {"bad_117_array_of_strings", build_117_strings, 43, "the length of an array is 9"},
    {"bad_117_array_cut", build_117_cut, 43, "the length of an array is 100"},
    {"bad_117_string_of_2_64_minus_1", build_117_string_length, 39, "a string of 18446744073709551615 bytes"},
    {"bad_117_string_not_shown", build_117_hidden_string_length, 563,
     "a string of 18446744073709551615 bytes"},
    {"bad_118_nested_array", build_118, 39, "\"key\": an array of arrays"},
    {"bad_119_alignment_0", build_119_zero, 53, "general.alignment is 0; it must be a power of two"},
    {"bad_119_alignment_13", build_119_13, 53, "general.alignment is 13"},
    {"bad_119_alignment_int32", build_119_int32, 49, "general.alignment has value type 5"},
    {"bad_119_alignment_array", build_119_array, 49, "general.alignment has value type 9"},
    {"bad_120_alignment_2_31", build_120, 53, "general.alignment is 2147483648"},
    {"bad_121_5_dimensions", build_121_five, 33, "\"a\" has 5 dimensions"},
    {"bad_121_2_32_minus_1_dimensions", build_121_most, 33, "\"a\" has 4294967295 dimensions"},
    {"bad_122_int64_max_times_2", build_122, 37, "not below 2^63"},
    {"bad_122_int64_max", build_122_alone, 37, "not below 2^63"},
    {"bad_122_wraps_to_0", build_122_to_zero, 37, "not below 2^63"},
    {"bad_122_negative", build_122_negative, 37, "not below 2^63"},
    {"bad_122_bytes", build_122_bytes, 45, "more than 2^64-1 bytes"},
    {"bad_123_negative_beside_0", build_123_negative_beside_0, 37, "not below 2^63"},
    {"bad_124_removed_type_31", build_124, 45, "type 31, which was removed or is not known"},
    {"bad_124_type_43", build_124_past, 45, "type 43,"},
    {"bad_124_type_2_32_minus_1", build_124_most, 45, "type 4294967295,"},
    {"bad_125_33_elements_of_Q4_0", build_125, 45,
     "rows of 33 elements; of Q4_0 they must be a multiple of 32"},
    {"bad_125_rows_of_16", build_125_rows, 53, "rows of 16 elements"},
    {"bad_125_scalar", build_125_scalar, 37, "rows of 1 elements"},
    {"bad_126_padded_to_0", build_126, 49, "ends past 2^64-1"},
    {"bad_127_two_near_2_63", build_127, 160, "\"a\", which has 9223372036854775744 bytes"},
    {"bad_127_third_past_2_64", build_127_three, 115, "ends past 2^64-1"},
    {"bad_128_offset_late", build_128_late, 82, "begins at data byte 64; it must begin at 32"},
    {"bad_128_offset_overlaps", build_128_overlap, 82, "begins at data byte 0; it must begin at 32"},
    {"bad_128_offset_unpadded", build_128_unpadded, 82, "begins at data byte 3;"},
    {"bad_128_offset_of_the_first", build_128_first, 49, "begins at data byte 32; it must begin at 0"},
    {"bad_129_duplicate_tensor", build_129, 57, "two tensors are named \"a\""},
    {"bad_130_name_of_64", build_130, 24, "a tensor's name of 64 bytes; it may have 63"},
    {"bad_130_name_of_2_64_minus_1", build_130_most, 24, "a tensor's name of 18446744073709551615 bytes"},
    {"bad_131_name_with_nul", build_131, 24, "the tensor name \"a\" goes on after a NUL"},
    {"bad_132_one_byte_short", build_132, 223, "which has 160 bytes at 64"},
    {"bad_132_no_padding", build_132_nothing, 57, "before the padding to 32"},
    {"bad_132_empty_past_the_end", build_132_empty_past_the_end, 97, "\"b\", which has 0 bytes at 128"},
    {"bad_135_bool_2", build_135, 39, "a bool is 2; it must be 0 or 1"},
    {"bad_135_bool_255_in_an_array", build_135_in_array, 53, "a bool is 255"},
    {"bad_135_bool_not_shown", build_135_hidden, 150, "a bool is 2"},
};

static void bad_case(void **state)
{
    const struct bad_case *c = *state;
    struct td_buffer file = {0};
    struct parsed p;
    c->build(&file);
    size_t len = file.len;
    parse(file.data, len, &p);
    CHECK(!p.ok, "%s: accepted", c->name);
    CHECK(p.err.code == TD_INVALID_ARGUMENT, "%s: code %d: %s", c->name, (int)p.err.code, p.err.message);
    check_error(&p.err, len, true, c->name);
    CHECK(strstr(p.err.message, c->says) != NULL, "%s: '%s' does not say '%s'", c->name, p.err.message,
          c->says);
    CHECK(p.err.pos == c->pos, "%s: at %" PRIu64 ": %s", c->name, p.err.pos, p.err.message);
    CHECK(p.memory.peak_bytes <= memory_bound(len), "%s: %zu bytes for %zu", c->name, p.memory.peak_bytes,
          len);
    parsed_fini(&p);
    __real_free(file.data);
}

/* ---- good ones ----------------------------------------------------------------------------------------- */

/* The metadata of a file of one pair. */
static void check_value(const char *key, size_t key_len, uint32_t type, const void *value, size_t len,
                        const char *wanted)
{
    struct td_buffer file = {0};
    struct parsed p;
    put_head(&file, 0, 1);
    put_text_n(&file, key, key_len);
    put_u32(&file, type);
    td_buffer_append(&file, value, len);
    parse(file.data, file.len, &p);
    CHECK(p.ok, "%s: %s", key, p.err.message);
    assert_int_equal(p.manifest.metadata_count, 1);
    struct td_buffer got = {0};
    td_buffer_printf(&got, "%s=%s", p.manifest.metadata[0].key, p.manifest.metadata[0].value);
    assert_non_null(td_buffer_terminate(&got));
    assert_string_equal(got.data, wanted);
    free(got.data);
    parsed_fini(&p);
    __real_free(file.data);
}

static void check_string(const char *text, size_t len, const char *wanted)
{
    struct td_buffer value = {0};
    put_text_n(&value, text, len);
    check_value("k", 1, V_STRING, value.data, value.len, wanted);
    __real_free(value.data);
}

static void what_is_not_utf8_is_escaped(void **state)
{
    (void)state;
    check_string("a\xff\xc3\xa9\n", 5, "k=\"a\\\\xff\xc3\xa9\\\\x0a\"");
    check_string("\xed\xa0\x80", 3, "k=\"\\\\xed\\\\xa0\\\\x80\"");
    check_value("\xff", 1, V_BOOL, "\1", 1, "\\xff=true");
    struct td_buffer file = {0};
    struct parsed p;
    one(&file, (struct info){"w\xc0.\xc3\xa9", 1, {64}, G_I8, 0});
    parse(file.data, file.len, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_string_equal(p.manifest.tensors[0].name, "w\\xc0.\xc3\xa9");
    assert_int_equal(p.manifest.tensors[0].name_len, 8);
    parsed_fini(&p);
    __real_free(file.data);
}

/* 4,096 bytes are shown whole; of more, no character is cut, and what only looks like one is shown as it is. */
static void long_strings_are_cut_between_characters(void **state)
{
    (void)state;
    static const struct {
        const char *tail; /* behind 4,096 - before letters */
        size_t before;
        const char *shown;
    } cases[] = {
        {"", 0, NULL},
        {"y", 0, ""},
        {"\xc3\xa9", 1, ""},
        {"\xc3\xa9", 2, NULL},
        {"\xc3\xa9y", 2, "\xc3\xa9"},
        {"\xe6\x97\xa5", 1, ""},
        {"\xe6\x97\xa5", 2, ""},
        {"\xe6\x97\xa5y", 3, "\xe6\x97\xa5"},
        {"\xf0\x9f\x98\x80", 1, ""},
        {"\xf0\x9f\x98\x80", 2, ""},
        {"\xf0\x9f\x98\x80", 3, ""},
        {"\xf0\x9f\x98\x80y", 4, "\xf0\x9f\x98\x80"},
        {"\x80\x80\x80\x80y", 4, "\\\\x80\\\\x80\\\\x80\\\\x80"},
        {"\xffy", 1, ""}, /* might have gone on */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_buffer text = {0};
        struct td_buffer wanted = {0};
        size_t letters = 4096 - cases[i].before;
        for (size_t n = 0; n < letters; n++)
            td_buffer_putc(&text, 'x');
        td_buffer_puts(&text, cases[i].tail);
        td_buffer_puts(&wanted, "k=");
        if (cases[i].shown != NULL)
            td_buffer_printf(&wanted, "{\"length\":%zu,\"first\":", text.len);
        td_buffer_putc(&wanted, '"');
        td_buffer_append(&wanted, text.data, letters);
        td_buffer_puts(&wanted, cases[i].shown != NULL ? cases[i].shown : cases[i].tail);
        td_buffer_puts(&wanted, cases[i].shown != NULL ? "\"}" : "\"");
        assert_non_null(td_buffer_terminate(&wanted));
        check_string(text.data, text.len, wanted.data);
        __real_free(text.data);
        __real_free(wanted.data);
    }
}

/* Sizes of types that the gguf package does not know, or not rightly: ggml-common.h. */
static void types_that_the_package_lacks(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        uint64_t elems, bytes;
        const char *name;
    } types[] = {{9, 32, 36, "Q8_1"}, {42, 64, 18, "Q2_0"}};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct td_buffer file = {0};
        struct parsed p;
        one(&file, (struct info){"a", 1, {types[i].elems}, types[i].id, 0});
        parse(file.data, file.len, &p);
        CHECK(p.ok, "%s: %s", types[i].name, p.err.message);
        assert_string_equal(p.manifest.tensors[0].dtype->name, types[i].name);
        assert_true(p.manifest.tensors[0].nbytes == types[i].bytes);
        parsed_fini(&p);
        __real_free(file.data);
    }
}

static void good_123_dimensions_of_0(void **state)
{
    (void)state;
    static const struct info infos[] = {{"a", 2, {32, 0}, G_Q4_0, 0},
                                        {"a", 2, {0, 5}, G_Q4_0, 0},
                                        {"a", 4, {INT64_MAX, 0, INT64_MAX, 2}, G_I8, 0},
                                        {"", 1, {0}, G_F32, 0}};
    for (size_t i = 0; i < COUNT_OF(infos); i++) {
        struct td_buffer file = {0};
        struct parsed p;
        one(&file, infos[i]);
        parse(file.data, file.len, &p);
        CHECK(p.ok, "%zu: %s", i, p.err.message);
        assert_true(p.manifest.tensors[0].nbytes == 0);
        for (size_t d = 0; d < infos[i].rank; d++)
            assert_true(p.manifest.tensors[0].shape[d] == infos[i].ne[infos[i].rank - 1 - d]);
        parsed_fini(&p);
        __real_free(file.data);
    }
}

static void bounds_that_are_good(void **state)
{
    (void)state;
    struct td_buffer file = {0};
    struct parsed p;
    put_head(&file, 1, 2);
    put_key(&file, "general.alignment", V_U32);
    put_u32(&file, 1 << 24);
    put_u64(&file, 65535); /* the longest key */
    for (size_t i = 0; i < 65535; i++)
        td_buffer_putc(&file, 'k');
    put_u32(&file, V_BOOL);
    td_buffer_putc(&file, 1);
    put_info(&file, (struct info){
                        "012345678901234567890123456789012345678901234567890123456789012", 0, {0}, G_I8, 0});
    td_buffer_reserve(&file, 1 << 24);
    put_padding(&file, 1 << 24);
    put_data(&file, 1);
    parse(file.data, file.len, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(p.manifest.tensors[0].name_len, 63);
    assert_int_equal(p.manifest.tensors[0].rank, 0);
    assert_true(p.manifest.tensors[0].offset == 1 << 24 && p.manifest.tensors[0].nbytes == 1);
    assert_int_equal(strlen(p.manifest.metadata[1].key), 65535);
    parsed_fini(&p);
    __real_free(file.data);
}

/* The numbers by which the catalog checks a set of split files (bad inputs 133, 134) are in the metadata. */
static void pairs_133_134_of_splits_are_in_the_metadata(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        size_t len;
        char *bytes = load(fixtures[4 + i], ".gguf", &len);
        struct parsed p;
        parse(bytes, len, &p);
        size_t found = 0;
        for (size_t k = 0; k < p.manifest.metadata_count; k++) {
            const struct td_metadata *pair = &p.manifest.metadata[k];
            if (strcmp(pair->key, TD_GGUF_SPLIT_NO) == 0)
                found += strtoul(pair->value, NULL, 10) == i;
            if (strcmp(pair->key, TD_GGUF_SPLIT_COUNT) == 0)
                found += strcmp(pair->value, "3") == 0;
        }
        assert_int_equal(found, 2);
        parsed_fini(&p);
        __real_free(bytes);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------- */

struct watched {
    const uint8_t *bytes;
    uint64_t read_to;  /* the highest byte that was read */
    uint64_t read_sum; /* of lengths */
    unsigned reads, fail_at;
};

static bool watched_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct watched *w = *(struct watched *const *)context;
    if (++w->reads == w->fail_at)
        return td_error_at(err, TD_IO, off, "the disk is on fire");
    memcpy(out, w->bytes + off, len);
    w->read_sum += len;
    if (off + len > w->read_to)
        w->read_to = off + len;
    return true;
}

/* Keys, strings and names of many lengths, so that every kind of item lies across a window's end somewhere. */
static void build_many(struct td_buffer *out, size_t pairs, size_t tensors, size_t *header_bytes)
{
    char text[128];
    uint64_t offset = 0;
    put_head(out, tensors, 3 * pairs);
    for (size_t i = 0; i < pairs; i++) {
        (void)snprintf(text, sizeof text, "pair.%0*zu", (int)(5 + i % 90), i);
        put_key(out, text, V_STRING);
        put_text(out, text);
        (void)snprintf(text, sizeof text, "real.%zu", i);
        put_key(out, text, V_F64);
        put_u64(out, 0x3FF0000000000000 + i);
        (void)snprintf(text, sizeof text, "list.%zu", i);
        put_array(out, text, V_STRING, i % 100);
        for (size_t k = 0; k < i % 100; k++)
            put_text_n(out, text, k % 8);
    }
    for (size_t i = 0; i < tensors; i++) {
        (void)snprintf(text, sizeof text, "t.%0*zu", (int)(5 + i % 50), i);
        put_info(out, (struct info){text, i % 5, {32, 1, 2, 1}, G_I8, offset});
        offset += i % 5 > 2 ? 64 : 32;
    }
    *header_bytes = out->len;
    put_padding(out, 32);
    put_data(out, offset);
}

static void headers_longer_than_a_window(void **state)
{
    (void)state;
    struct td_buffer file = {0};
    size_t header;
    build_many(&file, 300, 3000, &header);
    assert_true(header > 300000);
    struct watched watched = {.bytes = (const uint8_t *)file.data};
    const struct watched *context = &watched;
    struct td_input input = {.size_bytes = file.len, .read = watched_read, .context = &context};
    struct td_limits limits = td_limits_default();
    struct parsed p;
    parse_input(&input, &limits, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(p.manifest.tensor_count, 3000);
    assert_int_equal(p.manifest.metadata_count, 900);
    for (size_t i = 0; i < 300; i++) {
        struct td_json json;
        double value;
        const struct td_metadata *m = &p.manifest.metadata[3 * i];
        assert_memory_equal(m[0].key, m[0].value + 1, strlen(m[0].key));
        value = strtod(m[1].value, NULL);
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        assert_true(bits == 0x3FF0000000000000 + i);
        td_json_init(&json, m[2].value, strlen(m[2].value), 0, NULL);
        assert_true(td_json_skip(&json) && td_json_next(&json) == TD_JSON_END);
    }
    assert_true(watched.read_to <= header + 65536 && watched.read_sum <= header + header / 8 + 65536);
    unsigned reads = watched.reads;
    parsed_fini(&p);
    for (unsigned k = 1; k <= reads; k++) {
        watched.reads = 0;
        watched.fail_at = k;
        parse_input(&input, &limits, &p);
        assert_int_equal(p.err.code, TD_IO);
        assert_int_equal(watched.reads, k);
        parsed_fini(&p);
    }
    free(file.data);
}

/* A long array is passed over, not read. */
static void arrays_are_not_read_to_their_end(void **state)
{
    (void)state;
    struct td_buffer file = {0};
    put_head(&file, 0, 2);
    put_array(&file, "long", V_F32, 1 << 20);
    put_data(&file, 4 << 20);
    put_key(&file, "after", V_BOOL);
    td_buffer_putc(&file, 1);
    struct watched watched = {.bytes = (const uint8_t *)file.data};
    const struct watched *context = &watched;
    struct td_input input = {.size_bytes = file.len, .read = watched_read, .context = &context};
    struct td_limits limits = td_limits_default();
    struct parsed p;
    parse_input(&input, &limits, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_string_equal(p.manifest.metadata[1].value, "true");
    assert_true(watched.read_sum < 100000);
    parsed_fini(&p);
    free(file.data);
}

static void header_limit_is_a_limit(void **state)
{
    (void)state;
    struct td_buffer file = {0};
    size_t header;
    build_many(&file, 20, 100, &header);
    struct td_input input = td_input_memory(file.data, file.len);
    for (size_t limit = 0; limit <= header; limit++) {
        struct td_limits limits = td_limits_default();
        struct parsed p;
        limits.max_header_bytes = limit;
        parse_input(&input, &limits, &p);
        CHECK(p.err.code == (limit < header ? TD_RESOURCE_EXHAUSTED : TD_OK), "%zu of %zu: %s", limit, header,
              p.err.message);
        parsed_fini(&p);
    }
    free(file.data);
}

static bool sparse_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct td_buffer *head = context;
    (void)err;
    memset(out, 0, len);
    if (off < head->len)
        memcpy(out, head->data + off, len < head->len - off ? len : head->len - off);
    return true;
}

/* A file may be large enough for any count; the limit is not, and nothing is allocated for what it forbids. */
static void counts_past_the_limit_allocate_nothing(void **state)
{
    (void)state;
    static const uint64_t counts[][2] = {{UINT64_C(1) << 33, 0}, {0, UINT64_C(1) << 33}};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        struct td_buffer head = {0};
        struct parsed p;
        put_head(&head, counts[i][0], counts[i][1]);
        struct td_input input = {.size_bytes = UINT64_C(1) << 50, .read = sparse_read, .context = &head};
        struct td_limits limits = td_limits_default();
        parse_input(&input, &limits, &p);
        assert_int_equal(p.err.code, TD_RESOURCE_EXHAUSTED);
        assert_true(p.err.pos == 8 + 8 * i);
        assert_true(p.memory.peak_bytes < 70000);
        parsed_fini(&p);
        __real_free(head.data);
    }
}

/* Whatever the limit, a parse keeps to it or ends for want of memory; one value of a few KiB may go over. */
static void memory_limit_is_a_limit(void **state)
{
    (void)state;
    struct td_buffer file = {0};
    size_t header;
    size_t refused = 0;
    build_many(&file, 60, 300, &header);
    struct td_input input = td_input_memory(file.data, file.len);
    for (size_t limit = 64; limit < 300000; limit += 512) {
        struct td_limits limits = td_limits_default();
        struct parsed p;
        limits.max_memory_bytes = limit;
        parse_input(&input, &limits, &p);
        assert_int_equal(p.err.code, p.ok ? TD_OK : TD_RESOURCE_EXHAUSTED);
        CHECK(p.memory.peak_bytes <= limit + limit / 4 + 4096, "%zu bytes, limit %zu", p.memory.peak_bytes,
              limit);
        refused += !p.ok;
        parsed_fini(&p);
    }
    assert_true(refused > 100 && refused < 500);
    free(file.data);
}

/* ---- scale --------------------------------------------------------------------------------------------- */

static double parse_seconds(const struct td_buffer *file, enum td_code code, size_t *peak_bytes)
{
    struct td_input input = td_input_memory(file->data, file->len);
    struct td_limits limits = td_limits_default();
    struct parsed p;
    double before = cpu_seconds();
    parse_input(&input, &limits, &p);
    double seconds = cpu_seconds() - before;
    CHECK(p.err.code == code, "%s", p.err.message);
    *peak_bytes = p.memory.peak_bytes;
    parsed_fini(&p);
    return seconds;
}

static void build_names(struct td_buffer *out, size_t count, size_t step, size_t twice)
{
    char name[64];
    put_head(out, count + twice, 0);
    for (size_t i = 0; i < count + twice; i++) {
        (void)snprintf(name, sizeof name, "blk.%07zu.weight", i == count ? 0 : i * step % count);
        put_info(out, (struct info){name, 1, {0}, G_F32, 0});
    }
    put_padding(out, 32);
}

static void build_keys(struct td_buffer *out, size_t count, size_t step, size_t twice)
{
    char name[64];
    put_head(out, 0, count + twice);
    for (size_t i = 0; i < count + twice; i++) {
        (void)snprintf(name, sizeof name, "general.%07zu", i == count ? 0 : i * step % count);
        put_key(out, name, V_BOOL);
        td_buffer_putc(out, 1);
    }
}

/* A million names in any order, once with one of them twice: time in proportion, whatever comes. */
static void bad_136_a_million_names(void **state)
{
    (void)state;
    static const struct {
        void (*build)(struct td_buffer *out, size_t count, size_t step, size_t twice);
        size_t step, twice;
    } cases[] = {{build_names, 1, 0}, {build_names, 7919, 0}, {build_names, 7919, 1},
                 {build_keys, 1, 0},  {build_keys, 7919, 0},  {build_keys, 7919, 1}};
    const size_t million = SANITIZED ? 100000 : 1000000;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        enum td_code code = cases[i].twice ? TD_INVALID_ARGUMENT : TD_OK;
        double small = 0, large = 0;
        for (int attempt = 0; attempt < 5; attempt++) { /* another try where a busy machine spoiled one */
            struct td_buffer file = {0};
            size_t peak;
            cases[i].build(&file, million / 8, cases[i].step, cases[i].twice);
            small = parse_seconds(&file, code, &peak);
            td_buffer_fini(&file);
            cases[i].build(&file, million, cases[i].step, cases[i].twice);
            large = parse_seconds(&file, code, &peak);
            CHECK(peak <= memory_bound(file.len), "%zu bytes for %zu", peak, file.len);
            td_buffer_fini(&file);
            if (large <= 24 * small)
                break;
        }
        CHECK(large <= 24 * small, "case %zu: %.6f s, then %.6f s at eight times the size", i, small, large);
    }
}

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(every_prefix_of_a_fixture_is_refused),
        cmocka_unit_test(every_byte_of_a_fixture_changed),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(error_may_be_left_out),
        cmocka_unit_test(what_is_not_utf8_is_escaped),
        cmocka_unit_test(long_strings_are_cut_between_characters),
        cmocka_unit_test(types_that_the_package_lacks),
        cmocka_unit_test(good_123_dimensions_of_0),
        cmocka_unit_test(bounds_that_are_good),
        cmocka_unit_test(pairs_133_134_of_splits_are_in_the_metadata),
        cmocka_unit_test(headers_longer_than_a_window),
        cmocka_unit_test(arrays_are_not_read_to_their_end),
        cmocka_unit_test(header_limit_is_a_limit),
        cmocka_unit_test(counts_past_the_limit_allocate_nothing),
        cmocka_unit_test(memory_limit_is_a_limit),
        cmocka_unit_test(bad_136_a_million_names),
    };
    struct CMUnitTest tests[COUNT_OF(fixtures) + COUNT_OF(bad_cases) + COUNT_OF(others)];
    struct CMUnitTest *next = tests;
    for (size_t i = 0; i < COUNT_OF(fixtures); i++)
        *next++ = (struct CMUnitTest){.name = fixtures[i],
                                      .test_func = fixture_is_as_the_real_reader_says,
                                      .initial_state = (void *)(uintptr_t)fixtures[i]};
    for (size_t i = 0; i < COUNT_OF(bad_cases); i++)
        *next++ = (struct CMUnitTest){.name = bad_cases[i].name,
                                      .test_func = bad_case,
                                      .initial_state = (void *)(uintptr_t)&bad_cases[i]};
    memcpy(next, others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
