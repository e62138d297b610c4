/* Both passes, the one that makes an index and the one that finds rows, see the text through split_line(), which cuts a
 * part of it into pieces of lines. So a line means the same to both. */
#include "parser/rows/index/line_index.h"

#include "core/array.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t byte_order_mark[] = {0xef, 0xbb, 0xbf};

static bool is_blank(uint8_t byte, uint8_t delimiter)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r' && byte != '\n' && byte != delimiter);
}

/* Returns whether the bytes hold more than blanks. */
static bool holds_text(const uint8_t *bytes, size_t len, uint8_t delimiter)
{
    for (size_t i = 0; i < len; i++)
        if (!is_blank(bytes[i], delimiter))
            return true;
    return false;
}

/* Returns the position of the byte in bytes[from, end), or end. */
static size_t find_byte(const uint8_t *bytes, size_t from, size_t end, uint8_t byte)
{
    const uint8_t *found = from < end ? memchr(bytes + from, byte, end - from) : NULL;
    return found == NULL ? end : (size_t)(found - bytes);
}

/* Returns the position of the first LF or CR in bytes[from, end), or end. Looks into windows that grow, so that a CR is
 * found in time proportional to its distance, however far the next LF is. */
static size_t find_line_end(const uint8_t *bytes, size_t from, size_t end)
{
    for (size_t window = 256; from < end; window *= 2) {
        size_t part_end = end - from < window ? end : from + window;
        size_t line_feed = find_byte(bytes, from, part_end, '\n');
        size_t found = find_byte(bytes, from, line_feed, '\r');
        if (found < part_end)
            return found;
        from = part_end;
    }
    return end;
}

/* Goes through the quotes in bytes[0, len) to the first line end outside of a quoted field, or to len, and returns its
 * position. Every byte is searched for a line end once, and for a quote once: `end` stays the next line end until a
 * quoted field passes it. */
static size_t split_quoted(const uint8_t *bytes, size_t len, uint8_t delimiter, enum td_line_place *place)
{
    size_t at = 0, end = 0;
    bool has_end = false;
    while (at < len) {
        if (*place == TD_LINE_IN_QUOTES) {
            at = find_byte(bytes, at, len, '"');
            if (at < len) {
                at++;
                *place = TD_LINE_AFTER_QUOTE;
            }
            continue;
        }
        if (*place == TD_LINE_AFTER_QUOTE && bytes[at] == '"') {
            at++;
            *place = TD_LINE_IN_QUOTES;
            continue;
        }
        if (!has_end || end < at)
            end = find_line_end(bytes, at, len);
        has_end = true;
        size_t quote = find_byte(bytes, at, end, '"');
        bool starts = quote > at ? bytes[quote - 1] == delimiter : *place == TD_LINE_FIELD_START;
        *place = starts ? TD_LINE_FIELD_START : TD_LINE_IN_FIELD;
        if (quote == end)
            return end;
        *place = starts ? TD_LINE_IN_QUOTES : TD_LINE_IN_FIELD;
        at = quote + 1;
    }
    return len;
}

/* Returns the number of bytes up to the line end, or all without a line end, and sets *ends. Takes and sets the place
 * of the next byte. The LF after a CR that ends a line of CSV is the end of an empty line, which is not a row. */
static size_t split_line(const uint8_t *bytes, size_t len, uint8_t delimiter, enum td_line_place *place, bool *ends)
{
    size_t end = delimiter == 0 ? find_byte(bytes, 0, len, '\n') : split_quoted(bytes, len, delimiter, place);
    *ends = end < len;
    if (*ends)
        *place = TD_LINE_FIELD_START;
    return end;
}

/* ---- making an index ---- */

