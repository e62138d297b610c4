/* shows: security.md content-all-formats */
#include "parser/npy.h"

#include "tests/unit/parser/format_fixture.h"

static void what_numpy_wrote(void **state)
{
    (void)state;
    each_fixture("npy", ".npy", 50, &td_format_npy, check_fixture);
}

static void prefixes(const struct td_format *format, const struct fixture *f)
{
    if (strstr(f->name, "objects") == NULL) /* the header does not have the length of a pickle */
        check_prefixes(format, f);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    each_fixture("npy", ".npy", 50, &td_format_npy, prefixes);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    each_fixture("npy", ".npy", 50, &td_format_npy, check_allocations);
}

/* ---- Headers written by hand, with the verdicts of numpy.load (2.4) ---- */

enum { DATA_BYTES = 64 };

struct header_case {
    const char *text;
    const char *listing; /* TYPE [shape] reason; NULL: refused */
    const char *says;
    uint8_t version; /* 0 stands for 1 */
};

#define D(descr) "{'descr': " descr ", 'fortran_order': False, 'shape': (2,), }"
#define S(shape) "{'descr': '<f4', 'fortran_order': False, 'shape': " shape ", }"

static const struct header_case cases[] = {
    {D("'<f4'"), "F32 [2] -", NULL, 0},
    {D("'<f4'") "  \n", "F32 [2] -", NULL, 0},
    {"  " D("'<f4'"), "F32 [2] -", NULL, 0},
    {D("\"<f4\""), "F32 [2] -", NULL, 0},
    {"{'shape':(2,),'fortran_order':True,'descr':'<f4'}", "F32 [2] -", NULL, 0},
    {"{\"shape\"\t:\n(\r2\f,\n)\n,\"fortran_order\":False,\"descr\":\"<f4\"}", "F32 [2] -", NULL, 0},
    {S("()"), "F32 [] -", NULL, 0},
    {S("( )"), "F32 [] -", NULL, 0},
    {S("(2, 3)"), "F32 [2,3] -", NULL, 0},
    {S("(2, 3,)"), "F32 [2,3] -", NULL, 0},
    {S("(0,)"), "F32 [0] -", NULL, 0},
    {S("(00,)"), "F32 [0] -", NULL, 0},
    {S("(16,)"), "F32 [16] -", NULL, 0},
    {S("(17,)"), NULL, "npy array has 68 bytes, but the file ends after 64", 0},
    {S("(2L, 3L)"), "F32 [2,3] -", NULL, 0},
    {S("(2L, 3L)"), "F32 [2,3] -", NULL, 2},
    {S("(2L, 3L)"), NULL, "must end here", 3},
    {S("(2 L,)"), "F32 [2] -", NULL, 0},
    {S("(2LL,)"), NULL, "must end here", 0},
    {S("(02,)"), NULL, "must not begin with 0", 0},
    {S("(2)"), NULL, "needs a comma", 0},
    {S("2"), NULL, "a tuple such as", 0},
    {S("[2]"), NULL, "a tuple such as", 0},
    {S("(,)"), NULL, "whole numbers", 0},
    {S("(2,,)"), NULL, "whole numbers", 0},
    {S("(2 3)"), NULL, "a comma or a )", 0},
    {S("(2.0,)"), NULL, "a comma or a )", 0},
    {S("(0x2,)"), NULL, "must end here", 0},
    {S("(2_0,)"), NULL, "must end here", 0},
    {S("('2',)"), NULL, "whole numbers", 0},
    {S("(-1,)"), NULL, "whole numbers of 0 or more, not \"-1", 0},
    {S("(4294967296, 4294967296)"), NULL, "more than 2^64-1 bytes", 0},
    {S("(4611686018427387904,)"), NULL, "more than 2^64-1 bytes", 0},
    {S("(9223372036854775808,)"), NULL, "below 2^63", 0},
    {S("(99999999999999999999999,)"), NULL, "below 2^63", 0},
    {S("(0, 9223372036854775807, 9223372036854775807)"), "F32 [0,9223372036854775807,9223372036854775807] -", NULL, 0},
    {D("'|O'"), "OBJECT [2] pickled objects", NULL, 0},
    {D("'O'"), "OBJECT [2] pickled objects", NULL, 0},
    {D("'|O8'"), "OBJECT [2] pickled objects", NULL, 0},
    {D("'=f4'"), "F32 [2] -", NULL, 0},
    {D("'f4'"), "F32 [2] -", NULL, 0},
    {D("'|f4'"), "F32 [2] -", NULL, 0},
    {D("'>f4'"), "F32 [2] big-endian", NULL, 0},
    {D("'>i1'"), "I8 [2] -", NULL, 0},
    {D("'<V2'"), "OPAQUE [2] opaque", NULL, 0}, /* ml_dtypes.bfloat16 */
    {D("'<f1'"), "OPAQUE [2] opaque", NULL, 0}, /* ml_dtypes.float8_e5m2 */
    {D("'|S0'"), "STRING [2] strings", NULL, 0},
    {D("'|S32'"), "STRING [2] strings", NULL, 0},
    {D("'|S33'"), NULL, "has 66 bytes", 0},
    {D("'<U8'"), "STRING [2] strings", NULL, 0},
    {D("'<U9'"), NULL, "has 72 bytes", 0},
    {D("'<M8'"), "DATETIME64 [2] -", NULL, 0},
    {D("'<M8[ns]'"), "DATETIME64 [2] -", NULL, 0},
    {D("'<m8[25us]'"), "TIMEDELTA64 [2] -", NULL, 0},
    {D("'>m8[generic]'"), "TIMEDELTA64 [2] big-endian", NULL, 0},
    {D("'<M8[foo]'"), NULL, "NumPy knows", 0},
    {D("'<M8[]'"), NULL, "NumPy knows", 0},
    {D("'<M8[ns'"), NULL, "NumPy knows", 0},
    {D("'<M4[ns]'"), NULL, "NumPy knows", 0},
    {D("'<f3'"), NULL, "NumPy knows", 0},
    {D("'<f12'"), NULL, "NumPy knows", 0},
    {D("'<i16'"), NULL, "NumPy knows", 0},
    {D("'<f4 '"), NULL, "NumPy knows", 0},
    {D("'<'"), NULL, "NumPy knows", 0},
    {D("''"), NULL, "NumPy knows", 0},
    {D("'<f99999999999999999999'"), NULL, "NumPy knows", 0},
    {D("'|S2147483648'"), NULL, "NumPy knows", 0},
    {D("'<U536870912'"), NULL, "NumPy knows", 0},
    {D("'float32'"), NULL, "NumPy knows", 0}, /* numpy.load accepts it; nothing writes it */
    {D("None"), NULL, "descr must be a type", 0},
    {D("('<f4', (2,))"), NULL, "descr must be a type", 0}, /* numpy.load refuses it too */
    {D("__import__('os').system('true')"), NULL, "descr must be a type", 0},
    {"__import__('os').system('true')", NULL, "a dict must come here", 0},
    {S("__import__('os').system('true')"), NULL, "a tuple such as", 0},
    {"{__import__('os'): 1}", NULL, "a key must come here", 0},
    {D("[]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a', '<f4')]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a', '<f4'),]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a', '<f4', 2)]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a', '<f4', (2, 3),)]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a', '<f4', (2, 4),)]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a', '<f4', (3, 3),)]"), NULL, "has 72 bytes", 0},
    {D("[(('t', 'a'), '<f4'), ('b', '|V4')]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a', [('b', [('c', '|u1', (3,)), ('d', '<f4')], (4,))]), ('e', '<f4')]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a', [('b', [('c', '|u1', (3,)), ('d', '<f4')], (4,))]), ('e', '<f4'), ('f', '|u1')]"), NULL, "has 66 bytes",
     0},
    {D("[('a', '|O', (1000,))]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a\\'\\\\', '<f4')]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('a', [])]"), "COMPOUND [2] structured", NULL, 0},
    {D("[,]"), NULL, "a field must be a tuple", 0},
    {D("[('a', '<f4'),,]"), NULL, "a field must be a tuple", 0},
    {D("[('a', '<f4') ('b', '<f4')]"), NULL, "a comma or a ]", 0},
    {D("[('a',)]"), NULL, "descr must be a type", 0},
    {D("[('a', '<f4'"), NULL, "whole numbers", 0},
    {D("[('a', '<f4']"), NULL, "must end with )", 0},
    {D("[('a')]"), NULL, "a field must be a tuple", 0},
    {D("['a', '<f4']"), NULL, "a field must be a tuple", 0},
    {D("[('a', '<f4', (2147483647, 2))]"), NULL, "2^31-1 bytes", 0},
    {D("[('a', '|S2147483647'), ('b', '|S2147483647')]"), NULL, "2^31-1 bytes", 0},
    {D("[('a', [[[[[[[[[[[[[[[[[[["), NULL, "a field must be a tuple", 0},
    {"{}", NULL, "it has no descr", 0},
    {"{'descr': '<f4', 'shape': (2,)}", NULL, "it has no fortran_order", 0},
    {"{'descr': '<f4', 'fortran_order': False}", NULL, "it has no shape", 0},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", NULL, "each once, not \"'x'", 0},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", NULL, "each once", 0},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", NULL, "True or False", 0},
    {"{'descr': '<f4', 'fortran_order': Falsely, 'shape': (2,)}", NULL, "True or False", 0},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}", NULL, "a comma or a }", 0},
    {"{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}", NULL, "a colon", 0},
    {"{,'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", NULL, "a key must", 0},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,),,}", NULL, "a key must", 0},
    {D("'<f4'") " x", NULL, "nothing may follow", 0},
    {D("'<f4'") "{}", NULL, "nothing may follow", 0},
    {D("'<f4\n'"), NULL, "no end", 0},
    {D("'<f4"), NULL, "NumPy knows", 0}, /* the string goes up to the next quote */
    {"{'descr", NULL, "no end", 0},
    {"{'descr\\", NULL, "no end", 0},
    {"", NULL, "a dict must come here", 0},
    {"[]", NULL, "a dict must come here", 0},
    {D("[('\xe9', '<f4')]"), "COMPOUND [2] structured", NULL, 0},
    {D("[('\xe9', '<f4')]"), "COMPOUND [2] structured", NULL, 2},
    {D("[('\xe9', '<f4')]"), NULL, "not UTF-8", 3},
    {D("[('\xc3\xa9', '<f4')]"), "COMPOUND [2] structured", NULL, 3},
};

