#include "parser/pickle.h"

#include "core/buffer.h"
#include "core/input.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <inttypes.h>

/* What a parse holds of every pickle, however small: the first chunks of its values. */
enum { MEMORY_FLOOR = 24 * 1024 };

struct parsed {
    struct td_pickle pickle;
    struct td_error err;
    bool ok;
    struct alloc_count memory; /* of the parse, before fini */
};

/* The bytes are copied to a block of their own, so that AddressSanitizer sees a read past the end. */
struct bytes {
    uint8_t *data;
    size_t len;
};

static struct bytes bytes_of(const void *data, size_t len)
{
    struct bytes bytes = {.data = __real_malloc(len + (len == 0)), .len = len};
    assert_non_null(bytes.data);
    if (len > 0)
        memcpy(bytes.data, data, len);
    return bytes;
}

static void bytes_free(struct bytes bytes)
{
    __real_free(bytes.data);
}

static void parse_with(const uint8_t *data, size_t len, size_t start, struct td_pickle_options options,
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

static void parse(const void *data, size_t len, struct parsed *out)
{
    parse_with(data, len, 0, (struct td_pickle_options){.base = 0}, out);
}

static void parsed_fini(struct parsed *p)
{
    td_pickle_fini(&p->pickle);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

#define PARSE(out, literal) parse(literal, sizeof(literal) - 1, out)

/* ---- the numbered bad inputs, and every rule beside them ---- */

struct pickle_case {
    unsigned number; /* in the list of bad inputs; 0: a rule of this module */
    const char *name;
    const char *bytes;
    size_t len;
    uint64_t pos;
    const char *message; /* a part of it; NULL: accepted */
};

#define CASE(number, name, bytes, pos, message)                \
    {                                                          \
        number, name, bytes, sizeof(bytes) - 1, (pos), message \
    }

static const struct pickle_case cases[] = {
    CASE(67, "BININT of two bytes", "J\x01\x02", 0,
         "BININT is cut off: it needs 4 more bytes and 2 are left"),
    CASE(67, "BINFLOAT of seven", "]G1234567", 1, "BINFLOAT is cut off"),
    CASE(67, "BINPUT without index", "Nq", 1, "BINPUT is cut off"),
    CASE(67, "PROTO without number", "\x80", 0, "PROTO is cut off"),
    CASE(67, "text shorter than it says",
         "U\x05"
         "abc.",
         0, "SHORT_BINSTRING is cut off: it needs 5 more bytes and 4 are left"),
    CASE(67, "FRAME past the end", "\x80\x04\x95\x05\0\0\0\0\0\0\0N.", 2,
         "FRAME is of 5 bytes and 2 are left"),
    CASE(68, "nothing", "", 0, "ends without STOP"),
    CASE(68, "no STOP", "\x80\x02N", 3, "ends without STOP"),
    CASE(69, "TUPLE3 on two", "NN\x87.", 2, "TUPLE3 needs 3 values on the stack, which has 2"),
    CASE(69, "TUPLE2 across a MARK", "N(N\x86.", 3, "which has 1 since the last MARK"),
    CASE(69, "TUPLE1 on nothing", "\x85.", 0, "which has 0"),
    CASE(70, "TUPLE without MARK", "NNt.", 2, "TUPLE has no MARK"),
    CASE(70, "LIST without MARK", "l.", 0, "LIST has no MARK"),
    CASE(70, "POP_MARK without MARK", "N1.", 1, "POP_MARK has no MARK"),
    CASE(70, "APPENDS with nothing below", "(NNe.", 3, "APPENDS has nothing below its MARK"),
    CASE(70, "SETITEMS below another MARK", "}((NNu.", 5, "SETITEMS has nothing below its MARK"),
    CASE(71, "GET of an unset entry", "g7\n.", 0, "reads memo entry 7, which was never written"),
    CASE(71, "BINGET of an unset entry",
         "Nq\x01"
         "0h\x02.",
         4, "reads memo entry 2"),
    CASE(71, "LONG_BINGET of an unset entry", "j\xff\xff\xff\xff.", 0, "reads memo entry 4294967295"),
    CASE(72, "LONG_BINPUT of 2^32-1",
         "Nr\xff\xff\xff\xff"
         "0j\xff\xff\xff\xff.",
         0, NULL),
    CASE(73, "BINUNICODE of 4 GiB",
         "X\xff\xff\xff\xff"
         "abcdefghijklmno",
         0, "BINUNICODE is cut off: it needs 4294967295 more bytes and 15 are left"),
    CASE(73, "BINUNICODE8 of 2^64-1", "\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", 0,
         "needs 18446744073709551615 more bytes and 1 are left"),
    CASE(73, "BINSTRING of -1", "T\xff\xff\xff\xff.", 0, "BINSTRING has a negative length, -1"),
    CASE(74, "LONG4 of a negative length", "\x8b\0\0\0\x80.", 0, "LONG4 has a negative length, -2147483648"),
    CASE(80, "SETITEM on a tuple", ")NNs.", 3, "SETITEM sets items of a tuple"),
    CASE(80, "SETITEM on a list", "]K\0Ns.", 4, "SETITEM sets items of a list"),
    CASE(80, "SETITEMS on a tensor", "ctorch._utils\n_rebuild_tensor_v2\n)R(K\0Nu.", 39,
         "SETITEMS sets items of a tensor"),
    CASE(80, "APPEND on a tensor", "ctorch._tensor\n_rebuild_from_type_v2\n)RNa.", 40,
         "APPEND adds to a tensor"),
    CASE(80, "APPEND on a tuple", ")Na.", 2, "APPEND adds to a tuple"),
    CASE(80, "APPENDS on a string",
         "U\x01"
         "a(NNe.",
         6, "APPENDS adds to a string"),
    CASE(80, "ADDITEMS on a list", "](N\x90.", 3, "ADDITEMS adds to a list; it must be a set"),
    CASE(80, "APPENDS on a set", "\x8f(Ne.", 3, "APPENDS adds to a set; it must be a list"),
    CASE(80, "SETITEM on a persistent id", ")QK\0Ns.", 5, "SETITEM sets items of a persistent id"),
    CASE(81, "SETITEMS of three", "}(K\1K\2K\3u.", 8,
         "SETITEMS has 3 values; keys and values must come in pairs"),
    CASE(81, "DICT of one", "(Nd.", 2, "DICT has 1 values"),
    CASE(82, "BUILD on an int", "K\1}b.", 3, "BUILD gives a state to an int; it must be an object"),
    CASE(82, "BUILD on a global", "cos\nsystem\n}b.", 12, "BUILD gives a state to a global"),
    CASE(82, "BUILD on a dict", "}}b.", 2, "BUILD gives a state to a dict"),
    CASE(82, "BUILD on a persistent id", ")Q}b.", 3, "BUILD gives a state to a persistent id"),
    CASE(83, "BINPERSID of a string", "U\1aQ.", 3, "BINPERSID has a string for an id; it must be a tuple"),
    CASE(93, "the same key twice", "}(U\1aK\1U\1aK\2u.", 0, NULL),
    CASE(94, "NEWOBJ without BUILD", "ca\nb\n)\x81.", 0, NULL),
    CASE(95, "GLOBAL without newline", "cos\nsystem", 0, "GLOBAL has no newline after its text"),
    CASE(95, "GLOBAL of one line", "cos\n", 0, "GLOBAL has no newline after its text"),
    CASE(96, "protocol 255", "\x80\xffN.", 0, "PROTO says protocol 255; 0 to 5 are known"),
    CASE(96, "protocol 6", "\x80\6N.", 0, "PROTO says protocol 6"),
    CASE(97, "data after STOP", "N.N.", 2, "2 bytes follow STOP"),
    CASE(99, "BINUNICODE that is not UTF-8", "X\2\0\0\0\xc3(.", 0, NULL),
    CASE(0, "an unknown opcode", "N\xfe.", 1, "0xfe is no opcode"),
    CASE(0, "NUL", "\0", 0, "0x00 is no opcode"),
    CASE(0, "EXT1", "\x82\1.", 0, "EXT1 is an opcode that checkpoints do not use"),
    CASE(0, "EXT2", "\x83\1\0.", 0, "EXT2 is"),
    CASE(0, "EXT4", "\x84\1\0\0\0.", 0, "EXT4 is"),
    CASE(0, "INST", "(ios\nsystem\n.", 1, "INST is"),
    CASE(0, "OBJ", "(cos\nsystem\no.", 12, "OBJ is"),
    CASE(0, "PERSID", "Pa\n.", 0, "PERSID is"),
    CASE(0, "NEXT_BUFFER", "\x97.", 0, "NEXT_BUFFER is"),
    CASE(0, "READONLY_BUFFER", "N\x98.", 1, "READONLY_BUFFER is"),
    CASE(0, "STOP on nothing", ".", 0, "STOP must find one value on the stack, which has 0"),
    CASE(0, "STOP on two", "NN.", 2, "which has 2"),
    CASE(0, "STOP within a MARK", "(N.", 2, "STOP comes while 1 MARKs are open"),
    CASE(0, "POP of nothing", "0.", 0, "POP needs 1 values"),
    CASE(0, "POP of a MARK", "N(0.", 0, NULL),
    CASE(0, "POP_MARK", "N(NN1.", 0, NULL),
    CASE(0, "DUP of nothing", "2.", 0, "DUP needs 1 values"),
    CASE(0, "DUP of what lies below a MARK", "N(2.", 2, "DUP needs 1 values"),
    CASE(0, "PUT of nothing", "q\1.", 0, "BINPUT needs 1 values"),
    CASE(0, "PUT of no number", "Np-1\n.", 1, "has the index \"-1\", which is not a number below 2^32"),
    CASE(0, "PUT of 2^32", "Np4294967296\n.", 1, "not a number below 2^32"),
    CASE(0, "PUT of nothing in text", "Np\n.", 1, "not a number below 2^32"),
    CASE(0, "PUT of 2^32-1", "Np4294967295\n0g4294967295\n.", 0, NULL),
    CASE(0, "a list as a key", "}]Ns.", 3, "SETITEM would hash a list"),
    CASE(0, "a dict as a key", "(}Nd.", 3, "DICT would hash a dict"),
    CASE(0, "a set in a set", "\x8f(\x8f\x90.", 3, "ADDITEMS would hash a set"),
    CASE(0, "a bytearray in a frozenset", "(\x96\0\0\0\0\0\0\0\0\x91.", 10,
         "FROZENSET would hash a bytearray"),
    CASE(0, "REDUCE of a string", "U\1a)R.", 4,
         "REDUCE calls a string; it must be a global, an object or a persistent id"),
    CASE(0, "REDUCE with a list", "cos\nsystem\n]R.", 12,
         "REDUCE has a list for arguments; they must be a tuple"),
    CASE(0, "NEWOBJ with None", "cos\nsystem\nN\x81.", 12, "NEWOBJ has None for arguments"),
    CASE(0, "NEWOBJ_EX with a tuple for keywords", "ca\nb\n))\x92.", 7, "has a tuple for keyword arguments"),
    CASE(0, "REDUCE of a call's result", "ca\nb\n)R)R.", 0, NULL),
    CASE(0, "NEWOBJ of a persistent id", ")Q)\x81.", 0, NULL),
    CASE(0, "STACK_GLOBAL of an int", "U\1aK\1\x93.", 5, "STACK_GLOBAL needs two strings"),
    CASE(0, "INT in hexadecimal", "I0x10\n.", 0, "INT has \"0x10\", which is not a decimal number"),
    CASE(0, "INT with a zero before it", "I010\n.", 0, "not a decimal number"),
    CASE(0, "INT of nothing", "I\n.", 0, "not a decimal number"),
    CASE(0, "INT of a sign", "I-\n.", 0, "not a decimal number"),
    CASE(0, "LONG of a word", "Lten\n.", 0, "LONG has \"ten\""),
    CASE(0, "FLOAT in hexadecimal", "F0x1p3\n.", 0, "FLOAT has \"0x1p3\", which is not a number"),
    CASE(0, "FLOAT of nothing", "F\n.", 0, "which is not a number"),
    CASE(0, "FLOAT and more", "F1.5e\n.", 0, "which is not a number"),
    CASE(0, "FLOAT with a NUL", "F1\0\n.", 0, "which is not a number"),
    CASE(0, "FLOAT infinity", "Finfinity\n.", 0, "which is not a number"),
    CASE(0, "STRING without quotes", "Sabc\n.", 0, "STRING has a text that is not in quotes"),
    CASE(0, "STRING of one quote", "S'\n.", 0, "not in quotes"),
    CASE(0, "STRING ending in a backslash", "S'a\\'\n.", 0, "malformed escape"),
    CASE(0, "STRING with a short \\x", "S'\\x1'\n.", 0, "malformed escape"),
    CASE(0, "UNICODE with a short \\u", "V\\u12\n.", 0, "malformed escape \"\\u12\""),
    CASE(0, "UNICODE past the last code point", "V\\U00110000\n.", 0, "malformed escape"),
    CASE(0, "UNICODE without newline", "Vabc.", 0, "UNICODE has no newline"),
    CASE(0, "FRAME that opcodes cross", "\x95\1\0\0\0\0\0\0\0K\1.", 0, NULL),
    CASE(0, "PROTO twice", "\x80\2\x80\4N.", 0, NULL),
    CASE(0, "APPENDS of nothing", "](e.", 0, NULL),
};

static void bad_inputs(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct pickle_case *c = &cases[i];
        struct bytes bytes = bytes_of(c->bytes, c->len);
        struct parsed p;
        parse(bytes.data, bytes.len, &p);
        if (c->message == NULL) {
            CHECK(p.ok, "%u %s: %s", c->number, c->name, p.err.message);
        } else {
            CHECK(!p.ok && p.err.code == TD_INVALID_ARGUMENT, "%u %s: accepted", c->number, c->name);
            CHECK(strstr(p.err.message, c->message) != NULL, "%u %s: %s", c->number, c->name, p.err.message);
            CHECK(p.err.pos == c->pos, "%u %s: at %" PRIu64, c->number, c->name, p.err.pos);
            check_error(&p.err, c->len, true, c->name);
        }
        CHECK(p.memory.peak_bytes < MEMORY_FLOOR, "%s: %zu bytes", c->name, p.memory.peak_bytes);
        parsed_fini(&p);
        bytes_free(bytes);
    }
}

static void positions_count_from_base_and_start(void **state)
{
    (void)state;
    static const char text[] = "N.K\1.x";
    const uint8_t *data = (const uint8_t *)text;
    struct td_pickle_options options = {.base = 1000, .allow_trailing = true};
    struct parsed p;
    parse_with(data, 6, 0, options, &p);
    assert_true(p.ok && p.pickle.end == 2 && p.pickle.op_count == 2);
    parsed_fini(&p);
    parse_with(data, 6, 2, options, &p);
    assert_true(p.ok && p.pickle.end == 5);
    assert_int_equal(td_pickle_position(&p.pickle, p.pickle.root), 1002);
    parsed_fini(&p);
    parse_with(data, 6, 5, options, &p);
    assert_true(!p.ok && p.err.pos == 1005);
    parsed_fini(&p);
    parse_with(data, 6, 7, options, &p);
    assert_true(!p.ok && p.err.pos == 1006);
    parsed_fini(&p);
    options.allow_trailing = false;
    parse_with(data, 6, 2, options, &p);
    assert_true(!p.ok && p.err.pos == 1005);
    parsed_fini(&p);
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
        CHECK(td_pickle_int(&p.pickle, p.pickle.root, &value) && value == rows[i].value, "row %zu: %" PRId64,
              i, value);
        parsed_fini(&p);
    }
}

