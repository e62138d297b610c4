/* Rows of text files, and bodies of rows, byte by byte from the words of parser/rows/index/line_index.h and
 * rank/row_answer.h. For tests that compare with the server's answers. */
#ifndef TD_TESTS_KIT_ROWS_ORACLE_H
#define TD_TESTS_KIT_ROWS_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct oracle_row {
    const char *p; /* borrowed from the file's bytes */
    size_t len;
};

struct oracle_rows {
    struct oracle_row *items;
    size_t count, capacity;
};

static inline void oracle_rows_add(struct oracle_rows *rows, const char *p, size_t len)
{
    if (rows->count == rows->capacity) {
        rows->capacity = 2 * rows->capacity + 16;
        rows->items = realloc(rows->items, rows->capacity * sizeof *rows->items);
        if (rows->items == NULL)
            abort();
    }
    rows->items[rows->count++] = (struct oracle_row){.p = p, .len = len};
}

/* Adds the rows of one file: of each line that has another byte than blanks, all but its line end. */
static inline void oracle_rows_of_file(struct oracle_rows *rows, const char *bytes, size_t size)
{
    size_t at = size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < size) {
        size_t end = at;
        bool is_row = false;
        for (; end < size && bytes[end] != '\n'; end++)
            is_row = is_row || strchr(" \t\r\v\f", bytes[end]) == NULL || bytes[end] == '\0';
        size_t len = end - at;
        if (end < size && len > 0 && bytes[end - 1] == '\r')
            len--;
        if (is_row)
            oracle_rows_add(rows, bytes + at, len);
        at = end + 1;
    }
}

/* Bytes that grow. */
struct oracle_bytes {
    char *p;
    size_t len, capacity;
};

static inline void oracle_put(struct oracle_bytes *out, const void *bytes, size_t len)
{
    if (out->capacity - out->len < len) {
        out->capacity = 2 * out->capacity + len + 64;
        out->p = realloc(out->p, out->capacity);
        if (out->p == NULL)
            abort();
    }
    if (len > 0)
        memcpy(out->p + out->len, bytes, len);
    out->len += len;
}

static inline void oracle_put_u64(struct oracle_bytes *out, uint64_t value)
{
    for (int i = 0; i < 8; i++, value /= 256) {
        unsigned char byte = (unsigned char)(value % 256);
        oracle_put(out, &byte, 1);
    }
}

/* Writes the frame of these rows: how many, where each begins and the last one ends, all bytes. */
static inline void oracle_frame(struct oracle_bytes *out, const struct oracle_row *rows, size_t count)
{
    uint64_t at = 0;
    oracle_put_u64(out, count);
    for (size_t i = 0; i < count; i++) {
        oracle_put_u64(out, at);
        at += rows[i].len;
    }
    oracle_put_u64(out, at);
    for (size_t i = 0; i < count; i++)
        oracle_put(out, rows[i].p, rows[i].len);
}

/* Writes the rows as lines. */
static inline void oracle_lines(struct oracle_bytes *out, const struct oracle_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        oracle_put(out, rows[i].p, rows[i].len);
        oracle_put(out, "\n", 1);
    }
}

#endif
