/* Offsets of fields are those of APPNOTE 4.3: local header 4.3.7, descriptor 4.3.9, central header 4.3.12, zip64
 * records 4.3.14 and 4.3.15, end record 4.3.16, zip64 extra field 4.5.3. */
#include "parser/zip.h"

#include "core/checked.h"
#include "core/utf8.h"
#include "parser/manifest.h"
#include "parser/names.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    LOCATOR64_BYTES = 20,
    END64_BYTES = 56,
    COMMENT_MAX_BYTES = UINT16_MAX,
    INFLATE_CHUNK_BYTES = 8192,
    VERSION_MAX = 63,         /* 6.3, as in zipfile: a later one may mean what we do not know */
    DEFLATE_MAX_RATIO = 1032, /* 258 bytes from two bits, RFC 1951 */
};

#define LOCAL_SIGNATURE UINT32_C(0x04034b50)
#define CENTRAL_SIGNATURE UINT32_C(0x02014b50)
#define DESCRIPTOR_SIGNATURE UINT32_C(0x08074b50)
#define END_SIGNATURE UINT32_C(0x06054b50)
#define END64_SIGNATURE UINT32_C(0x06064b50)
#define LOCATOR64_SIGNATURE UINT32_C(0x07064b50)

enum {
    FLAG_ENCRYPTED = 0x1,
    FLAG_DESCRIPTOR = 0x8,
    FLAG_PATCHED = 0x20,
    FLAG_STRONG_ENCRYPTION = 0x40,
    FLAG_MASKED = 0x2000,
    FLAGS_REFUSED = FLAG_ENCRYPTED | FLAG_PATCHED | FLAG_STRONG_ENCRYPTION | FLAG_MASKED,
    METHOD_STORED = 0,
    METHOD_DEFLATED = 8,
    EXTRA_ZIP64 = 0x0001,
    MODE_TYPE = 0170000, /* the upper half of the external attributes is a Unix st_mode */
    MODE_DIRECTORY = 0040000,
    MODE_REGULAR = 0100000,
};

struct reader {
    const struct td_input *input;
    const struct td_limits *limits;
    struct td_arena *arena;
    struct td_error *err;
    /* as the end records say */
    uint64_t directory_at, directory_bytes, count;
    /* scratch */
    uint8_t *directory;
    struct td_order *order; /* by header_at; index of the entry */
    uint64_t *central_at;   /* of an entry's record, within directory */
    uint8_t near[512];      /* what was read last of what lies between members */
    uint64_t near_at;
    size_t near_bytes;
    uint8_t *local; /* room for a local header with the longest name */
    size_t longest_name;
    uint64_t local_bytes; /* of local headers read so far */
    struct td_zip_entry *entries;
};

/* What of a member is said outside its entry. */
struct central {
    uint16_t version; /* needed to extract */
    uint16_t flags;
    uint16_t method;
    uint32_t crc32;
    uint16_t name_len;
    uint16_t extra_len;
    uint16_t comment_len;
};

static bool no_memory(const struct reader *r)
{
    (void)td_error_set(r->err, TD_RESOURCE_EXHAUSTED,
                       "out of memory: the zip directory needs more than one file's limit, or than there is");
    return false;
}

/* ---- End records ---- */

/* The zip64 record's values, where the end record refers to it. Each field of the end record must be the same or say
 * that it is too small for the value. */
static bool read_end64(struct reader *r, const uint8_t *end, uint64_t locator_at, const uint8_t *locator,
                       uint64_t *records_at)
{
    uint8_t end64[END64_BYTES];
    uint64_t at = td_load_le64(locator + 8);
    if (locator_at < END64_BYTES || at != locator_at - END64_BYTES)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, locator_at + 8,
                           "zip64 locator says that the zip64 end record is at byte %" PRIu64
                           "; it must be %d bytes long and end where the locator begins, at %" PRIu64,
                           at, END64_BYTES, locator_at);
    if (td_load_le32(locator + 4) != 0 || td_load_le32(locator + 16) > 1)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, locator_at + 4,
                           "zip archive is one of several parts");
    if (!td_input_read(r->input, at, end64, sizeof end64, r->err))
        return false;
    if (td_load_le32(end64) != END64_SIGNATURE || td_load_le64(end64 + 4) != END64_BYTES - 12)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                           "zip64 end record does not begin with PK\\6\\6 and a length of %d",
                           END64_BYTES - 12);
    r->count = td_load_le64(end64 + 32);
    r->directory_bytes = td_load_le64(end64 + 40);
    r->directory_at = td_load_le64(end64 + 48);
    if (td_load_le32(end64 + 16) != 0 || td_load_le32(end64 + 20) != 0 ||
        td_load_le64(end64 + 24) != r->count)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at + 16, "zip archive is one of several parts");
    uint16_t count = td_load_le16(end + 10);
    uint32_t bytes = td_load_le32(end + 12);
    uint32_t begin = td_load_le32(end + 16);
    if ((count != UINT16_MAX && count != r->count) || (bytes != UINT32_MAX && bytes != r->directory_bytes) ||
        (begin != UINT32_MAX && begin != r->directory_at))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at + 24,
                           "zip64 end record and end record disagree: %" PRIu64
                           " and %u members, directory of "
                           "%" PRIu64 " and %" PRIu32 " bytes at %" PRIu64 " and %" PRIu32,
                           r->count, count, r->directory_bytes, bytes, r->directory_at, begin);
    *records_at = at;
    return true;
}

