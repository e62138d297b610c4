#include "parser/zip/zip_directory.h"

#include "core/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CENTRAL_SIGNATURE UINT32_C(0x02014b50)

enum {
    CENTRAL_BYTES = 46,
    VERSION_MAX = 63,         /* 6.3, as in zipfile: later versions may have unknown features */
    DEFLATE_MAX_RATIO = 1032, /* 258 bytes from two bits, RFC 1951 */
    METHOD_STORED = 0,
    METHOD_DEFLATED = 8,
    EXTRA_ZIP64 = 0x0001,
    MODE_TYPE = 0170000, /* the upper half of the external attributes is a Unix st_mode */
    MODE_DIRECTORY = 0040000,
    MODE_REGULAR = 0100000,
};

static bool name_is_text(struct td_text name)
{
    return name.len > 0 && memchr(name.p, '\0', name.len) == NULL && td_utf8_valid(name.p, name.len);
}

static bool name_is_relative(struct td_text name)
{
    if (name.p[0] == '/' || name.p[0] == '\\')
        return false;
    for (size_t begin = 0; begin <= name.len;) {
        size_t end = begin;
        while (end < name.len && name.p[end] != '/' && name.p[end] != '\\')
            end++;
        if (end - begin == 2 && memcmp(name.p + begin, "..", 2) == 0)
            return false;
        begin = end + 1;
    }
    return true;
}

bool td_zip_find_extra64(const uint8_t *extra, size_t len, const uint8_t **data, size_t *data_len)
{
    *data = NULL;
    *data_len = 0;
    while (len >= 4) {
        uint16_t id = td_load_le16(extra);
        uint16_t field_len = td_load_le16(extra + 2);
        if (field_len > len - 4)
            return false;
        if (id == EXTRA_ZIP64) {
            if (*data != NULL)
                return false;
            *data = extra + 4;
            *data_len = field_len;
        }
        extra += 4 + field_len;
        len -= 4 + (size_t)field_len;
    }
    return true;
}

bool td_zip_widen(uint64_t *value, const uint8_t **data, size_t *len)
{
    if (*value != UINT32_MAX || *data == NULL)
        return true;
    if (*len < 8)
        return false;
    *value = td_load_le64(*data);
    *data += 8;
    *len -= 8;
    return true;
}

static bool check_flags(const struct td_zip_reader *r, uint64_t pos, const char *name, const struct td_zip_central *c,
                        uint32_t attributes)
{
    if ((c->flags & TD_ZIP_FLAGS_REFUSED) != 0)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 8,
                           "zip member \"%.96s\" is encrypted or a patch (flags 0x%x)", name, c->flags);
    if (c->method != METHOD_STORED && c->method != METHOD_DEFLATED)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 10,
                           "zip member \"%.96s\" is compressed by method %u; 0 (stored) and 8 (deflate) are known",
                           name, c->method);
    if (c->version > VERSION_MAX)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 6,
                           "zip member \"%.96s\" needs version %u.%u of the format; up to 6.3 is known", name,
                           c->version / 10U, c->version % 10U);
    uint32_t type = attributes >> 16 & MODE_TYPE;
    if (type != 0 && type != MODE_REGULAR && type != MODE_DIRECTORY)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 38,
                           "zip member \"%.96s\" is a link or a device (mode 0%o), not a file", name, type);
    return true;
}

static bool check_sizes(const struct td_zip_reader *r, uint64_t pos, const struct td_zip_entry *e)
{
    if (!e->deflated && e->stored_bytes != e->size_bytes)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 20,
                           "zip member \"%.96s\" is stored, yet takes %" PRIu64 " bytes for %" PRIu64, e->name,
                           e->stored_bytes, e->size_bytes);
    if (e->deflated && e->size_bytes / DEFLATE_MAX_RATIO > e->stored_bytes)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 24,
                           "zip member \"%.96s\": %" PRIu64 " bytes cannot be deflated to %" PRIu64, e->name,
                           e->size_bytes, e->stored_bytes);
    if (e->size_bytes != 0 && e->name[e->name_len - 1] == '/')
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 24,
                           "zip member \"%.96s\" is a folder, yet has %" PRIu64 " bytes", e->name, e->size_bytes);
    return true;
}

struct td_zip_central td_zip_load_central(const uint8_t *p)
{
    return (struct td_zip_central){
        .version = td_load_le16(p + 6),
        .flags = td_load_le16(p + 8),
        .method = td_load_le16(p + 10),
        .crc32 = td_load_le32(p + 16),
        .name_len = td_load_le16(p + 28),
        .extra_len = td_load_le16(p + 30),
        .comment_len = td_load_le16(p + 32),
    };
}