/* 74: such a number is an int, and none that a size could be. */
static void big_ints(void **state)
{
    (void)state;
    struct parsed p;
    uint8_t long1[2 + 255 + 1] = {0x8a, 255};
    memset(long1 + 2, 0x11, 255);
    long1[257] = '.';
    parse(long1, sizeof long1, &p);
    check_big(&p.pickle, p.pickle.root, (const char *)long1 + 2, 255);
    parsed_fini(&p);
    PARSE(&p, "\x8a\x0b\0\0\0\0\0\0\0\x80\0\0\0.");
    check_big(&p.pickle, p.pickle.root, "\0\0\0\0\0\0\0\x80\0", 9);
    parsed_fini(&p);
    PARSE(&p, "L9223372036854775808L\n.");
    check_big(&p.pickle, p.pickle.root, "\0\0\0\0\0\0\0\x80\0", 9);
    parsed_fini(&p);
    PARSE(&p, "I-9223372036854775809\n.");
    check_big(&p.pickle, p.pickle.root, "\xff\xff\xff\xff\xff\xff\xff\x7f\xff", 9);
    parsed_fini(&p);
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
            assert_int_equal(big[0], 1); /* 10^k - 1 ends in all ones: its negative in 1 */
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
    (void)state;
    struct parsed p;
    double real = 0;
    PARSE(&p, "G\x3f\xe0\0\0\0\0\0\0.");
    assert_true(td_pickle_float(&p.pickle, p.pickle.root, &real) && real == 0.5);
    parsed_fini(&p);
    PARSE(&p, "F-1.5e3\n.");
    assert_true(td_pickle_float(&p.pickle, p.pickle.root, &real) && real == -1500);
    parsed_fini(&p);
    PARSE(&p, "F-inf\n.");
    assert_true(td_pickle_float(&p.pickle, p.pickle.root, &real) && real < -1e308);
    parsed_fini(&p);
    PARSE(&p, "I01\n.");
    assert_true(td_pickle_bool(&p.pickle, p.pickle.root));
    parsed_fini(&p);
    PARSE(&p, "\x89.");
    assert_int_equal(td_pickle_kind(&p.pickle, p.pickle.root), TD_PICKLE_BOOL);
    assert_false(td_pickle_bool(&p.pickle, p.pickle.root));
    parsed_fini(&p);
}

