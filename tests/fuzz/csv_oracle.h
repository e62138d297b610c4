/* The rows of a CSV text, found without an index: field by field, from a field's first byte to the byte that ends it.
 */
#ifndef TD_TESTS_FUZZ_CSV_ORACLE_H
#define TD_TESTS_FUZZ_CSV_ORACLE_H

#include "parser/rows/index/row_index.h"

#include <string.h>

/* Returns the position of the delimiter or line end after the field that begins at `at`, or len. */
static inline size_t csv_oracle_field(const char *text, size_t len, size_t at, char delimiter)
{
    bool is_open = at < len && text[at] == '"';
    for (at += is_open ? 1 : 0; is_open && at < len; at++) {
        if (text[at] != '"')
            continue;
        if (at + 1 < len && text[at + 1] == '"')
            at++; /* a quote within the field */
        else
            is_open = false;
    }
    while (at < len && text[at] != delimiter && text[at] != '\n' && text[at] != '\r')
        at++;
    return at;
}

static inline bool csv_oracle_blank(const char *line, size_t len, char delimiter)
{
    for (size_t i = 0; i < len; i++)
        if (line[i] == delimiter || line[i] == '\0' || strchr(" \t\r\v\f", line[i]) == NULL)
            return false;
    return true;
}

/* Writes the lines of text[0..len) that are not blank to rows[len + 1], the header first. Returns their number. */
static inline size_t csv_oracle(const char *text, size_t len, char delimiter, struct td_row *rows)
{
    size_t count = 0, start = len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (start < len) {
        size_t end = csv_oracle_field(text, len, start, delimiter);
        while (end < len && text[end] == delimiter)
            end = csv_oracle_field(text, len, end + 1, delimiter);
        if (!csv_oracle_blank(text + start, end - start, delimiter))
            rows[count++] = (struct td_row){.offset = start, .bytes = end - start};
        start = end + (len - end > 1 && memcmp(text + end, "\r\n", 2) == 0 ? 2 : 1);
    }
    return count;
}

#endif
