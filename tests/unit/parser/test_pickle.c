/* The opcodes: their rules, pickles that break each rule, and the values that they make. */
#include "tests/unit/parser/pickle_fixture.h"

/* ---- bad inputs, and other cases of each rule ---- */

struct pickle_case {
    const char *name;
    const char *bytes;
    size_t len;
    uint64_t pos;
    const char *message; /* part of the message; NULL: accepted */
};

#define CASE(name, bytes, pos, message)                \
    {                                                  \
        name, bytes, sizeof(bytes) - 1, (pos), message \
    }

static const struct pickle_case cases[] = {
    CASE("BININT of two bytes", "J\x01\x02", 0, "BININT is cut off: it needs 4 more bytes and 2 are left"),
    CASE("BINFLOAT of seven", "]G1234567", 1, "BINFLOAT is cut off"),
    CASE("BINPUT without index", "Nq", 1, "BINPUT is cut off"),
    CASE("PROTO without number", "\x80", 0, "PROTO is cut off"),
    CASE("text shorter than it says",
         "U\x05"
         "abc.",
         0, "SHORT_BINSTRING is cut off: it needs 5 more bytes and 4 are left"),
    CASE("FRAME past the end", "\x80\x04\x95\x05\0\0\0\0\0\0\0N.", 2, "FRAME has 5 bytes, but 2 are left"),
    CASE("nothing", "", 0, "ends without STOP"),
    CASE("no STOP", "\x80\x02N", 3, "ends without STOP"),
    CASE("TUPLE3 on two", "NN\x87.", 2, "TUPLE3 needs 3 values on the stack, which has 2"),
    CASE("TUPLE2 across a MARK", "N(N\x86.", 3, "which has 1 since the last MARK"),
    CASE("TUPLE1 on nothing", "\x85.", 0, "which has 0"),
    CASE("TUPLE without MARK", "NNt.", 2, "TUPLE has no MARK"),
    CASE("LIST without MARK", "l.", 0, "LIST has no MARK"),
    CASE("POP_MARK without MARK", "N1.", 1, "POP_MARK has no MARK"),
    CASE("APPENDS with nothing below", "(NNe.", 3, "APPENDS has nothing below its MARK"),
    CASE("SETITEMS below another MARK", "}((NNu.", 5, "SETITEMS has nothing below its MARK"),
    CASE("GET of an unset entry", "g7\n.", 0, "reads memo entry 7, which was never written"),
    CASE("BINGET of an unset entry",
         "Nq\x01"
         "0h\x02.",
         4, "reads memo entry 2"),
    CASE("LONG_BINGET of an unset entry", "j\xff\xff\xff\xff.", 0, "reads memo entry 4294967295"),
    CASE("LONG_BINPUT of 2^32-1",
         "Nr\xff\xff\xff\xff"
         "0j\xff\xff\xff\xff.",
         0, NULL),
    CASE("BINUNICODE of 4 GiB",
         "X\xff\xff\xff\xff"
         "abcdefghijklmno",
         0, "BINUNICODE is cut off: it needs 4294967295 more bytes and 15 are left"),
    CASE("BINUNICODE8 of 2^64-1", "\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", 0,
         "needs 18446744073709551615 more bytes and 1 are left"),
    CASE("BINSTRING of -1", "T\xff\xff\xff\xff.", 0, "BINSTRING has a negative length, -1"),
    CASE("LONG4 of a negative length", "\x8b\0\0\0\x80.", 0, "LONG4 has a negative length, -2147483648"),
    CASE("SETITEM on a tuple", ")NNs.", 3, "SETITEM sets items of a tuple"),
    CASE("SETITEM on a list", "]K\0Ns.", 4, "SETITEM sets items of a list"),
    CASE("SETITEMS on a tensor", "ctorch._utils\n_rebuild_tensor_v2\n)R(K\0Nu.", 39, "SETITEMS sets items of a tensor"),
    CASE("APPEND on a tensor", "ctorch._tensor\n_rebuild_from_type_v2\n)RNa.", 40, "APPEND adds to a tensor"),
    CASE("APPEND on a tuple", ")Na.", 2, "APPEND adds to a tuple"),
    CASE("APPENDS on a string",
         "U\x01"
         "a(NNe.",
         6, "APPENDS adds to a string"),
    CASE("ADDITEMS on a list", "](N\x90.", 3, "ADDITEMS adds to a list; it must be a set"),
    CASE("APPENDS on a set", "\x8f(Ne.", 3, "APPENDS adds to a set; it must be a list"),
    CASE("SETITEM on a persistent id", ")QK\0Ns.", 5, "SETITEM sets items of a persistent id"),
    CASE("SETITEMS of three", "}(K\1K\2K\3u.", 8, "SETITEMS has 3 values; keys and values must come in pairs"),
    CASE("DICT of one", "(Nd.", 2, "DICT has 1 values"),
    CASE("BUILD on an int", "K\1}b.", 3, "BUILD gives a state to an int; it must be an object"),
    CASE("BUILD on a global", "cos\nsystem\n}b.", 12, "BUILD gives a state to a global"),
    CASE("BUILD on a dict", "}}b.", 2, "BUILD gives a state to a dict"),
    CASE("BUILD on a tensor", "ctorch._utils\n_rebuild_tensor_v2\n)R)b.", 36, "BUILD gives a state to a tensor"),
    CASE("BUILD on a parameter", "ctorch._utils\n_rebuild_parameter\n)R)b.", 36, "BUILD gives a state to a tensor"),
    CASE("BUILD on a tensor of a subclass of before 1.9", "ctorch.tensor\n_rebuild_from_type\n)R)b.", 36,
         "BUILD gives a state to a tensor"),
    CASE("BUILD on a value of TorchScript", "ctorch.jit._pickle\nrestore_type_tag\n)R)b.", 39,
         "BUILD gives a state to a value of TorchScript"),
    CASE("BUILD twice", "ca\nb\n)\x81}b}b.", 10, "BUILD gives a state to an object that has one"),
    CASE("BUILD on a persistent id", ")Q}b.", 3, "BUILD gives a state to a persistent id"),
    CASE("BINPERSID of a string", "U\1aQ.", 3, "BINPERSID has a string for an id; it must be a tuple"),
    CASE("the same key twice", "}(U\1aK\1U\1aK\2u.", 0, NULL),
    CASE("NEWOBJ without BUILD", "ca\nb\n)\x81.", 0, NULL),
    CASE("GLOBAL without newline", "cos\nsystem", 0, "GLOBAL has no newline after its text"),
    CASE("GLOBAL of one line", "cos\n", 0, "GLOBAL has no newline after its text"),
    CASE("protocol 255", "\x80\xffN.", 0, "PROTO says protocol 255; 0 to 5 are known"),
    CASE("protocol 6", "\x80\6N.", 0, "PROTO says protocol 6"),
    CASE("data after STOP", "N.N.", 2, "2 bytes follow STOP"),
    CASE("BINUNICODE that is not UTF-8", "X\2\0\0\0\xc3(.", 0, NULL),
    CASE("an unknown opcode", "N\xfe.", 1, "0xfe is not an opcode"),
    CASE("NUL", "\0", 0, "0x00 is not an opcode"),
    CASE("EXT1", "\x82\1.", 0, "EXT1 is an opcode that checkpoints do not use"),
    CASE("EXT2", "\x83\1\0.", 0, "EXT2 is"),
    CASE("EXT4", "\x84\1\0\0\0.", 0, "EXT4 is"),
    CASE("INST", "(ios\nsystem\n.", 1, "INST is"),
    CASE("OBJ", "(cos\nsystem\no.", 12, "OBJ is"),
    CASE("PERSID", "Pa\n.", 0, "PERSID is"),
    CASE("NEXT_BUFFER", "\x97.", 0, "NEXT_BUFFER is"),
    CASE("READONLY_BUFFER", "N\x98.", 1, "READONLY_BUFFER is"),
    CASE("STOP on nothing", ".", 0, "STOP must find one value on the stack, which has 0"),
    CASE("STOP on two", "NN.", 2, "which has 2"),
    CASE("STOP within a MARK", "(N.", 2, "STOP comes while 1 MARKs are open"),
    CASE("POP of nothing", "0.", 0, "POP needs 1 values"),
    CASE("POP of a MARK", "N(0.", 0, NULL),
    CASE("POP_MARK", "N(NN1.", 0, NULL),
    CASE("DUP of nothing", "2.", 0, "DUP needs 1 values"),
    CASE("DUP of a value below a MARK", "N(2.", 2, "DUP needs 1 values"),
    CASE("PUT of nothing", "q\1.", 0, "BINPUT needs 1 values"),
    CASE("PUT of no number", "Np-1\n.", 1, "has the index \"-1\", which is not a number below 2^32"),
    CASE("PUT of 2^32", "Np4294967296\n.", 1, "not a number below 2^32"),
    CASE("PUT of nothing in text", "Np\n.", 1, "not a number below 2^32"),
    CASE("PUT of 2^32-1", "Np4294967295\n0g4294967295\n.", 0, NULL),
    CASE("a list as a key", "}]Ns.", 3, "SETITEM would hash a list"),
    CASE("a dict as a key", "(}Nd.", 3, "DICT would hash a dict"),
    CASE("a set in a set", "\x8f(\x8f\x90.", 3, "ADDITEMS would hash a set"),
    CASE("a bytearray in a frozenset", "(\x96\0\0\0\0\0\0\0\0\x91.", 10, "FROZENSET would hash a bytearray"),
    CASE("REDUCE of a string", "U\1a)R.", 4,
         "REDUCE calls a string; it must be a global, an object or a persistent id"),
    CASE("REDUCE with a list", "cos\nsystem\n]R.", 12, "REDUCE has a list for arguments; they must be a tuple"),
    CASE("NEWOBJ with None", "cos\nsystem\nN\x81.", 12, "NEWOBJ has None for arguments"),
    CASE("NEWOBJ_EX with a tuple for keywords", "ca\nb\n))\x92.", 7, "has a tuple for keyword arguments"),
    CASE("REDUCE of a call's result", "ca\nb\n)R)R.", 0, NULL),
    CASE("NEWOBJ of a persistent id", ")Q)\x81.", 0, NULL),
    CASE("STACK_GLOBAL of an int", "U\1aK\1\x93.", 5, "STACK_GLOBAL needs two strings"),
    CASE("INT in hexadecimal", "I0x10\n.", 0, "INT has \"0x10\", which is not a decimal number"),
    CASE("INT with a zero before it", "I010\n.", 0, "not a decimal number"),
    CASE("INT of nothing", "I\n.", 0, "not a decimal number"),
    CASE("INT of a sign", "I-\n.", 0, "not a decimal number"),
    CASE("LONG of a word", "Lten\n.", 0, "LONG has \"ten\""),
    CASE("FLOAT in hexadecimal", "F0x1p3\n.", 0, "FLOAT has \"0x1p3\", which is not a number"),
    CASE("FLOAT of nothing", "F\n.", 0, "which is not a number"),
    CASE("FLOAT and more", "F1.5e\n.", 0, "which is not a number"),
    CASE("FLOAT with a NUL", "F1\0\n.", 0, "which is not a number"),
    CASE("FLOAT infinity", "Finfinity\n.", 0, "which is not a number"),
    CASE("STRING without quotes", "Sabc\n.", 0, "STRING has a text that is not in quotes"),
    CASE("STRING of one quote", "S'\n.", 0, "not in quotes"),
    CASE("STRING ending in a backslash", "S'a\\'\n.", 0, "malformed escape"),
    CASE("STRING with a short \\x", "S'\\x1'\n.", 0, "malformed escape"),
    CASE("UNICODE with a short \\u", "V\\u12\n.", 0, "malformed escape \"\\u12\""),
    CASE("UNICODE past the last code point", "V\\U00110000\n.", 0, "malformed escape"),
    CASE("UNICODE without newline", "Vabc.", 0, "UNICODE has no newline"),
    CASE("FRAME that opcodes cross", "\x95\1\0\0\0\0\0\0\0K\1.", 0, NULL),
    CASE("PROTO twice", "\x80\2\x80\4N.", 0, NULL),
    CASE("APPENDS of nothing", "](e.", 0, NULL),
};

