/* Plan: find_places() opens the files that the rows lie in and finds each row. What is sent beside rows, the frame's
 * table and line ends, lies in `own`, one piece of memory, which also takes the copies of short rows. write_direct()
 * makes a few extents; write_composed() makes one generated blob where there would be too many, or too much to copy.
 *
 * Hard: places are only right for the version of the file that was looked at. So each file that was opened is looked at
 * once more after its rows were found and copied; rows that are sent from a file are watched by the sender. */
#include "rank/row_answer.h"

#include "core/waiting.h"
#include "storage/composed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXTENTS = 1024, QUICK_ROWS = 64, NO_FILE = 0 };

/* A file of the split that holds wanted rows. */
struct opened {
    size_t number; /* in the split, plus 1; NO_FILE: the slot is free */
    struct td_blob *data, *table;
};

/* A found row. */
struct place {
    struct td_row row;
    const struct opened *file;
};

struct finding {
    const struct td_row_answer *answer;
    struct opened *files; /* open addressing by number; a power of two */
    size_t file_slots;
    struct place *places;
    size_t count;
    size_t taken_bytes; /* from the budget, for the two arrays */
};

/* ---- files ---- */

static bool read_blob(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    return td_blob_read((struct td_blob *)(uintptr_t)context, off, out, len, err);
}

static struct td_input input_of(const struct td_blob *blob)
{
    if (blob == NULL)
        return (struct td_input){0};
    return (struct td_input){.size_bytes = blob->len_bytes, .read = read_blob, .context = blob};
}

static bool map(const struct td_row_answer *answer, const struct td_entry *entry, struct td_blob **out,
                struct td_error *err)
{
    return td_file_source_map(td_catalog_maps(answer->catalog), answer->snapshot->root, &entry->file->source, out, err);
}

/* Returns the open file of this number in the split; opens it when that was not done yet. NULL: an error. */
static const struct opened *open_file(struct finding *finding, size_t number, struct td_error *err)
{
    const struct td_split_file *file = &finding->answer->split->files[number];
    size_t mask = finding->file_slots - 1, slot = number * 0x9E3779B1U & mask;
    while (finding->files[slot].number != NO_FILE && finding->files[slot].number != number + 1)
        slot = (slot + 1) & mask;
    struct opened *opened = &finding->files[slot];
    if (opened->number != NO_FILE)
        return opened;
    if (!map(finding->answer, file->entry, &opened->data, err) ||
        (file->table != NULL && !map(finding->answer, file->table, &opened->table, err)))
        return NULL; /* td_finding_fini drops what was mapped */
    opened->number = number + 1;
    return opened;
}

static bool are_unchanged(const struct finding *finding, struct td_error *err)
{
    for (size_t i = 0; i < finding->file_slots; i++) {
        const struct opened *opened = &finding->files[i];
        if (opened->number != NO_FILE &&
            (!td_blob_unchanged(opened->data) || (opened->table != NULL && !td_blob_unchanged(opened->table))))
            return td_error_set(err, TD_UNAVAILABLE, "\"%.200s\" changed while its rows were read; try again",
                                finding->answer->split->files[opened->number - 1].entry->path);
    }
    return true;
}

static bool finding_init(struct finding *finding, const struct td_row_answer *answer, size_t count,
                         struct td_error *err)
{
    size_t most = count < answer->split->file_count ? count : answer->split->file_count;
    *finding = (struct finding){.answer = answer, .file_slots = 2, .count = count};
    while (finding->file_slots < 2 * most)
        finding->file_slots *= 2;
    size_t bytes = finding->file_slots * sizeof *finding->files + count * sizeof *finding->places;
    if (!td_budget_take(answer->budget, bytes))
        return td_budget_refuse(answer->budget, bytes, err);
    finding->taken_bytes = bytes;
    finding->files = calloc(finding->file_slots, sizeof *finding->files);
    finding->places = calloc(count + 1, sizeof *finding->places);
    return (finding->files != NULL && finding->places != NULL) || td_error_no_memory(err);
}

static void finding_fini(struct finding *finding)
{
    for (size_t i = 0; finding->files != NULL && i < finding->file_slots; i++) {
        td_blob_unref(finding->files[i].data);
        td_blob_unref(finding->files[i].table);
    }
    free(finding->files);
    free(finding->places);
    td_budget_give(finding->answer->budget, finding->taken_bytes);
}

/* ---- finding rows ---- */