/* Takes the end record at end_at, and the zip64 one before it if there is one. */
static bool read_end_records(struct reader *r, const uint8_t *end, uint64_t end_at)
{
    uint8_t locator[LOCATOR64_BYTES];
    uint64_t records_at = end_at; /* the first of them */
    bool has_locator = false;
    if (end_at >= LOCATOR64_BYTES) {
        if (!td_input_read(r->input, end_at - LOCATOR64_BYTES, locator, sizeof locator, r->err))
            return false;
        has_locator = td_load_le32(locator) == LOCATOR64_SIGNATURE;
    }
    uint16_t disk = td_load_le16(end + 4);
    uint16_t directory_disk = td_load_le16(end + 6);
    uint16_t count_here = td_load_le16(end + 8);
    if ((disk != 0 && !(has_locator && disk == UINT16_MAX)) ||
        (directory_disk != 0 && !(has_locator && directory_disk == UINT16_MAX)) ||
        count_here != td_load_le16(end + 10))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, end_at + 4, "zip archive is one of several parts");
    r->count = td_load_le16(end + 10);
    r->directory_bytes = td_load_le32(end + 12);
    r->directory_at = td_load_le32(end + 16);
    if (has_locator && !read_end64(r, end, end_at - LOCATOR64_BYTES, locator, &records_at))
        return false;
    if (r->directory_at > records_at || r->directory_bytes != records_at - r->directory_at)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, end_at + 12,
                           "zip directory of %" PRIu64 " bytes at %" PRIu64
                           " does not end where the end records begin, at %" PRIu64,
                           r->directory_bytes, r->directory_at, records_at);
    return true;
}

/* What a download or a disk cut short still begins as an archive does. */
static bool refuse_without_end(const struct reader *r)
{
    uint8_t head[4] = {0};
    if (r->input->size_bytes >= sizeof head && !td_input_read(r->input, 0, head, sizeof head, r->err))
        return false;
    return td_error_at(
        r->err, TD_INVALID_ARGUMENT, r->input->size_bytes,
        td_load_le32(head) == LOCAL_SIGNATURE
            ? "a zip archive that was cut short: its end record is missing; copy or download it again"
            : "no zip archive: it has no end record (PK\\5\\6)");
}

/* The last PK\5\6 is the end record: all readers look for it from the end. Its comment must then end the file, so a
 * comment that holds another one is refused. */
static bool find_end(struct reader *r)
{
    uint64_t size = r->input->size_bytes;
    uint64_t tail_bytes = END_BYTES + COMMENT_MAX_BYTES < size ? END_BYTES + COMMENT_MAX_BYTES : size;
    uint8_t *tail = td_input_load(r->input, size - tail_bytes, tail_bytes, tail_bytes, r->err);
    if (tail == NULL)
        return false;
    uint64_t at = tail_bytes < END_BYTES ? 0 : tail_bytes - END_BYTES + 1;
    bool found = false;
    while (at > 0 && !found)
        found = td_load_le32(tail + --at) == END_SIGNATURE;
    bool ok = false;
    if (!found) {
        (void)refuse_without_end(r);
    } else {
        uint64_t end_at = size - tail_bytes + at;
        uint16_t comment = td_load_le16(tail + at + 20);
        if (comment != tail_bytes - at - END_BYTES)
            (void)td_error_at(r->err, TD_INVALID_ARGUMENT, end_at + 20,
                              "zip end record is followed by %" PRIu64
                              " bytes, but announces a comment of %u",
                              tail_bytes - at - END_BYTES, comment);
        else
            ok = read_end_records(r, tail + at, end_at);
    }
    free(tail);
    return ok;
}

/* ---- Central directory ---- */