/* Every accessor answers for NIL, for numbers that are no value, and for a pickle that was refused. */
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

/* ---- objects and mappings ---- */

static void calls_are_kept(void **state)
{
    (void)state;
    struct parsed p;
    PARSE(&p, "cos\nsystem\n(U\x04true"
              "tR}U\1sK\1sb}U\1sK\2sbK\7aU\1kK\x08s.");
    assert_true(p.ok);
    const struct td_pickle *k = &p.pickle;
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
    parsed_fini(&p);
    PARSE(&p, "ca\nb.c\n)}\x92.");
    assert_int_equal(td_pickle_call(&p.pickle, p.pickle.root), TD_PICKLE_NEWOBJ_EX);
    assert_int_equal(td_pickle_kind(&p.pickle, td_pickle_kwargs(&p.pickle, p.pickle.root)), TD_PICKLE_DICT);
    assert_true(td_pickle_is_call(&p.pickle, p.pickle.root, "a", "b.c"));
    parsed_fini(&p);
}

/* 94 */
static void an_object_without_state(void **state)
{
    (void)state;
    struct parsed p;
    PARSE(&p, "ca\nb\n)\x81.");
    struct td_pickle_map map;
    assert_int_equal(td_pickle_call(&p.pickle, p.pickle.root), TD_PICKLE_NEWOBJ);
    assert_int_equal(td_pickle_state(&p.pickle, p.pickle.root), TD_PICKLE_NIL);
    assert_int_equal(td_pickle_count(&p.pickle, p.pickle.root), 0);
    assert_false(td_pickle_map(&p.pickle, p.pickle.root, &map));
    parsed_fini(&p);
}