/* Reads the complete record at p, which stands at `pos` of the archive, into *e. */
static bool read_central(const struct td_zip_reader *r, const uint8_t *p, uint64_t pos, struct td_zip_entry *e)
{
    struct td_zip_central c = td_zip_load_central(p);
    const uint8_t *data;
    size_t data_len;
    char *name = td_arena_strndup(r->arena, td_text_n((const char *)p + CENTRAL_BYTES, c.name_len));
    if (name == NULL)
        return td_zip_no_memory(r);
    *e = (struct td_zip_entry){
        .name = name,
        .name_len = c.name_len,
        .deflated = c.method == METHOD_DEFLATED,
        .crc32 = c.crc32,
        .stored_bytes = td_load_le32(p + 20),
        .size_bytes = td_load_le32(p + 24),
        .header_at = td_load_le32(p + 42),
    };
    if (!name_is_text(td_text_n(name, c.name_len)))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + CENTRAL_BYTES,
                           "zip member \"%.96s\": a name must be in UTF-8, without NUL, and not empty", name);
    if (r->as_torch && !name_is_relative(td_text_n(name, c.name_len)))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + CENTRAL_BYTES,
                           "zip member \"%.96s\": a name must be a relative path without \"..\"", name);
    if (td_load_le16(p + 34) != 0)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 34,
                           "zip member \"%.96s\" is in another part of the archive", name);
    if (!td_zip_find_extra64(p + CENTRAL_BYTES + c.name_len, c.extra_len, &data, &data_len) ||
        !td_zip_widen(&e->size_bytes, &data, &data_len) || !td_zip_widen(&e->stored_bytes, &data, &data_len) ||
        !td_zip_widen(&e->header_at, &data, &data_len))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + CENTRAL_BYTES + c.name_len,
                           "zip member \"%.96s\": its extra fields run past their %u bytes, or its zip64 field is "
                           "too short or occurs twice",
                           name, c.extra_len);
    return check_flags(r, pos, name, &c, td_load_le32(p + 38)) && check_sizes(r, pos, e);
}

static bool allocate_entries(struct td_zip_reader *r)
{
    if (r->count > r->directory_bytes / CENTRAL_BYTES) {
        (void)td_error_at(r->err, TD_INVALID_ARGUMENT, r->directory_at,
                          "zip archive announces %" PRIu64 " members; its directory of %" PRIu64 " bytes holds %" PRIu64
                          " at most",
                          r->count, r->directory_bytes, r->directory_bytes / CENTRAL_BYTES);
        return false;
    }
    size_t count = (size_t)r->count; /* the directory is in memory, so it fits */
    r->entries = td_arena_array(r->arena, count, sizeof *r->entries);
    r->order = malloc((count + 1) * sizeof *r->order);
    r->central_at = malloc((count + 1) * sizeof *r->central_at);
    return (r->entries != NULL && r->order != NULL && r->central_at != NULL) || td_zip_no_memory(r);
}

bool td_zip_read_directory(struct td_zip_reader *r)
{
    if (!allocate_entries(r))
        return false;
    size_t left = (size_t)r->directory_bytes;
    size_t at = 0;
    for (size_t i = 0; i < r->count; i++) {
        const uint8_t *p = r->directory + at;
        uint64_t pos = r->directory_at + at;
        if (left < CENTRAL_BYTES || td_load_le32(p) != CENTRAL_SIGNATURE)
            return td_error_at(r->err, TD_INVALID_ARGUMENT, pos,
                               "zip directory has no record (PK\\1\\2) for member %zu of %" PRIu64, i + 1, r->count);
        struct td_zip_central c = td_zip_load_central(p);
        size_t record_bytes = (size_t)CENTRAL_BYTES + c.name_len + c.extra_len + c.comment_len;
        if (record_bytes > left)
            return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 28,
                               "zip directory ends within its record of member %zu", i + 1);
        if (!read_central(r, p, pos, &r->entries[i]))
            return false;
        r->order[i] = (struct td_order){.key = r->entries[i].header_at, .index = i};
        r->central_at[i] = at;
        if (c.name_len > r->longest_name)
            r->longest_name = c.name_len;
        at += record_bytes;
        left -= record_bytes;
    }
    if (left != 0)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, r->directory_at + at,
                           "zip directory has %zu bytes after its %" PRIu64 " members", left, r->count);
    return true;
}
