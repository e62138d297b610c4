/* Answers rows of an Arrow file, for tests/interop/test_arrow_rows.py to compare with what pyarrow reads.
 *
 * arrow_dump FILE: reads requests from standard input, one a line: "index" (also of other files with rows), "cut FIRST
 * COUNT LIMIT", "whole FIRST COUNT LIMIT", "gather LIMIT ROW...", LIMIT in bytes of memory. For each it writes "ok N\n"
 * and N bytes, a stream or JSON, or "error CODE MESSAGE\n". The index is written and read before it is used. */
#include "core/json/json.h"
#include "parser/rows/arrow/arrow_cut.h"
#include "parser/rows/index/row_format.h"
#include "parser/rows/row_formats.h"
#include "parser/rows/row_index_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a stream to its end. Returns NULL when memory is short. */
static char *load(FILE *file, size_t *len)
{
    struct td_buffer buffer;
    td_buffer_init(&buffer);
    while (td_buffer_reserve(&buffer, 65536)) {
        size_t now = fread(buffer.data + buffer.len, 1, 65536, file);
        if (now == 0)
            break;
        buffer.len += now;
    }
    *len = buffer.len;
    return buffer.data;
}

static void put_json(const struct td_row_index *index)
{
    struct td_buffer out;
    td_buffer_init(&out);
    td_buffer_printf(&out, "{\"format\":\"%s\",\"rows\":%" PRIu64 ",\"params\":[", index->format->name,
                     index->row_count);
    for (size_t i = 0; i < TD_ROW_PARAMS; i++)
        td_buffer_printf(&out, "%s%" PRIu64, i > 0 ? "," : "", index->params[i]);
    td_buffer_puts(&out, "],\"words\":[");
    for (size_t i = 0; i < index->word_count; i++)
        td_buffer_printf(&out, "%s%" PRIu64, i > 0 ? "," : "", index->words[i]);
    td_buffer_printf(&out, "],\"columns\":%s,\"reason\":", index->columns != NULL ? index->columns : "null");
    if (index->reason != NULL)
        td_json_write_cstring(&out, index->reason);
    else
        td_buffer_puts(&out, "null");
    td_buffer_puts(&out, "}");
    printf("ok %zu\n", out.len);
    (void)fwrite(out.data, 1, out.len, stdout);
    td_buffer_fini(&out);
}

static void put_answer(const struct td_arrow_answer *answer, const char *file)
{
    printf("ok %" PRIu64 "\n", answer->bytes);
    for (size_t i = 0; i < answer->piece_count; i++) {
        const struct td_arrow_piece *piece = &answer->pieces[i];
        (void)fwrite((piece->in_file ? file : answer->memory.data) + piece->offset, 1, (size_t)piece->bytes, stdout);
    }
}

/* Makes the index, and a copy of it by way of its bytes. */
static bool make_index(const char *path, const struct td_row_files *files, struct td_row_index *out,
                       struct td_error *err)
{
    struct td_limits limits = td_limits_default();
    struct td_row_build build = {.files = files, .name = path, .limits = &limits};
    const struct td_row_format *format = td_row_format_of(path);
    struct td_row_index index = {0};
    struct td_buffer bytes;
    if (format == NULL)
        return td_error_set(err, TD_NOT_FOUND, "no format has files of this name");
    if (!td_row_index_build(format, &build, &index, err))
        return false;
    td_buffer_init(&bytes);
    td_row_index_write(&index, &bytes);
    td_row_index_fini(&index);
    bool ok = td_row_index_read(bytes.data, bytes.len, out, err);
    td_buffer_fini(&bytes);
    return ok;
}

/* Takes a number from the text, or 0 at its end. */
static uint64_t number(char **text)
{
    return strtoull(*text, text, 10);
}

/* Gathers the rows that the text names. */
static bool gather(char *text, const struct td_row_index *index, const struct td_row_files *files,
                   struct td_arrow_answer *out, struct td_error *err)
{
    uint64_t *rows = calloc(strlen(text) + 1, sizeof *rows);
    size_t count = 0;
    while (rows != NULL && *text != '\0')
        rows[count++] = number(&text);
    bool ok = rows != NULL && td_arrow_gather(index, files, rows, count, out, err);
    free(rows);
    return ok;
}

static void answer(char *line, const struct td_row_index *index, const struct td_row_files *files)
{
    struct td_arrow_answer out;
    struct td_error err = TD_ERROR_INIT;
    uint64_t skip;
    bool ok;
    char *text = strchr(line, ' ');
    if (text == NULL) {
        put_json(index);
        return;
    }
    uint64_t first = line[0] == 'g' ? 0 : number(&text), count = line[0] == 'g' ? 0 : number(&text);
    td_arrow_answer_init(&out, (size_t)number(&text));
    if (line[0] == 'g')
        ok = gather(text, index, files, &out, &err);
    else if (line[0] == 'c')
        ok = td_arrow_cut(index, files, first, count, &out, &err);
    else
        ok = td_arrow_cut_whole(index, files, first, count, &skip, &out, &err);
    if (ok)
        put_answer(&out, files->data.context);
    else
        printf("error %d %s\n", (int)err.code, err.message);
    td_arrow_answer_fini(&out);
}

int main(int argc, char **argv)
{
    size_t len, requests_len;
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    char *bytes = file != NULL ? load(file, &len) : NULL, *requests = load(stdin, &requests_len), *rest = NULL;
    if (bytes == NULL || requests == NULL)
        return 2;
    requests[requests_len] = '\0'; /* load leaves room */
    struct td_row_files files = {.data = td_input_memory(bytes, len)};
    struct td_row_index index = {0};
    struct td_error err = TD_ERROR_INIT;
    if (make_index(argv[1], &files, &index, &err))
        for (char *line = strtok_r(requests, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
            answer(line, &index, &files);
    else
        printf("error %d %s\n", (int)err.code, err.message);
    td_row_index_fini(&index);
    free(bytes);
    free(requests);
    (void)fclose(file);
    return fflush(stdout) == 0 ? 0 : 1;
}