static bool name_is_safe(const char *name, size_t len)
{
    if (len == 0 || name[0] == '/' || name[0] == '\\' || memchr(name, '\0', len) != NULL ||
        !td_utf8_valid(name, len))
        return false;
    for (size_t begin = 0; begin <= len;) {
        size_t end = begin;
        while (end < len && name[end] != '/' && name[end] != '\\')
            end++;
        if (end - begin == 2 && memcmp(name + begin, "..", 2) == 0)
            return false;
        begin = end + 1;
    }
    return true;
}

/* The zip64 field of extra[0..len): *data and its length, NULL when there is none. As in Python's zipfile, fewer than
 * four bytes at the end are padding. */
static bool find_extra64(const uint8_t *extra, size_t len, const uint8_t **data, size_t *data_len)
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

/* Takes the next eight bytes of a zip64 field for a value that did not fit into 32 bits. Without such a field the
 * value is meant as it stands. */
static bool widen(uint64_t *value, const uint8_t **data, size_t *len)
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

static bool check_flags(const struct reader *r, uint64_t pos, const char *name, const struct central *c,
                        uint32_t attributes)
{
    if ((c->flags & FLAGS_REFUSED) != 0)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 8,
                           "zip member \"%.96s\" is encrypted or a patch (flags 0x%x)", name, c->flags);
    if (c->method != METHOD_STORED && c->method != METHOD_DEFLATED)
        return td_error_at(
            r->err, TD_INVALID_ARGUMENT, pos + 10,
            "zip member \"%.96s\" is compressed by method %u; 0 (stored) and 8 (deflate) are known", name,
            c->method);
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

static bool check_sizes(const struct reader *r, uint64_t pos, const struct td_zip_entry *e)
{
    if (!e->deflated && e->stored_bytes != e->size_bytes)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 20,
                           "zip member \"%.96s\" is stored, yet takes %" PRIu64 " bytes for %" PRIu64,
                           e->name, e->stored_bytes, e->size_bytes);
    if (e->deflated && e->size_bytes / DEFLATE_MAX_RATIO > e->stored_bytes)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 24,
                           "zip member \"%.96s\": %" PRIu64 " bytes cannot be deflated to %" PRIu64, e->name,
                           e->size_bytes, e->stored_bytes);
    if (e->size_bytes != 0 && e->name[e->name_len - 1] == '/')
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 24,
                           "zip member \"%.96s\" is a folder, yet has %" PRIu64 " bytes", e->name,
                           e->size_bytes);
    return true;
}

static struct central load_central(const uint8_t *p)
{
    return (struct central){
        .version = td_load_le16(p + 6),
        .flags = td_load_le16(p + 8),
        .method = td_load_le16(p + 10),
        .crc32 = td_load_le32(p + 16),
        .name_len = td_load_le16(p + 28),
        .extra_len = td_load_le16(p + 30),
        .comment_len = td_load_le16(p + 32),
    };
}

/* Reads the record at p, which is complete, into *e. */
static bool read_central(const struct reader *r, const uint8_t *p, uint64_t pos, struct td_zip_entry *e)
{
    struct central c = load_central(p);
    const uint8_t *data;
    size_t data_len;
    char *name = td_arena_strndup(r->arena, (const char *)p + CENTRAL_BYTES, c.name_len);
    if (name == NULL)
        return no_memory(r);
    *e = (struct td_zip_entry){
        .name = name,
        .name_len = c.name_len,
        .deflated = c.method == METHOD_DEFLATED,
        .crc32 = c.crc32,
        .stored_bytes = td_load_le32(p + 20),
        .size_bytes = td_load_le32(p + 24),
        .header_at = td_load_le32(p + 42),
    };
    if (!name_is_safe(name, c.name_len))
        return td_error_at(
            r->err, TD_INVALID_ARGUMENT, pos + CENTRAL_BYTES,
            "zip member \"%.96s\": a name must be a relative path in UTF-8 without \"..\" and NUL", name);
    if (td_load_le16(p + 34) != 0)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, pos + 34,
                           "zip member \"%.96s\" is in another part of the archive", name);
    if (!find_extra64(p + CENTRAL_BYTES + c.name_len, c.extra_len, &data, &data_len) ||
        !widen(&e->size_bytes, &data, &data_len) || !widen(&e->stored_bytes, &data, &data_len) ||
        !widen(&e->header_at, &data, &data_len))
        return td_error_at(
            r->err, TD_INVALID_ARGUMENT, pos + CENTRAL_BYTES + c.name_len,
            "zip member \"%.96s\": its extra fields run past their %u bytes, or its zip64 field is "
            "too short or there twice",
            name, c.extra_len);
    return check_flags(r, pos, name, &c, td_load_le32(p + 38)) && check_sizes(r, pos, e);
}

