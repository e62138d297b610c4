/* Writes rows as one JSON document, in the format of /rows of the Hugging Face Hub's dataset viewer:
 *
 *     {"features": [{"feature_idx": 0, "name": "x", "type": {...}}, ...],
 *      "rows": [{"row_idx": 7, "row": {"x": 1}, "truncated_cells": []}, ...],
 *      "num_rows_total": 1000, "num_rows_per_page": 100, "partial": false}
 *
 * Source: the viewer's OpenAPI description, RowsResponse. row_idx is the row's number in the order of the files;
 * features describes only the rows in the answer (row_features.h). A JSON row is copied unchanged, so that numbers keep
 * all digits; a row that is not an object becomes {"row": ...}. A CSV row becomes an object of strings, with null for
 * missing fields. Its names come from the header; as in pandas, a second "x" becomes "x.1", and column 3 without a name
 * becomes "Unnamed: 3". */
#ifndef TD_RANK_ROW_JSON_H
#define TD_RANK_ROW_JSON_H

#include "rank/split_files.h"
#include "storage/body.h"

enum {
    TD_ROW_JSON_PER_PAGE = 100,       /* num_rows_per_page */
    TD_ROW_JSON_MOST_BYTES = 33554432 /* most bytes of rows in one answer */
};

/* Returns whether rows of the format can be answered as JSON. */
bool td_row_json_has(const struct td_row_format *format);

/* Appends the document to the empty body. `total` is num_rows_total. Errors: TD_FAILED_PRECONDITION, with the row's
 * number, for a row that is not JSON, is not UTF-8 or has more fields than the header; TD_FAILED_PRECONDITION for rows
 * that cannot be cut out, for more than TD_ROW_JSON_MOST_BYTES and for too many columns; TD_UNAVAILABLE when a file
 * changed or the request is cancelled; TD_RESOURCE_EXHAUSTED; TD_IO; td_may_wait. */
bool td_row_json_append(const struct td_split_view *view, const struct td_row_list *list, uint64_t total,
                        struct td_body *body, struct td_error *err);

#endif
