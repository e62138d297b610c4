/* The interface of every format whose files hold rows of datasets. Making an index is a pure function of its inputs: no
 * paths, no descriptors, no globals, no recursion. row_formats.h lists all formats. */
#ifndef TD_PARSER_ROWS_INDEX_ROW_FORMAT_H
#define TD_PARSER_ROWS_INDEX_ROW_FORMAT_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"
#include "parser/format/limits.h"
#include "parser/rows/index/row_index.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* One index that is being made. All members are borrowed. */
struct td_row_build {
    const struct td_row_files *files;
    const char *name;               /* of the data file, without its folder */
    const struct td_limits *limits; /* max_memory_bytes bounds the index and the scratch memory together */
    _Atomic uint64_t *done_bytes;   /* of the data file, for progress; NULL: nobody asks */
    const _Atomic bool *stop;       /* true: give up soon with TD_UNAVAILABLE; NULL: never */
};

struct td_row_format {
    const char *name;              /* as datasets show it: "jsonl" */
    const char *const *extensions; /* NULL-terminated, with the dot, lower case: ".jsonl" */
    const char *table_extension;   /* of the file with the places of rows, beside a data file: ".idx"; NULL: none */
    const char *row_type;          /* media type of one row: "application/json" */
    bool is_text;                  /* rows are lines: `raw` answers join them with LF */

    /* Fills *out, which is all zero but for `format`, data_bytes and table_bytes; the caller calls td_row_index_fini
     * when it fails, too. Errors: TD_INVALID_ARGUMENT with the position when the bytes are wrong;
     * TD_RESOURCE_EXHAUSTED past the limits or when memory is short; TD_UNAVAILABLE for *stop; those of the inputs.
     * Thread-safe. */
    bool (*build)(const struct td_row_build *build, struct td_row_index *out, struct td_error *err);
};

/* Makes the index of a file. On failure nothing is left in *out. Errors: see `build`. */
bool td_row_index_build(const struct td_row_format *format, const struct td_row_build *build, struct td_row_index *out,
                        struct td_error *err);

/* For `build`: counts bytes that were looked at. Returns false with TD_UNAVAILABLE when the build should stop. */
bool td_row_build_goes_on(const struct td_row_build *build, uint64_t done_bytes, struct td_error *err);

/* ---- for `build`: the texts of an index, `columns` and `reason` ---- */

/* Appends a column to the array [{"name": ..., "type": ..., "shape": [...]}, ...], which begins as an empty buffer.
 * Bytes of the name that are not UTF-8 become \xNN. `type` is UTF-8; NULL: not known. `shape` has the sizes of one
 * row's value; NULL: none is written. A failed allocation marks the buffer. */
void td_row_columns_add(struct td_buffer *columns, struct td_text name, const char *type, const uint64_t *shape,
                        uint32_t rank);

/* Ends the array and moves it to index->columns. The buffer is empty afterwards, also on failure. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_row_columns_end(struct td_buffer *columns, struct td_row_index *index, struct td_error *err);

/* Sets index->reason to a copy of the text. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_row_index_set_reason(struct td_row_index *index, const char *reason, struct td_error *err);

#endif
