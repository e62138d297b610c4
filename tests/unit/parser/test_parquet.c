/* Footers of Parquet files by pyarrow, cut off, with other bytes, and without memory. */
#include "parser/rows/parquet.h"

#include "tests/unit/alloc_trials.h"
#include "tests/unit/parser/rows_fixture.h"

static void the_index_is_what_pyarrow_tells(void **state)
{
    (void)state;
    rows_check_fixtures(".parquet", &td_row_format_parquet, 2);
}

/* Makes the index of bytes in a block of exactly len. */
static bool index_copy(const char *bytes, size_t len, struct td_error *err)
{
    struct td_row_index index;
    char *copy = __real_malloc(len + (len == 0));
    memcpy(copy, bytes, len);
    bool ok = rows_index("a.parquet", copy, len, 1 << 20, &index, err);
    if (ok) {
        for (size_t i = 0; i < index.word_count; i += 3)
            assert_true(index.words[i] <= len && index.words[i + 1] <= len - index.words[i]);
        td_row_index_fini(&index);
    } else {
        check_error(err, len, false, "a file");
        assert_true(err->code == TD_INVALID_ARGUMENT || err->code == TD_RESOURCE_EXHAUSTED);
    }
    __real_free(copy);
    return ok;
}

/* Returns where the footer begins. */
static size_t footer_of(const char *bytes, size_t len)
{
    return len - 8 - td_load_le32((const uint8_t *)bytes + len - 8);
}

static void set_length(char *end, size_t len)
{
    for (size_t i = 0; i < 4; i++)
        end[i] = (char)(len >> (8 * i));
}

static void no_prefix_is_read(void **state)
{
    (void)state;
    size_t len;
    struct td_error err;
    char *bytes = rows_file("nested.parquet", &len), *cut = __real_malloc(len);
    for (size_t n = 0; n < len; n++)
        assert_false(index_copy(bytes, n, &err));
    size_t footer = footer_of(bytes, len);
    for (size_t n = 0; n < len - 8 - footer; n++) { /* a footer that is cut off */
        memcpy(cut, bytes, footer + n);
        set_length(cut + footer + n, n);
        memcpy(cut + footer + n + 4, "PAR1", 4);
        CHECK(!index_copy(cut, footer + n + 8, &err), "%zu bytes of the footer", n);
    }
    __real_free(cut);
    __real_free(bytes);
}

static void any_byte_may_be_another(void **state)
{
    (void)state;
    static const uint8_t values[] = {0, 1, 0x15, 0x19, 0x1c, 0x7f, 0x80, 0xff};
    static const char *const names[] = {"flat.parquet", "nested.parquet"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        size_t len, refused = 0;
        struct td_error err;
        char *bytes = rows_file(names[i], &len);
        for (size_t at = footer_of(bytes, len); at < len; at++)
            for (size_t v = 0; v < COUNT_OF(values); v++) {
                char was = bytes[at];
                bytes[at] = (char)values[v];
                refused += index_copy(bytes, len, &err) ? 0 : 1;
                bytes[at] = was;
            }
        assert_true(refused > len);
        __real_free(bytes);
    }
}

static void refuses(const char *footer, size_t footer_len, const char *says)
{
    char bytes[512] = "PAR1";
    struct td_error err;
    memcpy(bytes + 4, footer, footer_len);
    set_length(bytes + 4 + footer_len, footer_len);
    memcpy(bytes + 4 + footer_len + 4, "PAR1", 4);
    assert_false(index_copy(bytes, footer_len + 12, &err));
    check_says(&err, says, "a footer");
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
}