enum { ROWS_AT_ONCE = 256 };

/* Finds `count` rows of one file, from number `first` of it on. */
static bool find_in_file(struct finding *finding, size_t number, uint64_t first, size_t count, struct place *places,
                         struct td_error *err)
{
    const struct td_split_file *file = &finding->answer->split->files[number];
    const struct opened *opened = open_file(finding, number, err);
    struct td_row rows[ROWS_AT_ONCE];
    if (opened == NULL)
        return false;
    const struct td_row_files files = {.data = input_of(opened->data), .table = input_of(opened->table)};
    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < ROWS_AT_ONCE ? count - done : ROWS_AT_ONCE;
        if (file->rows == NULL)
            rows[0] = (struct td_row){.bytes = opened->data->len_bytes}; /* the file is the row, so count is 1 */
        else if (!td_row_index_find(&file->rows->index, &files, first + done, n, rows, err))
            return false;
        for (size_t i = 0; i < n; i++)
            places[done + i] = (struct place){.row = rows[i], .file = opened};
    }
    return true;
}

static bool find_places(struct finding *finding, const struct td_row_list *list, struct td_error *err)
{
    const struct td_row_answer *answer = finding->answer;
    for (size_t done = 0, n; done < list->count; done += n) {
        uint64_t row = list->numbers == NULL ? list->first + done : list->numbers[done], within;
        size_t number = td_split_locate(answer->split, answer->rows, row, &within);
        uint64_t left = answer->rows->ends[number] - row;
        n = list->numbers != NULL ? 1 : left < list->count - done ? (size_t)left : list->count - done;
        if (!find_in_file(finding, number, within, n, finding->places + done, err))
            return false;
    }
    return true;
}

/* ---- the body ---- */

static bool joins_lines(const struct td_row_answer *answer, enum td_rows_form form)
{
    return form == TD_ROWS_RAW && answer->split->format->is_text;
}

static void store_u64(char *out, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        out[i] = (char)(uint8_t)(value >> (8 * i));
}

/* The memory of an answer: what stands before the rows, then copies of rows or one line end, then what stands behind
 * the rows. */
struct own {
    struct td_blob *blob;
    char *bytes; /* the blob's */
    size_t head_bytes, tail_bytes;
};

enum { TAR_END_BYTES = 1024 };

