/* Calls, mappings and shared values, and the cost of very many values. */
#include "tests/unit/parser/pickle_fixture.h"
#include "tests/unit/work.h"

#include "core/buffer.h"

/* ---- objects and mappings ---- */

static void calls_are_kept(void **state)
{
    struct parsed *p = *state;
    PARSE(p, "cos\nsystem\n(U\x04true"
             "tR}U\1sK\2sbK\7aU\1kK\x08s.");
    assert_true(p->ok);
    const struct td_pickle *k = &p->pickle;
    int64_t number = 0;
    assert_int_equal(td_pickle_kind(k, k->root), TD_PICKLE_OBJECT);
    assert_int_equal(td_pickle_call(k, k->root), TD_PICKLE_REDUCE);
    assert_true(td_pickle_is_call(k, k->root, "os", "system"));
    assert_false(td_pickle_is_call(k, k->root, "os", "systems"));
    assert_false(td_pickle_is_call(k, k->root, "o", "system"));
    assert_true(td_pickle_string_is(k, td_pickle_item(k, td_pickle_args(k, k->root), 0), "true"));
    assert_true(td_pickle_int(k, td_pickle_get(k, td_pickle_state(k, k->root), "s"), &number) && number == 2);
    assert_int_equal(td_pickle_count(k, k->root), 1);
    assert_true(td_pickle_int(k, td_pickle_item(k, k->root, 0), &number) && number == 7);
    assert_true(td_pickle_int(k, td_pickle_get(k, k->root, "k"), &number) && number == 8);
    assert_int_equal(td_pickle_kwargs(k, k->root), TD_PICKLE_NIL);
    PARSE_NEXT(p, "ca\nb.c\n)}\x92.");
    assert_int_equal(td_pickle_call(&p->pickle, p->pickle.root), TD_PICKLE_NEWOBJ_EX);
    assert_int_equal(td_pickle_kind(&p->pickle, td_pickle_kwargs(&p->pickle, p->pickle.root)), TD_PICKLE_DICT);
    assert_true(td_pickle_is_call(&p->pickle, p->pickle.root, "a", "b.c"));
}

/* Bad input 94. */
static void an_object_without_state(void **state)
{
    struct parsed *p = *state;
    PARSE(p, "ca\nb\n)\x81.");
    struct td_pickle_map map;
    assert_int_equal(td_pickle_call(&p->pickle, p->pickle.root), TD_PICKLE_NEWOBJ);
    assert_int_equal(td_pickle_state(&p->pickle, p->pickle.root), TD_PICKLE_NIL);
    assert_int_equal(td_pickle_count(&p->pickle, p->pickle.root), 0);
    assert_false(td_pickle_map(&p->pickle, p->pickle.root, &map));
}

static int64_t int_under(const struct td_pickle *p, td_pickle_ref ref, const char *key)
{
    int64_t number = -1;
    (void)td_pickle_int(p, td_pickle_get(p, ref, key), &number);
    return number;
}

static void known_mappings(void **state)
{
    struct td_pickle_map map;
    struct parsed *p = *state;
    PARSE(p, "ccollections\nOrderedDict\n)R(U\1aK\1U\1bK\2u.");
    assert_true(td_pickle_map(&p->pickle, p->pickle.root, &map) && map.count == 2);
    assert_int_equal(int_under(&p->pickle, p->pickle.root, "b"), 2);
    assert_true(td_pickle_string_is(&p->pickle, td_pickle_map_key(&p->pickle, &map, 1), "b"));
    assert_int_equal(td_pickle_map_key(&p->pickle, &map, 2), TD_PICKLE_NIL);
    PARSE_NEXT(p, "ccollections\nOrderedDict\n)R.");
    assert_true(td_pickle_map(&p->pickle, p->pickle.root, &map) && map.count == 0);
    PARSE_NEXT(p, "ccollections\nCounter\n}U\1aK\3s\x85R.");
    assert_int_equal(int_under(&p->pickle, p->pickle.root, "a"), 3);
    PARSE_NEXT(p, "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85RU\1aK\4s.");
    assert_int_equal(int_under(&p->pickle, p->pickle.root, "a"), 4);
}

