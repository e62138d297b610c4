#include "parser/zip/zip_directory.h"

#include "core/checked.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end records ---- */

enum {
    END_BYTES = 22,
    LOCATOR64_BYTES = 20,
    END64_BYTES = 56,
    BEHIND_MAX_BYTES = 1 << 16, /* after the end record; with more, zipfile does not find it */
};

#define END_SIGNATURE UINT32_C(0x06054b50)
#define END64_SIGNATURE UINT32_C(0x06064b50)
#define LOCATOR64_SIGNATURE UINT32_C(0x07064b50)

/* Reads the zip64 end record that the locator names and takes its values. Each field of the end record `end` must have
 * the same value or all bits set, which says that the value does not fit. Sets *records_at to where the zip64 record
 * begins. */
static bool read_end64(struct td_zip_reader *r, const uint8_t *end, uint64_t locator_at, const uint8_t *locator,
                       uint64_t *records_at)
{
    uint8_t end64[END64_BYTES];
    uint64_t at = td_load_le64(locator + 8);
    if (locator_at < END64_BYTES || at > locator_at - END64_BYTES)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, locator_at + 8,
                           "zip64 locator at %" PRIu64 " says that the zip64 end record is at byte %" PRIu64
                           ", which leaves less than %d bytes for it",
                           locator_at, at, END64_BYTES);
    if (td_load_le32(locator + 4) != 0 || td_load_le32(locator + 16) > 1)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, locator_at + 4, "zip archive is one of several parts");
    if (!td_input_read(r->input, at, end64, sizeof end64, r->err))
        return false;
    if (td_load_le32(end64) != END64_SIGNATURE || td_load_le64(end64 + 4) != END64_BYTES - 12)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                           "zip64 end record does not begin with PK\\6\\6 and a length of %d", END64_BYTES - 12);
    r->count = td_load_le64(end64 + 32);
    r->directory_bytes = td_load_le64(end64 + 40);
    r->directory_at = td_load_le64(end64 + 48);
    if (td_load_le32(end64 + 16) != 0 || td_load_le32(end64 + 20) != 0 || td_load_le64(end64 + 24) != r->count)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at + 16, "zip archive is one of several parts");
    uint16_t count = td_load_le16(end + 10);
    uint32_t bytes = td_load_le32(end + 12);
    uint32_t begin = td_load_le32(end + 16);
    if ((count != UINT16_MAX && count != r->count) || (bytes != UINT32_MAX && bytes != r->directory_bytes) ||
        (begin != UINT32_MAX && begin != r->directory_at))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at + 24,
                           "zip64 end record and end record disagree: %" PRIu64 " and %u members, directory of "
                           "%" PRIu64 " and %" PRIu32 " bytes at %" PRIu64 " and %" PRIu32,
                           r->count, count, r->directory_bytes, bytes, r->directory_at, begin);
    *records_at = at;
    return true;
}

/* The end records of an archive, the zip64 ones if there are any. */
struct end_records {
    uint64_t begin;    /* where the locator says that they begin */
    uint64_t adjacent; /* where they begin if nothing is between them */
};

/* Reads the end record `end`, which is at end_at, and the zip64 end record that the locator before it names. */
static bool read_end_records(struct td_zip_reader *r, const uint8_t *end, uint64_t end_at, struct end_records *out)
{
    uint8_t locator[LOCATOR64_BYTES];
    bool has_locator = false;
    *out = (struct end_records){.begin = end_at, .adjacent = end_at};
    if (end_at >= LOCATOR64_BYTES) {
        if (!td_input_read(r->input, end_at - LOCATOR64_BYTES, locator, sizeof locator, r->err))
            return false;
        has_locator = td_load_le32(locator) == LOCATOR64_SIGNATURE;
    }
    uint16_t disk = td_load_le16(end + 4);
    uint16_t directory_disk = td_load_le16(end + 6);
    uint16_t count_here = td_load_le16(end + 8);
    if ((disk != 0 && !(has_locator && disk == UINT16_MAX)) ||
        (directory_disk != 0 && !(has_locator && directory_disk == UINT16_MAX)) || count_here != td_load_le16(end + 10))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, end_at + 4, "zip archive is one of several parts");
    r->count = td_load_le16(end + 10);
    r->directory_bytes = td_load_le32(end + 12);
    r->directory_at = td_load_le32(end + 16);
    if (!has_locator)
        return true;
    if (!read_end64(r, end, end_at - LOCATOR64_BYTES, locator, &out->begin))
        return false;
    out->adjacent = end_at - LOCATOR64_BYTES - END64_BYTES; /* read_end64 has checked that they have room */
    return true;
}

/* Returns whether the end records follow the directory directly and have nothing between them. */
static bool is_adjacent(const struct td_zip_reader *r, const struct end_records *records)
{
    return records->begin == records->adjacent && r->directory_at <= records->begin &&
           r->directory_bytes == records->begin - r->directory_at;
}

/* Sets *found to whether the first of several archives has the directory that the last end record states, with the
 * offset counted from the beginning of the file. PyTorch reads a file of several saves of equal sizes this way. */
