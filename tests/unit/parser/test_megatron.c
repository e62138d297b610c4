/* Megatron-LM's tables, made by hand by the layout of _IndexWriter, and by numpy as it does. */
#include "parser/rows/megatron.h"

#include "tests/unit/parser/row_fixture.h"

/* A table that is being made. */
struct table {
    uint8_t bytes[1024];
    size_t len;
};

static const uint8_t data[4096];

static void put(struct table *t, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        t->bytes[t->len++] = (uint8_t)(value >> 8 * i);
}

static void set_table(struct table *t, uint8_t type, size_t item_bytes, const uint32_t *lengths, size_t count)
{
    uint64_t at = 0;
    memcpy(t->bytes, "MMIDIDX\0\0", 9);
    t->len = 9;
    put(t, 1, 8);
    put(t, type, 1);
    put(t, count, 8);
    put(t, 2, 8);
    for (size_t i = 0; i < count; i++)
        put(t, lengths[i], 4);
    for (size_t i = 0; i < count; at += lengths[i++] * item_bytes)
        put(t, at, 8);
    put(t, 0, 8);
    put(t, count, 8);
}

static struct row_case table_case(const struct table *t, size_t data_bytes)
{
    return (struct row_case){.format = &td_row_format_megatron,
                             .name = "a.bin",
                             .bytes = data,
                             .len = data_bytes,
                             .table = t->bytes,
                             .table_len = t->len};
}

static void every_type_has_its_size(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"uint8", 1}, {"int8", 1},    {"int16", 2},   {"int32", 4},
                 {"int64", 8}, {"float64", 8}, {"float32", 4}, {"uint16", 2}}; /* DType of indexed_dataset.py */
    static const uint32_t lengths[] = {3, 0, 7};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct table t;
        char columns[64];
        set_table(&t, (uint8_t)(i + 1), types[i].bytes, lengths, 3);
        struct row_case c = table_case(&t, 10 * types[i].bytes);
        struct td_row_index index = row_case_index(&c);
        (void)snprintf(columns, sizeof columns, "[{\"name\":\"tokens\",\"type\":\"%s\"}]", types[i].name);
        assert_string_equal(index.columns, columns);
        assert_true(index.row_count == 3 && index.layout == TD_ROWS_POINTERS && index.word_count == 0);
        struct td_row row = row_case_find(&c, &index, 2);
        assert_true(row.offset == 3 * types[i].bytes && row.bytes == 7 * types[i].bytes);
        row = row_case_find(&c, &index, 1);
        assert_true(row.offset == 3 * types[i].bytes && row.bytes == 0);
        td_row_index_fini(&index);
    }
}

enum { LENGTHS_AT = 34, POINTERS_AT = 34 + 3 * 4 };

static void wrong_tables_are_refused(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {3, 0, 7};
    static const struct {
        size_t at;
        uint8_t value;
        uint64_t pos;
        const char *says;
    } cases[] = {
        {0, 'm', 0, "does not begin with MMIDIDX"},
        {8, 1, 0, "does not begin with MMIDIDX"},
        {9, 2, 9, "version 2 is unknown"},
        {16, 1, 9, "version 72057594037927937 is unknown"},
        {17, 0, 17, "type 0 of tokens is unknown"},
        {17, 9, 17, "type 9 of tokens is unknown"},
        {18, 2, 18, "2 sequences and 2 documents do not fit its 86 bytes"},
        {18, 4, 18, "4 sequences and 2 documents do not fit"},
        {25, 255, 18, "sequences and 2 documents do not fit"},
        {33, 255, 18, "documents do not fit its 86 bytes"},
        {26, 1, 18, "3 sequences and 1 documents do not fit"},
        {POINTERS_AT, 1, POINTERS_AT, "the first sequence begins at byte 1, not 0"},
        {POINTERS_AT + 16, 7, POINTERS_AT + 16, "the last sequence ends at byte 21, but the data file has 20"},
        {POINTERS_AT + 16, 5, POINTERS_AT + 16, "the last sequence ends at byte 19"},
        {POINTERS_AT + 23, 255, POINTERS_AT + 16, "the last sequence ends at byte"},
        {LENGTHS_AT + 8, 6, POINTERS_AT + 16, "the last sequence ends at byte 18"},
        {LENGTHS_AT + 11, 128, POINTERS_AT + 16, "the last sequence ends at byte 0"}, /* a length below 0 */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct table t;
        set_table(&t, 8, 2, lengths, 3);
        t.bytes[cases[i].at] = cases[i].value;
        struct row_case c = table_case(&t, 20);
        row_case_refused(&c, cases[i].pos, cases[i].says);
    }
    struct table t;
    set_table(&t, 8, 2, lengths, 3);
    for (size_t more = 0; more < 6; more++) { /* 3 bytes more are the modes of a multimodal dataset */
        struct row_case c = table_case(&t, 20);
        if (more != 0 && more != 3)
            row_case_refused(&c, 18, "3 sequences and 2 documents do not fit");
        else
            row_case_prefixes(&c);
        put(&t, 0, 1);
    }
    struct row_case none = table_case(&t, 20);
    none.table = NULL;
    none.table_len = 0;
    row_case_refused(&none, 0, "(.idx): it has 0 bytes");
    set_table(&t, 8, 2, lengths, 0);
    none = table_case(&t, 2);
    row_case_refused(&none, 18, "the last sequence ends at byte 0, but the data file has 2");
}

/* A length or a pointer between the ends is an error of its row. */
static void a_wrong_place_spoils_one_row(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {3, 1, 7};
    static const struct {
        size_t at;
        uint8_t value;
    } cases[] = {{LENGTHS_AT + 4, 9}, {LENGTHS_AT + 7, 255}, {POINTERS_AT + 8, 21}, {POINTERS_AT + 15, 255}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct table t;
        set_table(&t, 8, 2, lengths, 3);
        t.bytes[cases[i].at] = cases[i].value;
        struct row_case c = table_case(&t, 22);
        struct td_row_index index = row_case_index(&c);
        struct td_error err = row_case_error(&c, &index, 1);
        assert_int_equal(err.code, TD_FAILED_PRECONDITION);
        check_says(&err, "row 1:", "wrong place");
        assert_int_equal(row_case_find(&c, &index, 0).bytes, 6);
        assert_int_equal(row_case_find(&c, &index, 2).offset, 8);
        td_row_index_fini(&index);
    }
}

static void as_numpy_reads(void **state)
{
    (void)state;
    row_fixtures_check("megatron", 3, SIZE_MAX, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_its_size),
        cmocka_unit_test(wrong_tables_are_refused),
        cmocka_unit_test(a_wrong_place_spoils_one_row),
        cmocka_unit_test(as_numpy_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
