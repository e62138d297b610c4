/* Plan: one pass over the tensors, which have the order of their names, counts those that match and the types that
 * occur. In the order of names the rows of the page are chosen in that pass. For another order the numbers of all
 * tensors that match are sorted, in memory from the budget of lists; the page keeps the numbers of its rows alone. */
#include "api/html/tensors_page.h"

#include "api/call/checkpoint_choice.h"
#include "api/call/tensor_text.h"
#include "api/html/page.h"
#include "api/html/shown.h"
#include "api/html/sorted_table.h"
#include "api/html/templates.h"
#include "catalog/checkpoints/partial_checkpoint.h"
#include "core/waiting.h"
#include "http/uri.h"
#include "parser/format/elements.h"
#include "rank/repo_about.h"

#include <stdlib.h>
#include <string.h>

enum column { COLUMN_NAME, COLUMN_DTYPE, COLUMN_SHAPE, COLUMN_ELEMENTS, COLUMN_BYTES, COLUMN_FILE, COLUMN_OFFSET };
enum { COLUMNS = COLUMN_OFFSET + 1 };

static const struct td_table_column columns[COLUMNS] = {
    {"name", "Name", "", true},
    {"dtype", "Type", "", true},
    {"shape", "Shape", "", false},
    {"elements", "Elements", "number wide", true},
    {"bytes", "Size", "number", true},
    {"file", "File", "wide", true},
    {"offset", "Offset", "number wide", false},
};

struct page {
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    struct td_shown_model shown;
    char *q;                        /* NUL-terminated; empty: all names */
    const struct td_dtype *dtype;   /* NULL: all */
    struct td_table table;          /* its rows: those that match */
    bool occurs[TD_DTYPE_COUNT];    /* by td_dtype_number, over all tensors of the checkpoint */
    uint8_t dtypes[TD_DTYPE_COUNT]; /* the numbers of those that occur */
    size_t dtype_count;
    size_t matched;
    uint32_t rows[TD_TABLE_ROWS]; /* the numbers of the page's tensors in the checkpoint */
    size_t row_count;
};

static void destroy(void *context)
{
    struct page *page = context;
    td_snapshot_unref(page->snapshot);
    free(page->q);
    free(page);
}

/* ---- the tensors that match ---------------------------------------------------------------------------- */

static bool matches(const struct page *page, const struct td_tensor *tensor)
{
    return (page->dtype == NULL || tensor->dtype == page->dtype) &&
           (page->q[0] == '\0' || strcasestr(tensor->name, page->q) != NULL);
}

static bool has_filter(const struct page *page)
{
    return page->dtype != NULL || page->q[0] != '\0';
}

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b ? 1 : 0;
}

/* Compares two tensors by the column. */
static int compare_column(const struct page *page, uint32_t a, uint32_t b)
{
    const struct td_tensor_ref x = td_checkpoint_tensor(page->checkpoint, a);
    const struct td_tensor_ref y = td_checkpoint_tensor(page->checkpoint, b);
    switch ((enum column)page->table.sort) {
    case COLUMN_DTYPE:
        return x.tensor->dtype == y.tensor->dtype ? 0 : strcmp(x.tensor->dtype->name, y.tensor->dtype->name);
    case COLUMN_ELEMENTS:
        return compare_numbers(td_tensor_elements(x.tensor), td_tensor_elements(y.tensor));
    case COLUMN_BYTES:
        return compare_numbers(x.tensor->nbytes, y.tensor->nbytes);
    case COLUMN_FILE:
        return x.part == y.part ? 0
                                : strcmp(page->checkpoint->parts[x.part]->path, page->checkpoint->parts[y.part]->path);
    case COLUMN_NAME:
    case COLUMN_SHAPE:
    case COLUMN_OFFSET:
        break;
    }
    return 0;
}

