/* The largest allowed header, and the growth of time and memory with its size. No absolute time is asserted: four times
 * the size may take at most eight times as long; quadratic growth would take sixteen times. */
#include "parser/safetensors.h"

#include "core/buffer.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <inttypes.h>

enum { SCALE = SANITIZED ? 10 : 1 };
enum { MILLION = 1000000 / SCALE, LARGEST_HEADER = 100000000 / SCALE };

/* A file without bytes for its data, because tensor data is never read. */
struct header_file {
    const struct td_buffer *header;
};

static bool header_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct td_buffer *header = ((const struct header_file *)context)->header;
    (void)err;
    if (off == 0 && len == 8)
        for (size_t i = 0; i < 8; i++)
            ((uint8_t *)out)[i] = (uint8_t)((uint64_t)header->len >> 8 * i);
    else if (off == 8 && len == header->len)
        memcpy(out, header->data, len);
    else
        fail_msg("unexpected read of %zu bytes at %llu", len, (unsigned long long)off);
    return true;
}

struct outcome {
    bool ok;
    double seconds;
    size_t peak_bytes;
    size_t tensors, metadata;
    struct td_error err;
};

static struct outcome parse(const struct td_buffer *header, uint64_t data_bytes)
{
    struct header_file file = {.header = header};
    struct td_input input = {.size_bytes = 8 + header->len + data_bytes, .read = header_read, .context = &file};
    struct td_limits limits = td_limits_default();
    struct td_manifest manifest;
    struct outcome out;
    td_error_init(&out.err);
    alloc_count_start();
    td_manifest_init(&manifest, limits.max_memory_bytes);
    double before = cpu_seconds();
    out.ok = td_format_safetensors.parse(&input, &limits, &manifest, &out.err);
    out.seconds = cpu_seconds() - before;
    out.peak_bytes = alloc_count_get().peak_bytes;
    out.tensors = manifest.tensor_count;
    out.metadata = manifest.metadata_count;
    for (size_t i = 0; out.ok && i < manifest.tensor_count; i += 997)
        assert_ptr_equal(td_manifest_find(&manifest, td_tensor_name(&manifest.tensors[i])), &manifest.tensors[i]);
    td_manifest_fini(&manifest);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    return out;
}

/* Writes a header of count tensors of 8 bytes. Entry i is tensor number i * step % count. The data is in the order of
 * the entries when data_in_order, else in the order of the names. */
static void build(struct td_buffer *out, size_t count, size_t step, bool data_in_order)
{
    td_buffer_init(out);
    td_buffer_putc(out, '{');
    for (size_t i = 0; i < count; i++) {
        size_t number = i * step % count;
        uint64_t begin = 8 * (uint64_t)(data_in_order ? i : number);
        td_buffer_printf(out,
                         "%s\"model.layers.%08zu.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[%" PRIu64
                         ",%" PRIu64 "]}",
                         i > 0 ? "," : "", number, begin, begin + 8);
    }
    td_buffer_putc(out, '}');
    assert_false(out->failed);
}

static void pad(struct td_buffer *out, size_t len)
{
    assert_true(out->len <= len && td_buffer_reserve(out, len - out->len));
    memset(out->data + out->len, ' ', len - out->len);
    out->len = len;
}

/* 100,000,000 bytes with 1,000,000 tensors, ordered by name and data, by data only, and by neither. */
/* shows: security.md content-large-header */
static void a_million_tensors_in_the_largest_header(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t step;
        bool data_in_order;
    } shapes[] = {{"sorted", 1, true}, {"shuffled names", 7919, true}, {"shuffled names and data", 7919, false}};
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct td_buffer header;
        build(&header, MILLION, shapes[i].step, shapes[i].data_in_order);
        pad(&header, LARGEST_HEADER);
        struct outcome out = parse(&header, (uint64_t)MILLION * 8);
        CHECK(out.ok, "%s: %s", shapes[i].name, out.err.message);
        assert_int_equal(out.tensors, MILLION);
        CHECK(out.peak_bytes <= (size_t)3 * LARGEST_HEADER, "%s: %zu bytes", shapes[i].name, out.peak_bytes);
        print_message("%d tensors, header of %d bytes, %s: %.3f s, peak %zu bytes\n", MILLION, LARGEST_HEADER,
                      shapes[i].name, out.seconds, out.peak_bytes);
        if (SCALE == 1) { /* the first byte too many */
            pad(&header, LARGEST_HEADER + 1);
            out = parse(&header, (uint64_t)MILLION * 8);
            assert_int_equal(out.err.code, TD_RESOURCE_EXHAUSTED);
            assert_int_equal(out.peak_bytes, 0);
        }
        td_buffer_fini(&header);
    }
}

