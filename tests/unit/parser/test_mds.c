/* Shards of MDS, made by hand by the layout of MDSWriter.encode_joint_shard, and by the library. */
#include "parser/rows/mds.h"

#include "tests/unit/parser/row_fixture.h"

/* A shard that is being made. */
struct shard {
    uint8_t bytes[4096];
    size_t len;
};

static void put_u32(struct shard *s, size_t at, uint32_t value)
{
    for (size_t i = 0; i < 4; i++)
        s->bytes[at + i] = (uint8_t)(value >> 8 * i);
}

static void set_shard(struct shard *s, const char *config, const size_t *sizes, size_t count)
{
    size_t at = 8 + 4 * count + strlen(config);
    put_u32(s, 0, (uint32_t)count);
    memcpy(s->bytes + 8 + 4 * count, config, strlen(config));
    put_u32(s, 4, (uint32_t)at);
    for (size_t i = 0; i < count; i++) {
        memset(s->bytes + at, 'a' + (int)i, sizes[i]);
        at += sizes[i];
        put_u32(s, 8 + 4 * i, (uint32_t)at);
    }
    s->len = at;
}

static struct row_case shard_case(const struct shard *s)
{
    return (struct row_case){.format = &td_row_format_mds, .name = "shard.00000.mds", .bytes = s->bytes, .len = s->len};
}

static void rows_lie_between_offsets(void **state)
{
    (void)state;
    static const size_t sizes[] = {3, 0, 5, 1};
    struct shard s;
    set_shard(&s, "{}", sizes, 4);
    struct row_case c = shard_case(&s);
    struct td_row_index index = row_case_index(&c);
    assert_int_equal(index.layout, TD_ROWS_OFFSETS);
    assert_int_equal(index.row_count, 4);
    assert_int_equal(index.word_count, 0); /* nothing of the table is in memory */
    for (size_t i = 0, at = 26; i < 4; at += sizes[i++]) {
        struct td_row row = row_case_find(&c, &index, i);
        assert_true(row.offset == at && row.bytes == sizes[i]);
    }
    td_row_index_fini(&index);
    row_case_prefixes(&c);
    row_case_allocations(&c, 1);
    set_shard(&s, "", NULL, 0);
    c = shard_case(&s);
    index = row_case_index(&c);
    assert_int_equal(index.row_count, 0);
    assert_null(index.columns);
    td_row_index_fini(&index);
}

static void wrong_ends_are_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = {3, 4};
    static const struct {
        size_t at;
        uint32_t value;
        uint64_t pos;
        const char *says;
    } cases[] = {
        {0, 6, 0, "a table for 6 rows would end at byte 32, but the file has 25"},
        {0, UINT32_MAX, 0, "a table for 4294967295 rows would end at byte 17179869188"},
        {4, 15, 4, "its first row begins at byte 15, within the table, which ends at 16"},
        {4, 0, 4, "its first row begins at byte 0"},
        {12, 26, 12, "its rows are from byte 18 to 26, but the file has 25"},
        {12, 17, 12, "its rows are from byte 18 to 17"},
        {12, 24, 12, "its last row ends at byte 24, but the file has 25"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct shard s;
        set_shard(&s, "{}", sizes, 2);
        put_u32(&s, cases[i].at, cases[i].value);
        struct row_case c = shard_case(&s);
        row_case_refused(&c, cases[i].pos, cases[i].says);
    }
    struct row_case none = {.format = &td_row_format_mds, .name = "a.mds", .bytes = "\0\0\0\0\x08\0\0", .len = 7};
    row_case_refused(&none, 7, "it has 7 bytes, and the smallest has 8");
}

/* An offset between the ends spoils the rows beside it. */
static void a_wrong_offset_spoils_two_rows(void **state)
{
    (void)state;
    static const size_t sizes[] = {2, 2, 2, 2};
    struct shard s;
    set_shard(&s, "{}", sizes, 4);
    put_u32(&s, 12, 1000); /* between rows 1 and 2 */
    struct row_case c = shard_case(&s);
    struct td_row_index index = row_case_index(&c);
    for (uint64_t row = 1; row < 3; row++) {
        struct td_error err = row_case_error(&c, &index, row);
        assert_int_equal(err.code, TD_FAILED_PRECONDITION);
        check_says(&err, row == 1 ? "row 1:" : "row 2:", "wrong offset");
    }
    assert_int_equal(row_case_find(&c, &index, 0).offset, 26);
    assert_int_equal(row_case_find(&c, &index, 3).offset, 32);
    td_row_index_fini(&index);
}

/* The library never reads the configuration in a shard, so nothing in it is refused. */
static void columns_come_from_the_configuration(void **state)
{
    (void)state;
    static const struct {
        const char *config, *columns; /* NULL: not known */
    } cases[] = {
        {"{\"column_encodings\": [\"str\", \"int\"], \"column_names\": [\"a\", \"\\u00e9\\\"\"], \"version\": 2}",
         "[{\"name\":\"a\",\"type\":\"str\"},{\"name\":\"\xc3\xa9\\\"\",\"type\":\"int\"}]"},
        {"{\"column_names\": [], \"column_encodings\": []}", "[]"},
        {"{\"column_names\": [\"a\"], \"column_encodings\": []}", NULL},
        {"{\"column_names\": [\"a\"], \"column_encodings\": [\"str\", \"int\"]}", NULL},
        {"{\"column_names\": [1], \"column_encodings\": [\"str\"]}", NULL},
        {"{\"column_names\": [\"a\\u0000\"], \"column_encodings\": [\"str\"]}", NULL},
        {"{\"column_names\": {\"a\": \"b\"}, \"column_encodings\": {\"a\": \"str\"}}", NULL},
        {"{\"column_names\": [\"a\"]}", NULL},
        {"{\"column_names\": [\"a\"], \"column_encodings\": [\"str\"]", NULL}, /* cut */
        {"[\"column_names\"]", NULL},
        {"{}", NULL},
        {"\xff\xfe", NULL},
        {"", NULL},
    };
    static const size_t sizes[] = {2};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct shard s;
        set_shard(&s, cases[i].config, sizes, 1);
        struct row_case c = shard_case(&s);
        struct td_row_index index = row_case_index(&c);
        CHECK((index.columns == NULL) == (cases[i].columns == NULL), "%s: %s", cases[i].config, index.columns);
        if (index.columns != NULL)
            assert_string_equal(index.columns, cases[i].columns);
        td_row_index_fini(&index);
        row_case_allocations(&c, 0);
    }
}

static void as_the_library_reads(void **state)
{
    (void)state;
    row_fixtures_check("mds", 2, SIZE_MAX, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_lie_between_offsets),       cmocka_unit_test(wrong_ends_are_refused),
        cmocka_unit_test(a_wrong_offset_spoils_two_rows), cmocka_unit_test(columns_come_from_the_configuration),
        cmocka_unit_test(as_the_library_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
