/* Files below tests/data/ that real writers made, with the expectations from the reference library: lines of
 * NAME|DTYPE|[SHAPE]|ORDER|REASON|CRC32, as tests/data/make_npy.py writes them. */
#ifndef TD_TESTS_UNIT_PARSER_FORMAT_FIXTURE_H
#define TD_TESTS_UNIT_PARSER_FORMAT_FIXTURE_H

#include "tests/unit/parser/format_parse.h"

#include <dirent.h>
#include <zlib.h>

struct fixture {
    char name[64];
    char *bytes; /* a block of exactly len bytes */
    size_t len;
    char *expected; /* text */
};

/* Returns the content of a file below TD_TEST_DATA, with a NUL after it if `terminated`, or NULL when there is no such
 * file. The caller frees the content with __real_free(). */
static inline char *read_if_there(const char *folder, const char *name, const char *extension, bool terminated,
                                  size_t *len)
{
    char path[512];
    *len = 0;
    (void)snprintf(path, sizeof path, "%s/%s/%s%s", TD_TEST_DATA, folder, name, extension);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *len = (size_t)ftell(file);
    rewind(file);
    char *bytes = __real_malloc(*len + (terminated || *len == 0));
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *len, file), *len);
    assert_int_equal(fclose(file), 0);
    if (terminated)
        bytes[*len] = '\0';
    return bytes;
}

/* Returns the content as a block of exactly *len bytes. */
static inline char *read_file(const char *folder, const char *name, const char *extension, size_t *len)
{
    char *bytes = read_if_there(folder, name, extension, false, len);
    CHECK(bytes != NULL, "%s/%s%s is missing", folder, name, extension);
    return bytes;
}

static inline char *read_text(const char *folder, const char *name, const char *extension)
{
    size_t len;
    char *text = read_if_there(folder, name, extension, true, &len);
    CHECK(text != NULL, "%s/%s%s is missing", folder, name, extension);
    return text;
}

static inline struct fixture fixture_read(const char *folder, const char *name, const char *extension)
{
    struct fixture f;
    (void)snprintf(f.name, sizeof f.name, "%s", name);
    f.bytes = read_file(folder, name, extension, &f.len);
    f.expected = read_text(folder, name, ".txt");
    return f;
}

static inline void fixture_free(struct fixture *f)
{
    __real_free(f->bytes);
    __real_free(f->expected);
}

/* Calls `check` for every file of the folder with this extension, and checks that there are at least `least`. */
static inline void each_fixture(const char *folder, const char *extension, size_t least, const struct td_format *format,
                                void (*check)(const struct td_format *format, const struct fixture *f))
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
        check(format, &f);
        fixture_free(&f);
        count++;
    }
    (void)closedir(dir);
    CHECK(count >= least, "%s has %zu files, %zu expected", path, count, least);
}

/* Returns the CRC-32 of a tensor's elements in row-major order, read at the places that the manifest gives. */
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

static inline void list_tensor(struct td_buffer *out, const struct td_tensor *t, const char *bytes, size_t len)
{
    assert_int_equal(strlen(t->name), t->name_len);
    td_buffer_printf(out, "%s|%s|", t->name, t->dtype->name);
    list_shape(out, t->shape, t->rank);
    const char *stored = t->reason == NULL ? td_tensor_stored(t) : t->reason;
    td_buffer_printf(out, "|%c|%s|", t->strides == NULL ? 'C' : 'F', stored == NULL ? "-" : stored);
    if (stored == NULL)
        td_buffer_printf(out, "%08" PRIx32 "\n", tensor_crc(t, bytes, len));
    else
        td_buffer_puts(out, "-\n");
}

static inline void check_fixture(const struct td_format *format, const struct fixture *f)
{
    struct parsed p;
    parse_bytes(format, f->bytes, f->len, &p);
    CHECK(p.ok, "%s: %s", f->name, p.err.message);
    struct td_buffer out;
    td_buffer_init(&out);
    for (size_t i = 0; i < p.manifest.tensor_count; i++)
        list_tensor(&out, &p.manifest.tensors[i], f->bytes, f->len);
    assert_non_null(td_buffer_terminate(&out));
    CHECK(strcmp(out.data, f->expected) == 0, "%s: got\n%swanted\n%s", f->name, out.data, f->expected);
    td_buffer_fini(&out);
    parsed_fini(&p);
}

static inline struct sample fixture_sample(const struct td_format *format, const struct fixture *f)
{
    return (struct sample){.format = format, .name = f->name, .bytes = f->bytes, .len = f->len};
}

static inline void check_prefixes(const struct td_format *format, const struct fixture *f)
{
    struct sample s = fixture_sample(format, f);
    check_each_prefix(&s, f->len);
}

static inline void check_allocations(const struct td_format *format, const struct fixture *f)
{
    struct sample s = fixture_sample(format, f);
    assert_true(check_each_allocation(&s, TD_OK) >= 2);
}

#endif