/* Returns a file of a header and DATA_BYTES of data, in a block of exactly its size. */
static char *make_file(uint8_t major, const char *text, size_t text_len, size_t *len)
{
    size_t prefix = major == 1 ? 10 : 12;
    *len = prefix + text_len + DATA_BYTES;
    char *bytes = __real_malloc(*len);
    assert_non_null(bytes);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (char)major;
    bytes[7] = 0;
    for (size_t i = 8; i < prefix; i++)
        bytes[i] = (char)(text_len >> 8 * (i - 8));
    memcpy(bytes + prefix, text, text_len);
    memset(bytes + prefix + text_len, 1, DATA_BYTES);
    return bytes;
}

static void check_case(const struct header_case *c)
{
    size_t len;
    char *bytes = make_file(c->version == 0 ? 1 : c->version, c->text, strlen(c->text), &len);
    struct parsed p;
    parse_bytes(&td_format_npy, bytes, len, &p);
    CHECK(p.ok == (c->listing != NULL), "%s: %s", c->text, p.ok ? "accepted" : p.err.message);
    if (p.ok) {
        const struct td_tensor *t = &p.manifest.tensors[0];
        struct td_buffer listing = {0};
        td_buffer_printf(&listing, "%s ", t->dtype->name);
        list_shape(&listing, t->shape, t->rank);
        const char *stored = t->reason == NULL ? td_tensor_stored(t) : t->reason;
        td_buffer_printf(&listing, " %s", stored == NULL ? "-" : stored);
        assert_non_null(td_buffer_terminate(&listing));
        CHECK(strcmp(listing.data, c->listing) == 0, "%s: got %s, wanted %s", c->text, listing.data, c->listing);
        td_buffer_fini(&listing);
        assert_int_equal(t->offset, len - DATA_BYTES);
        assert_string_equal(t->name, "");
    } else {
        check_refusal(&p, TD_INVALID_ARGUMENT, len, c->says, c->text);
    }
    parsed_fini(&p);
    __real_free(bytes);
}