/* Compares the numbers of two tensors, for qsort_r; equal ones stay in the order of their names. */
static int compare_tensors(const void *a, const void *b, void *context)
{
    const struct page *page = context;
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    const int order = compare_column(page, x, y);
    return order == 0 ? compare_numbers(x, y) : page->table.is_descending ? -order : order;
}

/* Counts the tensors that match, and notes the types that occur. Without a filter, and of a checkpoint that has all
 * tensors of its files, the files know both. */
static void count_tensors(struct page *page)
{
    const struct td_checkpoint *checkpoint = page->checkpoint;
    struct td_dtype_count counts[TD_SUM_DTYPES];
    uint64_t total;
    if (!has_filter(page) && checkpoint->join == NULL && checkpoint->lacks == NULL) {
        const size_t count = td_checkpoint_sum_elements(checkpoint, counts, &total);
        for (size_t i = 0; i < count; i++)
            page->occurs[td_dtype_number(counts[i].dtype)] = true;
        page->matched = checkpoint->tensor_count;
    }
    for (size_t i = page->matched; i < checkpoint->tensor_count; i++) {
        const struct td_tensor *tensor = td_checkpoint_tensor(checkpoint, i).tensor;
        page->occurs[td_dtype_number(tensor->dtype)] = true;
        page->matched += matches(page, tensor) ? 1 : 0;
    }
    for (size_t i = 0; i < TD_DTYPE_COUNT; i++)
        if (page->occurs[i])
            page->dtypes[page->dtype_count++] = (uint8_t)i;
}

/* Chooses the rows of the page in the order of names. */
static void choose_by_name(struct page *page)
{
    const size_t count = page->checkpoint->tensor_count;
    size_t skipped = td_table_first_row(&page->table);
    size_t i = has_filter(page) ? 0 : skipped; /* without a filter, a row is a tensor */
    skipped -= i;
    for (; i < count && page->row_count < TD_TABLE_ROWS; i++) {
        const size_t at = page->table.is_descending ? count - 1 - i : i;
        if (!matches(page, td_checkpoint_tensor(page->checkpoint, at).tensor))
            continue;
        if (skipped > 0)
            skipped--;
        else
            page->rows[page->row_count++] = (uint32_t)at;
    }
}

/* Chooses them in another order. The sort takes as much memory as the numbers. */
static bool choose_sorted(struct page *page, struct td_budget *budget, struct td_error *err)
{
    const size_t bytes = 2 * (page->matched + 1) * sizeof(uint32_t);
    size_t count = 0;
    if (!td_budget_take(budget, bytes))
        return td_budget_refuse(budget, bytes, err);
    uint32_t *numbers = malloc((page->matched + 1) * sizeof *numbers);
    for (size_t i = 0; numbers != NULL && i < page->checkpoint->tensor_count; i++)
        if (matches(page, td_checkpoint_tensor(page->checkpoint, i).tensor))
            numbers[count++] = (uint32_t)i;
    if (numbers != NULL) {
        const size_t first = td_table_first_row(&page->table);
        qsort_r(numbers, count, sizeof *numbers, compare_tensors, page);
        for (size_t i = first; i < count && page->row_count < TD_TABLE_ROWS; i++)
            page->rows[page->row_count++] = numbers[i];
    }
    const bool ok = numbers != NULL || td_error_no_memory(err);
    free(numbers);
    td_budget_give(budget, bytes);
    return ok;
}

/* ---- links --------------------------------------------------------------------------------------------- */

/* Appends the beginning of a link to this page, up to its order. */
static void write_link(const struct page *page, struct td_buffer *out)
{
    const char *separator = td_checkpoint_write_query(out, "?", &page->shown, page->model, page->checkpoint);
    if (page->q[0] != '\0') {
        td_buffer_printf(out, "%sq=", separator);
        td_uri_encode(out, td_text_of(page->q), false);
        separator = "&";
    }
    if (page->dtype != NULL) {
        td_buffer_printf(out, "%sdtype=", separator);
        td_uri_encode(out, td_text_of(page->dtype->name), false);
        separator = "&";
    }
    td_buffer_puts(out, separator);
}

