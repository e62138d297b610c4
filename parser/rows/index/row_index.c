/* Each layout has one function that finds rows, in `layouts`, and one that checks the numbers of an index that was read
 * from a file. Lines are found by line_index.c. */
#include "parser/rows/index/row_index.h"

#include "core/checked.h"
#include "parser/rows/index/line_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void td_row_index_fini(struct td_row_index *index)
{
    free(index->words);
    free(index->columns);
    free(index->reason);
    *index = (struct td_row_index){0};
}

size_t td_row_text_bytes(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

size_t td_row_index_bytes(const struct td_row_index *index)
{
    return sizeof *index + index->word_count * sizeof *index->words + td_row_text_bytes(index->columns) +
           td_row_text_bytes(index->reason);
}

/* ---- finding rows ---- */

static bool find_lines(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, size_t count,
                       struct td_row *rows, struct td_error *err)
{
    if (count == 0) /* an index without rows has no words */
        return true;
    struct td_line_index lines = {.row_count = index->row_count,
                                  .size_bytes = index->data_bytes,
                                  .steps = index->words,
                                  .step_count = (size_t)index->params[3],
                                  .extras = (struct td_line_extra *)(index->words + index->params[3]),
                                  .extra_count = (index->word_count - (size_t)index->params[3]) / 2,
                                  .delimiter = (uint8_t)index->params[2]};
    return td_line_index_find(&lines, &files->data, first, count, rows, err);
}

static bool find_even(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, size_t count,
                      struct td_row *rows, struct td_error *err)
{
    (void)files;
    (void)err;
    for (size_t i = 0; i < count; i++)
        rows[i] =
            (struct td_row){.offset = index->params[0] + (first + i) * index->params[1], .bytes = index->params[1]};
    return true;
}

static bool wrong_entry(uint64_t row, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "row %" PRIu64 ": the file's table of offsets is wrong there: they descend or pass the end",
                        row);
}

/* Entries that are read from a table at once. */
enum { ENTRIES_AT_ONCE = 256 };

static uint64_t load_entry(const uint8_t *bytes, size_t i, size_t width)
{
    return width == 4 ? td_load_le32(bytes + 4 * i) : td_load_le64(bytes + 8 * i);
}

static bool find_offsets(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                         size_t count, struct td_row *rows, struct td_error *err)
{
    uint8_t bytes[(ENTRIES_AT_ONCE + 1) * 8];
    size_t width = (size_t)index->params[1];
    uint64_t end_of_table = index->params[0] + (index->row_count + 1) * width;
    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < ENTRIES_AT_ONCE ? count - done : ENTRIES_AT_ONCE;
        if (!td_input_read(&files->data, index->params[0] + (first + done) * width, bytes, (n + 1) * width, err))
            return false;
        for (size_t i = 0; i < n; i++) {
            uint64_t begin = load_entry(bytes, i, width), end = load_entry(bytes, i + 1, width);
            if (begin > end || begin < end_of_table || end > index->data_bytes)
                return wrong_entry(first + done + i, err);
            rows[done + i] = (struct td_row){.offset = begin, .bytes = end - begin};
        }
    }
    return true;
}

static bool find_pointers(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                          size_t count, struct td_row *rows, struct td_error *err)
{
    uint8_t lengths[ENTRIES_AT_ONCE * 4], pointers[ENTRIES_AT_ONCE * 8];
    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < ENTRIES_AT_ONCE ? count - done : ENTRIES_AT_ONCE;
        if (!td_input_read(&files->table, index->params[0] + (first + done) * 4, lengths, n * 4, err) ||
            !td_input_read(&files->table, index->params[1] + (first + done) * 8, pointers, n * 8, err))
            return false;
        for (size_t i = 0; i < n; i++) {
            uint64_t items = td_load_le32(lengths + 4 * i), offset = td_load_le64(pointers + 8 * i), bytes;
            if (items > INT32_MAX || !td_mul_u64(items, index->params[2], &bytes) || bytes > index->data_bytes ||
                offset > index->data_bytes - bytes)
                return wrong_entry(first + done + i, err);
            rows[done + i] = (struct td_row){.offset = offset, .bytes = bytes};
        }
    }
    return true;
}

static bool find_places(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                        size_t count, struct td_row *rows, struct td_error *err)
{
    (void)files;
    (void)err;
    for (size_t i = 0; i < count; i++)
        rows[i] = (struct td_row){.offset = index->words[2 * (first + i)], .bytes = index->words[2 * (first + i) + 1]};
    return true;
}

static bool find_blocks(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                        size_t count, struct td_row *rows, struct td_error *err)
{
    (void)index;
    (void)files;
    (void)first;
    (void)count;
    (void)rows;
    return td_error_set(err, TD_FAILED_PRECONDITION, "rows are in blocks, and cannot be cut out by their bytes");
}

/* ---- checking an index that was read ---- */

static bool fits_in_file(uint64_t first, uint64_t count, uint64_t each, uint64_t size)
{
    uint64_t bytes;
    return td_mul_u64(count, each, &bytes) && bytes <= size && first <= size - bytes;
}