/* Builds a hostile header of size n. *data_bytes is the length of the data that follows it. */
typedef void build_fn(struct td_buffer *out, size_t n, uint64_t *data_bytes);

static void build_sorted(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    build(out, n, 1, true);
    *data_bytes = 8 * (uint64_t)n;
}

static void build_shuffled(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    build(out, n, 7919, false);
    *data_bytes = 8 * (uint64_t)n;
}

static void build_descending(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    build(out, n, n - 1, false);
    *data_bytes = 8 * (uint64_t)n;
}

/* One name twice, far apart. Sorting finds it; comparing all pairs of names would take quadratic time. */
static void build_duplicate(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    build(out, n, 7919, true);
    out->len--;
    td_buffer_printf(out,
                     ",\"model.layers.%08zu.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}}",
                     n - 1, 8 * n, 8 * n + 8);
    *data_bytes = 8 * (uint64_t)n + 8;
}

/* All tensors have the same byte. */
static void build_one_place(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    td_buffer_init(out);
    td_buffer_putc(out, '{');
    for (size_t i = 0; i < n; i++)
        td_buffer_printf(out, "%s\"%zu\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}", i > 0 ? "," : "",
                         i * 7919 % n);
    td_buffer_putc(out, '}');
    *data_bytes = 1;
}

/* Empty tensors that all begin and end at 0. */
static void build_empty_tensors(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    td_buffer_init(out);
    td_buffer_putc(out, '{');
    for (size_t i = 0; i < n; i++)
        td_buffer_printf(out, "%s\"%zu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i > 0 ? "," : "",
                         i * 7919 % n);
    td_buffer_putc(out, '}');
    *data_bytes = 0;
}

/* Long names that differ only at their ends. */
static void build_long_names(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    char stem[400];
    memset(stem, 'x', sizeof stem - 1);
    stem[sizeof stem - 1] = '\0';
    n /= 8;
    td_buffer_init(out);
    td_buffer_putc(out, '{');
    for (size_t i = 0; i < n; i++)
        td_buffer_printf(out, "%s\"%s%zu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i > 0 ? "," : "",
                         i % 2 ? stem : stem + 200, i * 7919 % n);
    td_buffer_putc(out, '}');
    *data_bytes = 0;
}

static void build_metadata(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    td_buffer_init(out);
    td_buffer_puts(out, "{\"__metadata__\":{");
    for (size_t i = 0; i < n; i++)
        td_buffer_printf(out, "%s\"key %zu\":\"%zu\"", i > 0 ? "," : "", i * 7919 % n, i);
    td_buffer_puts(out, "}}");
    *data_bytes = 0;
}

