#include "parser/rows/text_rows.h"

#include <stdlib.h>
#include <string.h>

/* The kernel copies a third faster into a buffer that begins with a page. */
enum { READ_BYTES = 1024 * 1024, PAGE_BYTES = 4096 };

static uint64_t memory_bytes(const struct td_line_index *index)
{
    return index->step_capacity * sizeof *index->steps + index->extra_capacity * sizeof *index->extras;
}

static bool read_all(struct td_line_indexer *indexer, const struct td_row_build *build, uint8_t *buffer,
                     struct td_error *err)
{
    const struct td_input *data = &build->files->data;
    for (uint64_t at = 0, part; at < data->size_bytes; at += part) {
        part = data->size_bytes - at < READ_BYTES ? data->size_bytes - at : READ_BYTES;
        if (!td_row_build_goes_on(build, at, err) || !td_input_read(data, at, buffer, (size_t)part, err) ||
            !td_line_indexer_add(indexer, buffer, (size_t)part, err))
            return false;
        size_t most = build->limits->max_memory_bytes;
        if (most > 0 && memory_bytes(&indexer->index) > most)
            return td_error_set(err, TD_RESOURCE_EXHAUSTED, "its index would take more than %zu bytes of memory", most);
    }
    return true;
}

/* Moves the places to the words of *out. */
static bool set_words(struct td_line_index *index, struct td_row_index *out, struct td_error *err)
{
    size_t extra_words = 2 * index->extra_count, count = index->step_count + extra_words;
    out->layout = TD_ROWS_LINES;
    out->params[2] = index->delimiter;
    if (index->step_count == 0) {
        out->params[0] = index->has_gaps ? 0 : 1;
        return true;
    }
    uint64_t *words = realloc(index->steps, count * sizeof *words);
    if (words == NULL)
        return td_error_no_memory(err);
    index->steps = NULL; /* moved */
    if (extra_words > 0)
        memcpy(words + index->step_count, index->extras, extra_words * sizeof *words);
    out->row_count = index->row_count;
    out->params[0] = index->has_gaps ? 0 : 1;
    out->params[1] = words[0];
    out->params[3] = index->step_count;
    out->words = words;
    out->word_count = count;
    return true;
}

bool td_text_rows_build(struct td_line_indexer *indexer, const struct td_row_build *build, struct td_row_index *out,
                        struct td_error *err)
{
    struct td_line_index index;
    uint8_t *buffer = aligned_alloc(PAGE_BYTES, READ_BYTES);
    if (buffer == NULL)
        return td_error_no_memory(err); /* the indexer has made nothing */
    bool ok = read_all(indexer, build, buffer, err) && td_line_indexer_finish(indexer, &index, err);
    free(buffer);
    if (!ok) {
        td_line_index_fini(&indexer->index);
        return false;
    }
    bool made = set_words(&index, out, err);
    td_line_index_fini(&index);
    return made;
}
