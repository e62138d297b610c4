/* Zip archives that are cut off, changed or refused at every place in turn. */
#include "parser/zip/zip_unpack.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/parser/zip_opened.h"

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (int torch = 0; torch < 2; torch++) {
        struct zip_spec spec = torch ? torch_spec() : plain_spec();
        struct zip_file f = zip_build(&spec);
        size_t whole = f.len;
        for (f.len = 0; f.len < whole; f.len++)
            check_refused(&f, "a prefix", "");
        free(f.bytes);
    }
}

static void every_byte_changed(void **state)
{
    (void)state;
    static const uint8_t others[] = {0, 1, 0x7f, 0x80, 0xff, '/', '.'};
    for (int torch = 0; torch < 2; torch++) {
        struct zip_spec spec = torch ? torch_spec() : plain_spec();
        struct zip_file f = zip_build(&spec);
        struct td_input input = td_input_memory(f.bytes, f.len);
        for (size_t at = 0; at < f.len; at++) {
            uint8_t kept = f.bytes[at];
            for (size_t k = 0; k < COUNT_OF(others); k++) {
                struct opened o;
                f.bytes[at] = others[k];
                open_bytes(f.bytes, f.len, &o);
                if (!o.ok)
                    check_error(&o.err, f.len, true, "changed");
                for (size_t i = 0; i < o.zip.count; i++) {
                    const struct td_zip_entry *e = &o.zip.entries[i];
                    assert_true(e->offset <= f.len && e->stored_bytes <= f.len - e->offset);
                    free(td_zip_load(&input, e, 1 << 16, NULL));
                }
                close_opened(&o);
            }
            f.bytes[at] = kept;
        }
        free(f.bytes);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct alloc_trials trials = {0};
    struct zip_spec spec = torch_spec();
    struct zip_file f = zip_build(&spec);
    struct td_input input = td_input_memory(f.bytes, f.len);
    while (alloc_try(&trials)) {
        struct opened o;
        uint8_t *bytes = NULL;
        open_bytes(f.bytes, f.len, &o);
        if (o.ok && td_zip_check_case(&o.zip, &o.err))
            bytes = td_zip_load(&input, &o.zip.entries[3], LONG_BYTES, &o.err);
        alloc_tried(&trials, bytes != NULL, &o.err);
        free(bytes);
        close_opened(&o);
    }
    assert_true(trials.failed > 10);
    free(f.bytes);
}

/* Builds an archive of `count` stored members of one byte each. The caller frees it with __real_free(). */
static struct zip_file build_many(size_t count)
{
    enum { LOCAL_BYTES = 35, CENTRAL_BYTES = 50 };
    static const uint8_t end[22] = "PK\5\6";
    struct zip_file f = {.bytes = __real_calloc(1, count * (LOCAL_BYTES + CENTRAL_BYTES) + sizeof end)};
    assert_true(f.bytes != NULL && count < 10000);
    f.directory_at = count * LOCAL_BYTES;
    f.end_at = f.directory_at + count * CENTRAL_BYTES;
    f.len = f.end_at + sizeof end;
    for (size_t i = 0; i < count; i++) {
        size_t local = i * LOCAL_BYTES;
        size_t central = f.directory_at + i * CENTRAL_BYTES;
        char name[8];
        (void)snprintf(name, sizeof name, "%04zu", i);
        zip_patch(&f, local, 4, 0x04034b50);
        zip_patch(&f, local + 18, 4, 1);
        zip_patch(&f, local + 22, 4, 1);
        zip_patch(&f, local + 26, 2, 4);
        memcpy(f.bytes + local + 30, name, 4);
        zip_patch(&f, central, 4, 0x02014b50);
        zip_patch(&f, central + 20, 4, 1);
        zip_patch(&f, central + 24, 4, 1);
        zip_patch(&f, central + 28, 2, 4);
        zip_patch(&f, central + 42, 4, local);
        memcpy(f.bytes + central + 46, name, 4);
    }
    memcpy(f.bytes + f.end_at, end, sizeof end);
    zip_patch(&f, f.end_at + 8, 2, count);
    zip_patch(&f, f.end_at + 10, 2, count);
    zip_patch(&f, f.end_at + 12, 4, f.end_at - f.directory_at);
    zip_patch(&f, f.end_at + 16, 4, f.directory_at);
    return f;
}

/* Reads the archive under limits on memory from 1 byte on, up to `most`, which suffices. At each limit the peak must
 * stay below the limit, or below what the search for the end record takes at any limit. */
static void check_memory_limits(const struct zip_file *f, size_t step, size_t most)
{
    enum { SEARCH_BYTES = 65536 + 1024 };
    struct td_input input = td_input_memory(f->bytes, f->len);
    struct td_limits limits = td_limits_default();
    bool was_ok = false;
    for (limits.max_memory_bytes = 1; limits.max_memory_bytes < most; limits.max_memory_bytes += step) {
        struct opened o;
        open_input(&input, &limits, &o);
        CHECK(o.ok || o.err.code == TD_RESOURCE_EXHAUSTED, "%s", o.err.message);
        CHECK(o.ok || !was_ok, "with %zu bytes refused, with fewer not", limits.max_memory_bytes);
        CHECK(o.memory.peak_bytes <= limits.max_memory_bytes || o.memory.peak_bytes <= SEARCH_BYTES,
              "%zu bytes at a limit of %zu", o.memory.peak_bytes, limits.max_memory_bytes);
        was_ok = o.ok;
        close_opened(&o);
    }
    assert_true(was_ok);
}

/* The limits on memory, arena and scratch together, and on bytes of structure refuse an archive that exceeds them. */
static void limits_hold(void **state)
{
    (void)state;
    struct zip_spec spec = torch_spec();
    struct zip_file f = zip_build(&spec);
    struct td_input input = td_input_memory(f.bytes, f.len);
    struct td_limits limits = td_limits_default();
    check_memory_limits(&f, 97, 80000);
    for (limits.max_header_bytes = 0; limits.max_header_bytes < 300; limits.max_header_bytes++) {
        struct opened o;
        open_input(&input, &limits, &o);
        assert_int_equal(o.ok, limits.max_header_bytes >= f.end64_at - f.directory_at);
        assert_true(o.ok || o.err.code == TD_RESOURCE_EXHAUSTED);
        close_opened(&o);
    }
    free(f.bytes);
    f = build_many(5000);
    check_memory_limits(&f, 16384, 2 << 20);
    __real_free(f.bytes);
}

static bool failing_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    size_t **state = *(size_t * *const *)context;
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)state[1];
    if (--*state[0] == 0)
        return td_error_at(err, TD_IO, off, "the disk is on fire");
    memcpy(out, bytes + off, len);
    return true;
}

static void every_read_may_fail(void **state)
{
    (void)state;
    struct zip_spec spec = torch_spec();
    struct zip_file f = zip_build(&spec);
    struct td_limits limits = td_limits_default();
    size_t reads = 0;
    bool ok = false;
    for (size_t k = 1; !ok; k++) {
        size_t left = k;
        size_t *shared[2] = {&left, (size_t *)(uintptr_t)f.bytes};
        size_t **context = shared;
        struct td_input input = {.size_bytes = f.len, .read = failing_read, .context = &context};
        struct opened o;
        open_input(&input, &limits, &o);
        ok = o.ok;
        if (!ok)
            assert_int_equal(o.err.code, TD_IO);
        reads += !ok;
        close_opened(&o);
    }
    /* tail, locator, zip64, directory; one read brings the headers and descriptors of such small members */
    assert_int_equal(reads, 1 + 1 + 1 + 1 + 1);
    free(f.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix_is_refused),   cmocka_unit_test(every_byte_changed),
        cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(limits_hold),
        cmocka_unit_test(every_read_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