static void build_one_huge_name(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    td_buffer_init(out);
    td_buffer_puts(out, "{\"");
    for (size_t i = 0; i < n; i++)
        td_buffer_puts(out, "\\u0061{{{{{{{{{{");
    td_buffer_puts(out, "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    *data_bytes = 0;
}

/* Two names that agree for half of the header. */
static void build_common_prefix(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    td_buffer_init(out);
    for (int k = 0; k < 3; k++) {
        td_buffer_puts(out, k == 0 ? "{\"" : ",\"");
        for (size_t i = 0; i < n; i++)
            td_buffer_puts(out, "0123456789");
        td_buffer_puts(out, k == 0 ? "b" : k == 1 ? "a" : "");
        for (size_t i = 0; i < n; i++)
            td_buffer_puts(out, k < 2 ? "0123456789" : "");
        td_buffer_puts(out, "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
    }
    td_buffer_putc(out, '}');
    *data_bytes = 0;
}

static void build_unknown_members(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    td_buffer_init(out);
    td_buffer_puts(out, "{\"a\":{");
    for (size_t i = 0; i < n; i++)
        td_buffer_printf(out, "\"m%zu\":[{\"x\":[]},%zu],", i, i);
    td_buffer_puts(out, "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    *data_bytes = 0;
}

static void build_full_shapes(struct td_buffer *out, size_t n, uint64_t *data_bytes)
{
    td_buffer_init(out);
    td_buffer_putc(out, '{');
    for (size_t i = 0; i < n / 4; i++) {
        td_buffer_printf(out, "%s\"%zu\":{\"dtype\":\"U8\",\"shape\":[0", i > 0 ? "," : "", i);
        for (int d = 1; d < TD_MAX_RANK; d++)
            td_buffer_puts(out, ",0");
        td_buffer_puts(out, "],\"data_offsets\":[0,0]}");
    }
    td_buffer_putc(out, '}');
    *data_bytes = 0;
}

static const struct growth_case {
    const char *name;
    build_fn *build;
    enum td_code code;
} growth_cases[] = {
    {"time_sorted", build_sorted, TD_OK},
    {"time_shuffled", build_shuffled, TD_OK},
    {"time_descending", build_descending, TD_OK},
    {"time_duplicate", build_duplicate, TD_INVALID_ARGUMENT},
    {"time_all_at_one_place", build_one_place, TD_INVALID_ARGUMENT},
    {"time_empty_tensors", build_empty_tensors, TD_OK},
    {"time_long_names", build_long_names, TD_OK},
    {"time_metadata", build_metadata, TD_OK},
    {"time_one_huge_name", build_one_huge_name, TD_OK},
    {"time_common_prefix", build_common_prefix, TD_OK},
    {"time_unknown_members", build_unknown_members, TD_OK},
    {"time_full_shapes", build_full_shapes, TD_OK},
};

/* Returns the shortest of three times, because noise only adds. */
static double best_seconds(const struct growth_case *c, size_t n)
{
    struct td_buffer header;
    uint64_t data_bytes;
    c->build(&header, n, &data_bytes);
    assert_false(header.failed);
    double best = 1e9;
    for (int round = 0; round < 3; round++) {
        struct outcome out = parse(&header, data_bytes);
        CHECK(out.err.code == c->code, "%s: %s", c->name, out.err.message);
        CHECK(out.peak_bytes <= 8192 + 6 * header.len, "%s: %zu bytes for a header of %zu", c->name, out.peak_bytes,
              header.len);
        best = out.seconds < best ? out.seconds : best;
    }
    td_buffer_fini(&header);
    return best;
}

/* A busy machine may spoil a try, so there are five; quadratic time fails them all. */
static void time_grows_like_the_header(void **state)
{
    const struct growth_case *c = *state;
    size_t n = SANITIZED ? 20000 : 50000;
    double small = 0, large = 0;
    for (int attempt = 0; attempt < 5; attempt++) {
        small = best_seconds(c, n);
        large = best_seconds(c, 4 * n);
        if (large <= 8 * small)
            return;
    }
    fail_msg("%s: %.6f s, then %.6f s at four times the size", c->name, small, large);
}

int main(void)
{
    struct CMUnitTest tests[1 + COUNT_OF(growth_cases)] = {cmocka_unit_test(a_million_tensors_in_the_largest_header)};
    for (size_t i = 0; i < COUNT_OF(growth_cases); i++)
        tests[1 + i] = (struct CMUnitTest){.name = growth_cases[i].name,
                                           .test_func = time_grows_like_the_header,
                                           .initial_state = (void *)(uintptr_t)&growth_cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