/* shows: security.md content-npy-code */
static void headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_case(&cases[i]);
}

static void refuse(const void *bytes, size_t len, size_t calls, const char *says)
{
    struct parsed p;
    parse_bytes(&td_format_npy, bytes, len, &p);
    check_refusal(&p, TD_INVALID_ARGUMENT, len, says, says);
    CHECK(p.memory.calls <= calls, "%s: %zu allocations", says, p.memory.calls);
    parsed_fini(&p);
}

static void prefix_is_checked(void **state)
{
    (void)state;
    refuse("", 0, 1, "does not begin with");
    refuse("\x93NUMPX\1\0\0\0\0\0", 12, 1, "does not begin with");
    refuse("\x93NUMPY\0\0\0\0\0\0", 12, 1, "version 0.0");
    refuse("\x93NUMPY\4\0\0\0\0\0", 12, 1, "version 4.0");
    refuse("\x93NUMPY\1\1\0\0\0\0", 12, 1, "version 1.1");
    refuse("\x93NUMPY\1\0\2", 9, 1, "is not all there");
    refuse("\x93NUMPY\1\0\3\0{}", 12, 1, "header of 3 bytes is not all there");
    refuse("\x93NUMPY\2\0\xff\xff\xff\xff", 12, 1, "header of 4294967295 bytes");
    refuse("\x93NUMPY\3\0\xff\xff\xff\xff{}", 14, 1, "header of 4294967295 bytes");
}

