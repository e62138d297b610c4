/* Plan: find_places() opens the files that contain the rows and finds each row. The frame's table and line ends are
 * written into `own`, one allocation, which also takes the copies of short rows. write_direct() appends a few extents.
 * If they were too many, or too much to copy, write_composed() appends one generated blob.
 *
 * What is hard: places are only right for the version of the file that was looked at. So each opened file is checked
 * again after its rows were found and copied; rows that are sent from a file are watched by the sender. */
#include "rank/row_answer.h"

#include "core/waiting.h"
#include "storage/composed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXTENTS = 1024 };

/* The rows of an answer. */
struct finding {
    const struct td_split_view *view;
    struct td_split_files files;
    struct td_row_place *places;
    size_t count;
    bool copies_all;    /* so that no file stays open */
    size_t taken_bytes; /* from the budget, for the places */
};

static bool finding_init(struct finding *finding, const struct td_split_view *view, size_t count, struct td_error *err)
{
    size_t bytes = (count + 1) * sizeof *finding->places;
    *finding = (struct finding){.view = view, .count = count};
    if (!td_split_files_init(&finding->files, view, count, err))
        return false;
    if (!td_budget_take(view->budget, bytes))
        return td_budget_refuse(view->budget, bytes, err);
    finding->taken_bytes = bytes;
    finding->places = calloc(count + 1, sizeof *finding->places);
    return finding->places != NULL || td_error_no_memory(err);
}

static void finding_fini(struct finding *finding)
{
    td_split_files_fini(&finding->files);
    free(finding->places);
    td_budget_give(finding->view->budget, finding->taken_bytes);
}

static bool find_places(struct finding *finding, const struct td_row_list *list, struct td_error *err)
{
    for (size_t done = 0, n; done < list->count; done += n) {
        uint64_t row = list->numbers == NULL ? list->first + done : list->numbers[done];
        size_t most = list->numbers == NULL ? list->count - done : 1;
        n = 1;
        if (done > 0 && list->numbers != NULL && list->numbers[done] == list->numbers[done - 1]) {
            finding->places[done] = finding->places[done - 1]; /* a repeat */
            continue;
        }
        n = td_split_files_find(&finding->files, row, most, finding->places + done, err);
        if (n == 0)
            return false;
    }
    return true;
}

static struct td_blob *blob_of(const struct finding *finding, const struct td_row_place *place)
{
    return finding->files.slots[place->slot].data;
}

/* ---- the body ---- */

static bool joins_lines(const struct td_split_view *view, enum td_rows_form form)
{
    return form == TD_ROWS_RAW && view->split->format->is_text;
}

static void store_u64(char *out, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        out[i] = (char)(uint8_t)(value >> (8 * i));
}

/* The memory of an answer: the bytes before the rows, then copies of rows or one line end, then the bytes after the
 * rows. */
struct own {
    struct td_blob *blob;
    char *bytes; /* the blob's */
    size_t head_bytes, tail_bytes;
};

enum { TAR_END_BYTES = 1024 };

/* NOLINTBEGIN(clang-analyzer-core.*): the functions below use `own` only after own_create has filled it */
static bool own_create(struct own *own, const struct finding *finding, enum td_rows_form form, size_t middle_bytes,
                       struct td_error *err)
{
    own->head_bytes = form == TD_ROWS_FRAME ? (finding->count + 2) * 8 : 0;
    own->tail_bytes = form == TD_ROWS_TAR ? TAR_END_BYTES : 0;
    size_t bytes = own->head_bytes + middle_bytes + own->tail_bytes;
    struct td_budget *budget = finding->view->budget;
    if (!td_budget_take(budget, bytes))
        return td_budget_refuse(budget, bytes, err);
    own->bytes = malloc(bytes + 1);
    if (own->bytes == NULL) {
        td_budget_give(budget, bytes);
        return td_error_no_memory(err);
    }
    if (form == TD_ROWS_FRAME) {
        uint64_t offset = 0;
        store_u64(own->bytes, finding->count);
        for (size_t i = 0; i < finding->count; i++) {
            store_u64(own->bytes + 8 + 8 * i, offset);
            offset += finding->places[i].row.bytes;
        }
        store_u64(own->bytes + 8 + 8 * finding->count, offset);
    }
    return td_blob_from_budget(own->bytes, bytes, budget, &own->blob, err);
}