/* shows: security.md content-pickle-mutation */
static void bad_inputs(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct pickle_case *c = &cases[i];
        struct bytes bytes = bytes_of(c->bytes, c->len);
        struct parsed p;
        parse(bytes.data, bytes.len, &p);
        if (c->message == NULL) {
            CHECK(p.ok, "%s: %s", c->name, p.err.message);
        } else {
            CHECK(!p.ok && p.err.code == TD_INVALID_ARGUMENT, "%s: accepted", c->name);
            CHECK(strstr(p.err.message, c->message) != NULL, "%s: %s", c->name, p.err.message);
            CHECK(p.err.pos == c->pos, "%s: at %" PRIu64, c->name, p.err.pos);
            check_error(&p.err, c->len, true, c->name);
        }
        CHECK(p.memory.peak_bytes < MEMORY_FLOOR, "%s: %zu bytes", c->name, p.memory.peak_bytes);
        parsed_fini(&p);
        bytes_free(bytes);
    }
}

static void positions_count_from_base_and_start(void **state)
{
    static const char text[] = "N.K\1.x";
    const uint8_t *data = (const uint8_t *)text;
    struct td_pickle_options options = {.base = 1000, .allow_trailing = true};
    struct parsed *p = *state;
    parse_with(data, 6, 0, options, p);
    assert_true(p->ok && p->pickle.end == 2 && p->pickle.op_count == 2);
    parsed_fini(p);
    parse_with(data, 6, 2, options, p);
    assert_true(p->ok && p->pickle.end == 5);
    assert_int_equal(td_pickle_position(&p->pickle, p->pickle.root), 1002);
    parsed_fini(p);
    parse_with(data, 6, 5, options, p);
    assert_true(!p->ok && p->err.pos == 1005);
    parsed_fini(p);
    parse_with(data, 6, 7, options, p);
    assert_true(!p->ok && p->err.pos == 1006);
    parsed_fini(p);
    options.allow_trailing = false;
    parse_with(data, 6, 2, options, p);
    assert_true(!p->ok && p->err.pos == 1005);
}