/* OrderedDict({...}) and the like copy their arguments and are independent of them afterwards. */
/* shows: security.md content-pickle-mutation */
static void mappings_copy_their_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *pickle;
        size_t len;
        uint32_t count;
        int64_t a, b; /* -1: absent */
        uint32_t duplicates;
    } rows[] = {
#define ROW(pickle) pickle, sizeof(pickle) - 1
        {ROW("ccollections\nOrderedDict\n](](U\1aK\1e](U\1aK\2ee\205R."), 1, 2, -1, 1},
        {ROW("ccollections\nOrderedDict\n](](U\1aK\1ee\205RU\1bK\2s."), 2, 1, 2, 0},
        {ROW("ccollections\nOrderedDict\n(U\1aK\1\206U\1bK\2\206t\205RU\1aK\3s."), 2, 3, 2, 1},
        {ROW("ccollections\nOrderedDict\n}q\0U\1aK\1s\205R(h\0U\1bK\2sh\0U\1aK\3s1."), 1, 1, -1, 1},
        {ROW("ccollections\nOrderedDict\n]q\0U\1aK\1\206a\205R(h\0U\1bK\2\206a1."), 1, 1, -1, 0},
        {ROW("ccollections\nOrderedDict\nccollections\nOrderedDict\n)RU\1aK\1s\205R."), 1, 1, -1, 0},
        {ROW("ccollections\ndefaultdict\nN}U\1aK\1s\206R."), 1, 1, -1, 0},
        {ROW("ccollections\nOrderedDict\n}U\1aK\1s\205\201."), 0, -1, -1, 0}, /* __new__ takes nothing */
#undef ROW
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct td_pickle_map map;
        struct parsed p;
        parse(rows[i].pickle, rows[i].len, &p);
        CHECK(p.ok, "%zu: %s", i, p.err.message);
        CHECK(td_pickle_map(&p.pickle, p.pickle.root, &map) && map.count == rows[i].count, "%zu", i);
        CHECK(int_under(&p.pickle, p.pickle.root, "a") == rows[i].a, "%zu", i);
        CHECK(int_under(&p.pickle, p.pickle.root, "b") == rows[i].b, "%zu", i);
        CHECK(p.pickle.duplicate_count == rows[i].duplicates, "%zu", i);
        parsed_fini(&p);
    }
}

/* Python refuses these too, except that Counter would count the items of anything but a dict. */
static void what_makes_no_mapping(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "ccollections\nOrderedDict\nK\1\205R.",    "ccollections\nOrderedDict\nN\205R.",
        "ccollections\nOrderedDict\n](Ne\205R.",   "ccollections\nOrderedDict\n](](K\1ee\205R.",
        "ccollections\nOrderedDict\n]](]Ne\205R.", "ccollections\nOrderedDict\n}}\206R.",
        "ccollections\nCounter\n](NN\206e\205R.",
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct parsed p;
        parse(rows[i], strlen(rows[i]), &p);
        CHECK(!p.ok && p.err.code == TD_INVALID_ARGUMENT, "%zu was accepted", i);
        parsed_fini(&p);
    }
}

/* A dict of 1,000 items is copied 1,000 times. */
/* shows: security.md content-pickle-growth */
static void copying_is_bounded(void **state)
{
    (void)state;
    struct td_buffer out;
    struct parsed p;
    td_buffer_init(&out);
    td_buffer_puts(&out, "](}q\001(");
    for (int i = 0; i < 1000; i++)
        td_buffer_printf(&out, "I%d\nN", i);
    td_buffer_puts(&out, "uccollections\nOrderedDict\nq\002");
    for (int i = 0; i < 1000; i++)
        td_buffer_puts(&out, "h\002h\001\205R");
    td_buffer_puts(&out, "e.");
    parse(out.data, out.len, &p);
    CHECK(!p.ok && strstr(p.err.message, "copies more items") != NULL, "%s", p.err.message);
    parsed_fini(&p);
    td_buffer_fini(&out);
}

