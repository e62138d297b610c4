/* Zip archives built in memory as Python's zipfile or PyTorch writes them, for tests to damage. */
#ifndef TD_TESTS_UNIT_PARSER_ZIP_FILE_H
#define TD_TESTS_UNIT_PARSER_ZIP_FILE_H

#include "tests/unit/unit.h"

#include <zlib.h>

enum { ZIP_MEMBERS_MAX = 24, ZIP_FILE_MAX = 32768 };

struct zip_member {
    const char *name;
    size_t name_len; /* 0: strlen */
    const void *data;
    size_t data_len;
    bool deflated;
};

struct zip_spec {
    struct zip_member members[ZIP_MEMBERS_MAX];
    size_t count;
    bool torch;     /* descriptors, padding by FB fields, zip64 end records, nothing in local headers */
    size_t prefix;  /* bytes before the first header; offsets count them */
    size_t gap;     /* bytes before the directory */
    size_t comment; /* bytes of the archive's comment */
};

struct zip_file {
    uint8_t *bytes; /* room for ZIP_FILE_MAX */
    size_t len;
    size_t local_at[ZIP_MEMBERS_MAX], data_at[ZIP_MEMBERS_MAX], descriptor_at[ZIP_MEMBERS_MAX];
    size_t stored_len[ZIP_MEMBERS_MAX], central_at[ZIP_MEMBERS_MAX];
    size_t directory_at, end64_at, locator_at, end_at;
};

static inline void zip_put(struct zip_file *f, uint64_t value, size_t width)
{
    assert_true(f->len + width <= ZIP_FILE_MAX);
    for (size_t i = 0; i < width; i++)
        f->bytes[f->len++] = (uint8_t)(i < 8 ? value >> 8 * i : 0);
}

static inline void zip_put_bytes(struct zip_file *f, const void *bytes, size_t len)
{
    assert_true(f->len + len <= ZIP_FILE_MAX);
    if (len > 0)
        memcpy(f->bytes + f->len, bytes, len);
    f->len += len;
}

static inline void zip_patch(struct zip_file *f, size_t at, size_t width, uint64_t value)
{
    assert_true(at + width <= f->len);
    for (size_t i = 0; i < width; i++)
        f->bytes[at + i] = (uint8_t)(value >> 8 * i);
}

static inline size_t zip_name_len(const struct zip_member *m)
{
    return m->name_len != 0 ? m->name_len : strlen(m->name);
}

static inline uint32_t zip_crc(const struct zip_member *m)
{
    return (uint32_t)crc32(crc32(0, NULL, 0), m->data, (uInt)m->data_len);
}

static inline unsigned zip_flags(const struct zip_spec *spec, const struct zip_member *m)
{
    if (!spec->torch)
        return 0;
    return m->data_len > 0 ? 0x0808 : 0x0800;
}

static inline void zip_put_data(struct zip_file *f, const struct zip_member *m)
{
    if (!m->deflated) {
        zip_put_bytes(f, m->data, m->data_len);
        return;
    }
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)m->data;
    stream.avail_in = (uInt)m->data_len;
    stream.next_out = f->bytes + f->len;
    stream.avail_out = (uInt)(ZIP_FILE_MAX - f->len);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    f->len += stream.total_out;
    (void)deflateEnd(&stream);
}

