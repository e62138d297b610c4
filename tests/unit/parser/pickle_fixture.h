/* Parses pickles without a file around them, and counts the memory. */
#ifndef TD_TESTS_UNIT_PARSER_PICKLE_FIXTURE_H
#define TD_TESTS_UNIT_PARSER_PICKLE_FIXTURE_H

#include "parser/pickle/pickle.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <inttypes.h>

/* The memory of the smallest parse: the first chunks for values. */
enum { MEMORY_FLOOR = 28 * 1024 };

struct parsed {
    struct td_pickle pickle;
    struct td_error err;
    bool ok;
    struct alloc_count memory; /* of the parse, before fini */
};

/* Bytes in a block of their own, so that AddressSanitizer sees a read past the end. */
struct bytes {
    uint8_t *data;
    size_t len;
};

static inline struct bytes bytes_of(const void *data, size_t len)
{
    struct bytes bytes = {.data = __real_malloc(len + (len == 0)), .len = len};
    assert_non_null(bytes.data);
    if (len > 0)
        memcpy(bytes.data, data, len);
    return bytes;
}

static inline void bytes_free(struct bytes bytes)
{
    __real_free(bytes.data);
}

static inline void parse_with(const uint8_t *data, size_t len, size_t start, struct td_pickle_options options,
                              struct parsed *out)
{
    memset(out, 0xaa, sizeof *out);
    td_error_init(&out->err);
    alloc_count_start();
    out->ok = td_pickle_parse(&out->pickle, data, len, start, &options, &out->err);
    out->memory = alloc_count_get();
    assert_int_equal(out->ok, out->err.code == TD_OK);
    assert_int_equal(out->ok, out->pickle.root != TD_PICKLE_NIL);
    assert_true(out->ok || out->memory.live_bytes == 0);
}

static inline void parse(const void *data, size_t len, struct parsed *out)
{
    parse_with(data, len, 0, (struct td_pickle_options){.base = 0}, out);
}

static inline void parsed_fini(struct parsed *p)
{
    td_pickle_fini(&p->pickle);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

#define PARSE(out, literal) parse(literal, sizeof(literal) - 1, out)

/* Parses another pickle after one that was parsed. */
#define PARSE_NEXT(out, literal)                  \
    do {                                          \
        parsed_fini(out);                         \
        parse(literal, sizeof(literal) - 1, out); \
    } while (0)

static inline void parsed_init(struct parsed *p)
{
    memset(p, 0, sizeof *p);
}

/* A test that parses at least one pickle, and leaves the last one to be freed. */
FIXTURE(parsed, struct parsed, parsed_init, parsed_fini)

#endif