static bool allocate_entries(struct reader *r)
{
    if (r->count > r->directory_bytes / CENTRAL_BYTES) {
        (void)td_error_at(r->err, TD_INVALID_ARGUMENT, r->directory_at,
                          "zip archive announces %" PRIu64 " members; its directory of %" PRIu64
                          " bytes holds %" PRIu64 " at most",
                          r->count, r->directory_bytes, r->directory_bytes / CENTRAL_BYTES);
        return false;
    }
    size_t count = (size_t)r->count; /* the directory is in memory, so it fits */
    r->entries = td_arena_array(r->arena, count, sizeof *r->entries);
    r->order = malloc((count + 1) * sizeof *r->order);
    r->central_at = malloc((count + 1) * sizeof *r->central_at);
    return (r->entries != NULL && r->order != NULL && r->central_at != NULL) || no_memory(r);
}

static bool read_directory(struct reader *r)
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
                               "zip directory has no record (PK\\1\\2) for member %zu of %" PRIu64, i + 1,
                               r->count);
        struct central c = load_central(p);
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

/* ---- Local headers ---- */

/* What is read of local headers counts as the directory does. */
static bool count_local(struct reader *r, const struct td_zip_entry *e, uint64_t bytes)
{
    r->local_bytes += bytes;
    if (r->local_bytes <= r->limits->max_header_bytes)
        return true;
    (void)td_error_at(r->err, TD_RESOURCE_EXHAUSTED, e->header_at,
                      "zip local headers take more than the limit of %" PRIu64 " bytes",
                      r->limits->max_header_bytes);
    return false;
}

/* The sizes of a local header: its own, or those of its zip64 field where they do not fit. */
static bool read_local_sizes(struct reader *r, const struct td_zip_entry *e, uint64_t *stored_bytes,
                             uint64_t *size_bytes)
{
    *stored_bytes = td_load_le32(r->local + 18);
    *size_bytes = td_load_le32(r->local + 22);
    if (*stored_bytes != UINT32_MAX && *size_bytes != UINT32_MAX)
        return true;
    uint16_t extra_len = td_load_le16(r->local + 28);
    uint64_t at = e->header_at + LOCAL_BYTES + e->name_len;
    if (!count_local(r, e, extra_len))
        return false;
    uint8_t *extra = td_input_load(r->input, at, extra_len, extra_len, r->err);
    if (extra == NULL)
        return false;
    const uint8_t *data;
    size_t data_len;
    bool ok = find_extra64(extra, extra_len, &data, &data_len) && widen(size_bytes, &data, &data_len) &&
              widen(stored_bytes, &data, &data_len);
    free(extra);
    return ok ||
           td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                       "zip member \"%.96s\": the extra fields of its local header run past their %u bytes, "
                       "or its zip64 field is too short or there twice",
                       e->name, extra_len);
}

/* Where a descriptor follows, a local header may leave CRC and sizes at 0. */
static bool local_agrees(uint64_t local, uint64_t central, uint16_t flags)
{
    return local == central || (local == 0 && (flags & FLAG_DESCRIPTOR) != 0);
}

static bool check_local(struct reader *r, const struct td_zip_entry *e, const struct central *c)
{
    const uint8_t *local = r->local;
    if (td_load_le16(local + 26) != e->name_len || memcmp(local + LOCAL_BYTES, e->name, e->name_len) != 0)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at + 26,
                           "zip member \"%.96s\" has another name in its local header", e->name);
    uint16_t flags = td_load_le16(local + 6);
    if (((flags ^ c->flags) & (FLAG_DESCRIPTOR | FLAGS_REFUSED)) != 0 || td_load_le16(local + 8) != c->method)
        return td_error_at(
            r->err, TD_INVALID_ARGUMENT, e->header_at + 6,
            "zip member \"%.96s\": its local header says flags 0x%x and method %u, the directory 0x%x "
            "and %u",
            e->name, flags, td_load_le16(local + 8), c->flags, c->method);
    uint64_t stored_bytes;
    uint64_t size_bytes;
    if (!read_local_sizes(r, e, &stored_bytes, &size_bytes))
        return false;
    if (!local_agrees(td_load_le32(local + 14), c->crc32, flags) ||
        !local_agrees(stored_bytes, e->stored_bytes, flags) ||
        !local_agrees(size_bytes, e->size_bytes, flags))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at + 14,
                           "zip member \"%.96s\": its local header says %" PRIu64 " bytes, %" PRIu64
                           " unpacked, the directory %" PRIu64 " and %" PRIu64 ", or their CRCs differ",
                           e->name, stored_bytes, size_bytes, e->stored_bytes, e->size_bytes);
    return true;
}