static bool read_first(const struct td_zip_reader *r, bool *found)
{
    struct td_zip_reader first = *r;
    struct end_records records;
    uint8_t end[END_BYTES];
    uint64_t at;
    *found = false;
    if (!td_add_u64(r->directory_at, r->directory_bytes, &at))
        return true;
    for (int with_64 = 0; with_64 < 2 && !*found; with_64++) {
        uint64_t end_at;
        if (!td_add_u64(at, with_64 ? END64_BYTES + LOCATOR64_BYTES : 0, &end_at) ||
            !td_range_within(end_at, sizeof end, r->input->size_bytes))
            return true;
        if (!td_input_read(r->input, end_at, end, sizeof end, r->err))
            return false;
        if (td_load_le32(end) != END_SIGNATURE)
            continue;
        if (!read_end_records(&first, end, end_at, &records))
            return false;
        *found = is_adjacent(&first, &records) && first.count == r->count && first.directory_at == r->directory_at &&
                 first.directory_bytes == r->directory_bytes;
    }
    return true;
}

/* Finds the archive's end records by the last end record of the file. */
static bool take_end(struct td_zip_reader *r, const uint8_t *end, uint64_t end_at)
{
    struct end_records records;
    bool found = false;
    if (!read_end_records(r, end, end_at, &records))
        return false;
    if (is_adjacent(r, &records))
        return true;
    if (r->as_torch && !read_first(r, &found))
        return false;
    if (found)
        return true;
    if (records.begin != records.adjacent)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, records.adjacent + END64_BYTES + 8,
                           "zip64 locator says that the zip64 end record is at byte %" PRIu64
                           "; it must be %d bytes long and end where the locator begins, at %" PRIu64,
                           records.begin, END64_BYTES, records.adjacent + END64_BYTES);
    return td_error_at(r->err, TD_INVALID_ARGUMENT, end_at + 12,
                       "zip directory of %" PRIu64 " bytes at %" PRIu64
                       " does not end where the end records begin, at %" PRIu64,
                       r->directory_bytes, r->directory_at, records.begin);
}

/* Reports that there is no end record. A file that begins like an archive was cut short by a download or a full disk.
 */
static bool refuse_without_end(const struct td_zip_reader *r)
{
    uint8_t head[4] = {0};
    if (r->input->size_bytes >= sizeof head && !td_input_read(r->input, 0, head, sizeof head, r->err))
        return false;
    return td_error_at(r->err, TD_INVALID_ARGUMENT, r->input->size_bytes,
                       td_load_le32(head) == TD_ZIP_LOCAL_SIGNATURE
                           ? "a zip archive that was cut short: its end record is missing; copy or download it again"
                           : "no zip archive: it has no end record (PK\\5\\6)");
}

/* Finds the end record and sets r->directory_at, r->directory_bytes and r->count. Takes the last PK\5\6 with room for a
 * record, because all readers search from the end. Ignores its comment and the bytes after the comment, as zipfile and
 * PyTorch do. */
static bool find_end(struct td_zip_reader *r)
{
    uint64_t size = r->input->size_bytes;
    uint64_t tail_bytes = END_BYTES + BEHIND_MAX_BYTES < size ? END_BYTES + BEHIND_MAX_BYTES : size;
    uint8_t *tail = td_input_load(r->input, size - tail_bytes, tail_bytes, tail_bytes, r->err);
    if (tail == NULL)
        return false;
    uint64_t at = tail_bytes < END_BYTES ? 0 : tail_bytes - END_BYTES + 1;
    bool found = false;
    while (at > 0 && !found)
        found = td_load_le32(tail + --at) == END_SIGNATURE;
    bool ok = found ? take_end(r, tail + at, size - tail_bytes + at) : refuse_without_end(r);
    free(tail);
    return ok;
}

/* ---- the directory ---- */

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

/* Fills the entries from the loaded directory. */
static bool read_records(struct td_zip_reader *r)
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

/* Loads the directory after checking that it fits. Lowers the arena's limit by the scratch that the directory needs, so
 * that entries and scratch together stay within the limit. */
static bool load_directory(struct td_zip_reader *r)
{
    if (r->directory_bytes > r->limits->max_header_bytes) {
        (void)td_error_at(r->err, TD_RESOURCE_EXHAUSTED, r->directory_at,
                          "zip directory of %" PRIu64 " bytes is larger than the limit of %" PRIu64, r->directory_bytes,
                          r->limits->max_header_bytes);
        return false;
    }
    size_t most = r->limits->max_memory_bytes;
    size_t limit = r->arena->limit_bytes;
    if (most != 0 && (limit == 0 || limit > most))
        limit = most;
    if (limit != 0) {
        /* the directory itself, and 40 bytes of scratch for each record, which has 46 bytes or more */
        uint64_t scratch = 2 * r->directory_bytes + TD_ZIP_LOCAL_BYTES + UINT16_MAX;
        if (limit <= r->arena->used_bytes || limit - r->arena->used_bytes <= scratch)
            return td_zip_no_memory(r);
        r->arena->limit_bytes = limit - (size_t)scratch;
    }
    r->directory = td_input_load(r->input, r->directory_at, r->directory_bytes, r->limits->max_header_bytes, r->err);
    return r->directory != NULL;
}

bool td_zip_read_directory(struct td_zip_reader *r)
{
    return find_end(r) && load_directory(r) && read_records(r);
}