static bool check_lines(const struct td_row_index *index)
{
    const uint64_t *words = index->words;
    uint64_t delimiter = index->params[2], steps = index->params[3];
    bool ok = steps <= index->word_count && (index->word_count - steps) % 2 == 0 &&
              steps == index->row_count / TD_LINE_STEP_ROWS + (index->row_count % TD_LINE_STEP_ROWS > 0 ? 1 : 0) &&
              index->params[0] <= 1 && index->params[1] == (steps == 0 ? 0 : words[0]) &&
              (delimiter == 0 || delimiter == ',' || delimiter == '\t');
    for (size_t i = 0; ok && i < steps; i++)
        ok = words[i] < index->data_bytes && (i == 0 || words[i] > words[i - 1]);
    for (size_t i = (size_t)steps; ok && i < index->word_count; i += 2)
        ok = words[i] < index->row_count && words[i + 1] < index->data_bytes &&
             (i == steps || (words[i] > words[i - 2] && words[i + 1] > words[i - 1]));
    return ok;
}

static bool check_even(const struct td_row_index *index)
{
    return index->word_count == 0 &&
           fits_in_file(index->params[0], index->row_count, index->params[1], index->data_bytes);
}

static bool check_offsets(const struct td_row_index *index)
{
    return index->word_count == 0 && (index->params[1] == 4 || index->params[1] == 8) &&
           index->row_count < UINT64_MAX &&
           fits_in_file(index->params[0], index->row_count + 1, index->params[1], index->data_bytes);
}

static bool check_pointers(const struct td_row_index *index)
{
    return index->word_count == 0 && fits_in_file(index->params[0], index->row_count, 4, index->table_bytes) &&
           fits_in_file(index->params[1], index->row_count, 8, index->table_bytes);
}

static bool check_places(const struct td_row_index *index)
{
    bool ok = index->word_count % 2 == 0 && index->word_count / 2 == index->row_count;
    for (size_t i = 0; ok && i < index->word_count; i += 2)
        ok = fits_in_file(index->words[i], 1, index->words[i + 1], index->data_bytes);
    return ok;
}

static bool check_blocks(const struct td_row_index *index)
{
    uint64_t each = index->params[0], rows = 0;
    bool ok = each >= 3 && each <= 64 && index->word_count % each == 0;
    for (size_t i = 0; ok && i < index->word_count; i += (size_t)each)
        ok = fits_in_file(index->words[i], 1, index->words[i + 1], index->data_bytes) &&
             td_add_u64(rows, index->words[i + 2], &rows);
    return ok && rows == index->row_count;
}

static const struct {
    bool (*find)(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, size_t count,
                 struct td_row *rows, struct td_error *err);
    bool (*check)(const struct td_row_index *index);
} layouts[TD_ROWS_LAYOUTS] = {
    [TD_ROWS_LINES] = {find_lines, check_lines},       [TD_ROWS_EVEN] = {find_even, check_even},
    [TD_ROWS_OFFSETS] = {find_offsets, check_offsets}, [TD_ROWS_POINTERS] = {find_pointers, check_pointers},
    [TD_ROWS_PLACES] = {find_places, check_places},    [TD_ROWS_BLOCKS] = {find_blocks, check_blocks},
};

bool td_row_index_find(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, size_t count,
                       struct td_row *rows, struct td_error *err)
{
    if (count > index->row_count || first > index->row_count - count)
        return td_error_set(err, TD_INVALID_ARGUMENT, "there are %" PRIu64 " rows", index->row_count);
    if (index->reason != NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s", index->reason);
    if (files->data.size_bytes != index->data_bytes || files->table.size_bytes != index->table_bytes)
        return td_error_set(err, TD_UNAVAILABLE, "the file has another size than when its rows were found; try again");
    return layouts[index->layout].find(index, files, first, count, rows, err);
}

/* ---- areas ---- */

static void area_of_line(const struct td_row_index *index, uint64_t row, struct td_row *area)
{
    uint64_t step = row / TD_LINE_STEP_ROWS;
    area->offset = index->words[step];
    area->bytes = (step + 1 < index->params[3] ? index->words[step + 1] : index->data_bytes) - area->offset;
}

bool td_row_index_area(const struct td_row_index *index, uint64_t row, struct td_row *area)
{
    const uint64_t *params = index->params;
    switch (index->layout) {
    case TD_ROWS_LINES:
        area_of_line(index, row, area);
        return true;
    case TD_ROWS_EVEN:
        *area = (struct td_row){.offset = params[0] + row * params[1], .bytes = params[1]};
        return true;
    case TD_ROWS_OFFSETS: /* the row's place is known once its entry was read */
        *area = (struct td_row){.offset = params[0] + row * params[1], .bytes = 2 * params[1]};
        return true;
    case TD_ROWS_PLACES:
        *area = (struct td_row){.offset = index->words[2 * row], .bytes = index->words[2 * row + 1]};
        return true;
    default:
        return false;
    }
}

bool td_row_index_check(const struct td_row_index *index)
{
    return layouts[index->layout].check(index);
}