static int64_t int_under(const struct td_pickle *p, td_pickle_ref ref, const char *key)
{
    int64_t number = -1;
    (void)td_pickle_int(p, td_pickle_get(p, ref, key), &number);
    return number;
}

static void known_mappings(void **state)
{
    (void)state;
    struct td_pickle_map map;
    struct parsed p;
    PARSE(&p, "ccollections\nOrderedDict\n)R(U\1aK\1U\1bK\2u.");
    assert_true(td_pickle_map(&p.pickle, p.pickle.root, &map) && map.count == 2 && !map.pairs);
    assert_int_equal(int_under(&p.pickle, p.pickle.root, "b"), 2);
    assert_true(td_pickle_string_is(&p.pickle, td_pickle_map_key(&p.pickle, &map, 1), "b"));
    assert_int_equal(td_pickle_map_key(&p.pickle, &map, 2), TD_PICKLE_NIL);
    parsed_fini(&p);
    PARSE(&p, "ccollections\nOrderedDict\n)R.");
    assert_true(td_pickle_map(&p.pickle, p.pickle.root, &map) && map.count == 0);
    parsed_fini(&p);
    PARSE(
        &p,
        "ccollections\nOrderedDict\n](](U\1aK\1e](U\1aK\2eN](K\1ee\x85R."); /* pairs, and two that are none */
    assert_true(p.ok && td_pickle_map(&p.pickle, p.pickle.root, &map) && map.count == 4 && map.pairs);
    assert_int_equal(int_under(&p.pickle, p.pickle.root, "a"), 2);
    assert_int_equal(td_pickle_map_value(&p.pickle, &map, 3), TD_PICKLE_NIL);
    parsed_fini(&p);
    PARSE(&p, "ccollections\nCounter\n}U\1aK\3s\x85R.");
    assert_int_equal(int_under(&p.pickle, p.pickle.root, "a"), 3);
    parsed_fini(&p);
    PARSE(&p, "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85RU\1aK\4s.");
    assert_int_equal(int_under(&p.pickle, p.pickle.root, "a"), 4);
    parsed_fini(&p);
    PARSE(&p, "ccollections\nOrderedDict\nK\1\x85R.");
    assert_false(td_pickle_map(&p.pickle, p.pickle.root, &map));
    parsed_fini(&p);
}

