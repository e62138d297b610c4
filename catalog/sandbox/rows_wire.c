#include "catalog/sandbox/rows_wire.h"

#include "core/json/json.h"

#include <stdlib.h>
#include <string.h>

void td_rows_write(const struct td_row_index *index, struct td_wire_writer *out)
{
    td_wire_put_u32(out, (uint32_t)index->layout);
    td_wire_put_u64(out, index->row_count);
    td_wire_put_numbers(out, index->params, TD_ROW_PARAMS);
    td_wire_put_string(out, index->columns);
    td_wire_put_string(out, index->reason);
    td_wire_put_u64(out, index->word_count);
    td_wire_put_numbers(out, index->words, index->word_count);
}

/* Returns a copy of the next string for free(), or NULL when NULL was written. */
static char *get_string(struct td_wire_reader *in)
{
    if (!td_wire_get_bool(in))
        return NULL;
    struct td_text text = td_wire_get_text(in);
    char *copy = in->failed ? NULL : malloc(text.len + 1);
    in->no_memory = in->no_memory || (copy == NULL && !in->failed);
    in->failed = in->failed || copy == NULL;
    if (copy != NULL) {
        memcpy(copy, text.p, text.len);
        copy[text.len] = '\0';
    }
    return copy;
}

static void get_words(struct td_wire_reader *in, struct td_row_index *out)
{
    size_t count = td_wire_get_count(in, sizeof *out->words);
    if (count == 0)
        return;
    out->words = malloc(count * sizeof *out->words);
    in->no_memory = in->failed = out->words == NULL;
    if (in->failed)
        return;
    td_wire_get(in, out->words, count * sizeof *out->words);
    out->word_count = count;
}

/* Returns whether the text is one list of JSON. */
static bool is_list(const char *text)
{
    struct td_error none = TD_ERROR_INIT;
    struct td_json json;
    td_json_init(&json, td_text_of(text), 0, &none);
    return text[0] == '[' && td_json_skip(&json) && td_json_next(&json) == TD_JSON_END;
}

bool td_rows_read(struct td_wire_reader *in, const struct td_row_format *format, uint64_t data_bytes,
                  uint64_t table_bytes, struct td_row_index *out, struct td_error *err)
{
    *out = (struct td_row_index){.format = format, .data_bytes = data_bytes, .table_bytes = table_bytes};
    uint32_t layout = td_wire_get_u32(in);
    if (!td_wire_check(in, layout < TD_ROWS_LAYOUTS))
        return td_wire_refuse(in, err);
    out->layout = (enum td_row_layout)layout;
    out->row_count = td_wire_get_u64(in);
    td_wire_get(in, out->params, sizeof out->params);
    out->columns = get_string(in);
    out->reason = get_string(in);
    get_words(in, out);
    if (td_wire_check(in,
                      in->p == in->end && (out->columns == NULL || is_list(out->columns)) && td_row_index_check(out)))
        return true;
    td_row_index_fini(out);
    return td_wire_refuse(in, err);
}