static inline void zip_put_member(struct zip_file *f, const struct zip_spec *spec, size_t i)
{
    const struct zip_member *m = &spec->members[i];
    size_t name_len = zip_name_len(m);
    size_t padding = spec->torch ? 64 - (f->len + 30 + name_len + 4) % 64 : 0;
    f->local_at[i] = f->len;
    zip_put(f, 0x04034b50, 4);
    zip_put(f, spec->torch ? 0 : 20, 2);
    zip_put(f, zip_flags(spec, m), 2);
    zip_put(f, m->deflated ? 8 : 0, 2);
    zip_put(f, 0, 4); /* time and date */
    zip_put(f, 0, 12);
    zip_put(f, name_len, 2);
    zip_put(f, spec->torch ? 4 + padding : 0, 2);
    zip_put_bytes(f, m->name, name_len);
    if (spec->torch) {
        zip_put(f, 0x4246, 2);
        zip_put(f, padding, 2);
        for (size_t k = 0; k < padding; k++)
            zip_put(f, 'Z', 1);
    }
    f->data_at[i] = f->len;
    zip_put_data(f, m);
    f->stored_len[i] = f->len - f->data_at[i];
    f->descriptor_at[i] = f->len;
    if (!spec->torch) {
        zip_patch(f, f->local_at[i] + 14, 4, zip_crc(m));
        zip_patch(f, f->local_at[i] + 18, 4, f->stored_len[i]);
        zip_patch(f, f->local_at[i] + 22, 4, m->data_len);
    } else if (m->data_len > 0) {
        zip_put(f, 0x08074b50, 4);
        zip_put(f, zip_crc(m), 4);
        zip_put(f, f->stored_len[i], 4);
        zip_put(f, m->data_len, 4);
    }
}

static inline void zip_put_central(struct zip_file *f, const struct zip_spec *spec, size_t i)
{
    const struct zip_member *m = &spec->members[i];
    f->central_at[i] = f->len;
    zip_put(f, 0x02014b50, 4);
    zip_put(f, spec->torch ? 0 : 0x314, 2);
    zip_put(f, spec->torch ? 0 : 20, 2);
    zip_put(f, zip_flags(spec, m), 2);
    zip_put(f, m->deflated ? 8 : 0, 2);
    zip_put(f, 0, 4);
    zip_put(f, zip_crc(m), 4);
    zip_put(f, f->stored_len[i], 4);
    zip_put(f, m->data_len, 4);
    zip_put(f, zip_name_len(m), 2);
    zip_put(f, 0, 8); /* extra, comment, disk, internal attributes */
    zip_put(f, spec->torch ? 0 : 0100600u << 16, 4);
    zip_put(f, f->local_at[i], 4);
    zip_put_bytes(f, m->name, zip_name_len(m));
}

static inline void zip_put_end(struct zip_file *f, const struct zip_spec *spec)
{
    size_t directory_bytes = f->len - f->directory_at;
    if (spec->torch) {
        f->end64_at = f->len;
        zip_put(f, 0x06064b50, 4);
        zip_put(f, 44, 8);
        zip_put(f, 0x2d031e, 4);
        zip_put(f, 0, 8);
        zip_put(f, spec->count, 8);
        zip_put(f, spec->count, 8);
        zip_put(f, directory_bytes, 8);
        zip_put(f, f->directory_at, 8);
        f->locator_at = f->len;
        zip_put(f, 0x07064b50, 4);
        zip_put(f, 0, 4);
        zip_put(f, f->end64_at, 8);
        zip_put(f, 1, 4);
    }
    f->end_at = f->len;
    zip_put(f, 0x06054b50, 4);
    zip_put(f, 0, 4);
    zip_put(f, spec->count, 2);
    zip_put(f, spec->count, 2);
    zip_put(f, directory_bytes, 4);
    zip_put(f, f->directory_at, 4);
    zip_put(f, spec->comment, 2);
    zip_put(f, 0, spec->comment);
}

static inline struct zip_file zip_build(const struct zip_spec *spec)
{
    struct zip_file f = {.bytes = calloc(1, ZIP_FILE_MAX)};
    assert_non_null(f.bytes);
    f.len = spec->prefix;
    for (size_t i = 0; i < spec->count; i++)
        zip_put_member(&f, spec, i);
    f.len += spec->gap;
    f.directory_at = f.len;
    for (size_t i = 0; i < spec->count; i++)
        zip_put_central(&f, spec, i);
    zip_put_end(&f, spec);
    return f;
}

#endif
