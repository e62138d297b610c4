/* Tables of many rows that the server sorts and divides into pages: the parameters ?sort= and ?page=, the headings,
 * which link to other orders, and the links to other pages. templates/part_columns.html and part_pages.html are the
 * HTML of both. */
#ifndef TD_API_HTML_SORTED_TABLE_H
#define TD_API_HTML_SORTED_TABLE_H

#include "api/call/call.h"
#include "core/buffer.h"

enum { TD_TABLE_ROWS = 500 }; /* of a page */

struct td_table_column {
    const char *name, *heading; /* for ?sort= and for people; static */
    const char *class;          /* of the heading; "": none */
    bool sorts;
};

struct td_table {
    const struct td_table_column *columns; /* static; rows have the order of the first one without ?sort= */
    size_t column_count;
    size_t sort; /* the number of the column that rows are sorted by */
    bool is_descending;
    size_t page;      /* from 1 on */
    size_t row_count; /* of all pages */
};

/* Reads ?sort=, a column's name, with '-' before it for descending order, and ?page=, for a table with these columns.
 * Returns false after it answered 400. */
bool td_table_read(const struct td_call *call, const struct td_table_column *columns, size_t column_count,
                   struct td_table *out);

/* Sets the number of all rows, and makes a page past the last one the last one. */
void td_table_set_rows(struct td_table *table, size_t row_count);

/* Return the number of pages, at least 1; the number of the page's first row, from 0 on; and how many rows it has. */
size_t td_table_page_count(const struct td_table *table);
size_t td_table_first_row(const struct td_table *table);
size_t td_table_rows_here(const struct td_table *table);

/* Returns whether the rows have another order than without ?sort=. */
bool td_table_is_sorted(const struct td_table *table);

/* Appends the value of ?sort= for the table's order. */
void td_table_write_sort(const struct td_table *table, struct td_buffer *out);

/* Returns the order for aria-sort. Static. */
const char *td_table_order(const struct td_table *table);

/* Append the query of a link to the table, "sort=-bytes&page=2". The link of a column leads to the first page of the
 * table sorted by this column, in descending order if the table is sorted by it already. The link of a page keeps the
 * order. */
void td_table_write_column_link(const struct td_table *table, size_t column, struct td_buffer *out);
void td_table_write_page_link(const struct td_table *table, size_t page, struct td_buffer *out);

#endif
