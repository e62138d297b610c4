#include "parser/rows/tar_header.h"

#include "core/digits.h"

#include <inttypes.h>
#include <string.h>

enum {
    NAME_AT = 0,
    NAME_BYTES = 100,
    SIZE_AT = 124,
    CHECKSUM_AT = 148,
    TYPE_AT = 156,
    MAGIC_AT = 257,
    MAGIC_BYTES = 6, /* "ustar" and a NUL; GNU's own format has a blank, and other fields in place of the prefix */
    PREFIX_AT = 345,
    PREFIX_BYTES = 155,
    SIZE_BYTES = 12,
    CHECKSUM_BYTES = 8
};

bool td_tar_is_zero(const uint8_t block[TD_TAR_BLOCK_BYTES])
{
    for (size_t i = 0; i < TD_TAR_BLOCK_BYTES; i++)
        if (block[i] != 0)
            return false;
    return true;
}

/* Reads octal digits between blanks, up to a NUL or the field's end; none are 0. */
static bool read_octal(const uint8_t *field, size_t len, uint64_t *number)
{
    size_t at = 0;
    *number = 0;
    while (at < len && field[at] == ' ')
        at++;
    for (; at < len && field[at] >= '0' && field[at] <= '7'; at++)
        *number = *number << 3 | (uint64_t)(field[at] - '0'); /* 12 digits at most */
    while (at < len && field[at] == ' ')
        at++;
    return at == len || field[at] == '\0';
}

/* Reads a number in octal, or GNU's binary one: a byte 0x80, and the number big-endian. */
static bool read_number(const uint8_t *field, size_t len, uint64_t *number)
{
    if (field[0] < 0x80)
        return read_octal(field, len, number);
    uint64_t value = 0;
    if (field[0] != 0x80) /* 0xff: negative */
        return false;
    for (size_t i = 1; i < len; i++) {
        if (value >> 56 != 0)
            return false;
        value = value << 8 | field[i];
    }
    *number = value;
    return true;
}

/* Returns whether the checksum is the sum of all bytes, those of its own field taken as blanks. Old writers summed
 * signed bytes. */
static bool checksum_fits(const uint8_t *block, uint64_t *wanted, uint64_t *sum)
{
    int64_t sum_signed = 0;
    *sum = 0;
    for (size_t i = 0; i < TD_TAR_BLOCK_BYTES; i++) {
        uint8_t byte = i >= CHECKSUM_AT && i < CHECKSUM_AT + CHECKSUM_BYTES ? ' ' : block[i];
        *sum += byte;
        sum_signed += (int8_t)byte;
    }
    return read_number(block + CHECKSUM_AT, CHECKSUM_BYTES, wanted) &&
           (*wanted == *sum || (sum_signed >= 0 && *wanted == (uint64_t)sum_signed));
}

static void read_path(const uint8_t *block, struct td_tar_header *header)
{
    const char *prefix = (const char *)block + PREFIX_AT, *name = (const char *)block + NAME_AT;
    size_t prefix_len = strnlen(prefix, PREFIX_BYTES), name_len = strnlen(name, NAME_BYTES), len = 0;
    if (memcmp(block + MAGIC_AT, "ustar", MAGIC_BYTES) == 0 && prefix_len > 0) {
        memcpy(header->path, prefix, prefix_len);
        header->path[prefix_len] = '/';
        len = prefix_len + 1;
    }
    memcpy(header->path + len, name, name_len);
    header->path_len = (uint32_t)(len + name_len);
    header->is_directory = header->type == '5' || (header->type == '\0' && name_len > 0 && name[name_len - 1] == '/');
}

bool td_tar_header_read(const uint8_t block[TD_TAR_BLOCK_BYTES], uint64_t pos, struct td_tar_header *header,
                        struct td_error *err)
{
    uint64_t wanted = 0, sum;
    if (!checksum_fits(block, &wanted, &sum))
        return td_error_at(err, TD_INVALID_ARGUMENT, pos + CHECKSUM_AT,
                           "tar header: its checksum is %" PRIu64 ", but its bytes sum up to %" PRIu64, wanted, sum);
    header->type = (char)block[TYPE_AT];
    if (!read_number(block + SIZE_AT, SIZE_BYTES, &header->size))
        return td_error_at(err, TD_INVALID_ARGUMENT, pos + SIZE_AT, "tar header: its size is no number below 2^64");
    read_path(block, header);
    return true;
}

/* ---- records of pax ---- */

/* Takes one record, "LENGTH KEY=VALUE\n", from the text. */
static bool take_record(struct td_text *text, struct td_text *key, struct td_text *value)
{
    struct td_text rest = *text;
    uint64_t len;
    bool fits;
    size_t digits = td_digits_take(&rest, &len, &fits);
    if (digits == 0 || !fits || len > text->len || len < digits + 4 || !td_text_take_char(&rest, ' ') ||
        text->p[len - 1] != '\n')
        return false;
    rest.len = (size_t)len - digits - 2; /* without the blank and the line feed */
    *value = rest;
    *key = td_text_take_until(value, '=');
    *text = td_text_skip(*text, (size_t)len);
    return key->len > 0 && key->len < rest.len;
}

static bool take_path(struct td_text value, struct td_tar_records *records)
{
    while (value.len > 0 && value.p[value.len - 1] == '/')
        value.len--;
    records->has_path = true;
    records->path = value;
    return value.len > 0 && memchr(value.p, '\0', value.len) == NULL;
}

bool td_tar_records_read(struct td_text text, uint64_t pos, struct td_tar_records *records, struct td_error *err)
{
    struct td_text rest = text, key, value;
    *records = (struct td_tar_records){0};
    while (rest.len > 0) {
        uint64_t at = pos + (text.len - rest.len);
        if (!take_record(&rest, &key, &value))
            return td_error_at(err, TD_INVALID_ARGUMENT, at,
                               "pax header: a record must be its length, a blank, a key, =, a value and a line feed");
        if (td_text_equals(key, "path") && !take_path(value, records))
            return td_error_at(err, TD_INVALID_ARGUMENT, at, "pax header: a path is empty or holds a NUL");
        if (td_text_equals(key, "size")) {
            records->has_size = true;
            if (!td_number_read(value, UINT64_MAX, &records->size))
                return td_error_at(err, TD_INVALID_ARGUMENT, at, "pax header: its size is no number below 2^64");
        }
        records->is_sparse = records->is_sparse || td_text_begins(key, TD_TEXT("GNU.sparse."));
    }
    return true;
}