/* ---- values ---- */

static void check_big(const struct td_pickle *p, td_pickle_ref ref, const char *bytes, size_t len)
{
    size_t got;
    int64_t small = 42;
    const uint8_t *big = td_pickle_big_int(p, ref, &got);
    assert_int_equal(td_pickle_kind(p, ref), TD_PICKLE_INT);
    assert_non_null(big);
    assert_int_equal(got, len);
    assert_memory_equal(big, bytes, len);
    assert_false(td_pickle_int(p, ref, &small));
    assert_int_equal(small, 42);
}

static void ints(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        int64_t value;
    } rows[] = {
#define INT(bytes, value)  \
    {                      \
        bytes,             \
        sizeof(bytes) - 1, \
        value,             \
    }
        INT("K\xff.", 255),
        INT("M\xff\xff.", 65535),
        INT("J\xff\xff\xff\xff.", -1),
        INT("J\xff\xff\xff\x7f.", INT32_MAX),
        INT("\x8a\0.", 0),
        INT("\x8a\1\x80.", -128),
        INT("\x8a\2\x80\0.", 128),
        INT("\x8a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff.", -1),
        INT("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.", INT64_MAX),
        INT("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\0.", INT64_MAX),
        INT("\x8b\x08\0\0\0\0\0\0\0\0\0\0\x80.", INT64_MIN),
        INT("I-5\n.", -5),
        INT("I0\n.", 0),
        INT("L9223372036854775807L\n.", INT64_MAX),
        INT("L-9223372036854775808\n.", INT64_MIN),
        INT("L-0L\n.", 0),
#undef INT
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct parsed p;
        int64_t value = 42;
        parse(rows[i].bytes, rows[i].len, &p);
        CHECK(p.ok, "row %zu: %s", i, p.err.message);
        CHECK(td_pickle_int(&p.pickle, p.pickle.root, &value) && value == rows[i].value, "row %zu: %" PRId64, i, value);
        parsed_fini(&p);
    }
}

