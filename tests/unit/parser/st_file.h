/* safetensors files built in memory, for tests. */
#ifndef TD_TESTS_UNIT_PARSER_ST_FILE_H
#define TD_TESTS_UNIT_PARSER_ST_FILE_H

#include "tests/unit/unit.h"

enum { ST_PREFIX_BYTES = 8 };

struct st_file {
    uint8_t *bytes; /* a block of exactly len bytes, so that a read past the end is seen */
    size_t len;
};

/* Returns byte i of the data. The bytes depend on their position, so that a wrong offset shows. */
static inline uint8_t st_data_byte(size_t i)
{
    return (uint8_t)(i * 7 + i / 251 + 1);
}

static inline struct st_file st_file_raw(const void *bytes, size_t len)
{
    struct st_file file = {.bytes = malloc(len + (len == 0)), .len = len};
    assert_non_null(file.bytes);
    if (len > 0)
        memcpy(file.bytes, bytes, len);
    return file;
}

/* Returns a file of the length, the header and data_len bytes of data. */
static inline struct st_file st_file_make(const char *header, size_t header_len, size_t data_len)
{
    struct st_file file = {.len = ST_PREFIX_BYTES + header_len + data_len};
    file.bytes = malloc(file.len);
    assert_non_null(file.bytes);
    for (size_t i = 0; i < ST_PREFIX_BYTES; i++)
        file.bytes[i] = (uint8_t)((uint64_t)header_len >> 8 * i);
    memcpy(file.bytes + ST_PREFIX_BYTES, header, header_len);
    for (size_t i = 0; i < data_len; i++)
        file.bytes[ST_PREFIX_BYTES + header_len + i] = st_data_byte(i);
    return file;
}

static inline void st_file_free(struct st_file *file)
{
    free(file->bytes);
    file->bytes = NULL;
}

#endif
