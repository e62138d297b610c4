/* A table of GGUF files that must be refused: how each is built, where its fault is, and part of the message. */
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

/* A file that is refused as invalid, with the fault at `pos`. */
struct gguf_case {
    const char *name;
    void (*build)(struct td_buffer *out); /* NULL: a file of one tensor, `info` */
    uint64_t pos;
    const char *says;
    struct info info;
};

#define BUILT(label, builder, at, words)                          \
    {                                                             \
        .name = label, .build = builder, .pos = at, .says = words \
    }
#define ONE_TENSOR(label, at, words, ...)                                \
    {                                                                    \
        .name = label, .pos = at, .says = words, .info = { __VA_ARGS__ } \
    }

static inline void gguf_one_case(void **state)
{
    const struct gguf_case *c = *state;
    struct td_buffer file = {0};
    struct parsed p;
    if (c->build != NULL)
        c->build(&file);
    else
        put_one(&file, c->info);
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