/* Returns checkpoint i of the model: the whole ones first, then the incomplete ones. */
static const struct td_checkpoint *choice_at(const struct td_model *model, size_t i)
{
    return i < model->checkpoint_count ? &model->checkpoints[i] : &model->partials[i - model->checkpoint_count];
}

static size_t choice_count(const struct td_model *model)
{
    return model->checkpoint_count + model->partial_count;
}

/* ---- values -------------------------------------------------------------------------------------------- */

static struct td_tensor_ref tensor_at(const struct td_page_place *place)
{
    const struct page *page = place->context;
    return td_checkpoint_tensor(page->checkpoint, page->rows[place->row[0]]);
}

bool td_html_has_offset(const struct td_tensor *tensor)
{
    return tensor->reason == NULL && tensor->piece_count == 0 && td_tensor_stored(tensor) == NULL;
}

void td_html_write_tensor_name(const struct td_tensor *tensor, struct td_buffer *out)
{
    if (tensor->name_len == 0)
        td_buffer_puts(out, "\"\"");
    td_buffer_append(out, tensor->name, tensor->name_len);
}

void td_html_write_place(const struct td_tensor *tensor, struct td_buffer *out)
{
    if (tensor->reason != NULL)
        td_buffer_printf(out, "not served: %s", tensor->reason);
    else if (tensor->piece_count > 0)
        td_buffer_printf(out, "%u piece%s", (unsigned)tensor->piece_count, tensor->piece_count == 1 ? "" : "s");
    else if (td_tensor_stored(tensor) != NULL)
        td_buffer_puts(out, td_tensor_stored(tensor));
}

static void write_facts(const struct page *page, struct td_buffer *out)
{
    td_shown_number(out, page->checkpoint->tensor_count);
    td_buffer_puts(out, page->checkpoint->tensor_count == 1 ? " tensor, " : " tensors, ");
    td_shown_bytes(out, page->checkpoint->total_bytes);
}

static void write_caption(const struct page *page, struct td_buffer *out)
{
    td_shown_number(out, page->matched);
    td_buffer_puts(out, " of ");
    td_shown_number(out, page->checkpoint->tensor_count);
    td_buffer_puts(out, " tensors");
    if (page->matched <= TD_TABLE_ROWS)
        return;
    td_buffer_puts(out, ", here ");
    td_shown_number(out, td_table_first_row(&page->table) + 1);
    td_buffer_puts(out, " to ");
    td_shown_number(out, td_table_first_row(&page->table) + page->row_count);
}

/* Appends why no tensor is shown, after "no tensor". */
static void write_nothing(const struct page *page, struct td_buffer *out)
{
    if (page->dtype != NULL)
        td_buffer_printf(out, " of type %s", page->dtype->name);
    if (page->q[0] != '\0')
        td_buffer_printf(out, " has \"%.*s\" in its name", TD_SHOW(td_text_of(page->q), 200));
    else
        td_buffer_puts(out, " is in this checkpoint");
}

