/* Plan: the list of rows becomes runs, each of one file: consecutive rows, or numbers that follow one another in the
 * list. Each run is an answer of parser/rows/arrow; the first one has the schema, the last one the end, so that
 * together they are one stream. The pieces of an answer in memory become one heap blob, those in the file extents. */
#include "rank/arrow_rows.h"

#include "core/waiting.h"
#include "parser/rows/arrow/arrow.h"
#include "parser/rows/arrow/arrow_cut.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct making {
    const struct td_split_view *view;
    struct td_split_files files;
    struct td_body *body;
    const struct td_opened_file *first; /* the file that gave the stream its schema */
    const struct td_row_index *first_index;
    size_t run_count;
    uint64_t skip;
    struct td_error *err;
};

/* Rows of one file. */
struct run {
    const struct td_row_index *index;
    const struct td_opened_file *file;
    uint64_t first, count;   /* consecutive rows, with numbers NULL */
    const uint64_t *numbers; /* in the file; borrowed */
    bool is_last;
};

/* ---- one schema ---- */

enum { SCHEMA_MOST = 16777216 };

/* Sets the error for files of different schemas, and returns false. */
static bool fail_schema(struct making *m)
{
    return td_error_set(m->err, TD_FAILED_PRECONDITION,
                        "the files of split \"%.100s\" have different schemas: ask for rows of one file at a time",
                        m->view->split->name);
}

/* Returns whether the schema messages of two files are the same bytes; else sets the error. */
static bool have_same_schema(struct making *m, const struct run *run)
{
    const uint64_t *mine = run->index->params, *first = m->first_index->params;
    uint64_t bytes = mine[TD_ARROW_PARAM_SCHEMA_BYTES];
    if (bytes != first[TD_ARROW_PARAM_SCHEMA_BYTES] || bytes > SCHEMA_MOST)
        return fail_schema(m);
    char *both = malloc(2 * (size_t)bytes + 1);
    if (both == NULL)
        return td_error_no_memory(m->err);
    bool ok = td_blob_read(run->file->data, mine[TD_ARROW_PARAM_SCHEMA], both, (size_t)bytes, m->err) &&
              td_blob_read(m->first->data, first[TD_ARROW_PARAM_SCHEMA], both + bytes, (size_t)bytes, m->err);
    if (ok && memcmp(both, both + bytes, (size_t)bytes) != 0)
        ok = fail_schema(m);
    free(both);
    return ok;
}

/* ---- one run ---- */

/* Appends the pieces of an answer to the body; the memory of the answer is copied once. */
static bool append_pieces(struct making *m, const struct run *run, const struct td_arrow_answer *answer)
{
    size_t len = answer->memory.len;
    struct td_blob *blob = NULL;
    if (!td_budget_take(m->view->budget, len))
        return td_budget_refuse(m->view->budget, len, m->err);
    char *copy = malloc(len + 1);
    if (copy == NULL) {
        td_budget_give(m->view->budget, len);
        return td_error_no_memory(m->err);
    }
    if (len > 0)
        memcpy(copy, answer->memory.data, len);
    bool ok = td_blob_from_budget(copy, len, m->view->budget, &blob, m->err);
    for (size_t i = 0; i < answer->piece_count && ok; i++) {
        const struct td_arrow_piece *piece = &answer->pieces[i];
        ok = td_body_append(m->body, piece->in_file ? run->file->data : blob, piece->offset, piece->bytes, m->err);
    }
    td_blob_unref(blob);
    return ok;
}

/* For the budget of an answer: records that it does not suffice, and makes no room. */
static bool note_full(void *is_full)
{
    *(bool *)is_full = true;
    return false;
}

/* Sets *is_full when the answer would take more memory than the limit, and so for every try. */
static bool make_run(struct making *m, const struct run *run, size_t limit_bytes, bool *is_full, struct td_error *err)
{
    struct td_arrow_answer answer;
    struct td_split_reader reader = {.blob = run->file->data, .cancel = m->view->cancel};
    const struct td_row_files files = {.data = td_split_input(&reader)};
    bool can_cut = run->index->params[TD_ARROW_PARAM_CUT] == TD_ARROW_NO_OBSTACLE, ok;
    td_arrow_answer_init(&answer, limit_bytes);
    answer.budget.make_room = note_full;
    answer.budget.context = is_full;
    answer.without_schema = m->run_count > 0;
    answer.without_end = !run->is_last;
    if (run->numbers != NULL)
        ok = td_arrow_gather(run->index, &files, run->numbers, (size_t)run->count, &answer, err);
    else if (can_cut)
        ok = td_arrow_cut(run->index, &files, run->first, run->count, &answer, err);
    else
        ok = td_arrow_cut_whole(run->index, &files, run->first, run->count,
                                m->run_count == 0 ? &m->skip : &(uint64_t){0}, &answer, err);
    ok = ok && append_pieces(m, run, &answer);
    td_arrow_answer_fini(&answer);
    return ok;
}

/* Returns the memory that a run takes as a rule: four times the average of its rows. */
static size_t likely_bytes(const struct run *run)
{
    uint64_t rows = run->index->row_count > 0 ? run->index->row_count : 1;
    uint64_t each = run->index->data_bytes / rows + 64;
    uint64_t bytes = run->numbers == NULL                          ? 0
                     : each < TD_ARROW_ROWS_BYTES / 4 / run->count ? 4 * each * run->count
                                                                   : TD_ARROW_ROWS_BYTES;
    bytes += 1048576;
    return bytes < TD_ARROW_ROWS_BYTES ? (size_t)bytes : TD_ARROW_ROWS_BYTES;
}