/* Footers in the compact protocol: 2 is the schema, 3 the number of rows, 4 the row groups. */
static void what_is_wrong_is_refused(void **state)
{
    (void)state;
#define ROOT(children) "\x48\x01r\x15" children "\x00" /* name, number of children */
#define LEAF "\x15\x02\x38\x01\x63\x00"                /* INT32, name */
    static const struct {
        const char *footer;
        size_t len;
        const char *says;
    } cases[] = {
#define FOOTER(text) (text), sizeof(text) - 1
        {FOOTER("\x36\x00\x00"), "the footer has no schema"},
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x16\x0a\x00"), "says 5 rows, its row groups have 0"},
        {FOOTER("\x29\x2c" ROOT("\x04") LEAF "\x16\x00\x00"), "elements of the schema are missing: 1"},
        {FOOTER("\x29\x3c" ROOT("\x02") LEAF LEAF "\x16\x00\x00"), "that no group has"},
        {FOOTER("\x29\x2c" ROOT("\x01") LEAF "\x16\x00\x00"), "wrong number of children"},
        {FOOTER("\x29\x2c" ROOT("\x02") "\x15\x12\x38\x01\x63\x00\x16\x00\x00"), "physical type that there is not: 9"},
        {FOOTER("\x29\x2c" ROOT("\x02") "\x15\x02\x38\x01\xff\x00\x16\x00\x00"), "not UTF-8"},
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x09\x04\x0c\x00"), "a second schema"},
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x16\x02\x19\x1c\x00\x00"), "does not say how many rows"},
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x16\x02\x19\x1c\x19\x1c\x00\x26\x02\x00\x00"),
         "metadata is missing or encrypted"},
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x16\x02\x19\x1c\x19\x1c\x18\x01x\x00\x26\x02\x00\x00"),
         "is in another file"},
        /* its metadata, which are empty, and crypto_metadata: a union that holds an empty EncryptionWithFooterKey */
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x16\x02\x19\x1c\x19\x1c\x3c\x00\x5c\x1c\x00\x00\x00\x26\x02\x00\x00"),
         "a column chunk is encrypted, of column: 0"},
        /* encrypted_column_metadata */
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x16\x02\x19\x1c\x19\x1c\x3c\x00\x68\x01x\x00\x26\x02\x00\x00"),
         "a column chunk is encrypted, of column: 0"},
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x16\x02\x19\x1c\x19\x2c\x3c\x00\x00\x3c\x00\x00\x26\x02\x00\x00"),
         "not as many column chunks as the schema before it has columns: 2"},
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x16\x02\x19\x1c\x19\x0c\x26\x02\x00\x00"),
         "not as many column chunks as the schema before it has columns: 0"},
        {FOOTER("\x29\x2c" ROOT("\x02") LEAF "\x16\x02\x19\x1c\x19\x1c\x3c\x56\x04\x00\x00\x26\x02\x00\x00"),
         "another number of rows than its columns"},
        {FOOTER("\x29\x3c" ROOT("\x04") LEAF LEAF
                "\x16\x02\x19\x1c\x19\x2c\x3c\x56\x02\x00\x00\x3c\x56\x04\x00\x00\x26\x02\x00\x00"),
         "different numbers of rows; column: 1"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        refuses(cases[i].footer, cases[i].len, cases[i].says);
    char deep[512] = "\x29\xfc\x64" /* a schema of 100 elements */, *at = deep + 3;
    for (size_t i = 0; i < 100; i++) {
        memcpy(at, "\x48\x01g\x15\x02\x00", 6);
        at += i < 80 ? 6 : 0;
    }
    refuses(deep, (size_t)(at - deep), "nested too deep");
}

/* A text about columns that would be much longer than the footer is left out: a long name of a group is in the path of
 * each of its columns. */
static void columns_do_not_multiply(void **state)
{
    (void)state;
    enum { NAME = 20000, LEAVES = 200 };
    size_t footer = 4;
    char *bytes = __real_malloc(NAME + 8 * LEAVES + 100), *at = bytes + footer;
    struct td_row_index index;
    struct td_error err;
    memcpy(bytes, "PAR1", 4);
    memcpy(at, "\x29\xfc\xca\x01\x48\x01r\x15\x02\x00\x48\xa0\x9c\x01", 14); /* 202 elements, root, a name of 20,000 */
    at += 14;
    memset(at, 'n', NAME);
    at += NAME;
    memcpy(at, "\x15\x90\x03\x00", 4); /* 200 children */
    at += 4;
    for (size_t i = 0; i < LEAVES; i++, at += 6)
        memcpy(at, "\x15\x02\x38\x01\x63\x00", 6);
    memcpy(at, "\x16\x00\x00", 3);
    at += 3;
    set_length(at, (size_t)(at - bytes) - footer);
    memcpy(at + 4, "PAR1", 4);
    bool ok = rows_index("a.parquet", bytes, (size_t)(at - bytes) + 8, 1 << 24, &index, &err);
    CHECK(ok, "%s", err.message);
    assert_null(index.columns);
    td_row_index_fini(&index);
    __real_free(bytes);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    size_t len;
    char *bytes = rows_file("nested.parquet", &len);
    struct td_row_index index;
    struct td_error err;
    struct alloc_trials trials = {.may_do_without = true};
    while (alloc_try(&trials)) {
        bool ok = rows_index("a.parquet", bytes, len, 1 << 20, &index, &err);
        alloc_tried(&trials, ok, &err);
        if (ok)
            td_row_index_fini(&index);
    }
    assert_true(trials.failed >= 5);
    for (size_t limit = 1; !rows_index("a.parquet", bytes, len, limit, &index, &err); limit += 16) {
        assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
        check_says(&err, "the index of a Parquet file would take more than", "a limit");
    }
    td_row_index_fini(&index);
    __real_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_index_is_what_pyarrow_tells), cmocka_unit_test(no_prefix_is_read),
        cmocka_unit_test(any_byte_may_be_another),         cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(columns_do_not_multiply),         cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
