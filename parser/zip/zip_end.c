#include "parser/zip/zip_end.h"

#include "core/checked.h"

#include <inttypes.h>
#include <stdlib.h>

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

/* Takes the last PK\5\6 with room for a record as the end record, because all readers search from the end. Ignores its
 * comment and the bytes after the comment, as zipfile and PyTorch do. */
bool td_zip_find_end(struct td_zip_reader *r)
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
