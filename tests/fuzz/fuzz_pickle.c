/* The input is a pickle. An accepted pickle must be a sound graph: every reference is within the values, tuples refer
 * to earlier values only, texts are within the bytes, and keys of maps are unique and can be found. The verdict must
 * not depend on the bytes after the pickle, nor on the bound on memory, unless memory runs out. */
#include "parser/pickle/pickle.h"

#include "core/utf8.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

static void check_ref(const struct td_pickle *p, td_pickle_ref ref)
{
    FUZZ_CHECK(ref != TD_PICKLE_NIL && ref <= p->value_count);
}

static void check_text(const struct td_pickle *p, td_pickle_ref ref, size_t size)
{
    size_t len;
    unsigned sum = 0;
    const char *text = td_pickle_text(p, ref, &len);
    FUZZ_CHECK(text != NULL && len <= 2 * size);
    for (size_t i = 0; i < len; i++) /* AddressSanitizer looks */
        sum += (uint8_t)text[i];
    FUZZ_CHECK(sum <= 255 * len);
    if (td_pickle_kind(p, ref) == TD_PICKLE_STRING)
        FUZZ_CHECK(td_pickle_is_utf8(p, ref) == td_utf8_valid(text, len));
}

static void check_items(const struct td_pickle *p, td_pickle_ref ref)
{
    uint32_t count = td_pickle_count(p, ref);
    for (uint32_t i = 0; i < count; i++) {
        check_ref(p, td_pickle_item(p, ref, i));
        if (td_pickle_kind(p, ref) == TD_PICKLE_TUPLE)
            FUZZ_CHECK(td_pickle_item(p, ref, i) < ref);
    }
    FUZZ_CHECK(td_pickle_item(p, ref, count) == TD_PICKLE_NIL);
}

/* Checks a key that is a text without a NUL: it occurs once, and a search for it gives its value. */
static void check_key(const struct td_pickle *p, const struct td_pickle_map *map, uint32_t i)
{
    char key[4200];
    size_t len;
    td_pickle_ref ref = td_pickle_map_key(p, map, i);
    const char *text = td_pickle_text(p, ref, &len);
    if (td_pickle_kind(p, ref) != TD_PICKLE_STRING || len >= sizeof key || memchr(text, 0, len) != NULL)
        return;
    memcpy(key, text, len);
    key[len] = '\0';
    FUZZ_CHECK(td_pickle_map_find(p, map, key) == td_pickle_map_value(p, map, i));
    for (uint32_t k = 0; k < i && map->count < 100; k++)
        FUZZ_CHECK(!td_pickle_string_is(p, td_pickle_map_key(p, map, k), key));
}

static void check_map(const struct td_pickle *p, td_pickle_ref ref)
{
    struct td_pickle_map map;
    if (!td_pickle_map(p, ref, &map)) {
        FUZZ_CHECK(map.count == 0 && td_pickle_kind(p, ref) != TD_PICKLE_DICT);
        return;
    }
    for (uint32_t i = 0; i < map.count; i++) {
        check_ref(p, td_pickle_map_key(p, &map, i));
        check_ref(p, td_pickle_map_value(p, &map, i));
        check_key(p, &map, i);
    }
    FUZZ_CHECK(td_pickle_map_key(p, &map, map.count) == TD_PICKLE_NIL);
}

static void check_number(const struct td_pickle *p, td_pickle_ref ref)
{
    int64_t small;
    size_t len;
    const uint8_t *big = td_pickle_big_int(p, ref, &len);
    FUZZ_CHECK((big == NULL) == td_pickle_int(p, ref, &small));
    if (big != NULL) /* it has at least nine bytes, and the last one is needed */
        FUZZ_CHECK(len > 8 && big[len - 1] != (big[len - 2] >= 0x80 ? 0xff : 0x00));
}

