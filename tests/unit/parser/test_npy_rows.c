/* Rows of NumPy files. The header's own rules are tested in test_npy.c. */
#include "parser/rows/npy_rows.h"

#include "tests/unit/parser/row_fixture.h"

/* Writes a .npy file of version 1.0 with this dict and `data` bytes. */
static size_t make_npy(uint8_t *file, const char *dict, size_t data)
{
    size_t len = strlen(dict);
    memcpy(file, "\x93NUMPY\x01\0", 8);
    file[8] = (uint8_t)len;
    file[9] = (uint8_t)(len >> 8);
    memcpy(file + 10, dict, len);
    memset(file + 10 + len, 'x', data);
    return 10 + len + data;
}

#define DICT(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

static void what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *dict;
        size_t data;
        uint64_t pos;
        const char *says;
    } cases[] = {
        {DICT("<f4", "False", "()"), 4, 0, "without dimensions: it has no rows"},
        {DICT("|O", "False", "(3,)"), 40, 0, "objects: its rows are in a pickle"},
        {DICT("<f4", "False", "(3,)"), 11, 10, "npy array has 12 bytes"},
        {DICT("<f5", "False", "(3,)"), 40, 20, "a type that NumPy knows"},
    };
    uint8_t file[256];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct row_case c = {.format = &td_row_format_npy, .name = "a.npy", .bytes = file};
        c.len = make_npy(file, cases[i].dict, cases[i].data);
        row_case_refused(&c, cases[i].pos, cases[i].says);
    }
}

/* Sizes of 0 take no bytes, however many rows there are; bytes after the array are no rows. */
static void odd_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *dict;
        size_t data;
        uint64_t rows, bytes;
        const char *columns;
    } cases[] = {
        {DICT("<f4", "False", "(2, 3)"), 30, 2, 12, "[{\"name\":\"array\",\"type\":\"<f4\",\"shape\":[3]}]"},
        {DICT(">c16", "False", "(1, 1)"), 16, 1, 16, "[{\"name\":\"array\",\"type\":\">c16\",\"shape\":[1]}]"},
        {DICT("<f4", "False", "(9223372036854775807, 0)"), 0, INT64_MAX, 0,
         "[{\"name\":\"array\",\"type\":\"<f4\",\"shape\":[0]}]"},
        {DICT("<i8", "False", "(0, 9223372036854775807, 9223372036854775807)"), 0, 0, 0,
         "[{\"name\":\"array\",\"type\":\"<i8\",\"shape\":[9223372036854775807,9223372036854775807]}]"},
        {DICT("<i8", "True", "(4,)"), 32, 4, 8, "[{\"name\":\"array\",\"type\":\"<i8\",\"shape\":[]}]"},
        {DICT("<m8[ns]", "False", "(4,)"), 32, 4, 8, "[{\"name\":\"array\",\"type\":\"TIMEDELTA64\",\"shape\":[]}]"},
    };
    uint8_t file[256];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct row_case c = {.format = &td_row_format_npy, .name = "a.npy", .bytes = file};
        c.len = make_npy(file, cases[i].dict, cases[i].data);
        struct td_row_index index = row_case_index(&c);
        assert_int_equal(index.row_count, cases[i].rows);
        assert_string_equal(index.columns, cases[i].columns);
        assert_null(index.reason);
        if (index.row_count > 0) {
            struct td_row row = row_case_find(&c, &index, index.row_count - 1);
            assert_int_equal(row.bytes, cases[i].bytes);
            assert_int_equal(row.offset, c.len - cases[i].data + (cases[i].rows - 1) * cases[i].bytes);
        }
        td_row_index_fini(&index);
    }
}

static void what_cannot_be_cut_has_a_reason(void **state)
{
    (void)state;
    static const char *const dicts[] = {DICT("<f4", "True", "(2, 3)"), DICT("|S3", "False", "(2,)"),
                                        DICT("|V2", "False", "(2,)")};
    static const char *const says[] = {"its array is in Fortran order", "strings", "opaque"};
    uint8_t file[256];
    for (size_t i = 0; i < COUNT_OF(dicts); i++) {
        struct row_case c = {.format = &td_row_format_npy, .name = "a.npy", .bytes = file};
        c.len = make_npy(file, dicts[i], 24);
        struct td_row_index index = row_case_index(&c);
        assert_int_equal(index.row_count, 2);
        struct td_error err = row_case_error(&c, &index, 1);
        assert_int_equal(err.code, TD_FAILED_PRECONDITION);
        check_says(&err, says[i], dicts[i]);
        td_row_index_fini(&index);
    }
}

static void as_numpy_reads(void **state)
{
    (void)state;
    row_fixtures_check("npy", 14, SIZE_MAX, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(what_cannot_be_cut_has_a_reason),
        cmocka_unit_test(as_numpy_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
