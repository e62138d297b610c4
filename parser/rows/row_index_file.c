#include "parser/rows/row_index_file.h"

#include "core/checked.h"
#include "parser/rows/row_formats.h"

#include <stdlib.h>
#include <string.h>

/* Raise the last digit when the meaning of any number changes. */
static const char magic[8] = "tdrows2";

struct head {
    char magic[8];
    char format[16];
    uint64_t layout, row_count, data_bytes, table_bytes;
    uint64_t params[TD_ROW_PARAMS];
    uint64_t word_count, columns_bytes, reason_bytes;
};

void td_row_index_write(const struct td_row_index *index, struct td_buffer *out)
{
    struct head head = {.layout = index->layout,
                        .row_count = index->row_count,
                        .data_bytes = index->data_bytes,
                        .table_bytes = index->table_bytes,
                        .word_count = index->word_count,
                        .columns_bytes = td_row_text_bytes(index->columns),
                        .reason_bytes = td_row_text_bytes(index->reason)};
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.format, index->format->name, strlen(index->format->name)); /* row_formats.c keeps names short */
    memcpy(head.params, index->params, sizeof head.params);
    td_buffer_append(out, &head, sizeof head);
    if (index->word_count > 0)
        td_buffer_append(out, index->words, index->word_count * sizeof *index->words);
    if (index->columns != NULL)
        td_buffer_append(out, index->columns, (size_t)head.columns_bytes);
    if (index->reason != NULL)
        td_buffer_append(out, index->reason, (size_t)head.reason_bytes);
}

/* Copies a text of `len` bytes with its NUL. Returns false when memory is short. Sets *ok to false when the bytes are
 * not such a text. */
static bool take_text(const uint8_t *bytes, size_t len, char **out, bool *ok)
{
    if (len == 0)
        return true;
    *ok = *ok && memchr(bytes, '\0', len) == bytes + len - 1;
    *out = *ok ? malloc(len) : NULL;
    if (*out != NULL)
        memcpy(*out, bytes, len);
    return *out != NULL || !*ok;
}

bool td_row_index_read(const void *bytes, size_t len, struct td_row_index *out, struct td_error *err)
{
    struct head head;
    const uint8_t *rest = (const uint8_t *)bytes + sizeof head;
    uint64_t words_bytes = 0, texts_bytes = 0;
    bool ok = len >= sizeof head;
    *out = (struct td_row_index){0};
    if (ok) {
        memcpy(&head, bytes, sizeof head);
        ok = memcmp(head.magic, magic, sizeof magic) == 0 && head.format[sizeof head.format - 1] == '\0' &&
             head.layout < TD_ROWS_LAYOUTS && td_mul_u64(head.word_count, sizeof *out->words, &words_bytes) &&
             td_add_u64(head.columns_bytes, head.reason_bytes, &texts_bytes) && head.columns_bytes <= len &&
             head.reason_bytes <= len && words_bytes <= len - sizeof head &&
             texts_bytes == len - sizeof head - words_bytes;
    }
    out->format = ok ? td_row_format_named(td_text_of(head.format)) : NULL;
    if (out->format == NULL)
        return td_error_set(err, TD_INVALID_ARGUMENT, "not an index of rows that this version reads");
    out->layout = (enum td_row_layout)head.layout;
    out->row_count = head.row_count;
    out->data_bytes = head.data_bytes;
    out->table_bytes = head.table_bytes;
    memcpy(out->params, head.params, sizeof out->params);
    out->word_count = (size_t)head.word_count;
    out->words = words_bytes == 0 ? NULL : malloc((size_t)words_bytes);
    bool has_memory = words_bytes == 0 || out->words != NULL;
    if (has_memory && words_bytes > 0)
        memcpy(out->words, rest, (size_t)words_bytes);
    rest += words_bytes;
    has_memory = has_memory && take_text(rest, (size_t)head.columns_bytes, &out->columns, &ok) &&
                 take_text(rest + head.columns_bytes, (size_t)head.reason_bytes, &out->reason, &ok);
    if (has_memory && ok && td_row_index_check(out))
        return true;
    td_row_index_fini(out);
    return has_memory ? td_error_set(err, TD_INVALID_ARGUMENT, "a damaged index of rows") : td_error_no_memory(err);
}
