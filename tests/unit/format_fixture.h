/* Files by real writers below tests/data/, and what the reference library reads from them: lines of
 * NAME|DTYPE|[SHAPE]|ORDER|REASON|CRC32, as tests/data/make_npy.py writes them. */
#ifndef TD_TESTS_FORMAT_FIXTURE_H
#define TD_TESTS_FORMAT_FIXTURE_H

#include "core/buffer.h"
#include "parser/format.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <inttypes.h>
#include <zlib.h>

struct fixture {
    char name[64];
    char *bytes; /* a block of exactly len bytes */
    size_t len;
    char *expected; /* text */
};

struct parsed {
    struct td_manifest manifest;
    struct td_error err;
    bool ok;
    struct alloc_count memory;
};

static inline void parse_input(const struct td_format *format, const struct td_input *input,
                               const struct td_limits *limits, struct parsed *p)
{
    memset(p, 0, sizeof *p);
    td_error_init(&p->err);
    alloc_count_start();
    td_manifest_init(&p->manifest, limits->max_memory_bytes);
    p->ok = format->parse(input, limits, &p->manifest, &p->err);
    p->memory = alloc_count_get();
    assert_int_equal(p->ok, p->err.code == TD_OK);
    assert_true(p->manifest.arena.limit_bytes == limits->max_memory_bytes);
}

static inline void parse_bytes(const struct td_format *format, const void *bytes, size_t len,
                               struct parsed *p)
{
    struct td_input input = td_input_memory(bytes, len);
    struct td_limits limits = td_limits_default();
    parse_input(format, &input, &limits, p);
}

static inline void parsed_fini(struct parsed *p)
{
    td_manifest_fini(&p->manifest);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

static inline char *read_file(const char *folder, const char *name, const char *extension, size_t *len)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s/%s%s", TD_TEST_DATA, folder, name, extension);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL, "%s is missing", path);
    static char room[1 << 16];
    *len = fread(room, 1, sizeof room - 1, file);
    CHECK(feof(file), "%s is too long", path);
    (void)fclose(file);
    char *bytes = __real_malloc(*len + (*len == 0));
    assert_non_null(bytes);
    memcpy(bytes, room, *len);
    return bytes;
}

static inline struct fixture fixture_read(const char *folder, const char *name, const char *extension)
{
    struct fixture f;
    size_t text_len;
    (void)snprintf(f.name, sizeof f.name, "%s", name);
    f.bytes = read_file(folder, name, extension, &f.len);
    char *text = read_file(folder, name, ".txt", &text_len);
    f.expected = __real_malloc(text_len + 1);
    assert_non_null(f.expected);
    memcpy(f.expected, text, text_len);
    f.expected[text_len] = '\0';
    __real_free(text);
    return f;
}

static inline void fixture_free(struct fixture *f)
{
    __real_free(f->bytes);
    __real_free(f->expected);
}

/* Calls check for every file of the folder with this extension; there are at least `most` of them. */
static inline void each_fixture(const char *folder, const char *extension, size_t least,
                                void (*check)(const struct fixture *f))
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", TD_TEST_DATA, folder);
    DIR *dir = opendir(path);
    CHECK(dir != NULL, "%s is missing", path);
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, extension) != 0)
            continue;
        char name[64];
        (void)snprintf(name, sizeof name, "%.*s", (int)(dot - entry->d_name), entry->d_name);
        struct fixture f = fixture_read(folder, name, extension);
        check(&f);
        fixture_free(&f);
        count++;
    }
    (void)closedir(dir);
    CHECK(count >= least, "%s has %zu files, %zu expected", path, count, least);
}

/* CRC-32 of a tensor's elements in row-major order, read where the manifest says. */
static inline uint32_t tensor_crc(const struct td_tensor *t, const char *bytes, size_t len)
{
    uint64_t index[TD_MAX_RANK] = {0};
    size_t item = t->dtype->block_bytes;
    uLong crc = crc32(0, NULL, 0);
    uint64_t contiguous = t->offset;
    for (uint64_t done = 0; done < t->nbytes; done += item, contiguous += item) {
        uint64_t at = t->offset;
        for (uint32_t d = 0; t->strides != NULL && d < t->rank; d++)
            at += index[d] * t->strides[d] * item;
        if (t->strides == NULL)
            at = contiguous;
        assert_true(at <= len && item <= len - at);
        crc = crc32(crc, (const Bytef *)bytes + at, (uInt)item);
        for (uint32_t d = t->rank; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
    return (uint32_t)crc;
}

static inline void list_tensor(struct td_buffer *out, const struct td_tensor *t, const char *bytes,
                               size_t len)
{
    assert_int_equal(strlen(t->name), t->name_len);
    td_buffer_printf(out, "%s|%s|[", t->name, t->dtype->name);
    for (uint32_t d = 0; d < t->rank; d++)
        td_buffer_printf(out, d > 0 ? ",%" PRIu64 : "%" PRIu64, t->shape[d]);
    td_buffer_printf(out, "]|%c|%s|", t->strides == NULL ? 'C' : 'F', t->reason == NULL ? "-" : t->reason);
    if (t->reason == NULL)
        td_buffer_printf(out, "%08" PRIx32 "\n", tensor_crc(t, bytes, len));
    else
        td_buffer_puts(out, "-\n");
}

static inline void check_fixture(const struct td_format *format, const struct fixture *f)
{
    struct parsed p;
    parse_bytes(format, f->bytes, f->len, &p);
    CHECK(p.ok, "%s: %s", f->name, p.err.message);
    assert_string_equal(p.manifest.format, format->name);
    struct td_buffer out;
    td_buffer_init(&out);
    for (size_t i = 0; i < p.manifest.tensor_count; i++)
        list_tensor(&out, &p.manifest.tensors[i], f->bytes, f->len);
    assert_non_null(td_buffer_terminate(&out));
    CHECK(strcmp(out.data, f->expected) == 0, "%s: got\n%swanted\n%s", f->name, out.data, f->expected);
    td_buffer_fini(&out);
    parsed_fini(&p);
}

static inline void check_prefixes(const struct td_format *format, const struct fixture *f)
{
    for (size_t len = 0; len < f->len; len++) {
        char *exact = __real_malloc(len + (len == 0));
        assert_non_null(exact);
        memcpy(exact, f->bytes, len);
        struct parsed p;
        parse_bytes(format, exact, len, &p);
        CHECK(!p.ok, "%s: %zu of %zu bytes accepted", f->name, len, f->len);
        assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
        check_error(&p.err, len, true, f->name);
        parsed_fini(&p);
        __real_free(exact);
    }
}

static inline void check_allocations(const struct td_format *format, const struct fixture *f)
{
    bool done = false;
    for (size_t k = 1; !done; k++) {
        struct parsed p;
        alloc_fail_at(k);
        parse_bytes(format, f->bytes, f->len, &p);
        alloc_fail_at(0);
        done = p.memory.calls < k;
        CHECK(done == p.ok, "%s, allocation %zu: %s", f->name, k, p.err.message);
        CHECK(done || p.err.code == TD_RESOURCE_EXHAUSTED, "%s, allocation %zu: %s", f->name, k,
              p.err.message);
        parsed_fini(&p);
    }
}

#endif
