/* The first byte is the first row to cut, the second the number of rows; the next four are rows to gather; the rest is
 * a file. What is cut or gathered is itself a stream with the same columns and as many rows. Rows that are cut and then
 * gathered are those that are gathered at once, and a stream of whole batches is cut into itself. */
#include "parser/rows/arrow/arrow.h"
#include "parser/rows/arrow/arrow_cut.h"
#include "tests/fuzz/fuzz_blocks.h"

enum { GATHERED = 4, CONTROLS = 2 + GATHERED, MOST_ROWS = 255, LONGEST = 1 << 20 };

/* A stream, and the index of it. */
struct stream {
    uint8_t *bytes;
    struct td_row_files files;
    struct td_row_index index;
};

/* Joins the pieces of an answer, which are in the file and in the memory. */
static uint8_t *join(const struct td_arrow_answer *answer, const uint8_t *file, size_t size)
{
    uint8_t *bytes = malloc((size_t)answer->bytes + 1);
    uint64_t at = 0;
    FUZZ_CHECK(bytes != NULL);
    for (size_t i = 0; i < answer->piece_count; i++) {
        const struct td_arrow_piece *piece = &answer->pieces[i];
        uint64_t end = piece->in_file ? size : answer->memory.len;
        FUZZ_CHECK(piece->bytes > 0 && piece->bytes <= end && piece->offset <= end - piece->bytes);
        FUZZ_CHECK(piece->bytes <= answer->bytes - at);
        const uint8_t *from = piece->in_file ? file : (const uint8_t *)answer->memory.data;
        memcpy(bytes + at, from + piece->offset, (size_t)piece->bytes);
        at += piece->bytes;
    }
    FUZZ_CHECK(at == answer->bytes);
    return bytes;
}

/* Ends an answer. Returns whether it was made, as a stream that has been indexed and has so many rows. */
static bool take(struct td_arrow_answer *answer, bool ok, const struct td_row_index *index,
                 const struct td_row_files *files, uint64_t rows, struct stream *out)
{
    FUZZ_CHECK(td_budget_used(&answer->budget) <= FUZZ_BLOCKS_MEMORY);
    ok = ok && answer->bytes <= LONGEST;
    if (ok) {
        out->bytes = join(answer, files->data.context, (size_t)files->data.size_bytes);
        out->files = (struct td_row_files){.data = td_input_memory(out->bytes, (size_t)answer->bytes)};
        FUZZ_CHECK(fuzz_blocks_index(&td_row_format_arrow, &out->files, 16 * FUZZ_BLOCKS_MEMORY, &out->index));
        FUZZ_CHECK(out->index.row_count == rows && strcmp(out->index.columns, index->columns) == 0);
    }
    td_arrow_answer_fini(answer);
    FUZZ_CHECK(td_budget_used(&answer->budget) == 0);
    return ok;
}

static bool cut(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, uint64_t count,
                struct stream *out)
{
    struct td_arrow_answer answer;
    td_arrow_answer_init(&answer, FUZZ_BLOCKS_MEMORY);
    bool ok = td_arrow_cut(index, files, first, count, &answer, NULL);
    return take(&answer, ok, index, files, count, out);
}

static bool gather(const struct td_row_index *index, const struct td_row_files *files, const uint64_t *rows,
                   size_t count, struct stream *out)
{
    struct td_arrow_answer answer;
    td_arrow_answer_init(&answer, FUZZ_BLOCKS_MEMORY);
    bool ok = td_arrow_gather(index, files, rows, count, &answer, NULL);
    return take(&answer, ok, index, files, count, out);
}

static void end(struct stream *stream)
{
    td_row_index_fini(&stream->index);
    free(stream->bytes);
}

static void check_equal(const struct stream *a, const struct stream *b)
{
    FUZZ_CHECK(a->files.data.size_bytes == b->files.data.size_bytes);
    FUZZ_CHECK(memcmp(a->bytes, b->bytes, (size_t)a->files.data.size_bytes) == 0);
}

/* Cuts rows; the rows of the answer, gathered, are those of the file. */
static void check_cut(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                      uint64_t count)
{
    struct stream part, whole, one, other;
    uint64_t rows[MOST_ROWS];
    if (!cut(index, files, first, count, &part))
        return;
    if (cut(&part.index, &part.files, 0, count, &whole)) {
        if (count > 0)
            check_equal(&part, &whole);
        end(&whole);
    }
    for (uint64_t i = 0; i < count; i++)
        rows[i] = first + i;
    if (index->params[TD_ARROW_PARAM_DICTIONARIES] == 0 && gather(index, files, rows, (size_t)count, &one)) {
        for (uint64_t i = 0; i < count; i++)
            rows[i] = i;
        if (gather(&part.index, &part.files, rows, (size_t)count, &other)) {
            check_equal(&one, &other);
            end(&other);
        }
        end(&one);
    }
    end(&part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < CONTROLS)
        return 0;
    struct td_row_files files = {.data = td_input_memory(data + CONTROLS, size - CONTROLS)};
    struct td_row_index index;
    if (!fuzz_blocks_index(&td_row_format_arrow, &files, FUZZ_BLOCKS_MEMORY, &index))
        return 0;
    uint64_t rows = index.row_count, first = data[0] % (rows + 1);
    uint64_t most = rows - first < MOST_ROWS ? rows - first : MOST_ROWS;
    check_cut(&index, &files, first, data[1] % (most + 1));
    uint64_t gathered[GATHERED];
    struct stream stream;
    for (size_t i = 0; rows > 0 && i < GATHERED; i++)
        gathered[i] = data[2 + i] % rows;
    if (gather(&index, &files, gathered, rows > 0 ? GATHERED : 0, &stream))
        end(&stream);
    td_row_index_fini(&index);
    return 0;
}