/* 93 */
static void equal_keys(void **state)
{
    (void)state;
    struct parsed p;
    struct td_pickle_map map;
    int64_t number = 0;
    PARSE(&p, "}(U\1aK\1U\1bK\2X\1\0\0\0aK\3S'a'\nK\4u.");
    assert_true(td_pickle_map(&p.pickle, p.pickle.root, &map) && map.count == 2);
    assert_int_equal(p.pickle.duplicate_count, 2);
    assert_true(td_pickle_string_is(&p.pickle, p.pickle.duplicate, "a"));
    assert_true(td_pickle_int(&p.pickle, td_pickle_map_value(&p.pickle, &map, 0), &number) && number == 4);
    assert_int_equal(int_under(&p.pickle, p.pickle.root, "a"), 4);
    parsed_fini(&p);
    /* 1 == True == 1.0 == 1L; 0.5, None, b"a", "a", NaN twice, 2^64 twice in two spellings, () twice */
    PARSE(&p, "}(K\1NI01\nNF1.0\nNL1L\nNF0.5\nNG\x3f\xe0\0\0\0\0\0\0NNNNNC\1aNU\1aNFnan\nNFnan\nN"
              "L18446744073709551616L\nN\x8a\x0a\0\0\0\0\0\0\0\0\1\0N)N)Nu.");
    assert_true(p.ok && td_pickle_map(&p.pickle, p.pickle.root, &map));
    assert_int_equal(map.count, 10);
    assert_int_equal(p.pickle.duplicate_count, 6);
    parsed_fini(&p);
    PARSE(&p, "(}U\1aK\1s}U\1aK\1sl."); /* not across maps */
    assert_int_equal(p.pickle.duplicate_count, 0);
    parsed_fini(&p);
}

/* Large maps are searched by their order, small ones item by item: both find everything and nothing else. */
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
        static const char *const absent[] = {
            "", "k", "model.layers.", "model.layers.1000", "zzz", "model.layers.7x"};
        for (size_t i = 0; i < COUNT_OF(absent); i++)
            assert_int_equal(td_pickle_get(&p.pickle, p.pickle.root, absent[i]), TD_PICKLE_NIL);
        parsed_fini(&p);
        td_buffer_fini(&out);
    }
}

