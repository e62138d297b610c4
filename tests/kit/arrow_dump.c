/* Answers rows of an Arrow file, for tests/interop/test_arrow_rows.py to compare with what pyarrow reads.
 *
 * arrow_dump FILE index: prints what the index holds, as JSON; also of other files with rows.
 * arrow_dump FILE cut FIRST COUNT LIMIT | FILE whole FIRST COUNT LIMIT: writes the stream to standard output.
 * arrow_dump FILE gather LIMIT: reads the numbers of the rows from standard input, 8 bytes each, little-endian.
 * LIMIT: bytes of memory. On failure prints the code and the message to standard error, and exits with 1. The index is
 * written and read before it is used. */
#include "core/json.h"
#include "parser/rows/arrow_cut.h"
#include "parser/rows/arrow_gather.h"
#include "parser/rows/row_format.h"

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
    td_buffer_puts(&out, "}\n");
    (void)fwrite(out.data, 1, out.len, stdout);
    td_buffer_fini(&out);
}

static void put_answer(const struct td_arrow_answer *answer, const char *file)
{
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
    struct td_row_index index;
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

static bool answer_rows(int argc, char **argv, const struct td_row_index *index, const struct td_row_files *files,
                        struct td_arrow_answer *out, struct td_error *err)
{
    uint64_t first = strtoull(argv[3], NULL, 10), count = argc > 4 ? strtoull(argv[4], NULL, 10) : 0, skip;
    size_t len;
    td_arrow_answer_init(out, (size_t)strtoull(argv[argc - 1], NULL, 10));
    if (strcmp(argv[2], "cut") == 0)
        return td_arrow_cut(index, files, first, count, out, err);
    if (strcmp(argv[2], "whole") == 0)
        return td_arrow_cut_whole(index, files, first, count, &skip, out, err);
    char *rows = load(stdin, &len);
    bool ok = rows != NULL && td_arrow_gather(index, files, (const uint64_t *)(void *)rows, len / 8, out, err);
    free(rows);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 6 || (argc == 3 && strcmp(argv[2], "index") != 0))
        return 2;
    size_t len;
    FILE *file = fopen(argv[1], "rb");
    char *bytes = file != NULL ? load(file, &len) : NULL;
    if (bytes == NULL)
        return 2;
    struct td_row_files files = {.data = td_input_memory(bytes, len)};
    struct td_row_index index = {0};
    struct td_arrow_answer answer;
    struct td_error err = TD_ERROR_INIT;
    td_arrow_answer_init(&answer, 0);
    bool ok = make_index(argv[1], &files, &index, &err);
    if (ok && argc == 3)
        put_json(&index);
    else if (ok && (ok = answer_rows(argc, argv, &index, &files, &answer, &err)))
        put_answer(&answer, bytes);
    if (!ok)
        (void)fprintf(stderr, "%d %s\n", (int)err.code, err.message);
    td_arrow_answer_fini(&answer);
    td_row_index_fini(&index);
    free(bytes);
    (void)fclose(file);
    return ok ? 0 : 1;
}
