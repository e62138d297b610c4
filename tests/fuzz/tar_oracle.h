/* Checks the rows of a tar archive that was accepted, each read again by itself: a row is an archive whose headers
 * follow each other without a gap, and whose first and last members that belong to samples have one key.
 */
#ifndef TD_TESTS_FUZZ_TAR_ORACLE_H
#define TD_TESTS_FUZZ_TAR_ORACLE_H

#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <string.h>

/* Returns the size in a header: octal, or binary after 0x80. */
static inline uint64_t tar_oracle_size(const uint8_t *header)
{
    uint64_t size = 0;
    for (size_t i = header[124] == 0x80 ? 1 : 0; i < 12; i++) {
        uint8_t byte = header[124 + i];
        if (header[124] == 0x80)
            size = size * 256 + byte;
        else if (byte >= '0' && byte <= '7')
            size = size * 8 + (byte - '0');
        else if (byte == '\0')
            break;
    }
    return size;
}

/* Returns whether any record of the pax header sets the size. */
static inline bool tar_oracle_sets_size(const uint8_t *records, uint64_t len)
{
    for (uint64_t i = 0; i + 6 <= len; i++)
        if (memcmp(records + i, " size=", 6) == 0)
            return true;
    return false;
}

/* Checks that the headers in row[0..len), which begin at the first byte, lead to its end. Where a pax header may set a
 * size, the oracle does not follow. */
static inline void tar_oracle_check_row(const uint8_t *row, uint64_t len)
{
    uint64_t at = 0;
    bool is_member = false;
    FUZZ_CHECK(len >= 512 && len % 512 == 0);
    while (at < len) {
        uint64_t size = tar_oracle_size(row + at), blocks = size / 512 + (size % 512 != 0);
        char type = (char)row[at + 156];
        FUZZ_CHECK(blocks < len / 512 && at + 512 + blocks * 512 <= len);
        if ((type == 'x' || type == 'X') && tar_oracle_sets_size(row + at + 512, size))
            return;
        is_member = type == '0' || type == '\0' || type == '7';
        at += 512 + blocks * 512;
    }
    FUZZ_CHECK(at == len && is_member); /* a row ends with a file */
}

#endif