/* ---- sharing ---- */

/* 78 */
static void what_holds_itself(void **state)
{
    (void)state;
    struct parsed p;
    PARSE(&p, "]q\1h\1a.");
    assert_int_equal(td_pickle_item(&p.pickle, p.pickle.root, 0), p.pickle.root);
    assert_true(td_pickle_mark(&p.pickle, p.pickle.root));
    assert_false(td_pickle_mark(&p.pickle, td_pickle_item(&p.pickle, p.pickle.root, 0)));
    td_pickle_unmark(&p.pickle, p.pickle.root);
    assert_true(td_pickle_mark(&p.pickle, p.pickle.root));
    td_pickle_unmark_all(&p.pickle);
    assert_true(td_pickle_mark(&p.pickle, p.pickle.root));
    parsed_fini(&p);
    PARSE(&p, "}q\1U\1ah\1s.");
    assert_int_equal(td_pickle_get(&p.pickle, p.pickle.root, "a"), p.pickle.root);
    parsed_fini(&p);
}

/* 75, 76: 40 levels, each twice (ten times) the one below. */
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

/* 72: and any other index costs no more than one entry does. */
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

/* Entries written out of turn and again, the numbers between them later: each is one entry, the last value counts. */
static void memo_entries_out_of_turn(void **state)
{
    (void)state;
    struct parsed p;
    int64_t number = 0;
    static const int64_t expected[] = {2, 3, 4, 5, 6};
    PARSE(&p, "(K\1q\1"
              "0K\2q\0"
              "0K\3q\1"
              "0K\7q\3"
              "0K\4q\2"
              "0K\5q\3"
              "0K\6\x94"
              "0h\0h\1h\2h\3h\4t.");
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(p.pickle.memo_count, COUNT_OF(expected));
    for (uint32_t i = 0; i < COUNT_OF(expected); i++)
        CHECK(td_pickle_int(&p.pickle, td_pickle_item(&p.pickle, p.pickle.root, i), &number) &&
                  number == expected[i],
              "entry %" PRIu32 " is %" PRId64, i, number);
    parsed_fini(&p);
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

static char *repeated(const char *before, const char *piece, size_t piece_len, size_t times,
                      const char *after, size_t *len)
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

/* Time and memory are linear in the length: what a million of anything costs. */
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
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        size_t len;
        struct parsed p;
        char *text = repeated(rows[i].before, rows[i].piece, rows[i].piece_len, times, rows[i].after, &len);
        assert_non_null(text);
        double start = cpu_seconds();
        parse(text, len, &p);
        double seconds = cpu_seconds() - start;
        CHECK(p.ok == rows[i].ok, "%s: %s", rows[i].name, p.err.message);
        CHECK(p.err.code == (rows[i].ok ? TD_OK : TD_INVALID_ARGUMENT), "%s: %s", rows[i].name,
              p.err.message);
        CHECK(p.memory.peak_bytes < MEMORY_FLOOR + rows[i].bytes_per_byte * len, "%s: %.1f bytes per byte",
              rows[i].name, (double)p.memory.peak_bytes / (double)len);
        CHECK(seconds < 3, "%s: %.1f s", rows[i].name, seconds);
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

/* A state dict takes a few times its pickle. */
static void a_large_state_dict(void **state)
{
    (void)state;
    struct td_buffer out;
    struct parsed p;
    td_buffer_init(&out);
    PUT(&out, "}ctorch._utils\n_rebuild_tensor_v2\n\x94"
              "0U\7storage\x94"
              "0ctorch\nBFloat16Storage\n\x94");
    PUT(&out, "0U\3cpu\x94"
              "0ccollections\nOrderedDict\n\x94"
              "0(");
    const uint32_t count = SANITIZED ? 10000 : 100000;
    for (uint32_t i = 0; i < count; i++)
        put_tensor(&out, i);
    td_buffer_puts(&out, "u.");
    struct td_pickle_map map;
    double start = cpu_seconds();
    parse(out.data, out.len, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_true(cpu_seconds() - start < 3);
    assert_true(td_pickle_map(&p.pickle, p.pickle.root, &map) && map.count == count);
    CHECK(p.memory.peak_bytes < 7 * out.len, "%.2f times", (double)p.memory.peak_bytes / (double)out.len);
    parsed_fini(&p);
    td_buffer_fini(&out);
}

/* ---- files by Python and torch ---- */

static struct bytes load(const char *name)
{
    char path[512];
    static uint8_t data[65536];
    snprintf(path, sizeof path, "%s/pickle/%s", TD_TEST_DATA, name);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL, "%s", path);
    size_t len = fread(data, 1, sizeof data, file);
    CHECK(len > 0 && len < sizeof data && fclose(file) == 0, "%s", path);
    return bytes_of(data, len);
}

static void put_hex(struct td_buffer *out, char letter, const void *bytes, size_t len)
{
    td_buffer_putc(out, letter);
    for (size_t i = 0; i < len; i++)
        td_buffer_printf(out, "%02x", ((const uint8_t *)bytes)[i]);
}

/* A value as tests/data/make_pickle.py writes it. */
// NOLINTNEXTLINE(misc-no-recursion): over our own small files
static void put_value(struct td_buffer *out, const struct td_pickle *p, td_pickle_ref ref)
{
    struct td_pickle_map map;
    int64_t number;
    double real;
    size_t len;
    const uint8_t *big = td_pickle_big_int(p, ref, &len);
    enum td_pickle_kind kind = td_pickle_kind(p, ref);
    if (kind == TD_PICKLE_NONE)
        td_buffer_puts(out, "None");
    else if (kind == TD_PICKLE_BOOL)
        td_buffer_puts(out, td_pickle_bool(p, ref) ? "True" : "False");
    else if (big != NULL)
        put_hex(out, 'i', big, len);
    else if (td_pickle_int(p, ref, &number))
        td_buffer_printf(out, "%" PRId64, number);
    else if (td_pickle_float(p, ref, &real))
        put_hex(out, 'f', &real, sizeof real);
    else if (kind == TD_PICKLE_STRING) {
        const char *text = td_pickle_text(p, ref, &len);
        put_hex(out, 's', text, len);
    } else if (td_pickle_map(p, ref, &map)) {
        td_buffer_putc(out, '{');
        for (uint32_t i = 0; i < map.count; i++) {
            put_value(out, p, td_pickle_map_key(p, &map, i));
            td_buffer_putc(out, ':');
            put_value(out, p, td_pickle_map_value(p, &map, i));
            td_buffer_putc(out, ',');
        }
        td_buffer_putc(out, '}');
    } else {
        td_buffer_putc(out, kind == TD_PICKLE_TUPLE ? '(' : '[');
        for (uint32_t i = 0; i < td_pickle_count(p, ref); i++) {
            put_value(out, p, td_pickle_item(p, ref, i));
            td_buffer_putc(out, ',');
        }
        td_buffer_putc(out, kind == TD_PICKLE_TUPLE ? ')' : ']');
    }
}

static void check_is(const struct td_buffer *out, const char *expected_name)
{
    struct bytes expected = load(expected_name);
    assert_false(out->failed);
    CHECK(out->len == expected.len && memcmp(out->data, expected.data, out->len) == 0, "%s: %.*s",
          expected_name, (int)out->len, out->data);
    bytes_free(expected);
}

static void plain_values_by_python(void **state)
{
    (void)state;
    for (int protocol = 0; protocol <= 5; protocol++) {
        char name[32];
        struct parsed p;
        struct td_buffer out;
        snprintf(name, sizeof name, "plain.%d.pkl", protocol);
        struct bytes file = load(name);
        parse(file.data, file.len, &p);
        CHECK(p.ok, "%s: %s", name, p.err.message);
        td_buffer_init(&out);
        put_value(&out, &p.pickle, p.pickle.root);
        td_buffer_putc(&out, '\n');
        check_is(&out, "plain.txt");
        td_buffer_fini(&out);
        parsed_fini(&p);
        bytes_free(file);
    }
}

static void put_tensor_shape(struct td_buffer *out, const struct td_pickle *p, td_pickle_ref tensor,
                             bool strides)
{
    assert_true(td_pickle_is_call(p, tensor, "torch._utils", "_rebuild_tensor_v2"));
    td_pickle_ref args = td_pickle_args(p, tensor);
    td_pickle_ref id = td_pickle_persistent(p, td_pickle_item(p, args, 0));
    assert_true(td_pickle_string_is(p, td_pickle_item(p, id, 0), "storage"));
    put_value(out, p, td_pickle_item(p, args, 2));
    if (strides) {
        td_buffer_putc(out, ' ');
        put_value(out, p, td_pickle_item(p, args, 3));
    }
    td_buffer_putc(out, '\n');
}

static void a_state_dict_by_torch(void **state)
{
    (void)state;
    struct bytes file = load("state.pkl");
    struct parsed p;
    struct td_buffer out;
    struct td_pickle_map map;
    parse(file.data, file.len, &p);
    td_buffer_init(&out);
    assert_true(td_pickle_map(&p.pickle, p.pickle.root, &map));
    for (uint32_t i = 0; i < map.count; i++) {
        size_t len;
        const char *name = td_pickle_text(&p.pickle, td_pickle_map_key(&p.pickle, &map, i), &len);
        td_buffer_append(&out, name, len);
        td_buffer_putc(&out, ' ');
        put_tensor_shape(&out, &p.pickle, td_pickle_map_value(&p.pickle, &map, i), true);
    }
    check_is(&out, "state.txt");
    assert_int_not_equal(td_pickle_get(&p.pickle, td_pickle_state(&p.pickle, p.pickle.root), "_metadata"),
                         TD_PICKLE_NIL);
    td_buffer_fini(&out);
    parsed_fini(&p);
    bytes_free(file);
}

static void an_optimizer_by_torch(void **state)
{
    (void)state;
    struct bytes file = load("optimizer.pkl");
    struct parsed p;
    struct td_buffer out;
    struct td_pickle_map parameters, parts;
    parse(file.data, file.len, &p);
    td_buffer_init(&out);
    assert_true(td_pickle_map(&p.pickle, td_pickle_get(&p.pickle, p.pickle.root, "state"), &parameters));
    for (uint32_t i = 0; i < parameters.count; i++) {
        assert_true(td_pickle_map(&p.pickle, td_pickle_map_value(&p.pickle, &parameters, i), &parts));
        for (uint32_t k = 0; k < parts.count; k++) {
            size_t len;
            const char *name = td_pickle_text(&p.pickle, td_pickle_map_key(&p.pickle, &parts, k), &len);
            put_value(&out, &p.pickle, td_pickle_map_key(&p.pickle, &parameters, i));
            td_buffer_printf(&out, " %.*s ", (int)len, name);
            put_tensor_shape(&out, &p.pickle, td_pickle_map_value(&p.pickle, &parts, k), false);
        }
    }
    check_is(&out, "optimizer.txt");
    td_buffer_fini(&out);
    parsed_fini(&p);
    bytes_free(file);
}

static const char *const files[] = {"plain.0.pkl", "plain.2.pkl", "plain.4.pkl",
                                    "plain.5.pkl", "state.pkl",   "optimizer.pkl"};

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct bytes file = load(files[i]);
        for (size_t len = 0; len < file.len; len++) {
            struct bytes prefix = bytes_of(file.data, len);
            struct parsed p;
            parse(prefix.data, len, &p);
            CHECK(!p.ok && p.err.code == TD_INVALID_ARGUMENT, "%s, %zu bytes", files[i], len);
            check_error(&p.err, len, true, files[i]);
            parsed_fini(&p);
            bytes_free(prefix);
        }
        bytes_free(file);
    }
}

