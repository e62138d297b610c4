/* The rows of a text, found one after the other and without an index: from each line's end back to its beginning. */
#ifndef TD_TESTS_FUZZ_LINE_ORACLE_H
#define TD_TESTS_FUZZ_LINE_ORACLE_H

#include "parser/rows/index/line_index.h"

#include <string.h>

/* Writes the rows of text[0..len) to rows[len + 1], and returns their number. */
static inline size_t line_oracle(const char *text, size_t len, struct td_row *rows)
{
    size_t count = 0;
    size_t start = len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (size_t end = start; end <= len; end++) {
        if (end < len && text[end] != '\n')
            continue;
        size_t stop = end < len && end > start && text[end - 1] == '\r' ? end - 1 : end;
        size_t blanks = start;
        while (blanks < end && text[blanks] != '\0' && strchr(" \t\r\v\f", text[blanks]) != NULL)
            blanks++;
        if (blanks < end)
            rows[count++] = (struct td_row){.offset = start, .bytes = stop - start};
        start = end + 1;
    }
    return count;
}

#endif
