/* A table of GGUF files that must be refused: the pieces of each, where its fault is, and part of the message. */
#ifndef TD_TESTS_UNIT_PARSER_GGUF_CASE_H
#define TD_TESTS_UNIT_PARSER_GGUF_CASE_H

#include "parser/gguf.h"
#include "tests/unit/parser/format_parse.h"
#include "tests/unit/parser/gguf_file.h"

/* Returns the most that a parse may hold at its peak: a window, the arena's first chunks, and a few times the file. */
static inline size_t gguf_memory_bound(size_t file_bytes)
{
    return 8192 + 8 * file_bytes;
}

static inline struct sample gguf_sample(const char *name, void *bytes, size_t len)
{
    return (struct sample){
        .format = &td_format_gguf, .name = name, .bytes = bytes, .len = len, .memory_bytes = gguf_memory_bound(len)};
}

static inline void gguf_parse(const void *bytes, size_t len, struct parsed *p)
{
    parse_exact(&td_format_gguf, bytes, len, p);
}

enum piece_kind { PIECE_NONE, PIECE_BYTES, PIECE_NUMBER, PIECE_REPEATED, PIECE_INFO, PIECE_PADDING, PIECE_DATA };

/* A part of a file, made by one of the macros below. */
struct piece {
    enum piece_kind kind;
    const char *bytes;
    uint64_t value;
    size_t count; /* of bytes */
    struct info info;
};

#define BYTES(literal)                                                      \
    {                                                                       \
        .kind = PIECE_BYTES, .bytes = literal, .count = sizeof(literal) - 1 \
    }
#define NUMBER(number, size)                                 \
    {                                                        \
        .kind = PIECE_NUMBER, .value = number, .count = size \
    }
#define U8(number) NUMBER(number, 1)
#define U32(number) NUMBER(number, 4)
#define U64(number) NUMBER(number, 8)
#define REPEATED(byte, times)                                 \
    {                                                         \
        .kind = PIECE_REPEATED, .value = byte, .count = times \
    }
#define TEXT(literal) U64(sizeof(literal) - 1), BYTES(literal)
#define HEAD(tensors, pairs) BYTES("GGUF"), U32(3), U64(tensors), U64(pairs)
#define KEY(key, type) TEXT(key), U32(type)
#define ARRAY(key, type, items) KEY(key, V_ARRAY), U32(type), U64(items)
#define INFO(...)                                   \
    {                                               \
        .kind = PIECE_INFO, .info = { __VA_ARGS__ } \
    }
#define PADDING               \
    {                         \
        .kind = PIECE_PADDING \
    }
#define DATA(size)                        \
    {                                     \
        .kind = PIECE_DATA, .count = size \
    }

/* A file that is refused as invalid, with the fault at `pos`. */
struct gguf_case {
    const char *name;
    uint64_t pos;
    const char *says;
    struct info info;        /* of the one tensor of a file without pieces */
    struct piece pieces[20]; /* up to the first of zeros */
};

#define PIECES(label, at, words, ...)                                      \
    {                                                                      \
        .name = label, .pos = at, .says = words, .pieces = { __VA_ARGS__ } \
    }
#define ONE_TENSOR(label, at, words, ...)                                \
    {                                                                    \
        .name = label, .pos = at, .says = words, .info = { __VA_ARGS__ } \
    }

static inline void put_piece(struct td_buffer *out, const struct piece *piece)
{
    if (piece->kind == PIECE_BYTES)
        td_buffer_append(out, piece->bytes, piece->count);
    else if (piece->kind == PIECE_NUMBER)
        put_le(out, piece->value, piece->count);
    else if (piece->kind == PIECE_INFO)
        put_info(out, piece->info);
    else if (piece->kind == PIECE_PADDING)
        put_padding(out, 32);
    else if (piece->kind == PIECE_DATA)
        put_data(out, piece->count);
    for (size_t i = 0; piece->kind == PIECE_REPEATED && i < piece->count; i++)
        td_buffer_putc(out, (char)piece->value);
}

static inline void gguf_one_case(void **state)
{
    const struct gguf_case *c = *state;
    struct td_buffer file = {0};
    struct parsed p;
    if (c->pieces[0].kind == PIECE_NONE)
        put_one(&file, c->info);
    for (size_t i = 0; i < COUNT_OF(c->pieces) && c->pieces[i].kind != PIECE_NONE; i++)
        put_piece(&file, &c->pieces[i]);
    gguf_parse(file.data, file.len, &p);
    check_refusal(&p, TD_INVALID_ARGUMENT, file.len, c->says, c->name);
    CHECK(p.err.pos == c->pos, "%s: at %" PRIu64 ": %s", c->name, p.err.pos, p.err.message);
    CHECK(p.memory.peak_bytes <= gguf_memory_bound(file.len), "%s: %zu bytes for %zu", c->name, p.memory.peak_bytes,
          file.len);
    parsed_fini(&p);
    __real_free(file.data);
}

/* Makes a test of each case. */
static inline void gguf_case_tests(const struct gguf_case *cases, size_t count, struct CMUnitTest *tests)
{
    for (size_t i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = gguf_one_case, .initial_state = (void *)(uintptr_t)&cases[i]};
}

#endif