/* Each allocation in turn fails, then the memory is bounded ever more narrowly: an error that says so. */
static void memory_may_run_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct bytes file = load(files[i]);
        struct parsed p;
        bool done = false;
        size_t k = 1;
        for (; !done; k++) {
            alloc_fail_at(k);
            parse(file.data, file.len, &p);
            alloc_fail_at(0);
            done = p.memory.calls < k;
            CHECK(p.err.code == (done ? TD_OK : TD_RESOURCE_EXHAUSTED), "%s, allocation %zu: %s", files[i], k,
                  p.err.message);
            parsed_fini(&p);
        }
        assert_true(k > 10);
        size_t refused = 0;
        for (size_t limit = 1; limit < 100000; limit += limit / 16 + 1) {
            struct td_pickle_options options = {.max_memory_bytes = limit};
            parse_with(file.data, file.len, 0, options, &p);
            refused += !p.ok;
            CHECK(p.ok || p.err.code == TD_RESOURCE_EXHAUSTED, "%s, %zu bytes: %s", files[i], limit,
                  p.err.message);
            CHECK(p.memory.peak_bytes < limit + 1024, "%s, %zu bytes: %zu", files[i], limit,
                  p.memory.peak_bytes);
            parsed_fini(&p);
        }
        assert_in_range(refused, 50, 180);
        bytes_free(file);
    }
}

/* The scratch that keys are sorted in counts too. */
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
        cmocka_unit_test(bad_inputs),
        cmocka_unit_test(positions_count_from_base_and_start),
        cmocka_unit_test(ints),
        cmocka_unit_test(big_ints),
        cmocka_unit_test(decimals_have_a_limit),
        cmocka_unit_test(texts),
        cmocka_unit_test(plain_values),
        cmocka_unit_test(accessors_take_anything),
        cmocka_unit_test(calls_are_kept),
        cmocka_unit_test(an_object_without_state),
        cmocka_unit_test(known_mappings),
        cmocka_unit_test(equal_keys),
        cmocka_unit_test(every_key_is_found),
        cmocka_unit_test(what_holds_itself),
        cmocka_unit_test(laughs_stay_small),
        cmocka_unit_test(memo_indices_are_not_sizes),
        cmocka_unit_test(memo_entries_out_of_turn),
        cmocka_unit_test(memo_indices_that_collide),
        cmocka_unit_test(a_million_of),
        cmocka_unit_test(a_large_state_dict),
        cmocka_unit_test(plain_values_by_python),
        cmocka_unit_test(a_state_dict_by_torch),
        cmocka_unit_test(an_optimizer_by_torch),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(sorting_stays_within_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
