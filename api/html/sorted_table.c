#include "api/html/sorted_table.h"

enum { MOST_COLUMNS = 16, MOST_PAGES = 1000000000 };

static bool read_sort(const struct td_call *call, struct td_table *table)
{
    const char *names[MOST_COLUMNS + 1] = {NULL};
    const struct td_text *value = td_uri_parameter(call->uri, "sort");
    size_t count = 0;
    if (value == NULL)
        return true;
    struct td_text name = *value;
    table->is_descending = td_text_take_char(&name, '-');
    for (size_t i = 0; i < table->column_count && count < MOST_COLUMNS; i++) {
        if (!table->columns[i].sorts)
            continue;
        table->sort = i;
        if (td_text_equals(name, table->columns[i].name))
            return true;
        names[count++] = table->columns[i].name;
    }
    td_call_fail_known(call, 400, names,
                       "no order \"%.*s\": sort takes a column, with - before it for descending order",
                       TD_SHOW(*value, 40));
    return false;
}

bool td_table_read(const struct td_call *call, const struct td_table_column *columns, size_t column_count,
                   struct td_table *out)
{
    uint64_t page = 1;
    *out = (struct td_table){.columns = columns, .column_count = column_count};
    if (!read_sort(call, out) || !td_call_read_number(call, "page", MOST_PAGES, &page))
        return false;
    if (page == 0)
        td_response_fail(call->response, 400, NULL, "page is 0; the first page is 1");
    out->page = (size_t)page;
    return page > 0;
}

void td_table_set_rows(struct td_table *table, size_t row_count)
{
    table->row_count = row_count;
    if (table->page > td_table_page_count(table))
        table->page = td_table_page_count(table);
}

size_t td_table_page_count(const struct td_table *table)
{
    return table->row_count == 0 ? 1 : (table->row_count - 1) / TD_TABLE_ROWS + 1;
}

size_t td_table_first_row(const struct td_table *table)
{
    return (table->page - 1) * TD_TABLE_ROWS;
}

size_t td_table_rows_here(const struct td_table *table)
{
    const size_t left = table->row_count - td_table_first_row(table);
    return left < TD_TABLE_ROWS ? left : TD_TABLE_ROWS;
}

bool td_table_is_sorted(const struct td_table *table)
{
    return table->sort > 0 || table->is_descending;
}

static void write_order(const struct td_table *table, size_t column, bool is_descending, struct td_buffer *out)
{
    td_buffer_puts(out, is_descending ? "-" : "");
    td_buffer_puts(out, table->columns[column].name);
}

void td_table_write_sort(const struct td_table *table, struct td_buffer *out)
{
    write_order(table, table->sort, table->is_descending, out);
}

const char *td_table_order(const struct td_table *table)
{
    return table->is_descending ? "descending" : "ascending";
}

void td_table_write_column_link(const struct td_table *table, size_t column, struct td_buffer *out)
{
    td_buffer_puts(out, "sort=");
    write_order(table, column, table->sort == column && !table->is_descending, out);
}

void td_table_write_page_link(const struct td_table *table, size_t page, struct td_buffer *out)
{
    td_buffer_puts(out, "sort=");
    td_table_write_sort(table, out);
    if (page > 1)
        td_buffer_printf(out, "&page=%zu", page);
}
