/* Thrift's compact protocol: structs that are written by hand, by the description of the protocol. */
#include "parser/rows/thrift.h"
#include "tests/unit/unit.h"

#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

/* Reads the fields of a struct to its end, skipping the values. Returns the sum of the fields' numbers, or -1. */
static int32_t skip_struct(const uint8_t *bytes, size_t len, struct td_error *err)
{
    uint8_t *copy = malloc(len + (len == 0)); /* exactly as long */
    memcpy(copy, bytes, len);
    struct td_input input = td_input_memory(copy, len);
    struct td_thrift reader;
    struct td_thrift_field field = {0};
    int32_t sum = 0;
    td_error_init(err);
    td_thrift_init(&reader, &input, 0, len, err);
    for (;;) {
        if (!td_thrift_next(&reader, &field) || (field.type != TD_THRIFT_STOP && !td_thrift_skip(&reader, &field))) {
            sum = -1;
            break;
        }
        if (field.type == TD_THRIFT_STOP)
            break;
        sum += field.id;
    }
    if (sum != -1)
        assert_int_equal(reader.pos, len);
    free(copy);
    return sum;
}

/* A struct with a value of every type: fields 1 to 13, then field 100, and the stop. */
static const uint8_t everything[] = {
    0x11,                                                 /* 1: true */
    0x12,                                                 /* 2: false */
    0x13, 0x80,                                           /* 3: a byte */
    0x14, 0x01,                                           /* 4: i16 -1 */
    0x15, 0xac, 0x02,                                     /* 5: i32 150 */
    0x16, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* 6: i64 2^63-1, in ten bytes */
    0xff, 0x01,                                           /**/
    0x17, 1,    2,    3,    4,    5,    6,    7,    8,    /* 7: a double */
    0x18, 0x03, 'a',  'b',  'c',                          /* 8: bytes */
    0x19, 0x38, 0x01, 'x',  0x00, 0x02, 'y',  'z',        /* 9: a list of three texts */
    0x1a, 0x21, 0x01, 0x02,                               /* 10: a set of two bools, a byte each */
    0x1b, 0x02, 0x85, 0x01, 'k',  0x02, 0x01, 'l',  0x04, /* 11: a map of two texts to i32 */
    0x1c, 0x19, 0x2c, 0x15, 0x02, 0x00, 0x00, 0x1b, 0x00, /* 12: a struct of a list of two structs, and an empty map */
    0x00,                                                 /**/
    0x1d, 1,    2,    3,    4,    5,    6,    7,    8,    /* 13: a uuid */
    9,    10,   11,   12,   13,   14,   15,   16,         /**/
    0x05, 0xc8, 0x01, 0x00,                               /* 100: i32 0, its number in full */
    0x00,
};

static void every_type_is_skipped(void **state)
{
    (void)state;
    struct td_error err;
    int32_t sum = skip_struct(everything, sizeof everything, &err);
    CHECK(sum == 91 + 100, "%d %s", (int)sum, err.message);
    for (size_t len = 0; len < sizeof everything; len++) {
        CHECK(skip_struct(everything, len, &err) == -1, "%zu bytes", len);
        check_error(&err, len, true, "a prefix");
    }
    uint8_t bytes[sizeof everything];
    for (size_t at = 0; at < sizeof bytes; at++)
        for (unsigned value = 0; value < 256; value += at % 2 == 0 ? 1 : 5) {
            memcpy(bytes, everything, sizeof bytes);
            bytes[at] = (uint8_t)value;
            struct td_input input = td_input_memory(bytes, sizeof bytes);
            struct td_thrift reader;
            struct td_thrift_field field = {.type = TD_THRIFT_STRUCT};
            td_error_init(&err);
            td_thrift_init(&reader, &input, 0, sizeof bytes, &err);
            if (td_thrift_skip(&reader, &field))
                assert_true(reader.pos <= sizeof bytes);
            else
                check_error(&err, sizeof bytes, true, "another byte");
        }
}

static void values_are_read(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x14, 0x01, 0x15, 0xac, 0x02, 0x16, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                    0xff, 0xff, 0x01, 0x18, 0x03, 'a',  'b',  'c',  0x19, 0x2c, 0x00, 0x00, 0x00};
    static const int64_t numbers[] = {-1, 150, INT64_MAX};
    struct td_input input = td_input_memory(bytes, sizeof bytes);
    struct td_thrift reader;
    struct td_thrift_field field = {0};
    struct td_error err = TD_ERROR_INIT;
    int64_t number;
    uint64_t at, len;
    td_thrift_init(&reader, &input, 0, sizeof bytes, &err);
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        assert_true(td_thrift_next(&reader, &field) && field.id == (int32_t)i + 1);
        assert_true(td_thrift_int(&reader, &field, &number));
        assert_int_equal(number, numbers[i]);
    }
    assert_true(td_thrift_next(&reader, &field) && !td_thrift_int(&reader, &field, &number));
    check_says(&err, "Thrift field 4 has type 8, not an integer", "a text");
    td_error_init(&err);
    assert_true(td_thrift_binary(&reader, &field, &at, &len));
    assert_true(at == 18 && len == 3);
    assert_true(td_thrift_next(&reader, &field) && !td_thrift_binary(&reader, &field, &at, &len));
    check_says(&err, "Thrift field 5 has type 9, not bytes", "a list");
    assert_true(td_thrift_structs(&reader, &field, &len) && len == 2);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    static const struct {
        const uint8_t *bytes;
        size_t len;
        const char *says;
    } cases[] = {
        {BYTES("\x1e\x00\x00"), "Thrift field 0 has type 14"},
        {BYTES("\x15\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02\x00"), "more than 64 bits"},
        {BYTES("\x18\x7f\x00"), "cut off"},
        {BYTES("\x19\xf8\xff\xff\xff\xff\x0f\x00"), "cut off"},                     /* 2^32-1 texts */
        {BYTES("\x1b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x88\x00"), "cut off"}, /* 2^64-1 pairs */
        {BYTES("\x19\x10\x00\x00"), "has type 0"},
        {BYTES("\x05\x80\x80\x04\x00\x00"), "a Thrift field of number 32768"},
    };
    struct td_error err;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        CHECK(skip_struct(cases[i].bytes, cases[i].len, &err) == -1, "case %zu", i);
        check_says(&err, cases[i].says, "a struct");
    }
}

/* Lists in lists, as deep as they may be and one more: the depth is not that of a recursion. */
static void nesting_has_a_limit(void **state)
{
    (void)state;
    uint8_t bytes[TD_THRIFT_MAX_DEPTH + 3];
    struct td_error err;
    for (size_t depth = TD_THRIFT_MAX_DEPTH; depth <= TD_THRIFT_MAX_DEPTH + 1; depth++) {
        memset(bytes, 0x19, sizeof bytes); /* the field, then lists of one list */
        bytes[depth] = 0x13;               /* of one byte */
        bytes[depth + 1] = 0;
        struct td_input input = td_input_memory(bytes, sizeof bytes);
        struct td_thrift reader;
        struct td_thrift_field field = {0};
        td_error_init(&err);
        td_thrift_init(&reader, &input, 0, sizeof bytes, &err);
        assert_true(td_thrift_next(&reader, &field));
        bool ok = td_thrift_skip(&reader, &field);
        CHECK(ok == (depth == TD_THRIFT_MAX_DEPTH), "%zu deep: %s", depth, err.message);
    }
    check_says(&err, "nested more than 64 deep", "lists");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_skipped),
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(nesting_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