/* As td_input_read, with a little of what follows: a descriptor and the local header behind it are read at once. */
static bool read_near(struct reader *r, uint64_t off, void *out, size_t len)
{
    if (len > sizeof r->near || !td_range_within(off, len, r->input->size_bytes))
        return td_input_read(r->input, off, out, len, r->err);
    if (off < r->near_at || off - r->near_at > r->near_bytes || len > r->near_bytes - (off - r->near_at)) {
        uint64_t left = r->input->size_bytes - off;
        r->near_bytes = 0;
        size_t bytes = left < sizeof r->near ? (size_t)left : sizeof r->near;
        if (!td_input_read(r->input, off, r->near, bytes, r->err))
            return false;
        r->near_at = off;
        r->near_bytes = bytes;
    }
    memcpy(out, r->near + (off - r->near_at), len);
    return true;
}

/* Reads a member's local header to r->local, which has room for it. It must lie before `end`. */
static bool read_local(struct reader *r, const struct td_zip_entry *e, uint64_t end)
{
    uint64_t bytes = LOCAL_BYTES + (uint64_t)e->name_len;
    if (!td_range_within(e->header_at, bytes, end)) {
        (void)td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at,
                          "zip member \"%.96s\": its local header overlaps what begins at byte %" PRIu64,
                          e->name, end);
        return false;
    }
    if (!count_local(r, e, bytes) || !read_near(r, e->header_at, r->local, (size_t)bytes))
        return false;
    if (td_load_le32(r->local) != LOCAL_SIGNATURE) {
        (void)td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at,
                          "zip member \"%.96s\" has no local header (PK\\3\\4) where the directory says",
                          e->name);
        return false;
    }
    return true;
}

/* What lies between a member's data and what follows it, `len` bytes, is its descriptor, in one of four forms: with or
 * without signature, with sizes of four or eight bytes. */
static bool check_descriptor(struct reader *r, const struct td_zip_entry *e, const struct central *c,
                             uint64_t at, uint64_t len)
{
    uint8_t bytes[24];
    if ((c->flags & FLAG_DESCRIPTOR) == 0)
        return len == 0 ||
               td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                           "%" PRIu64 " bytes after zip member \"%.96s\" belong to no member", len, e->name);
    if (len != 12 && len != 16 && len != 20 && len != 24)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                           "%" PRIu64
                           " bytes after zip member \"%.96s\"; its data descriptor has 12, 16, 20 or 24",
                           len, e->name);
    if (!read_near(r, at, bytes, (size_t)len))
        return false;
    bool is_signed = len == 16 || len == 24;
    const uint8_t *p = is_signed ? bytes + 4 : bytes;
    bool is_wide = len >= 20;
    uint64_t stored_bytes = is_wide ? td_load_le64(p + 4) : td_load_le32(p + 4);
    uint64_t size_bytes = is_wide ? td_load_le64(p + 12) : td_load_le32(p + 8);
    if ((is_signed && td_load_le32(bytes) != DESCRIPTOR_SIGNATURE) || td_load_le32(p) != c->crc32 ||
        stored_bytes != e->stored_bytes || size_bytes != e->size_bytes)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                           "zip member \"%.96s\": its data descriptor does not say what the directory says",
                           e->name);
    return true;
}

/* One member, whose local header must begin at *next. What follows it begins at `end`; *next is set to that. */
static bool place_member(struct reader *r, size_t index, uint64_t end, uint64_t *next)
{
    struct td_zip_entry *e = &r->entries[index];
    struct central c = load_central(r->directory + r->central_at[index]);
    if (e->header_at != *next)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, *next,
                           "%" PRIu64 " bytes before zip member \"%.96s\" belong to no member",
                           e->header_at - *next, e->name);
    if (!read_local(r, e, end) || !check_local(r, e, &c))
        return false;
    uint64_t extra_len = td_load_le16(r->local + 28);
    e->offset =
        e->header_at + LOCAL_BYTES + e->name_len + extra_len; /* below 2^64: the header is in the file */
    if (!td_range_within(e->offset, e->stored_bytes, end))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at,
                           "zip member \"%.96s\": its %" PRIu64 " bytes at %" PRIu64
                           " overlap what begins at byte %" PRIu64,
                           e->name, e->stored_bytes, e->offset, end);
    uint64_t data_end = e->offset + e->stored_bytes;
    *next = end;
    return check_descriptor(r, e, &c, data_end, end - data_end);
}