static bool own_create(struct own *own, const struct finding *finding, enum td_rows_form form, size_t middle_bytes,
                       struct td_error *err)
{
    own->head_bytes = form == TD_ROWS_FRAME ? (finding->count + 2) * 8 : 0;
    own->tail_bytes = form == TD_ROWS_TAR ? TAR_END_BYTES : 0;
    size_t bytes = own->head_bytes + middle_bytes + own->tail_bytes;
    struct td_budget *budget = finding->answer->budget;
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

static bool is_short(const struct place *place)
{
    return place->row.bytes < TD_ROW_REFERENCE_BYTES;
}

/* Copies the bytes of a row, and a line end if there is one. */
static bool copy_row(const struct place *place, bool with_end, char *out, size_t *len, struct td_error *err)
{
    size_t bytes = (size_t)place->row.bytes;
    *len = bytes + (with_end ? 1 : 0);
    if (with_end)
        out[bytes] = '\n';
    return td_blob_read(place->file->data, place->row.offset, out, bytes, err);
}

/* Makes extents: copies of short rows together with what stands between long ones, and long rows. */
static bool write_direct(const struct finding *finding, enum td_rows_form form, size_t copy_bytes, struct td_body *body,
                         struct td_error *err)
{
    struct own own = {0};
    bool lines = joins_lines(finding->answer, form);
    if (!own_create(&own, finding, form, copy_bytes, err))
        return false;
    size_t sent = 0, at = own.head_bytes; /* of `own` */
    bool ok = true;
    for (size_t i = 0; i < finding->count && ok; i++) {
        const struct place *place = &finding->places[i];
        size_t len = lines ? 1 : 0;
        if (is_short(place)) {
            ok = copy_row(place, lines, own.bytes + at, &len, err);
        } else {
            ok = td_body_append(body, own.blob, sent, at - sent, err) &&
                 td_body_append(body, place->file->data, place->row.offset, place->row.bytes, err);
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
    struct td_blob **blobs = calloc(finding->file_slots + 1, sizeof(struct td_blob *));
    if (sources == NULL || blobs == NULL) {
        free(sources);
        free(blobs);
        return NULL;
    }
    *sources = (struct sources){.blobs = blobs, .count = finding->file_slots + 1};
    blobs[0] = td_blob_ref(own);
    for (size_t i = 0; i < finding->file_slots; i++)
        if (finding->files[i].number != NO_FILE)
            blobs[i + 1] = td_blob_ref(finding->files[i].data);
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
        const struct place *place = &finding->places[i];
        ok = append_run(layout, (size_t)(place->file - finding->files) + 1, place->row.offset, place->row.bytes, err) &&
             (!lines || append_run(layout, 0, own->head_bytes, 1, err));
    }
    return ok && append_run(layout, 0, own->head_bytes + 1, own->tail_bytes, err);
}

/* Makes one generated blob, which copies rows from the files while it is sent. */
static bool write_composed(const struct finding *finding, enum td_rows_form form, struct td_body *body,
                           struct td_error *err)
{
    struct own own = {0};
    struct td_blob *blob = NULL;
    if (!own_create(&own, finding, form, 1, err))
        return false;
    own.bytes[own.head_bytes] = '\n';
    memset(own.bytes + own.head_bytes + 1, 0, own.tail_bytes);
    struct td_layout *layout = td_layout_create(finding->answer->budget, err);
    bool ok = layout != NULL && fill_layout(finding, &own, joins_lines(finding->answer, form), layout, err);
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

static bool write_rows(const struct finding *finding, enum td_rows_form form, struct td_body *body,
                       struct td_error *err)
{
    size_t copy_bytes = 0, long_count = 0;
    for (size_t i = 0; i < finding->count; i++) {
        const struct place *place = &finding->places[i];
        copy_bytes += 1 + (is_short(place) ? (size_t)place->row.bytes : 0); /* a line end each, at most */
        long_count += is_short(place) ? 0 : 1;
    }
    if (copy_bytes <= TD_ROWS_COPY_BYTES && 2 * long_count <= MOST_EXTENTS)
        return write_direct(finding, form, copy_bytes, body, err);
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

/* Appends rows [first, first + count) of a file, count above 0, as one piece. */
static bool append_run_of(struct finding *finding, size_t number, uint64_t first, uint64_t count, struct td_body *body,
                          struct td_error *err)
{
    struct place ends[2];
    if (!find_in_file(finding, number, first, 1, &ends[0], err) ||
        !find_in_file(finding, number, first + count - 1, 1, &ends[1], err))
        return false;
    struct td_blob *data = ends[0].file->data;
    uint64_t begin = ends[0].row.offset, end = ends[1].row.offset + ends[1].row.bytes;
    bool is_text = finding->answer->split->format->is_text, has_end = is_text && end < data->len_bytes;
    if (!td_body_append(body, data, begin, end - begin + (has_end ? 1 : 0), err))
        return false;
    if (has_end || !is_text)
        return true;
    char *line_end = malloc(1); /* the file's last line lacks it */
    if (line_end == NULL)
        return td_error_no_memory(err);
    *line_end = '\n';
    return td_body_append_heap(body, line_end, 1, err);
}

static bool append_runs(struct finding *finding, const struct td_row_list *list, struct td_body *body,
                        struct td_error *err)
{
    const struct td_row_answer *answer = finding->answer;
    for (uint64_t done = 0, n; done < list->count; done += n) {
        uint64_t row = list->first + done, within;
        size_t number = td_split_locate(answer->split, answer->rows, row, &within);
        uint64_t left = answer->rows->ends[number] - row;
        n = left < list->count - done ? left : list->count - done;
        if (!append_run_of(finding, number, within, n, body, err))
            return false;
    }
    return true;
}

bool td_row_answer_append(const struct td_row_answer *answer, const struct td_row_list *list, enum td_rows_form form,
                          struct td_body *body, struct td_error *err)
{
    struct finding finding;
    bool runs = list->numbers == NULL && td_rows_are_runs(answer->split, form);
    if (list->count > QUICK_ROWS && !runs && !td_may_wait(err))
        return false;
    size_t count = !runs                                     ? list->count
                   : list->count < answer->split->file_count ? list->count
                                                             : answer->split->file_count;
    bool ok = finding_init(&finding, answer, count, err) &&
              (runs ? append_runs(&finding, list, body, err)
                    : find_places(&finding, list, err) && write_rows(&finding, form, body, err)) &&
              are_unchanged(&finding, err);
    finding_fini(&finding);
    if (!ok)
        td_body_fini(body);
    return ok;
}