/* A number past 64 bits is an int, but td_pickle_int refuses it, so it cannot be a size. */
static void big_ints(void **state)
{
    struct parsed *p = *state;
    uint8_t long1[2 + 255 + 1] = {0x8a, 255};
    memset(long1 + 2, 0x11, 255);
    long1[257] = '.';
    parse(long1, sizeof long1, p);
    check_big(&p->pickle, p->pickle.root, (const char *)long1 + 2, 255);
    PARSE_NEXT(p, "\x8a\x0b\0\0\0\0\0\0\0\x80\0\0\0.");
    check_big(&p->pickle, p->pickle.root, "\0\0\0\0\0\0\0\x80\0", 9);
    PARSE_NEXT(p, "L9223372036854775808L\n.");
    check_big(&p->pickle, p->pickle.root, "\0\0\0\0\0\0\0\x80\0", 9);
    PARSE_NEXT(p, "I-9223372036854775809\n.");
    check_big(&p->pickle, p->pickle.root, "\xff\xff\xff\xff\xff\xff\xff\x7f\xff", 9);
}

static void decimals_have_a_limit(void **state)
{
    (void)state;
    char text[4400];
    for (size_t digits = 4299; digits <= 4301; digits++) {
        struct parsed p;
        size_t len;
        text[0] = 'L';
        text[1] = '-';
        memset(text + 2, '9', digits);
        memcpy(text + 2 + digits, "L\n.", 3);
        parse(text, digits + 5, &p);
        CHECK(p.ok == (digits <= 4300), "%zu digits: %s", digits, p.err.message);
        if (p.ok) {
            const uint8_t *big = td_pickle_big_int(&p.pickle, p.pickle.root, &len);
            assert_int_equal(len, (size_t)((double)digits * 3.3219280948873626 / 8) + 1);
            assert_int_equal(big[0], 1); /* 10^k - 1 ends in ...11111 in binary, so its negative ends in 1 */
        }
        parsed_fini(&p);
    }
}