static int by_index(const void *context, size_t a, size_t b)
{
    (void)context;
    return (a > b) - (a < b);
}

/* In the order of their headers the members fill the archive up to the directory. */
static bool place_members(struct reader *r)
{
    size_t count = (size_t)r->count;
    r->local = malloc(LOCAL_BYTES + r->longest_name);
    if (r->local == NULL)
        return no_memory(r);
    if (!td_order_sort(r->order, count, by_index, NULL, r->err))
        return false;
    if (count > 0 && r->order[count - 1].key >= r->directory_at)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, r->directory_at,
                           "zip member \"%.96s\" is said to begin at byte %" PRIu64
                           ", not before the directory, which begins at %" PRIu64,
                           r->entries[r->order[count - 1].index].name, r->order[count - 1].key,
                           r->directory_at);
    uint64_t next = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t end = i + 1 < count ? r->order[i + 1].key : r->directory_at;
        if (!place_member(r, r->order[i].index, end, &next))
            return false;
    }
    if (next != r->directory_at)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, next,
                           "%" PRIu64 " bytes before the zip directory belong to no member",
                           r->directory_at - next);
    return true;
}

/* ---- The result ---- */

static struct td_name entry_name(const void *context, size_t i)
{
    const struct td_zip_entry *entries = context;
    return (struct td_name){.text = entries[i].name, .len = entries[i].name_len};
}

/* Folders go, and names are sorted. */
static bool finish(struct reader *r, struct td_zip *zip)
{
    size_t count = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->entries[i].name[r->entries[i].name_len - 1] != '/')
            r->entries[count++] = r->entries[i];
    struct td_zip_entry **by_name = td_arena_array(r->arena, count, sizeof(struct td_zip_entry *));
    if (by_name == NULL)
        return no_memory(r);
    struct td_names names = {.count = count, .context = r->entries, .get = entry_name};
    struct td_order *order;
    if (!td_names_order(&names, &order, r->err))
        return false;
    for (size_t i = 0; i < count; i++)
        by_name[i] = &r->entries[order == NULL ? i : order[i].index];
    size_t twice = td_names_duplicate(&names, order);
    free(order);
    if (twice < count)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, r->entries[twice].header_at,
                           "two zip members are named \"%.96s\"", r->entries[twice].name);
    *zip = (struct td_zip){.entries = r->entries, .count = count, .by_name = by_name};
    return true;
}

/* Loads the directory, once it is known to fit: with what is made of it, for which the arena leaves room. */
static bool load_directory(struct reader *r)
{
    if (r->directory_bytes > r->limits->max_header_bytes) {
        (void)td_error_at(r->err, TD_RESOURCE_EXHAUSTED, r->directory_at,
                          "zip directory of %" PRIu64 " bytes is larger than the limit of %" PRIu64,
                          r->directory_bytes, r->limits->max_header_bytes);
        return false;
    }
    size_t most = r->limits->max_memory_bytes;
    size_t limit = r->arena->limit_bytes;
    if (most != 0 && (limit == 0 || limit > most))
        limit = most;
    if (limit != 0) {
        /* the directory itself, and 40 bytes of scratch for each record of 46 or more */
        uint64_t scratch = 2 * r->directory_bytes + LOCAL_BYTES + UINT16_MAX;
        if (limit <= r->arena->used_bytes || limit - r->arena->used_bytes <= scratch)
            return no_memory(r);
        r->arena->limit_bytes = limit - (size_t)scratch;
    }
    r->directory =
        td_input_load(r->input, r->directory_at, r->directory_bytes, r->limits->max_header_bytes, r->err);
    return r->directory != NULL;
}

bool td_zip_read(struct td_zip *zip, const struct td_input *input, const struct td_limits *limits,
                 struct td_arena *arena, struct td_error *err)
{
    struct reader r = {.input = input, .limits = limits, .arena = arena, .err = err};
    size_t arena_limit = arena->limit_bytes;
    *zip = (struct td_zip){0};
    bool ok =
        find_end(&r) && load_directory(&r) && read_directory(&r) && place_members(&r) && finish(&r, zip);
    arena->limit_bytes = arena_limit;
    free(r.local);
    free(r.central_at);
    free(r.order);
    free(r.directory);
    return ok;
}

static struct td_name by_name(const void *context, size_t i)
{
    struct td_zip_entry *const *entries = context;
    return (struct td_name){.text = entries[i]->name, .len = entries[i]->name_len};
}