/* Keeps the place of the row that the line will be. */
static bool keep_line(struct td_line_indexer *indexer, struct td_error *err)
{
    struct td_line_index *index = &indexer->index;
    indexer->kept_offset = indexer->line_offset;
    if (index->row_count % TD_LINE_STEP_ROWS == 0) {
        if (!TD_ARRAY_GROW(index->steps, index->step_count, index->step_capacity, err))
            return false;
        index->steps[index->step_count++] = indexer->line_offset;
        return true;
    }
    if (!TD_ARRAY_GROW(index->extras, index->extra_count, index->extra_capacity, err))
        return false;
    index->extras[index->extra_count++] =
        (struct td_line_extra){.row = index->row_count, .offset = indexer->line_offset};
    return true;
}

/* Ends a line, whose line end is at `end`: counts it when it is a row, and keeps its place when the last kept one is
 * too far behind. by_cr: the line ends with a CR, so that rows are not separated by one LF. */
static bool end_line(struct td_line_indexer *indexer, uint64_t end, bool by_cr, struct td_error *err)
{
    struct td_line_index *index = &indexer->index;
    if (indexer->has_text && indexer->wants_header) {
        indexer->header = (struct td_row){.offset = indexer->line_offset, .bytes = end - indexer->line_offset};
        indexer->header.bytes -= indexer->last == '\r' ? 1 : 0;
        indexer->wants_header = false;
        indexer->has_text = false;
        return true;
    }
    index->has_gaps = index->has_gaps || !indexer->has_text || by_cr || indexer->last == '\r';
    if (!indexer->has_text)
        return true;
    if (index->row_count % TD_LINE_STEP_ROWS == 0 ||
        indexer->line_offset - indexer->kept_offset >= TD_LINE_STEP_BYTES) {
        if (!keep_line(indexer, err))
            return false;
    }
    index->row_count++;
    indexer->has_text = false;
    return true;
}

/* Takes the bytes of a byte order mark at the start of the text. Returns their number. Bytes that only began as one are
 * text of the first line. */
static size_t skip_mark(struct td_line_indexer *indexer, const uint8_t *bytes, size_t len)
{
    size_t taken = 0;
    while (indexer->mark_bytes < sizeof byte_order_mark && taken < len) {
        if (bytes[taken] != byte_order_mark[indexer->mark_bytes]) {
            indexer->has_text = indexer->mark_bytes > 0;
            indexer->place = indexer->has_text ? TD_LINE_IN_FIELD : TD_LINE_FIELD_START;
            indexer->mark_bytes = UINT8_MAX;
            return taken;
        }
        indexer->mark_bytes++;
        taken++;
    }
    if (indexer->mark_bytes == sizeof byte_order_mark) {
        indexer->line_offset = sizeof byte_order_mark;
        indexer->mark_bytes = UINT8_MAX;
        indexer->index.has_gaps = true;
    }
    return taken;
}

bool td_line_indexer_add(struct td_line_indexer *indexer, const uint8_t *bytes, size_t len, struct td_error *err)
{
    struct td_line_index *index = &indexer->index;
    size_t at = skip_mark(indexer, bytes, len);
    while (at < len) {
        bool ends;
        size_t part = split_line(bytes + at, len - at, index->delimiter, &indexer->place, &ends);
        indexer->has_text = indexer->has_text || holds_text(bytes + at, part, index->delimiter);
        indexer->last = part > 0 ? bytes[at + part - 1] : indexer->last;
        at += part + (ends ? 1 : 0);
        if (ends) {
            if (!end_line(indexer, index->size_bytes + at - 1, bytes[at - 1] == '\r', err))
                return false;
            indexer->line_offset = index->size_bytes + at;
            indexer->last = 0;
        }
    }
    index->size_bytes += len;
    return true;
}

bool td_line_indexer_finish(struct td_line_indexer *indexer, struct td_line_index *out, struct td_error *err)
{
    if (indexer->mark_bytes > 0 && indexer->mark_bytes < sizeof byte_order_mark)
        indexer->has_text = true;                                  /* the file is the beginning of a mark */
    bool ends = indexer->line_offset == indexer->index.size_bytes; /* the last line has its end */
    if (!ends && !end_line(indexer, indexer->index.size_bytes, false, err))
        return false;
    *out = indexer->index;
    *indexer = (struct td_line_indexer){.header = indexer->header};
    return true;
}