/* The parser knows whether an argument or a state grew after the call that took it. */
static void containers_grow_after_a_call(void **state)
{
    struct parsed *p = *state;
    PARSE(p, "]q\1K\1a0ca\nb\nh\1\205Rh\1K\2a\206."); /* (b(l), l), with l.append(2) after the call */
    CHECK(p->ok, "%s", p->err.message);
    td_pickle_ref call = td_pickle_item(&p->pickle, p->pickle.root, 0);
    td_pickle_ref list = td_pickle_item(&p->pickle, p->pickle.root, 1);
    assert_true(td_pickle_grew_after(&p->pickle, list, call));
    assert_false(td_pickle_grew_after(&p->pickle, call, call));
    assert_false(td_pickle_grew_after(&p->pickle, TD_PICKLE_NIL, call));
    PARSE_NEXT(p, "]q\1K\1aK\2aca\nb\nh\1\205R}q\2U\1aNsb.");
    assert_false(td_pickle_grew_after(
        &p->pickle, td_pickle_item(&p->pickle, td_pickle_args(&p->pickle, p->pickle.root), 0), p->pickle.root));
    assert_false(td_pickle_state_grew(&p->pickle, p->pickle.root));
    PARSE_NEXT(p, "ca\nb\n)\201}q\2U\1aNsb(h\2U\1bNs1.");
    assert_true(p->ok && td_pickle_state_grew(&p->pickle, p->pickle.root));
}

/* Bad input 93. */
static void equal_keys(void **state)
{
    struct parsed *p = *state;
    struct td_pickle_map map;
    int64_t number = 0;
    PARSE(p, "}(U\1aK\1U\1bK\2X\1\0\0\0aK\3S'a'\nK\4u.");
    assert_true(td_pickle_map(&p->pickle, p->pickle.root, &map) && map.count == 2);
    assert_int_equal(p->pickle.duplicate_count, 2);
    assert_true(td_pickle_string_is(&p->pickle, p->pickle.duplicate, "a"));
    assert_true(td_pickle_int(&p->pickle, td_pickle_map_value(&p->pickle, &map, 0), &number) && number == 4);
    assert_int_equal(int_under(&p->pickle, p->pickle.root, "a"), 4);
    /* 1 == True == 1.0 == 1L; 0.5, None, b"a", "a", NaN twice, 2^64 twice in two spellings, () twice */
    PARSE_NEXT(p, "}(K\1NI01\nNF1.0\nNL1L\nNF0.5\nNG\x3f\xe0\0\0\0\0\0\0NNNNNC\1aNU\1aNFnan\nNFnan\nN"
                  "L18446744073709551616L\nN\x8a\x0a\0\0\0\0\0\0\0\0\1\0N)N)Nu.");
    assert_true(p->ok && td_pickle_map(&p->pickle, p->pickle.root, &map));
    assert_int_equal(map.count, 10);
    assert_int_equal(p->pickle.duplicate_count, 6);
    PARSE_NEXT(p, "(}U\1aK\1s}U\1aK\1sl."); /* equal keys of two maps are no duplicates */
    assert_int_equal(p->pickle.duplicate_count, 0);
}

/* Large maps are searched by their order, small ones item by item. Both find every key that is there, and no other. */
static void every_key_is_found(void **state)
{
    (void)state;
    for (uint32_t count = 0; count < 300; count = count < 20 ? count + 1 : 2 * count) {
        struct td_buffer out;
        struct parsed p;
        td_buffer_init(&out);
        td_buffer_puts(&out, "}(I7\nNNNC\001kN");
        for (uint32_t i = 0; i < count; i++)
            td_buffer_printf(&out, "S'model.layers.%" PRIu32 "'\nI%" PRIu32 "\n", i * 7919 % 1000, i);
        td_buffer_puts(&out, "u.");
        parse(out.data, out.len, &p);
        CHECK(p.ok, "%s", p.err.message);
        for (uint32_t i = 0; i < count; i++) {
            char key[32];
            snprintf(key, sizeof key, "model.layers.%" PRIu32, i * 7919 % 1000);
            assert_int_equal(int_under(&p.pickle, p.pickle.root, key), i);
        }
        static const char *const absent[] = {"", "k", "model.layers.", "model.layers.1000", "zzz", "model.layers.7x"};
        for (size_t i = 0; i < COUNT_OF(absent); i++)
            assert_int_equal(td_pickle_get(&p.pickle, p.pickle.root, absent[i]), TD_PICKLE_NIL);
        parsed_fini(&p);
        td_buffer_fini(&out);
    }
}