const struct td_zip_entry *td_zip_find(const struct td_zip *zip, const char *name, size_t len)
{
    struct td_names names = {.count = zip->count, .context = zip->by_name, .get = by_name};
    bool found;
    size_t at = td_names_search(&names, name, len, &found);
    return found ? zip->by_name[at] : NULL;
}

/* ---- PyTorch's rules ---- */

static uint8_t fold(char c)
{
    return (uint8_t)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static int compare_folded(const struct td_zip_entry *a, const struct td_zip_entry *b)
{
    for (uint32_t i = 0; i < a->name_len && i < b->name_len; i++)
        if (fold(a->name[i]) != fold(b->name[i]))
            return fold(a->name[i]) < fold(b->name[i]) ? -1 : 1;
    return (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

static int by_folded_name(const void *context, size_t a, size_t b)
{
    const struct td_zip *zip = context;
    return compare_folded(&zip->entries[a], &zip->entries[b]);
}

bool td_zip_check_case(const struct td_zip *zip, struct td_error *err)
{
    struct td_order *order = malloc((zip->count + 1) * sizeof *order);
    if (order == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < zip->count; i++) /* names share their beginnings: a key would decide nothing */
        order[i] = (struct td_order){.key = 0, .index = i};
    bool ok = td_order_sort(order, zip->count, by_folded_name, zip, err);
    for (size_t i = 1; ok && i < zip->count; i++) {
        const struct td_zip_entry *a = &zip->entries[order[i - 1].index];
        const struct td_zip_entry *b = &zip->entries[order[i].index];
        if (compare_folded(a, b) == 0)
            ok = td_error_at(
                err, TD_INVALID_ARGUMENT, b->header_at,
                "zip members \"%.96s\" and \"%.96s\" differ in case only; PyTorch takes one for the "
                "other",
                a->name, b->name);
    }
    free(order);
    return ok;
}

bool td_zip_check_root(const struct td_zip *zip, size_t *root_len, struct td_error *err)
{
    const struct td_zip_entry *first = zip->entries;
    const char *slash = zip->count > 0 ? memchr(first->name, '/', first->name_len) : NULL;
    if (slash == NULL)
        return td_error_at(err, TD_INVALID_ARGUMENT, 0,
                           "zip archive is no PyTorch file: its first member is not in a folder");
    size_t len = (size_t)(slash - first->name) + 1;
    for (size_t i = 1; i < zip->count; i++) {
        const struct td_zip_entry *e = &zip->entries[i];
        if (e->name_len < len || memcmp(e->name, first->name, len) != 0)
            return td_error_at(
                err, TD_INVALID_ARGUMENT, e->header_at,
                "zip member \"%.96s\" is not in \"%.96s\"'s folder, as all of a PyTorch file are", e->name,
                first->name);
    }
    *root_len = len;
    return true;
}

/* ---- Unpacking ---- */

/* zlib's memory is ours: what it takes is counted and may fail like any other. */
static voidpf inflate_alloc(voidpf opaque, uInt count, uInt size)
{
    (void)opaque;
    size_t bytes;
    return td_mul_size(count, size, &bytes) ? malloc(bytes) : NULL;
}

static void inflate_free(voidpf opaque, voidpf p)
{
    (void)opaque;
    free(p);
}

struct unpacking {
    const struct td_input *input;
    const struct td_zip_entry *entry;
    struct td_error *err;
    z_stream stream;
    uint64_t read_bytes; /* of the stored ones */
    uint8_t chunk[INFLATE_CHUNK_BYTES];
};

/* Gives the stream more bytes, if there are any. */
static bool refill(struct unpacking *u)
{
    uint64_t left = u->entry->stored_bytes - u->read_bytes;
    size_t len = left < sizeof u->chunk ? (size_t)left : sizeof u->chunk;
    if (!td_input_read(u->input, u->entry->offset + u->read_bytes, u->chunk, len, u->err))
        return false;
    u->read_bytes += len;
    u->stream.next_in = u->chunk;
    u->stream.avail_in = (uInt)len;
    return true;
}

static bool damaged(const struct unpacking *u, const char *how)
{
    uint64_t at = u->entry->offset + u->read_bytes - u->stream.avail_in;
    return td_error_at(u->err, TD_INVALID_ARGUMENT, at, "zip member \"%.96s\": its deflated bytes %s",
                       u->entry->name, how);
}

/* Unpacks out_len bytes; *ended tells whether the stream ended there. */
static bool unpack(struct unpacking *u, uint8_t *out, size_t out_len, bool *ended)
{
    size_t done = 0;
    int status = Z_OK;
    while (done < out_len && status == Z_OK) {
        if (u->stream.avail_in == 0 && !refill(u))
            return false;
        uInt room = out_len - done < UINT_MAX ? (uInt)(out_len - done) : UINT_MAX;
        u->stream.next_out = out + done;
        u->stream.avail_out = room;
        status = inflate(&u->stream, Z_NO_FLUSH);
        done += room - u->stream.avail_out;
    }
    *ended = status == Z_STREAM_END;
    if (status == Z_MEM_ERROR)
        return td_error_no_memory(u->err);
    if (status == Z_BUF_ERROR)
        return damaged(u, "end too early");
    if (status != Z_OK && status != Z_STREAM_END)
        return damaged(u, u->stream.msg != NULL ? u->stream.msg : "are damaged");
    return done == out_len || damaged(u, "unpack to fewer than the directory says");
}

/* All is unpacked: the stream must end here, with the last of the stored bytes. */
static bool unpack_end(struct unpacking *u, bool ended)
{
    uint8_t more;
    while (!ended) {
        if (u->stream.avail_in == 0 && !refill(u))
            return false;
        u->stream.next_out = &more;
        u->stream.avail_out = 1;
        int status = inflate(&u->stream, Z_NO_FLUSH);
        if (u->stream.avail_out == 0)
            return damaged(u, "unpack to more than the directory says");
        if (status != Z_OK && status != Z_STREAM_END)
            return damaged(u, "have no end");
        ended = status == Z_STREAM_END;
    }
    if (u->stream.avail_in != 0 || u->read_bytes != u->entry->stored_bytes)
        return damaged(u, "end before their room does");
    return true;
}

/* The CRC of what may be more than zlib takes at once. */
static bool crc_agrees(const struct td_zip_entry *entry, const uint8_t *bytes, size_t len)
{
    if (entry->crc32 == 0)
        return true;
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes, len) == entry->crc32;
}

/* The first len bytes to out; all of them if `whole`, with the checks that this allows. */
static bool inflate_member(const struct td_input *input, const struct td_zip_entry *entry, uint8_t *out,
                           size_t len, bool whole, struct td_error *err)
{
    struct unpacking *u = malloc(sizeof *u); /* too large for a thread's stack */
    if (u == NULL)
        return td_error_no_memory(err);
    u->input = input;
    u->entry = entry;
    u->err = err;
    u->read_bytes = 0;
    u->stream = (z_stream){.zalloc = inflate_alloc, .zfree = inflate_free};
    bool ok = inflateInit2(&u->stream, -MAX_WBITS) == Z_OK; /* raw: a zip member has no zlib header */
    if (!ok) {
        (void)td_error_no_memory(err);
    } else {
        bool ended;
        ok = unpack(u, out, len, &ended) && (!whole || unpack_end(u, ended));
        (void)inflateEnd(&u->stream);
    }
    free(u);
    if (ok && whole && !crc_agrees(entry, out, len))
        return td_error_at(
            err, TD_INVALID_ARGUMENT, entry->offset,
            "zip member \"%.96s\": its unpacked bytes do not have the CRC that the directory says",
            entry->name);
    return ok;
}

uint8_t *td_zip_load(const struct td_input *input, const struct td_zip_entry *entry, uint64_t limit_bytes,
                     struct td_error *err)
{
    if (entry->size_bytes > limit_bytes || entry->size_bytes >= SIZE_MAX) {
        (void)td_error_at(err, TD_RESOURCE_EXHAUSTED, entry->header_at,
                          "zip member \"%.96s\" has %" PRIu64 " bytes, more than the limit of %" PRIu64,
                          entry->name, entry->size_bytes, limit_bytes);
        return NULL;
    }
    if (!entry->deflated)
        return td_input_load(input, entry->offset, entry->size_bytes, limit_bytes, err);
    size_t len = (size_t)entry->size_bytes;
    uint8_t *bytes = malloc(len + 1);
    if (bytes == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    if (!inflate_member(input, entry, bytes, len, true, err)) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

bool td_zip_load_head(const struct td_input *input, const struct td_zip_entry *entry, void *out, size_t len,
                      struct td_error *err)
{
    if (len > entry->size_bytes)
        return td_error_at(err, TD_INVALID_ARGUMENT, entry->offset,
                           "zip member \"%.96s\" has %" PRIu64 " bytes, %zu are needed", entry->name,
                           entry->size_bytes, len);
    if (!entry->deflated)
        return td_input_read(input, entry->offset, out, len, err);
    return inflate_member(input, entry, out, len, false, err);
}