static void write_tensor(const struct td_page_place *place, enum td_tensors_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_tensor_ref ref = tensor_at(place);
    const struct td_tensor *tensor = ref.tensor;
    switch (slot) {
    case TD_SLOT_TENSORS_NAME:
        td_buffer_append(out, tensor->name, tensor->name_len);
        break;
    case TD_SLOT_TENSORS_NAME_SHOWN:
        td_html_write_tensor_name(tensor, out);
        break;
    case TD_SLOT_TENSORS_TENSOR_LINK:
        (void)td_tensor_write_path(out, TD_TENSOR_PAGE, &page->shown, page->model, page->checkpoint, tensor);
        break;
    case TD_SLOT_TENSORS_DTYPE:
        td_buffer_puts(out, tensor->dtype->name);
        break;
    case TD_SLOT_TENSORS_SHAPE:
        td_tensor_write_shape(out, tensor);
        break;
    case TD_SLOT_TENSORS_ELEMENTS:
        td_buffer_u64(out, td_tensor_elements(tensor));
        break;
    case TD_SLOT_TENSORS_ELEMENTS_SHOWN:
        td_shown_number(out, td_tensor_elements(tensor));
        break;
    case TD_SLOT_TENSORS_BYTES:
        td_buffer_u64(out, tensor->nbytes);
        break;
    case TD_SLOT_TENSORS_BYTES_SHOWN:
        td_shown_bytes(out, tensor->nbytes);
        break;
    case TD_SLOT_TENSORS_FILE:
        td_buffer_puts(out, td_model_relative(page->model, page->checkpoint->parts[ref.part]));
        break;
    case TD_SLOT_TENSORS_OFFSET:
        td_buffer_u64(out, tensor->offset);
        break;
    case TD_SLOT_TENSORS_OFFSET_SHOWN:
        if (td_html_has_offset(tensor))
            td_shown_number(out, tensor->offset);
        else
            td_html_write_place(tensor, out);
        break;
    default:
        break;
    }
}

static void write_column(const struct td_page_place *place, enum td_tensors_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_table_column *column = &columns[place->row[0]];
    switch (slot) {
    case TD_SLOT_TENSORS_COLUMN:
        td_buffer_puts(out, column->name);
        break;
    case TD_SLOT_TENSORS_COLUMN_CLASS:
        td_buffer_puts(out, column->class);
        break;
    case TD_SLOT_TENSORS_HEADING:
        td_buffer_puts(out, column->heading);
        break;
    case TD_SLOT_TENSORS_ORDER:
        td_buffer_puts(out, td_table_order(&page->table));
        break;
    case TD_SLOT_TENSORS_SORT_LINK:
        write_link(page, out);
        td_table_write_column_link(&page->table, place->row[0], out);
        break;
    default:
        break;
    }
}

static void write_choice(const struct td_page_place *place, enum td_tensors_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_checkpoint *choice = choice_at(page->model, place->row[1]);
    if (slot == TD_SLOT_TENSORS_CHOICE_LINK) {
        const size_t begin = out->len;
        (void)td_checkpoint_write_query(out, "?", &page->shown, page->model, choice);
        if (out->len == begin)
            td_buffer_putc(out, '?');
        return;
    }
    td_buffer_puts(out, choice->id);
    td_buffer_puts(out, choice->lacks != NULL ? " (incomplete)" : "");
}