static void check_text(const char *pickle, size_t pickle_len, const char *text, size_t len, bool utf8)
{
    struct parsed p;
    size_t got;
    parse(pickle, pickle_len, &p);
    CHECK(p.ok, "%s", p.err.message);
    const char *own = td_pickle_text(&p.pickle, p.pickle.root, &got);
    assert_int_equal(got, len);
    assert_memory_equal(own, text, len);
    assert_int_equal(td_pickle_is_utf8(&p.pickle, p.pickle.root), utf8);
    parsed_fini(&p);
}

#define TEXT(pickle, text, utf8) check_text(pickle, sizeof(pickle) - 1, text, sizeof(text) - 1, utf8)

static void texts(void **state)
{
    (void)state;
    TEXT("X\3\0\0\0a\0b.", "a\0b", true);
    TEXT("\x8c\0.", "", true);
    TEXT("\x8d\2\0\0\0\0\0\0\0\xc3\xa4.", "\xc3\xa4", true);
    TEXT("U\1\xe4.", "\xe4", false);
    TEXT("X\3\0\0\0\xed\xa0\x80.", "\xed\xa0\x80", false);
    TEXT("S'a\\n\\x41\\101\\7\\q\\\\\\'\"'\n.", "a\nAA\7\\q\\'\"", true);
    TEXT("S\"\"\n.", "", true);
    TEXT("S'\\xff'\n.", "\xff", false);
    TEXT("Va\\u00e4\xe4\\U0001f600\n.", "a\xc3\xa4\xc3\xa4\xf0\x9f\x98\x80", true);
    TEXT("V\\\\u0041\\\n.", "\\\\u0041\\", true);
    TEXT("V\\ud83d\\ude00\n.", "\xed\xa0\xbd\xed\xb8\x80", false);
    TEXT("C\2ab.", "ab", false);
    TEXT("\x96\1\0\0\0\0\0\0\0z.", "z", false);
}

