#include "catalog/model/file_rows.h"

#include <stdlib.h>

struct td_file_rows *td_file_rows_get(struct td_file_rows **list, const struct td_row_format *format,
                                      uint64_t table_number)
{
    for (struct td_file_rows *rows = *list; rows != NULL; rows = rows->next)
        if (rows->format == format && rows->table_number == table_number)
            return rows;
    struct td_file_rows *rows = calloc(1, sizeof *rows);
    if (rows == NULL)
        return NULL;
    rows->next = *list;
    rows->format = format;
    rows->table_number = table_number;
    *list = rows;
    return rows;
}

void td_file_rows_free(struct td_file_rows *rows)
{
    while (rows != NULL) {
        struct td_file_rows *next = rows->next;
        td_row_index_fini(&rows->index);
        td_budget_give(rows->memory, rows->memory_bytes);
        free(rows->error);
        free(rows);
        rows = next;
    }
}