/* ---- sharing ---- */

/* Bad input 78. */
static void what_holds_itself(void **state)
{
    struct parsed *p = *state;
    PARSE(p, "]q\1h\1a.");
    assert_int_equal(td_pickle_item(&p->pickle, p->pickle.root, 0), p->pickle.root);
    assert_true(td_pickle_mark(&p->pickle, p->pickle.root));
    assert_false(td_pickle_mark(&p->pickle, td_pickle_item(&p->pickle, p->pickle.root, 0)));
    td_pickle_unmark(&p->pickle, p->pickle.root);
    assert_true(td_pickle_mark(&p->pickle, p->pickle.root));
    td_pickle_unmark_all(&p->pickle);
    assert_true(td_pickle_mark(&p->pickle, p->pickle.root));
    PARSE_NEXT(p, "}q\1U\1ah\1s.");
    assert_int_equal(td_pickle_get(&p->pickle, p->pickle.root, "a"), p->pickle.root);
}

/* 40 levels, each holding the one below twice, then five times. */
/* shows: security.md content-broken-pickles */
static void laughs_stay_small(void **state)
{
    (void)state;
    struct td_buffer out;
    struct parsed p;
    td_buffer_init(&out);
    td_buffer_puts(&out, "U\004lulz");
    for (int i = 0; i < 40; i++)
        td_buffer_puts(&out, "2\x86"); /* DUP TUPLE2 */
    td_buffer_putc(&out, '.');
    parse(out.data, out.len, &p);
    assert_true(p.ok && p.pickle.value_count == 41 && p.memory.peak_bytes < MEMORY_FLOOR);
    parsed_fini(&p);
    td_buffer_clear(&out);
    td_buffer_puts(&out, "]q\001");
    for (int i = 0; i < 40; i++)
        td_buffer_printf(&out, "0(h%ch%ch%ch%ch%clq%c", i + 1, i + 1, i + 1, i + 1, i + 1, i + 2);
    td_buffer_putc(&out, '.');
    parse(out.data, out.len, &p);
    assert_true(p.ok && p.pickle.memo_count == 41 && p.memory.peak_bytes < MEMORY_FLOOR);
    parsed_fini(&p);
    td_buffer_fini(&out);
}

