/* Tables that are divided into pages: which rows a page has, and the links to others. */
#include "api/html/sorted_table.h"
#include "tests/unit/unit.h"

#include <string.h>

static const struct td_table_column columns[] = {
    {"name", "Name", "", true}, {"shape", "Shape", "", false}, {"bytes", "Size", "number", true}};

static struct td_table table_of(size_t sort, bool is_descending, size_t page, size_t row_count)
{
    struct td_table table = {.columns = columns,
                             .column_count = COUNT_OF(columns),
                             .sort = sort,
                             .is_descending = is_descending,
                             .page = page};
    td_table_set_rows(&table, row_count);
    return table;
}

static void pages_divide_the_rows(void **state)
{
    static const struct {
        size_t row_count, asked, page, pages, first, rows;
    } cases[] = {
        {0, 1, 1, 1, 0, 0},
        {0, 7, 1, 1, 0, 0},
        {1, 1, 1, 1, 0, 1},
        {500, 1, 1, 1, 0, 500},
        {500, 2, 1, 1, 0, 500},
        {501, 1, 1, 2, 0, 500},
        {501, 2, 2, 2, 500, 1},
        {1234, 3, 3, 3, 1000, 234},
        {1234, 1000000000, 3, 3, 1000, 234},
        {SIZE_MAX, 1, 1, SIZE_MAX / 500 + 1, 0, 500},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct td_table table = table_of(0, false, cases[i].asked, cases[i].row_count);
        assert_int_equal(table.page, cases[i].page);
        assert_int_equal(td_table_page_count(&table), cases[i].pages);
        assert_int_equal(td_table_first_row(&table), cases[i].first);
        assert_int_equal(td_table_rows_here(&table), cases[i].rows);
    }
}

static void expect_link(const struct td_table *table,
                        void (*write)(const struct td_table *, size_t, struct td_buffer *), size_t number,
                        const char *want)
{
    struct td_buffer out;
    td_buffer_init(&out);
    write(table, number, &out);
    assert_string_equal(td_buffer_terminate(&out), want);
    td_buffer_fini(&out);
}

static void links_keep_or_turn_the_order(void **state)
{
    (void)state;
    const struct td_table plain = table_of(0, false, 1, 2000);
    const struct td_table up = table_of(2, false, 2, 2000);
    const struct td_table down = table_of(2, true, 3, 2000);
    assert_false(td_table_is_sorted(&plain));
    assert_true(td_table_is_sorted(&up) && td_table_is_sorted(&down));
    expect_link(&plain, td_table_write_column_link, 0, "sort=-name");
    expect_link(&plain, td_table_write_column_link, 2, "sort=bytes");
    expect_link(&up, td_table_write_column_link, 2, "sort=-bytes");
    expect_link(&down, td_table_write_column_link, 2, "sort=bytes");
    expect_link(&down, td_table_write_column_link, 0, "sort=name");
    expect_link(&plain, td_table_write_page_link, 2, "sort=name&page=2");
    expect_link(&up, td_table_write_page_link, 1, "sort=bytes");
    expect_link(&down, td_table_write_page_link, 4, "sort=-bytes&page=4");
    assert_string_equal(td_table_order(&up), "ascending");
    assert_string_equal(td_table_order(&down), "descending");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_divide_the_rows),
        cmocka_unit_test(links_keep_or_turn_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
