/* The list of all formats whose files hold rows. */
#ifndef TD_PARSER_ROWS_ROW_FORMATS_H
#define TD_PARSER_ROWS_ROW_FORMATS_H

#include "core/text.h"
#include "parser/rows/index/row_format.h"

/* Returns the i-th format, or NULL past the last one. The order never changes anything. */
const struct td_row_format *td_row_format_at(size_t i);

/* Returns the format of this name, or NULL. */
const struct td_row_format *td_row_format_named(struct td_text name);

/* Returns the format for a file of this name, by its extension in any case, or NULL. A name with the table_extension of
 * a format has none. */
const struct td_row_format *td_row_format_of(const char *file_name);

#endif