/* The bound is numpy.load's, in characters. */
static void headers_have_10000_characters_at_most(void **state)
{
    (void)state;
    for (uint8_t version = 1; version <= 3; version++) {
        for (size_t over = 0; over < 2; over++) {
            char text[TD_NPY_HEADER_MAX_CHARS + 2];
            memset(text, ' ', sizeof text);
            memcpy(text, D("'<f4'"), strlen(D("'<f4'")));
            size_t len;
            char *bytes = make_file(version, text, TD_NPY_HEADER_MAX_CHARS + over, &len);
            struct parsed p;
            parse_bytes(&td_format_npy, bytes, len, &p);
            CHECK(p.ok == (over == 0), "version %u: %s", version, p.err.message);
            parsed_fini(&p);
            __real_free(bytes);
        }
    }
    /* three bytes a character */
    static char text[40003];
    size_t used = (size_t)snprintf(text, sizeof text, "{'descr': [('");
    while (used < 29000) {
        memcpy(text + used, "\xe6\x97\xa5", 3);
        used += 3;
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "', '<f4')], 'fortran_order': False, 'shape': (2,)}");
    size_t len;
    char *bytes = make_file(3, text, used, &len);
    struct parsed p;
    parse_bytes(&td_format_npy, bytes, len, &p);
    CHECK(p.ok, "%s", p.err.message);
    parsed_fini(&p);
    __real_free(bytes);
    memset(text, ' ', sizeof text);
    bytes = make_file(3, text, 40001, &len);
    refuse(bytes, len, 1, "40001 bytes, 10000 characters at most");
    __real_free(bytes);
}

static void ranks_and_depths_are_bounded(void **state)
{
    (void)state;
    for (size_t rank = 63; rank <= 66; rank++) {
        char text[512] = "{'descr': '<f4', 'fortran_order': True, 'shape': (";
        for (size_t i = 0; i < rank; i++)
            strcat(text, "1,");
        strcat(text, ")}");
        struct header_case c = {text, NULL, "64 dimensions at most", 0};
        char listing[256] = "F32 [1";
        for (size_t i = 1; i < rank; i++)
            strcat(listing, ",1");
        strcat(listing, "] -");
        c.listing = rank <= TD_MAX_RANK ? listing : NULL;
        check_case(&c);
    }
    for (size_t depth = 15; depth <= 18; depth++) {
        char text[1024] = "{'descr': ";
        for (size_t i = 0; i < depth; i++)
            strcat(text, "[('a',");
        strcat(text, "'<f4'");
        for (size_t i = 0; i < depth; i++)
            strcat(text, ")]");
        strcat(text, ",'fortran_order':False,'shape':(2,)}");
        check_case(&(struct header_case){text, depth <= 16 ? "COMPOUND [2] structured" : NULL, "16 deep at most", 0});
    }
}

static void every_byte_of_a_header_changed(void **state)
{
    (void)state;
    static const char text[] =
        "{'descr': [(('t', 'a'), '<f4', (2,)), ('b', '<M8[ns]')], 'fortran_order': True, 'shape': (2L, 2), }";
    static const char others[] = "'\"[](){},:0L9<>|-\\_ \n\x80";
    size_t len;
    char *bytes = make_file(1, text, sizeof text - 1, &len);
    struct sample sample = {.format = &td_format_npy, .name = text, .bytes = bytes, .len = len};
    const struct changes changes = {.end = len - DATA_BYTES, .step = 1, .by = others, .count = sizeof others};
    check_each_change(&sample, &changes);
    __real_free(bytes);
}

/* Several arrays may follow each other in a file; as numpy.load, the parser reads the first. */
static void bytes_after_the_data_are_not_looked_at(void **state)
{
    (void)state;
    check_case(&(struct header_case){S("(1,)"), "F32 [1] -", NULL, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_numpy_wrote),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(headers),
        cmocka_unit_test(prefix_is_checked),
        cmocka_unit_test(headers_have_10000_characters_at_most),
        cmocka_unit_test(ranks_and_depths_are_bounded),
        cmocka_unit_test(every_byte_of_a_header_changed),
        cmocka_unit_test(bytes_after_the_data_are_not_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
