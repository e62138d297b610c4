/* Archives by tests/unit/parser/zip_file.h, and the reading of an archive under limits, with its memory counted. */
#ifndef TD_TESTS_UNIT_PARSER_ZIP_OPENED_H
#define TD_TESTS_UNIT_PARSER_ZIP_OPENED_H

#include "parser/zip/zip.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/parser/zip_file.h"

#include <inttypes.h>

static const uint8_t data_a[] = "abcdefghijklmnopqrstuvwxyz";
static const uint8_t data_b[] = "0123456789";

enum { LONG_BYTES = 3000 };

/* "aaaa...bbbb..." deflates well. */
static const uint8_t *long_data(void)
{
    static uint8_t bytes[LONG_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)('a' + i / 200);
    return bytes;
}

static inline struct zip_spec plain_spec(void)
{
    return (struct zip_spec){
        .members = {{.name = "x/b", .data = data_b, .data_len = 10},
                    {.name = "x/a", .data = data_a, .data_len = 26},
                    {.name = "x/long", .data = long_data(), .data_len = LONG_BYTES, .deflated = true}},
        .count = 3,
    };
}

static inline struct zip_spec torch_spec(void)
{
    return (struct zip_spec){
        .members = {{.name = "archive/data.pkl", .data = data_a, .data_len = 26},
                    {.name = "archive/data/0", .data = data_b, .data_len = 10},
                    {.name = "archive/data/1", .data = "", .data_len = 0},
                    {.name = "archive/code", .data = long_data(), .data_len = LONG_BYTES, .deflated = true}},
        .count = 4,
        .torch = true,
    };
}

struct opened {
    struct td_arena arena;
    struct td_zip zip;
    struct td_error err;
    bool ok;
    struct alloc_count memory;
};

typedef bool read_zip(struct td_zip *, const struct td_input *, const struct td_limits *, struct td_arena *,
                      struct td_error *);

static inline void open_by(read_zip *read, const struct td_input *input, const struct td_limits *limits,
                           struct opened *o)
{
    td_error_init(&o->err);
    alloc_count_start();
    td_arena_init(&o->arena, limits->max_memory_bytes);
    o->ok = read(&o->zip, input, limits, &o->arena, &o->err);
    o->memory = alloc_count_get();
    assert_int_equal(o->ok, o->err.code == TD_OK);
    assert_true(o->arena.limit_bytes == limits->max_memory_bytes);
    assert_true(o->ok || o->zip.count == 0);
}

static inline void open_input(const struct td_input *input, const struct td_limits *limits, struct opened *o)
{
    open_by(td_zip_read, input, limits, o);
}

static inline void open_bytes(const void *bytes, size_t len, struct opened *o)
{
    struct td_input input = td_input_memory(bytes, len);
    struct td_limits limits = td_limits_default();
    open_input(&input, &limits, o);
}

static inline void close_opened(struct opened *o)
{
    td_arena_fini(&o->arena);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

static inline void check_refused_by(read_zip *read, const struct zip_file *f, const char *name, const char *says)
{
    struct td_limits limits = td_limits_default();
    uint8_t *exact = __real_malloc(f->len + (f->len == 0)); /* so that the sanitizer sees a read past the end */
    assert_non_null(exact);
    memcpy(exact, f->bytes, f->len);
    struct opened o;
    struct td_input input = td_input_memory(exact, f->len);
    open_by(read, &input, &limits, &o);
    CHECK(!o.ok, "%s: accepted", name);
    CHECK(o.err.code == TD_INVALID_ARGUMENT, "%s: code %d, %s", name, (int)o.err.code, o.err.message);
    check_error(&o.err, f->len, true, name);
    check_says(&o.err, says, name);
    close_opened(&o);
    __real_free(exact);
}

static inline void check_refused(const struct zip_file *f, const char *name, const char *says)
{
    check_refused_by(td_zip_read, f, name, says);
}

#endif