static bool is_copied(const struct finding *finding, const struct td_row_place *place)
{
    return finding->copies_all || place->row.bytes < TD_ROW_REFERENCE_BYTES;
}

/* Copies the bytes of a row, and its line end if the form has one. */
static bool copy_row(const struct finding *finding, const struct td_row_place *place, bool with_end, char *out,
                     size_t *len, struct td_error *err)
{
    size_t bytes = (size_t)place->row.bytes;
    *len = bytes + (with_end ? 1 : 0);
    if (with_end)
        out[bytes] = '\n';
    return td_blob_read(blob_of(finding, place), place->row.offset, out, bytes, err);
}

/* Appends extents: long rows by reference, and between them parts of `own` with copies of short rows and line ends. */
static bool write_direct(const struct finding *finding, enum td_rows_form form, size_t copy_bytes, struct td_body *body,
                         struct td_error *err)
{
    struct own own = {0};
    bool lines = joins_lines(finding->view, form);
    if (!own_create(&own, finding, form, copy_bytes, err))
        return false;
    size_t sent = 0, at = own.head_bytes; /* of `own` */
    bool ok = true;
    for (size_t i = 0; i < finding->count && ok; i++) {
        const struct td_row_place *place = &finding->places[i];
        size_t len = lines ? 1 : 0;
        if (is_copied(finding, place)) {
            ok = copy_row(finding, place, lines, own.bytes + at, &len, err);
        } else {
            ok = td_body_append(body, own.blob, sent, at - sent, err) &&
                 td_body_append(body, blob_of(finding, place), place->row.offset, place->row.bytes, err);
            sent = at;
            own.bytes[at] = lines ? '\n' : own.bytes[at];
        }
        at += len;
    }
    memset(own.bytes + at, 0, own.tail_bytes);
    ok = ok && td_body_append(body, own.blob, sent, at + own.tail_bytes - sent, err);
    td_blob_unref(own.blob);
    return ok;
}

/* The sources of a composed blob: number 0 is the own memory, number i + 1 the file in slot i. */
struct sources {
    struct td_blob **blobs;
    size_t count;
};

static bool open_source(void *context, uint32_t source, struct td_blob **blob, uint64_t *base, struct td_error *err)
{
    const struct sources *sources = context;
    (void)err;
    *blob = td_blob_ref(sources->blobs[source]);
    *base = 0;
    return true;
}

static void close_sources(void *context)
{
    struct sources *sources = context;
    for (size_t i = 0; i < sources->count; i++)
        td_blob_unref(sources->blobs[i]);
    free(sources->blobs);
    free(sources);
}

static struct sources *make_sources(const struct finding *finding, struct td_blob *own)
{
    struct sources *sources = malloc(sizeof *sources);
    struct td_blob **blobs = calloc(finding->files.slot_count + 1, sizeof(struct td_blob *));
    if (sources == NULL || blobs == NULL) {
        free(sources);
        free(blobs);
        return NULL;
    }
    *sources = (struct sources){.blobs = blobs, .count = finding->files.slot_count + 1};
    blobs[0] = td_blob_ref(own);
    for (size_t i = 0; i < finding->files.slot_count; i++)
        if (finding->files.slots[i].number != 0)
            blobs[i + 1] = td_blob_ref(finding->files.slots[i].data);
    return sources;
}

static bool append_run(struct td_layout *layout, size_t source, uint64_t off, uint64_t len, struct td_error *err)
{
    const struct td_run run = {.source = (uint32_t)source, .off = off, .len = len, .count = 1};
    return td_layout_append(layout, 1, &run, 1, err);
}