void td_line_index_fini(struct td_line_index *index)
{
    free(index->steps);
    free(index->extras);
    *index = (struct td_line_index){0};
}

/* ---- finding rows ---- */

/* A walk over the lines of a file from a kept place on. */
struct walk {
    const struct td_input *input;
    uint64_t end;         /* of the file */
    uint64_t offset;      /* of the next byte to read */
    uint64_t line_offset; /* of the line that the walk is in */
    uint8_t delimiter;
    bool has_text;
    uint8_t last; /* byte before `offset`, for a CR before the line end */
    enum td_line_place place;
    uint8_t *buffer;
    size_t at, len; /* of the bytes in the buffer that were not looked at */
};

static bool fill_window(struct walk *walk, struct td_error *err)
{
    uint64_t left = walk->end - walk->offset;
    walk->at = 0;
    walk->len = left < TD_LINE_READ_BYTES ? (size_t)left : TD_LINE_READ_BYTES;
    return td_input_read(walk->input, walk->offset, walk->buffer, walk->len, err);
}

/* Advances to the end of the next row, and sets *row. Sets *found to false when the file has no more rows. */
static bool next_row(struct walk *walk, struct td_row *row, bool *found, struct td_error *err)
{
    *found = false;
    while (!*found && (walk->at < walk->len || walk->offset < walk->end)) {
        if (walk->at == walk->len && !fill_window(walk, err))
            return false;
        bool ends;
        const uint8_t *bytes = walk->buffer + walk->at;
        size_t part = split_line(bytes, walk->len - walk->at, walk->delimiter, &walk->place, &ends);
        walk->has_text = walk->has_text || holds_text(bytes, part, walk->delimiter);
        walk->last = part > 0 ? bytes[part - 1] : walk->last;
        walk->at += part + (ends ? 1 : 0);
        walk->offset += part + (ends ? 1 : 0);
        if (!ends && walk->offset < walk->end)
            continue;
        *found = walk->has_text;
        row->offset = walk->line_offset;
        row->bytes = walk->offset - (ends ? 1 : 0) - walk->line_offset;
        row->bytes -= ends && walk->has_text && walk->last == '\r' ? 1 : 0;
        walk->line_offset = walk->offset;
        walk->has_text = false;
        walk->last = 0;
    }
    return true;
}

/* Returns the last kept place at or before a row, which the index has. */
static struct td_line_extra kept_before(const struct td_line_index *index, uint64_t row)
{
    struct td_line_extra kept = {.row = row - row % TD_LINE_STEP_ROWS};
    kept.offset = index->steps[row / TD_LINE_STEP_ROWS];
    size_t low = 0, high = index->extra_count; /* below `low` all are at or before the row, from `high` on none is */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->extras[middle].row <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && index->extras[low - 1].row > kept.row ? index->extras[low - 1] : kept;
}

bool td_line_index_find(const struct td_line_index *index, const struct td_input *input, uint64_t first, size_t count,
                        struct td_row *rows, struct td_error *err)
{
    if (count > index->row_count || first > index->row_count - count)
        return td_error_set(err, TD_INVALID_ARGUMENT, "there are %llu rows", (unsigned long long)index->row_count);
    if (count == 0)
        return true;
    if (input->size_bytes != index->size_bytes)
        return td_error_set(err, TD_UNAVAILABLE, "the file has another size than when its rows were found; try again");
    struct td_line_extra kept = kept_before(index, first);
    uint8_t buffer[TD_LINE_READ_BYTES];
    struct walk walk = {.input = input,
                        .end = index->size_bytes,
                        .offset = kept.offset,
                        .line_offset = kept.offset,
                        .delimiter = index->delimiter,
                        .buffer = buffer};
    bool ok = true, found = true;
    for (uint64_t row = kept.row; ok && found && row < first + count; row++) {
        struct td_row passed;
        ok = next_row(&walk, row < first ? &passed : &rows[row - first], &found, err);
    }
    return ok &&
           (found || td_error_set(err, TD_UNAVAILABLE, "the file has changed since its rows were found; try again"));
}
