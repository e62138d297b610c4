/* GGUF headers of any length: read in windows, within the limits, in proportionate time and memory. */
#include "core/json/json.h"
#include "tests/unit/parser/gguf_case.h"

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Keys, strings and names of many lengths, so that every kind of item crosses a window's end somewhere. */
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
    struct watched watched;
    struct td_input input = watched_input(&watched, file.data, file.len);
    struct td_limits limits = td_limits_default();
    struct parsed p;
    parse_input(&td_format_gguf, &input, &limits, &p);
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
        td_json_init(&json, td_text_of(m[2].value), 0, NULL);
        assert_true(td_json_skip(&json) && td_json_next(&json) == TD_JSON_END);
    }
    assert_true(watched.read_to <= header + 65536 && watched.read_sum <= header + header / 8 + 65536);
    parsed_fini(&p);
    struct sample sample = gguf_sample("many", file.data, file.len);
    assert_int_equal(check_each_read(&sample), watched.reads);
    free(file.data);
}

/* The rest of a long array is skipped, not read. */
static void arrays_are_not_read_to_their_end(void **state)
{
    (void)state;
    struct td_buffer file = {0};
    put_head(&file, 0, 2);
    put_array(&file, "long", V_F32, 1 << 20);
    put_data(&file, 4 << 20);
    put_key(&file, "after", V_BOOL);
    td_buffer_putc(&file, 1);
    struct watched watched;
    struct td_input input = watched_input(&watched, file.data, file.len);
    struct td_limits limits = td_limits_default();
    struct parsed p;
    parse_input(&td_format_gguf, &input, &limits, &p);
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
        parse_input(&td_format_gguf, &input, &limits, &p);
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

/* A large enough file can hold any count. A count past the limit is refused before anything is allocated for it. */
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
        parse_input(&td_format_gguf, &input, &limits, &p);
        assert_int_equal(p.err.code, TD_RESOURCE_EXHAUSTED);
        assert_true(p.err.pos == 8 + 8 * i);
        assert_true(p.memory.peak_bytes < 70000);
        parsed_fini(&p);
        __real_free(head.data);
    }
}

/* At any limit a parse stays within it or fails with TD_RESOURCE_EXHAUSTED. One value may exceed it by a few KiB. */
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
        parse_input(&td_format_gguf, &input, &limits, &p);
        assert_int_equal(p.err.code, p.ok ? TD_OK : TD_RESOURCE_EXHAUSTED);
        CHECK(p.memory.peak_bytes <= limit + limit / 4 + 4096, "%zu bytes, limit %zu", p.memory.peak_bytes, limit);
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
    parse_input(&td_format_gguf, &input, &limits, &p);
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

/* A million names, in order, shuffled, and with one duplicate, take time in proportion to their number. */
/* shows: security.md content-gguf */
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
        for (int attempt = 0; attempt < 5; attempt++) { /* a busy machine may spoil a try */
            struct td_buffer file = {0};
            size_t peak;
            cases[i].build(&file, million / 8, cases[i].step, cases[i].twice);
            small = parse_seconds(&file, code, &peak);
            td_buffer_fini(&file);
            cases[i].build(&file, million, cases[i].step, cases[i].twice);
            large = parse_seconds(&file, code, &peak);
            CHECK(peak <= gguf_memory_bound(file.len), "%zu bytes for %zu", peak, file.len);
            td_buffer_fini(&file);
            if (large <= 24 * small)
                break;
        }
        CHECK(large <= 24 * small, "case %zu: %.6f s, then %.6f s at eight times the size", i, small, large);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_longer_than_a_window), cmocka_unit_test(arrays_are_not_read_to_their_end),
        cmocka_unit_test(header_limit_is_a_limit),      cmocka_unit_test(counts_past_the_limit_allocate_nothing),
        cmocka_unit_test(memory_limit_is_a_limit),      cmocka_unit_test(bad_136_a_million_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