static bool fill_layout(const struct finding *finding, const struct own *own, bool lines, struct td_layout *layout,
                        struct td_error *err)
{
    bool ok = append_run(layout, 0, 0, own->head_bytes, err);
    for (size_t i = 0; i < finding->count && ok; i++) {
        const struct td_row_place *place = &finding->places[i];
        ok = append_run(layout, place->slot + 1, place->row.offset, place->row.bytes, err) &&
             (!lines || append_run(layout, 0, own->head_bytes, 1, err));
    }
    return ok && append_run(layout, 0, own->head_bytes + 1, own->tail_bytes, err);
}

/* Appends one generated blob, which copies rows from the files while it is sent. */
static bool write_composed(const struct finding *finding, enum td_rows_form form, struct td_body *body,
                           struct td_error *err)
{
    struct own own = {0};
    struct td_blob *blob = NULL;
    if (!own_create(&own, finding, form, 1, err))
        return false;
    own.bytes[own.head_bytes] = '\n';
    memset(own.bytes + own.head_bytes + 1, 0, own.tail_bytes);
    struct td_layout *layout = td_layout_create(finding->view->budget, err);
    bool ok = layout != NULL && fill_layout(finding, &own, joins_lines(finding->view, form), layout, err);
    struct sources *sources = ok ? make_sources(finding, own.blob) : NULL;
    ok = ok && (sources != NULL || td_error_no_memory(err));
    if (ok) {
        const struct td_source_opener opener = {.context = sources, .open = open_source, .close = close_sources};
        ok = td_blob_composed(layout, &opener, &blob, err) && td_body_append(body, blob, 0, blob->len_bytes, err);
    }
    td_blob_unref(blob);
    td_layout_unref(layout);
    td_blob_unref(own.blob);
    return ok;
}

/* NOLINTEND(clang-analyzer-core.*) */

static bool write_rows(struct finding *finding, enum td_rows_form form, struct td_body *body, struct td_error *err)
{
    size_t copy_bytes = 0, long_count = 0, most = TD_ROWS_COPY_BYTES;
    finding->copies_all = finding->files.open_count > TD_ROWS_KEPT_FILES;
    most = finding->copies_all ? TD_ROWS_COPY_ALL_BYTES : most;
    for (size_t i = 0; i < finding->count && copy_bytes <= most; i++) {
        const struct td_row_place *place = &finding->places[i];
        uint64_t bytes = is_copied(finding, place) ? place->row.bytes : 0;
        copy_bytes += 1 + (bytes <= most ? (size_t)bytes : most); /* a line end each, at most */
        long_count += is_copied(finding, place) ? 0 : 1;
    }
    if (copy_bytes <= most && 2 * long_count <= MOST_EXTENTS)
        return write_direct(finding, form, copy_bytes, body, err);
    if (finding->copies_all)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "these rows are in %zu files, and are more than %d bytes together: ask for fewer rows",
                            finding->files.open_count, TD_ROWS_COPY_ALL_BYTES);
    return write_composed(finding, form, body, err);
}

/* ---- rows that are one piece of their file ---- */

/* Returns whether consecutive rows of a file are one piece of it in this form. */
static bool is_run(const struct td_split_file *file, const struct td_row_format *format, enum td_rows_form form)
{
    if (form != TD_ROWS_RAW || file->rows == NULL)
        return false;
    const struct td_row_index *index = &file->rows->index;
    return index->reason == NULL &&
           (format->is_text ? index->layout == TD_ROWS_LINES && index->params[0] == 1 : index->layout == TD_ROWS_EVEN);
}

bool td_rows_are_runs(const struct td_split *split, enum td_rows_form form)
{
    for (size_t i = 0; i < split->file_count; i++)
        if (!is_run(&split->files[i], split->format, form))
            return false;
    return true;
}