/* Any index costs the memory of one entry. */
/* shows: security.md content-broken-pickles */
static void memo_indices_are_not_sizes(void **state)
{
    (void)state;
    uint64_t seed = 11;
    struct td_buffer out;
    struct parsed p;
    td_buffer_init(&out);
    td_buffer_putc(&out, 'N');
    for (int i = 0; i < 20000; i++) {
        uint32_t index = (uint32_t)random_next(&seed);
        td_buffer_putc(&out, 'r');
        td_buffer_append(&out, &index, sizeof index);
    }
    td_buffer_putc(&out, '.');
    parse(out.data, out.len, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_in_range(p.pickle.memo_count, 19990, 20000);
    CHECK(p.memory.peak_bytes < 10 * out.len, "%zu bytes of %zu", p.memory.peak_bytes, out.len);
    parsed_fini(&p);
    td_buffer_fini(&out);
}

/* Memo entries written out of order and more than once: each index is one entry, and its last value counts. */
static void memo_entries_out_of_turn(void **state)
{
    struct parsed *p = *state;
    int64_t number = 0;
    static const int64_t expected[] = {2, 3, 4, 5, 6};
    PARSE(p, "(K\1q\1"
             "0K\2q\0"
             "0K\3q\1"
             "0K\7q\3"
             "0K\4q\2"
             "0K\5q\3"
             "0K\6\x94"
             "0h\0h\1h\2h\3h\4t.");
    CHECK(p->ok, "%s", p->err.message);
    assert_int_equal(p->pickle.memo_count, COUNT_OF(expected));
    for (uint32_t i = 0; i < COUNT_OF(expected); i++)
        CHECK(td_pickle_int(&p->pickle, td_pickle_item(&p->pickle, p->pickle.root, i), &number) &&
                  number == expected[i],
              "entry %" PRIu32 " is %" PRId64, i, number);
}

/* Multiples of a Fibonacci number fall close together under the memo's hash. */
static void memo_indices_that_collide(void **state)
{
    (void)state;
    struct td_buffer out;
    struct parsed p;
    td_buffer_init(&out);
    td_buffer_putc(&out, 'N');
    for (uint32_t i = 0; i < 3000; i++)
        td_buffer_printf(&out, "p%" PRIu32 "\n", i * 1346269);
    td_buffer_putc(&out, '.');
    parse(out.data, out.len, &p);
    assert_false(p.ok);
    CHECK(strstr(p.err.message, "made up to collide") != NULL, "%s", p.err.message);
    parsed_fini(&p);
    td_buffer_fini(&out);
}

/* ---- size ---- */

static char *repeated(const char *before, const char *piece, size_t piece_len, size_t times, const char *after,
                      size_t *len)
{
    struct td_buffer out;
    td_buffer_init(&out);
    td_buffer_puts(&out, before);
    for (size_t i = 0; i < times; i++)
        td_buffer_append(&out, piece, piece_len);
    td_buffer_puts(&out, after);
    *len = out.len;
    return td_buffer_release(&out, len);
}

/* Memory and work are linear in the length, checked with a million and half a million pieces of each kind. */
static void a_million_of(void **state)
{
    (void)state;
    const size_t times = SANITIZED ? 100000 : 1000000;
    static const struct {
        const char *name, *before, *piece;
        size_t piece_len;
        const char *after;
        bool ok;
        size_t bytes_per_byte;
    } rows[] = {
        {"MARKs (77)", "", "(", 1, ".", false, 12},
        {"MARKs and a value (77)", "", "(", 1, "N.", false, 12},
        {"nested lists", "", "]", 1, ".", false, 32},
        {"nested tuples", ")", "\x85", 1, ".", true, 32},
        {"None in a list", "](", "N", 1, "e.", true, 36},
        {"appended one by one", "]", "Na", 2, ".", true, 16},
        {"empty lists in a list", "](", "]", 1, "e.", true, 36},
        {"two lists in turn", "]q\001]q\002(", "h\001Na0h\002Na0", 10, "1\x86.", true, 10},
        {"items of a dict", "}(", "K\001N", 3, "u.", true, 36},
        {"a dict for each item", "](", "}K\001Ns", 5, "e.", true, 32},
        {"keys that are equal", "}(", "U\001aN", 4, "u.", true, 28},
        {"DUPs", "(N", "2", 1, "t.", true, 14},
        {"memo entries", "N", "\x94", 1, ".", true, 6},
        {"globals", "(", "c\n\n", 3, "t.", true, 28},
        {"calls", "ca\nb\nq\0010(", "h\001)R", 4, "t.", true, 24},
        {"decoded strings", "(", "V\xe4\xe4\n", 4, "t.", true, 14},
        {"escapes", "S'", "\\n", 2, "'\n.", true, 5},
        {"appends to an object", "ca\nb\n)R(", "N", 1, "e.", true, 36},
    };
    uint64_t half = 0;
    for (size_t k = 0; k < 2 * COUNT_OF(rows); k++) {
        size_t i = k / 2;
        size_t len;
        struct parsed p;
        char *text = repeated(rows[i].before, rows[i].piece, rows[i].piece_len, k % 2 == 0 ? times / 2 : times,
                              rows[i].after, &len);
        assert_non_null(text);
        uint64_t work = work_now();
        parse(text, len, &p);
        work = work_now() - work;
        CHECK(p.ok == rows[i].ok, "%s: %s", rows[i].name, p.err.message);
        CHECK(p.err.code == (rows[i].ok ? TD_OK : TD_INVALID_ARGUMENT), "%s: %s", rows[i].name, p.err.message);
        CHECK(p.memory.peak_bytes < MEMORY_FLOOR + rows[i].bytes_per_byte * len, "%s: %.1f bytes per byte",
              rows[i].name, (double)p.memory.peak_bytes / (double)len);
        CHECK(work > len / 4, "%s: nothing was counted", rows[i].name);
        if (k % 2 == 0)
            half = work;
        else
            check_linear(half, work, rows[i].name);
        parsed_fini(&p);
        __wrap_free(text);
    }
}

#define PUT(out, literal) td_buffer_append(out, literal, sizeof(literal) - 1)

static void put_tensor(struct td_buffer *out, uint32_t i)
{
    char key[64];
    snprintf(key, sizeof key, "model.layers.%" PRIu32 ".self_attn.q_proj.weight", i);
    td_buffer_printf(out, "X%c%c%c%c%s", (int)strlen(key), 0, 0, 0, key);
    PUT(out, "\x94h\0((h\1h\2");
    snprintf(key, sizeof key, "%" PRIu32, i);
    td_buffer_printf(out, "U%c%s", (int)strlen(key), key);
    PUT(out, "\x94h\3J\0\0\1\0t\x94QK\0M\0\1M\0\1\x86\x94M\0\1K\1\x86\x94\x89h\4)R\x94t\x94R\x94");
}

/* Parses a state dict and returns its work. Checks that it takes less than 7 times the memory of its pickle. */
static uint64_t work_of_state_dict(uint32_t count)
{
    struct td_buffer out;
    struct parsed p;
    td_buffer_init(&out);
    PUT(&out, "}ctorch._utils\n_rebuild_tensor_v2\n\x94"
              "0U\7storage\x94"
              "0ctorch\nBFloat16Storage\n\x94");
    PUT(&out, "0U\3cpu\x94"
              "0ccollections\nOrderedDict\n\x94"
              "0(");
    for (uint32_t i = 0; i < count; i++)
        put_tensor(&out, i);
    td_buffer_puts(&out, "u.");
    struct td_pickle_map map;
    uint64_t work = work_now();
    parse(out.data, out.len, &p);
    work = work_now() - work;
    CHECK(p.ok, "%s", p.err.message);
    assert_true(td_pickle_map(&p.pickle, p.pickle.root, &map) && map.count == count);
    CHECK(p.memory.peak_bytes < 7 * out.len, "%.2f times", (double)p.memory.peak_bytes / (double)out.len);
    parsed_fini(&p);
    td_buffer_fini(&out);
    return work;
}

static void a_large_state_dict(void **state)
{
    (void)state;
    const uint32_t count = SANITIZED ? 10000 : 100000;
    uint64_t half = work_of_state_dict(count / 2);
    check_linear(half, work_of_state_dict(count), "a state dict");
}

/* The scratch memory for sorting keys counts against the limit too. */
static void sorting_stays_within_the_bound(void **state)
{
    (void)state;
    struct td_buffer out;
    struct parsed p;
    td_buffer_init(&out);
    td_buffer_puts(&out, "}(");
    for (int i = 5000; i > 0; i--)
        td_buffer_printf(&out, "M%c%cN", i & 0xff, i >> 8);
    td_buffer_puts(&out, "u.");
    size_t accepted = 0;
    for (size_t limit = MEMORY_FLOOR; limit < (size_t)1 << 20; limit += limit / 16) {
        struct td_pickle_options options = {.max_memory_bytes = limit};
        parse_with((const uint8_t *)out.data, out.len, 0, options, &p);
        accepted += p.ok;
        CHECK(p.ok || p.err.code == TD_RESOURCE_EXHAUSTED, "%zu bytes: %s", limit, p.err.message);
        CHECK(p.memory.peak_bytes < limit + limit / 64 + 1024, "%zu bytes: %zu", limit, p.memory.peak_bytes);
        parsed_fini(&p);
    }
    assert_in_range(accepted, 5, 55);
    td_buffer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(parsed, calls_are_kept),
        TEST_IN(parsed, an_object_without_state),
        TEST_IN(parsed, known_mappings),
        cmocka_unit_test(mappings_copy_their_arguments),
        cmocka_unit_test(what_makes_no_mapping),
        cmocka_unit_test(copying_is_bounded),
        TEST_IN(parsed, containers_grow_after_a_call),
        TEST_IN(parsed, equal_keys),
        cmocka_unit_test(every_key_is_found),
        TEST_IN(parsed, what_holds_itself),
        cmocka_unit_test(laughs_stay_small),
        cmocka_unit_test(memo_indices_are_not_sizes),
        TEST_IN(parsed, memo_entries_out_of_turn),
        cmocka_unit_test(memo_indices_that_collide),
        cmocka_unit_test(a_million_of),
        cmocka_unit_test(a_large_state_dict),
        cmocka_unit_test(sorting_stays_within_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
