/* GGUF files built in memory, for tests: pieces are appended to a td_buffer. */
#ifndef TD_TESTS_UNIT_PARSER_GGUF_FILE_H
#define TD_TESTS_UNIT_PARSER_GGUF_FILE_H

#include "core/buffer.h"
#include "tests/unit/unit.h"

/* The type ids, kv types and sizes that tests use by name. */
enum { G_F32 = 0, G_Q4_0 = 2, G_Q8_0 = 8, G_I8 = 24, G_I32 = 26, G_I64 = 27 };
enum { V_U8 = 0, V_U16 = 2, V_U32 = 4, V_I32 = 5, V_F32 = 6, V_BOOL = 7, V_STRING = 8, V_ARRAY = 9, V_F64 = 12 };

static inline void put_le(struct td_buffer *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        td_buffer_putc(out, (char)(uint8_t)(value >> 8 * i));
}

static inline void put_u32(struct td_buffer *out, uint32_t value)
{
    put_le(out, value, 4);
}

static inline void put_u64(struct td_buffer *out, uint64_t value)
{
    put_le(out, value, 8);
}

static inline void put_text_n(struct td_buffer *out, const char *text, size_t len)
{
    put_u64(out, len);
    td_buffer_append(out, text, len);
}

static inline void put_text(struct td_buffer *out, const char *text)
{
    put_text_n(out, text, strlen(text));
}

static inline void put_head(struct td_buffer *out, uint64_t tensors, uint64_t pairs)
{
    td_buffer_puts(out, "GGUF");
    put_u32(out, 3);
    put_u64(out, tensors);
    put_u64(out, pairs);
}

/* Appends a key and its type; the caller appends the value. */
static inline void put_key(struct td_buffer *out, const char *key, uint32_t type)
{
    put_text(out, key);
    put_u32(out, type);
}

static inline void put_array(struct td_buffer *out, const char *key, uint32_t type, uint64_t count)
{
    put_key(out, key, V_ARRAY);
    put_u32(out, type);
    put_u64(out, count);
}

struct info {
    const char *name;
    size_t rank;
    uint64_t ne[4]; /* fastest first, as in the file */
    uint32_t type;
    uint64_t offset;
};

static inline void put_info(struct td_buffer *out, struct info info)
{
    put_text(out, info.name);
    put_u32(out, (uint32_t)info.rank);
    for (size_t i = 0; i < info.rank; i++)
        put_u64(out, info.ne[i]);
    put_u32(out, info.type);
    put_u64(out, info.offset);
}

static inline void put_padding(struct td_buffer *out, size_t alignment)
{
    while (out->len % alignment != 0)
        td_buffer_putc(out, 0);
}

/* Appends bytes that depend on their position. */
static inline void put_data(struct td_buffer *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        td_buffer_putc(out, (char)(uint8_t)(i * 7 + i / 251 + 1));
}

/* Appends a file of one tensor with 64 bytes of data. */
static inline void put_one(struct td_buffer *out, struct info info)
{
    put_head(out, 1, 0);
    put_info(out, info);
    put_padding(out, 32);
    put_data(out, 64);
}

#endif