/* Appends the row and those that follow it in its file, at most `count`, as one piece. Returns how many they are; 0: an
 * error. */
static uint64_t append_run_of(struct finding *finding, uint64_t row, uint64_t count, struct td_body *body,
                              struct td_error *err)
{
    const struct td_split_view *view = finding->view;
    struct td_row_place ends[2];
    uint64_t within;
    size_t number = td_split_locate(view->split, view->rows, row, &within);
    uint64_t left = view->rows->ends[number] - row;
    count = left < count ? left : count;
    if (td_split_files_find(&finding->files, row, 1, &ends[0], err) == 0 ||
        td_split_files_find(&finding->files, row + count - 1, 1, &ends[1], err) == 0)
        return 0;
    struct td_blob *data = blob_of(finding, &ends[0]);
    uint64_t begin = ends[0].row.offset, end = ends[1].row.offset + ends[1].row.bytes;
    if (end < begin) {
        (void)td_error_set(err, TD_UNAVAILABLE, "a file changed while its rows were read; try again");
        return 0;
    }
    bool is_text = view->split->format->is_text, has_end = is_text && end < data->len_bytes;
    if (!td_body_append(body, data, begin, end - begin + (has_end ? 1 : 0), err))
        return 0;
    if (has_end || !is_text)
        return count;
    char *line_end = malloc(1); /* the file's last line lacks it */
    if (line_end == NULL) {
        (void)td_error_no_memory(err);
        return 0;
    }
    *line_end = '\n';
    return td_body_append_heap(body, line_end, 1, err) ? count : 0;
}

static bool append_runs(struct finding *finding, const struct td_row_list *list, struct td_body *body,
                        struct td_error *err)
{
    for (uint64_t done = 0, n; done < list->count; done += n) {
        n = append_run_of(finding, list->first + done, list->count - done, body, err);
        if (n == 0)
            return false;
    }
    return true;
}

/* Returns whether the consecutive rows go out as one piece of each file: of few files, because each stays open. */
static bool are_runs(const struct td_split_view *view, const struct td_row_list *list, enum td_rows_form form)
{
    uint64_t within;
    if (list->numbers != NULL || list->count == 0 || !td_rows_are_runs(view->split, form))
        return false;
    size_t first = td_split_locate(view->split, view->rows, list->first, &within);
    size_t last = td_split_locate(view->split, view->rows, list->first + list->count - 1, &within);
    return last - first < TD_ROWS_KEPT_FILES;
}

bool td_row_answer_append(const struct td_split_view *view, const struct td_row_list *list, enum td_rows_form form,
                          struct td_body *body, struct td_error *err)
{
    struct finding finding;
    bool runs = are_runs(view, list, form);
    if (list->count > TD_ROWS_MOST && !runs)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "these rows are in more than %d files: ask for at most %d rows at once", TD_ROWS_KEPT_FILES,
                            TD_ROWS_MOST);
    if (list->count > TD_ROWS_QUICK && !runs && !td_may_wait(err))
        return false;
    size_t most = runs && list->count > TD_ROWS_KEPT_FILES ? TD_ROWS_KEPT_FILES : list->count;
    bool ok = finding_init(&finding, view, most, err);
    if (ok && !runs && list->count > 1)
        td_split_files_read_ahead(&finding.files, list);
    ok = ok &&
         (runs ? append_runs(&finding, list, body, err)
               : find_places(&finding, list, err) && write_rows(&finding, form, body, err)) &&
         td_split_files_are_unchanged(&finding.files, err);
    finding_fini(&finding);
    if (!ok)
        td_body_fini(body);
    return ok;
}

void td_row_answer_read_ahead(const struct td_split_view *view, const struct td_row_list *list)
{
    struct td_split_files files;
    if (td_split_files_init(&files, view, list->count, NULL))
        td_split_files_read_ahead(&files, list);
    td_split_files_fini(&files);
}