static void plain_values(void **state)
{
    struct parsed *p = *state;
    double real = 0;
    PARSE(p, "G\x3f\xe0\0\0\0\0\0\0.");
    assert_true(td_pickle_float(&p->pickle, p->pickle.root, &real) && real == 0.5);
    PARSE_NEXT(p, "F-1.5e3\n.");
    assert_true(td_pickle_float(&p->pickle, p->pickle.root, &real) && real == -1500);
    PARSE_NEXT(p, "F-inf\n.");
    assert_true(td_pickle_float(&p->pickle, p->pickle.root, &real) && real < -1e308);
    PARSE_NEXT(p, "I01\n.");
    assert_true(td_pickle_bool(&p->pickle, p->pickle.root));
    PARSE_NEXT(p, "\x89.");
    assert_int_equal(td_pickle_kind(&p->pickle, p->pickle.root), TD_PICKLE_BOOL);
    assert_false(td_pickle_bool(&p->pickle, p->pickle.root));
}

/* Every accessor has an answer for NIL, for numbers that are no value, and for a refused pickle. */
static void accessors_take_anything(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } pickles[] = {{"N.", 2}, {"(.", 2}, {"](K\1e.", 6}};
    for (size_t i = 0; i < COUNT_OF(pickles); i++) {
        struct parsed p;
        parse(pickles[i].bytes, pickles[i].len, &p);
        td_pickle_ref refs[] = {TD_PICKLE_NIL, p.pickle.value_count + 1, UINT32_MAX};
        for (size_t k = 0; k < COUNT_OF(refs); k++) {
            td_pickle_ref ref = refs[k];
            struct td_pickle_map map;
            int64_t number;
            double real;
            size_t len;
            assert_int_equal(td_pickle_kind(&p.pickle, ref), TD_PICKLE_NOTHING);
            assert_true(!td_pickle_bool(&p.pickle, ref) && !td_pickle_int(&p.pickle, ref, &number));
            assert_true(!td_pickle_float(&p.pickle, ref, &real) && !td_pickle_is_utf8(&p.pickle, ref));
            assert_null(td_pickle_text(&p.pickle, ref, &len));
            assert_null(td_pickle_big_int(&p.pickle, ref, &len));
            assert_true(td_pickle_module(&p.pickle, ref) + td_pickle_name(&p.pickle, ref) == 0);
            assert_true(td_pickle_count(&p.pickle, ref) + td_pickle_item(&p.pickle, ref, 0) == 0);
            assert_true(td_pickle_persistent(&p.pickle, ref) + td_pickle_callable(&p.pickle, ref) == 0);
            assert_true(td_pickle_args(&p.pickle, ref) + td_pickle_state(&p.pickle, ref) == 0);
            assert_true(!td_pickle_map(&p.pickle, ref, &map) && map.count == 0);
            assert_int_equal(td_pickle_get(&p.pickle, ref, "a"), TD_PICKLE_NIL);
            assert_true(!td_pickle_mark(&p.pickle, ref) && !td_pickle_string_is(&p.pickle, ref, ""));
        }
        parsed_fini(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_inputs),
        TEST_IN(parsed, positions_count_from_base_and_start),
        cmocka_unit_test(ints),
        TEST_IN(parsed, big_ints),
        cmocka_unit_test(decimals_have_a_limit),
        cmocka_unit_test(texts),
        TEST_IN(parsed, plain_values),
        cmocka_unit_test(accessors_take_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
