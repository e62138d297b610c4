#include "parser/rows/offset_table.h"

#include <inttypes.h>

enum { COUNT_BYTES = 4, OFFSET_BYTES = 4 };

bool td_offset_table_read(const struct td_input *data, const char *what, struct td_offset_table *table,
                          struct td_row_index *out, struct td_error *err)
{
    uint8_t bytes[OFFSET_BYTES];
    uint64_t size = data->size_bytes;
    if (size < COUNT_BYTES + OFFSET_BYTES)
        return td_error_at(err, TD_INVALID_ARGUMENT, size, "no %s: it has %" PRIu64 " bytes, and the smallest has %d",
                           what, size, COUNT_BYTES + OFFSET_BYTES);
    if (!td_input_read(data, 0, bytes, sizeof bytes, err))
        return false;
    table->row_count = td_load_le32(bytes);
    table->end = COUNT_BYTES + ((uint64_t)table->row_count + 1) * OFFSET_BYTES;
    if (table->end > size)
        return td_error_at(err, TD_INVALID_ARGUMENT, 0,
                           "no %s: a table for %" PRIu32 " rows would end at byte %" PRIu64
                           ", but the file has %" PRIu64,
                           what, table->row_count, table->end, size);
    if (!td_input_read(data, COUNT_BYTES, bytes, sizeof bytes, err))
        return false;
    table->first = td_load_le32(bytes);
    if (!td_input_read(data, table->end - OFFSET_BYTES, bytes, sizeof bytes, err))
        return false;
    table->last = td_load_le32(bytes);
    if (table->first < table->end)
        return td_error_at(err, TD_INVALID_ARGUMENT, COUNT_BYTES,
                           "%s: its first row begins at byte %" PRIu64 ", within the table, which ends at %" PRIu64,
                           what, table->first, table->end);
    if (table->last < table->first || table->last > size)
        return td_error_at(err, TD_INVALID_ARGUMENT, table->end - OFFSET_BYTES,
                           "%s: its rows are from byte %" PRIu64 " to %" PRIu64 ", but the file has %" PRIu64, what,
                           table->first, table->last, size);
    out->layout = TD_ROWS_OFFSETS;
    out->row_count = table->row_count;
    out->params[0] = COUNT_BYTES;
    out->params[1] = OFFSET_BYTES;
    return true;
}