static void check_object(const struct td_pickle *p, td_pickle_ref ref)
{
    td_pickle_ref callable = td_pickle_callable(p, ref);
    check_ref(p, callable);
    FUZZ_CHECK(callable < ref && td_pickle_args(p, ref) < ref);
    FUZZ_CHECK(td_pickle_kind(p, callable) == TD_PICKLE_GLOBAL || td_pickle_kind(p, callable) == TD_PICKLE_OBJECT ||
               td_pickle_kind(p, callable) == TD_PICKLE_PERSISTENT);
    FUZZ_CHECK(td_pickle_kind(p, td_pickle_args(p, ref)) == TD_PICKLE_TUPLE);
    FUZZ_CHECK((td_pickle_kwargs(p, ref) != TD_PICKLE_NIL) == (td_pickle_call(p, ref) == TD_PICKLE_NEWOBJ_EX));
    FUZZ_CHECK(td_pickle_state(p, ref) <= p->value_count);
}

static void check_value(const struct td_pickle *p, td_pickle_ref ref, uint64_t base, size_t size)
{
    FUZZ_CHECK(td_pickle_position(p, ref) >= base && td_pickle_position(p, ref) < base + size);
    check_items(p, ref);
    check_map(p, ref);
    switch (td_pickle_kind(p, ref)) {
    case TD_PICKLE_NOTHING:
        FUZZ_CHECK(false);
        break;
    case TD_PICKLE_INT:
        check_number(p, ref);
        break;
    case TD_PICKLE_STRING:
    case TD_PICKLE_BYTES:
    case TD_PICKLE_BYTEARRAY:
        check_text(p, ref, size);
        break;
    case TD_PICKLE_GLOBAL:
        FUZZ_CHECK(td_pickle_kind(p, td_pickle_module(p, ref)) == TD_PICKLE_STRING);
        FUZZ_CHECK(td_pickle_kind(p, td_pickle_name(p, ref)) == TD_PICKLE_STRING);
        break;
    case TD_PICKLE_PERSISTENT:
        FUZZ_CHECK(td_pickle_kind(p, td_pickle_persistent(p, ref)) == TD_PICKLE_TUPLE);
        break;
    case TD_PICKLE_OBJECT:
        check_object(p, ref);
        break;
    default:
        break;
    }
}

static void check_pickle(const struct td_pickle *p, uint64_t base, size_t size)
{
    check_ref(p, p->root);
    FUZZ_CHECK(p->end <= size && p->op_count <= size && p->memo_count < p->op_count);
    FUZZ_CHECK(p->value_count <= size + 2 && p->duplicate_count <= size);
    FUZZ_CHECK((p->duplicate == TD_PICKLE_NIL) == (p->duplicate_count == 0));
    for (td_pickle_ref ref = 1; ref <= p->value_count; ref++)
        check_value(p, ref, base, size);
}

static bool parse(const uint8_t *data, size_t size, struct td_pickle_options options, size_t *end, enum td_code *code)
{
    struct td_pickle pickle;
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_pickle_parse(&pickle, data, size, 0, &options, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    if (ok)
        check_pickle(&pickle, options.base, size);
    else {
        FUZZ_CHECK(err.pos >= options.base && pickle.root == TD_PICKLE_NIL && pickle.value_count == 0);
        err.pos -= options.base;
        fuzz_check_refusal(&err, size);
    }
    *end = pickle.end;
    *code = err.code;
    td_pickle_fini(&pickle);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t end, other_end;
    enum td_code code, other_code;
    struct td_pickle_options options = {.base = 1000, .allow_trailing = true};
    bool ok = parse(data, size, options, &end, &code);
    FUZZ_CHECK(code != TD_RESOURCE_EXHAUSTED);
    options.base = 0;
    options.max_memory_bytes = 20480 + 2 * size;
    bool ok_limited = parse(data, size, options, &other_end, &other_code);
    FUZZ_CHECK(ok == ok_limited || other_code == TD_RESOURCE_EXHAUSTED);
    options.max_memory_bytes = 28 * 1024 + 40 * size; /* as pickle.h promises */
    options.allow_trailing = false;
    bool ok_strict = parse(data, size, options, &other_end, &other_code);
    FUZZ_CHECK(other_code != TD_RESOURCE_EXHAUSTED && ok_strict == (ok && end == size));
    return 0;
}