/* Passes the error on. Wrong bytes of the file are no fault of the request, and too many rows will always be. */
static bool fail_run(struct making *m, const struct run *run, bool is_full, const struct td_error *why)
{
    const struct td_entry *entry = m->view->split->files[run->file->number - 1].entry;
    if (is_full)
        return td_error_set(m->err, TD_FAILED_PRECONDITION, "%s; ask for fewer rows at a time, or for consecutive ones",
                            why->message);
    if (why->code != TD_INVALID_ARGUMENT)
        return td_error_copy(m->err, why);
    return td_error_set(m->err, TD_FAILED_PRECONDITION, "\"%.160s\": %s", entry->path, why->message);
}

/* Adds the run to the stream: first with a share of the budget that is likely to suffice, then with the largest. */
static bool add_run(struct making *m, const struct run *run)
{
    size_t limits[] = {likely_bytes(run), TD_ARROW_ROWS_BYTES};
    if (m->run_count > 0 && !have_same_schema(m, run))
        return false;
    if (m->run_count > 0 && run->numbers != NULL && run->index->params[TD_ARROW_PARAM_DICTIONARIES] > 0)
        return td_error_set(m->err, TD_FAILED_PRECONDITION,
                            "these rows are in several files, each with dictionaries of its own: ask for rows of one "
                            "file at a time, or for consecutive ones");
    if (m->run_count == 0) {
        m->first = run->file;
        m->first_index = run->index;
    }
    bool ok = false;
    for (size_t i = 0; i < 2 && !ok; i++) {
        struct td_error why = TD_ERROR_INIT;
        bool is_full = false;
        if (!td_budget_take(m->view->budget, limits[i]))
            return td_budget_refuse(m->view->budget, limits[i], m->err);
        ok = make_run(m, run, limits[i], &is_full, &why);
        td_budget_give(m->view->budget, limits[i]);
        if (!ok && (!is_full || i == 1 || limits[0] == limits[1] || m->err->code != TD_OK))
            return fail_run(m, run, is_full, &why);
    }
    m->run_count++;
    return true;
}

/* ---- all runs ---- */

/* Finds the file of a row and its number in it, and opens the file. */
static bool locate_row(struct making *m, uint64_t row, struct run *run, uint64_t *within, uint64_t *left)
{
    const struct td_split_view *view = m->view;
    size_t number = td_split_locate(view->split, view->rows, row, within);
    *left = view->rows->ends[number] - row;
    run->index = &view->split->files[number].rows->index;
    run->file = td_split_files_open(&m->files, number, m->err);
    return run->file != NULL;
}

static bool add_consecutive(struct making *m, const struct td_row_list *list)
{
    for (uint64_t done = 0; done < list->count;) {
        struct run run = {0};
        uint64_t left;
        if (!locate_row(m, list->first + done, &run, &run.first, &left))
            return false;
        run.count = left < list->count - done ? left : list->count - done;
        done += run.count;
        run.is_last = done == list->count;
        if (!add_run(m, &run))
            return false;
    }
    return true;
}

static bool add_scattered(struct making *m, const struct td_row_list *list, uint64_t *within)
{
    for (size_t begin = 0, end; begin < list->count; begin = end) {
        struct run run = {0}, next = {0};
        uint64_t left;
        if (!locate_row(m, list->numbers[begin], &run, &within[begin], &left))
            return false;
        for (end = begin + 1; end < list->count; end++) {
            if (!locate_row(m, list->numbers[end], &next, &within[end], &left))
                return false;
            if (next.file != run.file)
                break;
        }
        run.numbers = within + begin;
        run.count = end - begin;
        run.is_last = end == list->count;
        if (!add_run(m, &run))
            return false;
    }
    return true;
}

/* Appends a stream without rows: that of the first file that has a schema. */
static bool add_nothing(struct making *m)
{
    struct run run = {.index = &m->view->split->files[0].rows->index, .is_last = true};
    run.file = td_split_files_open(&m->files, 0, m->err);
    return run.file != NULL && add_run(m, &run);
}

bool td_arrow_rows_append(const struct td_split_view *view, const struct td_row_list *list, uint64_t *skip,
                          struct td_body *body, struct td_error *err)
{
    struct making m = {.view = view, .body = body, .err = err};
    if (!td_may_wait(err)) /* rows are copied one by one */
        return false;
    uint64_t *within = list->numbers == NULL ? NULL : malloc((list->count + 1) * sizeof *within);
    bool ok = (list->numbers == NULL || within != NULL || td_error_no_memory(err)) &&
              td_split_files_init(&m.files, view, list->count > 0 ? list->count : 1, err) &&
              (list->count == 0 ? add_nothing(&m)
               : within == NULL ? add_consecutive(&m, list)
                                : add_scattered(&m, list, within)) &&
              td_split_files_are_unchanged(&m.files, err);
    td_split_files_fini(&m.files);
    free(within);
    *skip = m.skip;
    if (!ok)
        td_body_fini(body);
    return ok;
}