static void write_slot(const struct td_page_place *place, unsigned number, struct td_buffer *out)
{
    const struct page *page = place->context;
    const enum td_tensors_slot slot = (enum td_tensors_slot)number;
    switch (slot) {
    case TD_SLOT_TENSORS_TITLE:
        td_buffer_printf(out, "Tensors of %s", page->shown.id);
        break;
    case TD_SLOT_TENSORS_MODEL:
        td_buffer_puts(out, page->shown.id);
        if (page->shown.version != NULL)
            td_buffer_printf(out, " (%s)", page->shown.version);
        break;
    case TD_SLOT_TENSORS_MODEL_LINK:
        td_shown_model_write_path(&page->shown, "", out);
        (void)td_shown_model_write_query(&page->shown, "?", out);
        break;
    case TD_SLOT_TENSORS_REASON:
        td_partial_write_reason(page->checkpoint, out);
        break;
    case TD_SLOT_TENSORS_CHECKPOINT:
        td_buffer_puts(out, page->checkpoint->id);
        break;
    case TD_SLOT_TENSORS_FORMAT:
        td_buffer_puts(out, page->checkpoint->format);
        break;
    case TD_SLOT_TENSORS_FACTS:
        write_facts(page, out);
        break;
    case TD_SLOT_TENSORS_CHOICE_LINK:
    case TD_SLOT_TENSORS_CHOICE_NAME:
        write_choice(place, slot, out);
        break;
    case TD_SLOT_TENSORS_Q:
        td_buffer_puts(out, page->q);
        break;
    case TD_SLOT_TENSORS_DTYPE_NAME:
    case TD_SLOT_TENSORS_DTYPE_TEXT:
        td_buffer_puts(out, td_dtype_at(page->dtypes[place->row[0]])->name);
        break;
    case TD_SLOT_TENSORS_VERSION:
        td_buffer_puts(out, page->shown.version);
        break;
    case TD_SLOT_TENSORS_SORT:
        td_table_write_sort(&page->table, out);
        break;
    case TD_SLOT_TENSORS_MATCHED:
        td_buffer_u64(out, page->matched);
        break;
    case TD_SLOT_TENSORS_TOTAL:
        td_buffer_u64(out, page->checkpoint->tensor_count);
        break;
    case TD_SLOT_TENSORS_CAPTION:
        write_caption(page, out);
        break;
    case TD_SLOT_TENSORS_NOTHING_TEXT:
        write_nothing(page, out);
        break;
    case TD_SLOT_TENSORS_BEFORE_LINK:
        write_link(page, out);
        td_table_write_page_link(&page->table, page->table.page - 1, out);
        break;
    case TD_SLOT_TENSORS_AFTER_LINK:
        write_link(page, out);
        td_table_write_page_link(&page->table, page->table.page + 1, out);
        break;
    case TD_SLOT_TENSORS_PAGE_NUMBER:
        td_shown_number(out, page->table.page);
        break;
    case TD_SLOT_TENSORS_PAGE_COUNT:
        td_shown_number(out, td_table_page_count(&page->table));
        break;
    case TD_SLOT_TENSORS_COLUMN:
    case TD_SLOT_TENSORS_COLUMN_CLASS:
    case TD_SLOT_TENSORS_HEADING:
    case TD_SLOT_TENSORS_ORDER:
    case TD_SLOT_TENSORS_SORT_LINK:
        write_column(place, slot, out);
        break;
    case TD_SLOT_TENSORS_NAME:
    case TD_SLOT_TENSORS_NAME_SHOWN:
    case TD_SLOT_TENSORS_TENSOR_LINK:
    case TD_SLOT_TENSORS_DTYPE:
    case TD_SLOT_TENSORS_SHAPE:
    case TD_SLOT_TENSORS_ELEMENTS:
    case TD_SLOT_TENSORS_ELEMENTS_SHOWN:
    case TD_SLOT_TENSORS_BYTES:
    case TD_SLOT_TENSORS_BYTES_SHOWN:
    case TD_SLOT_TENSORS_FILE:
    case TD_SLOT_TENSORS_OFFSET:
    case TD_SLOT_TENSORS_OFFSET_SHOWN:
        write_tensor(place, slot, out);
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct page *page = place->context;
    switch ((enum td_tensors_section)section) {
    case TD_SECTION_TENSORS_INCOMPLETE:
    case TD_SECTION_TENSORS_KEEPS_PARTIAL:
        return page->checkpoint->lacks != NULL;
    case TD_SECTION_TENSORS_CHOICES:
        return choice_count(page->model) > 1;
    case TD_SECTION_TENSORS_CHOICE:
        return choice_count(page->model);
    case TD_SECTION_TENSORS_CHOSEN:
        return choice_at(page->model, place->row[1]) == page->checkpoint;
    case TD_SECTION_TENSORS_DTYPES:
        return page->dtype_count;
    case TD_SECTION_TENSORS_DTYPE_CHOSEN:
        return page->dtype != NULL && td_dtype_number(page->dtype) == page->dtypes[place->row[0]];
    case TD_SECTION_TENSORS_KEEPS_VERSION:
        return page->shown.version != NULL;
    case TD_SECTION_TENSORS_KEEPS_CHECKPOINT:
        return !td_model_is_default_checkpoint(page->model, page->checkpoint);
    case TD_SECTION_TENSORS_KEEPS_SORT:
        return td_table_is_sorted(&page->table);
    case TD_SECTION_TENSORS_COLUMNS:
        return COLUMNS;
    case TD_SECTION_TENSORS_COLUMN_CLASSES:
        return columns[place->row[0]].class[0] != '\0';
    case TD_SECTION_TENSORS_SORTED:
        return page->table.sort == place->row[0];
    case TD_SECTION_TENSORS_SORTS:
        return columns[place->row[0]].sorts;
    case TD_SECTION_TENSORS_SORTS_NOT:
        return !columns[place->row[0]].sorts;
    case TD_SECTION_TENSORS_TENSORS:
        return page->row_count;
    case TD_SECTION_TENSORS_HAS_OFFSET:
        return td_html_has_offset(tensor_at(place).tensor);
    case TD_SECTION_TENSORS_NOTHING:
        return page->matched == 0;
    case TD_SECTION_TENSORS_PAGES:
        return td_table_page_count(&page->table) > 1;
    case TD_SECTION_TENSORS_BEFORE:
        return page->table.page > 1;
    case TD_SECTION_TENSORS_AFTER:
        return page->table.page < td_table_page_count(&page->table);
    }
    return 0;
}

/* ---- the call ------------------------------------------------------------------------------------------ */

const struct td_checkpoint *td_html_choose_checkpoint(const struct td_call *call)
{
    const struct td_model *model = call->model;
    if (model->is_delta) {
        td_call_refuse_delta(call);
        return NULL;
    }
    if (model->checkpoint_count > 0 || model->partial_count == 0 || td_uri_parameter(call->uri, "checkpoint") != NULL ||
        td_uri_parameter(call->uri, "partial") != NULL)
        return td_checkpoint_parameter_or_part(call);
    const struct td_checkpoint *part = td_partial_find(model, TD_TEXT(""));
    return part != NULL ? part : &model->partials[0];
}

/* Reads the parameters of the page. Returns false after it answered an error. */
static bool read_parameters(const struct td_call *call, struct page *page)
{
    const struct td_text *q = td_uri_parameter(call->uri, "q");
    const struct td_text *dtype = td_uri_parameter(call->uri, "dtype");
    page->checkpoint = td_html_choose_checkpoint(call);
    if (page->checkpoint == NULL || (dtype != NULL && dtype->len > 0 && !td_dtype_parameter(call, &page->dtype)) ||
        !td_table_read(call, columns, COLUMNS, &page->table))
        return false;
    page->q = td_text_copy(q == NULL ? TD_TEXT("") : *q);
    return page->q != NULL || td_call_no_memory(call);
}

void td_html_tensors(const struct td_call *call)
{
    static const struct td_page_class class = {
        .page = &td_template_tensors, .write = write_slot, .rows = count_rows, .destroy = destroy};
    static const char *const known[] = {"checkpoint", "partial", "q", "dtype", "sort", "page", NULL};
    struct td_budget *budget = td_shared_budget_of(&call->api->lists, call->request->client);
    struct td_error err = TD_ERROR_INIT;
    if (!td_call_check_parameters(call, known))
        return;
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    page->snapshot = td_snapshot_ref(call->snapshot);
    page->model = call->model;
    page->shown = td_shown_model_of(call, call->model);
    if (!read_parameters(call, page)) {
        destroy(page);
        return;
    }
    if (!td_may_wait(&err)) { /* a checkpoint may have many tensors */
        td_response_fail_error(call->response, &err);
        destroy(page);
        return;
    }
    count_tensors(page);
    td_table_set_rows(&page->table, page->matched);
    if (page->table.sort == COLUMN_NAME)
        choose_by_name(page);
    else if (!choose_sorted(page, budget, &err)) {
        td_response_fail_error(call->response, &err);
        destroy(page);
        return;
    }
    if (!td_page_set(call->response, &class, page, &err))
        td_response_fail_error(call->response, &err);
}
