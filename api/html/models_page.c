/* Plan: the models that match are sorted once, as pairs of a key and a number in the snapshot; the rows are a part of
 * that list. So a page of a server with many models costs memory for the list alone, which is taken from the budget of
 * lists. */
#include "api/html/models_page.h"

#include "api/call/incoming_call.h"
#include "api/html/page.h"
#include "api/html/shown.h"
#include "api/html/sorted_table.h"
#include "api/html/templates.h"
#include "catalog/dataset/dataset.h"
#include "catalog/names/repo.h"
#include "core/waiting.h"
#include "rank/repo_about.h"

#include <stdlib.h>
#include <string.h>

/* A model or dataset that matches. */
struct found {
    uint64_t key;    /* what is sorted by */
    uint32_t number; /* in the snapshot, whose order is that of the ids */
};

enum column { COLUMN_NAME, COLUMN_PARAMETERS, COLUMN_BYTES, COLUMN_FORMAT, COLUMN_UPDATED, COLUMN_STATE, COLUMNS };

static const struct td_table_column columns[COLUMNS] = {
    {"name", "Model", "", true},          {"parameters", "Parameters", "number", true},
    {"bytes", "Size", "number", true},    {"format", "Format", "wide", false},
    {"updated", "Changed", "wide", true}, {"state", "State", "", false},
};

struct page {
    struct td_snapshot *snapshot;
    struct td_budget *budget; /* that `bytes` are taken from; borrowed */
    size_t bytes;
    bool has_datasets;               /* the page at "/" */
    char *q;                         /* NUL-terminated */
    struct td_table table;           /* of the models */
    struct found *models, *datasets; /* in one allocation */
    size_t model_count, dataset_count, total;
    uint64_t parameters[TD_TABLE_ROWS]; /* of the models of the page */
    struct td_upstream_arrival arrivals[TD_UPSTREAM_MODELS];
    size_t arrival_count;
};

static void destroy(void *context)
{
    struct page *page = context;
    td_snapshot_unref(page->snapshot);
    td_budget_give(page->budget, page->bytes);
    free(page->models);
    free(page->q);
    free(page);
}

/* ---- the models that match ----------------------------------------------------------------------------- */

static bool contains(const char *id, const char *q)
{
    return q[0] == '\0' || strcasestr(id, q) != NULL;
}

static uint64_t parameters_of(const struct td_model *model)
{
    struct td_dtype_count counts[TD_SUM_DTYPES];
    uint64_t total = 0;
    if (model->checkpoint_count > 0)
        (void)td_checkpoint_sum_elements(&model->checkpoints[0], counts, &total);
    return total;
}

static uint64_t key_of(const struct page *page, const struct td_model *model)
{
    switch ((enum column)page->table.sort) {
    case COLUMN_PARAMETERS:
        return parameters_of(model);
    case COLUMN_BYTES:
        return model->total_bytes;
    case COLUMN_UPDATED:
        return model->updated_ns < 0 ? 0 : (uint64_t)model->updated_ns;
    default:
        return 0;
    }
}

static int compare_up(const void *a, const void *b)
{
    const struct found *x = a;
    const struct found *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number ? 1 : 0;
}

static int compare_down(const void *a, const void *b)
{
    const struct found *x = a;
    const struct found *y = b;
    return x->key != y->key ? (x->key > y->key ? -1 : 1) : compare_up(a, b);
}

/* Turns the models around, for descending names: their keys are equal. */
static void reverse(struct found *items, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        struct found other = items[count - 1 - i];
        items[count - 1 - i] = items[i];
        items[i] = other;
    }
}

static void find_models(struct page *page)
{
    for (size_t i = 0; i < page->snapshot->model_count; i++) {
        const struct td_model *model = &page->snapshot->models[i];
        if (model->is_other_revision)
            continue;
        page->total++;
        if (contains(model->id, page->q))
            page->models[page->model_count++] = (struct found){key_of(page, model), (uint32_t)i};
    }
    if (page->table.sort != COLUMN_NAME)
        qsort(page->models, page->model_count, sizeof *page->models,
              page->table.is_descending ? compare_down : compare_up);
    else if (page->table.is_descending)
        reverse(page->models, page->model_count);
}

static const struct found *found_at(const struct page *page, size_t row)
{
    return &page->models[td_table_first_row(&page->table) + row];
}

/* Notes the parameters of the page's models: to sum them takes a step for each file of a checkpoint, and the page shows
 * them several times. */
static void note_parameters(struct page *page)
{
    for (size_t i = 0; i < td_table_rows_here(&page->table); i++) {
        const struct found *found = found_at(page, i);
        page->parameters[i] =
            page->table.sort == COLUMN_PARAMETERS ? found->key : parameters_of(&page->snapshot->models[found->number]);
    }
}

static void find_datasets(struct page *page)
{
    const struct td_repos *repos = td_repos_of(page->snapshot);
    page->datasets = page->models + page->snapshot->model_count;
    for (size_t i = 0; page->has_datasets && i < repos->count; i++)
        if (td_repo_is_dataset(&repos->items[i]) && !repos->items[i].is_other_revision &&
            contains(repos->items[i].id, page->q))
            page->datasets[page->dataset_count++] = (struct found){0, (uint32_t)i};
}

/* ---- values -------------------------------------------------------------------------------------------- */

static const struct td_model *model_at(const struct td_page_place *place)
{
    const struct page *page = place->context;
    return &page->snapshot->models[found_at(page, place->row[0])->number];
}

static const struct td_repo *dataset_at(const struct td_page_place *place)
{
    const struct page *page = place->context;
    return &td_repos_of(page->snapshot)->items[page->datasets[place->row[0]].number];
}

static size_t dataset_rows(const struct page *page)
{
    return page->dataset_count < TD_TABLE_ROWS ? page->dataset_count : TD_TABLE_ROWS;
}

/* Returns the problem that keeps the model from having tensors, or that its checkpoints leave; NULL: none. */
static const struct td_problem *reason_of(const struct td_model *model)
{
    return model->problems.count > 0 ? &model->problems.items[0] : NULL;
}

/* The state of a model as its row shows it. */
struct state {
    const char *word, *shown, *class;
};

static struct state state_of(const struct td_model *model)
{
    if (model->is_delta)
        return (struct state){"delta", "delta", "state"};
    if (model->checkpoint_count == 0 && reason_of(model) != NULL)
        return (struct state){"broken", "broken", "state bad"};
    if (reason_of(model) != NULL)
        return (struct state){"damaged", "has broken files", "state bad"};
    if (model->checkpoint_count == 0)
        return (struct state){"files", "files only", "state"};
    if (model->content_tag[0] == '\0')
        return (struct state){"unhashed", "not hashed yet", "state"};
    return (struct state){"ready", "ready", "state"};
}

/* Appends the beginning of a link to this page, up to its order. */
static void write_link(const struct page *page, struct td_buffer *out)
{
    td_buffer_puts(out, page->has_datasets ? "/?q=" : "/models/?q=");
    td_uri_encode(out, td_text_of(page->q), false);
    td_buffer_putc(out, '&');
}

static void write_caption(const struct page *page, struct td_buffer *out)
{
    td_shown_number(out, page->model_count);
    if (page->q[0] != '\0') {
        td_buffer_puts(out, " of ");
        td_shown_number(out, page->total);
    }
    td_buffer_puts(out, page->q[0] == '\0' && page->model_count == 1 ? " model" : " models");
}

static void write_model(const struct td_page_place *place, enum td_models_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_model *model = model_at(place);
    const struct td_problem *reason = reason_of(model);
    bool has_tensors = model->checkpoint_count > 0;
    switch (slot) {
    case TD_SLOT_MODELS_ID:
        td_buffer_puts(out, model->id);
        break;
    case TD_SLOT_MODELS_REASON_FILE:
        td_buffer_puts(out, reason->path);
        break;
    case TD_SLOT_MODELS_REASON_TEXT:
        td_buffer_puts(out, reason->message);
        break;
    case TD_SLOT_MODELS_PARAMETERS:
        td_buffer_u64(out, page->parameters[place->row[0]]);
        break;
    case TD_SLOT_MODELS_PARAMETERS_SHOWN:
        if (has_tensors)
            td_shown_count(out, page->parameters[place->row[0]]);
        break;
    case TD_SLOT_MODELS_BYTES:
        td_buffer_u64(out, model->total_bytes);
        break;
    case TD_SLOT_MODELS_BYTES_SHOWN:
        if (has_tensors)
            td_shown_bytes(out, model->total_bytes);
        break;
    case TD_SLOT_MODELS_FORMAT:
        td_buffer_puts(out, has_tensors ? model->checkpoints[0].format : "");
        break;
    case TD_SLOT_MODELS_UPDATED:
        td_buffer_printf(out, "%lld", (long long)model->updated_ns);
        break;
    case TD_SLOT_MODELS_UPDATED_SHOWN:
        td_shown_time(out, model->updated_ns);
        break;
    case TD_SLOT_MODELS_STATE:
        td_buffer_puts(out, state_of(model).word);
        break;
    case TD_SLOT_MODELS_STATE_CLASS:
        td_buffer_puts(out, state_of(model).class);
        break;
    case TD_SLOT_MODELS_STATE_SHOWN:
        td_buffer_puts(out, state_of(model).shown);
        break;
    default:
        break;
    }
}

static void write_dataset(const struct td_page_place *place, enum td_models_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_repo *repo = dataset_at(place);
    const struct td_dataset *dataset = td_dataset_find(page->snapshot, td_text_of(repo->id));
    switch (slot) {
    case TD_SLOT_MODELS_DATASET:
        td_buffer_puts(out, repo->id);
        break;
    case TD_SLOT_MODELS_DATASET_LINK: /* one without rows has the page of its files alone, at the Hub's path */
        td_buffer_puts(out, "/datasets/");
        td_uri_encode(out, td_text_of(repo->id), true);
        td_buffer_puts(out, dataset != NULL ? "" : "/resolve/main/");
        break;
    case TD_SLOT_MODELS_DATASET_BYTES:
        td_buffer_u64(out, repo->file_bytes);
        break;
    case TD_SLOT_MODELS_DATASET_SIZE:
        td_shown_bytes(out, repo->file_bytes);
        break;
    case TD_SLOT_MODELS_DATASET_SPLITS:
        for (size_t i = 0; dataset != NULL && i < dataset->split_count && i < 4; i++)
            td_buffer_printf(out, "%s%s", i > 0 ? ", " : "", i < 3 ? dataset->splits[i].name : "...");
        break;
    case TD_SLOT_MODELS_DATASET_UPDATED:
        td_buffer_printf(out, "%lld", (long long)repo->updated_ns);
        break;
    case TD_SLOT_MODELS_DATASET_UPDATED_SHOWN:
        td_shown_time(out, repo->updated_ns);
        break;
    default:
        break;
    }
}

static void write_arrival(const struct td_page_place *place, enum td_models_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_upstream_arrival *arrival = &page->arrivals[place->row[0]];
    switch (slot) {
    case TD_SLOT_MODELS_ARRIVING_ID:
        td_buffer_puts(out, arrival->id);
        break;
    case TD_SLOT_MODELS_ARRIVED_BYTES:
        td_buffer_u64(out, arrival->progress.arrived_bytes);
        break;
    case TD_SLOT_MODELS_ARRIVED_SHOWN:
        td_shown_bytes(out, arrival->progress.arrived_bytes);
        break;
    case TD_SLOT_MODELS_ARRIVING_BYTES:
        td_buffer_u64(out, arrival->progress.total_bytes);
        break;
    case TD_SLOT_MODELS_ARRIVING_SHOWN:
        if (arrival->progress.is_listed)
            td_shown_bytes(out, arrival->progress.total_bytes);
        else
            td_buffer_puts(out, "not known yet");
        break;
    default:
        break;
    }
}

static void write_column(const struct td_page_place *place, enum td_models_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_table_column *column = &columns[place->row[0]];
    switch (slot) {
    case TD_SLOT_MODELS_COLUMN:
        td_buffer_puts(out, column->name);
        break;
    case TD_SLOT_MODELS_COLUMN_CLASS:
        td_buffer_puts(out, column->class);
        break;
    case TD_SLOT_MODELS_HEADING:
        td_buffer_puts(out, column->heading);
        break;
    case TD_SLOT_MODELS_ORDER:
        td_buffer_puts(out, td_table_order(&page->table));
        break;
    case TD_SLOT_MODELS_SORT_LINK:
        write_link(page, out);
        td_table_write_column_link(&page->table, place->row[0], out);
        break;
    default:
        break;
    }
}

static void write_slot(const struct td_page_place *place, unsigned number, struct td_buffer *out)
{
    const struct page *page = place->context;
    const enum td_models_slot slot = (enum td_models_slot)number;
    switch (slot) {
    case TD_SLOT_MODELS_TITLE:
        td_buffer_puts(out, page->has_datasets ? "Models and datasets" : "Models");
        break;
    case TD_SLOT_MODELS_ADDRESS:
        td_buffer_puts(out, page->has_datasets ? "/" : "/models/");
        break;
    case TD_SLOT_MODELS_Q:
        td_buffer_puts(out, page->q);
        break;
    case TD_SLOT_MODELS_SORT:
        td_table_write_sort(&page->table, out);
        break;
    case TD_SLOT_MODELS_MATCHED:
        td_buffer_printf(out, "%zu", page->model_count);
        break;
    case TD_SLOT_MODELS_TOTAL:
        td_buffer_printf(out, "%zu", page->total);
        break;
    case TD_SLOT_MODELS_CAPTION:
        write_caption(page, out);
        break;
    case TD_SLOT_MODELS_NONE_TEXT:
        td_buffer_puts(out, page->total == 0 ? "There are no models." : "No model's name contains this text.");
        break;
    case TD_SLOT_MODELS_BEFORE_LINK:
        write_link(page, out);
        td_table_write_page_link(&page->table, page->table.page - 1, out);
        break;
    case TD_SLOT_MODELS_AFTER_LINK:
        write_link(page, out);
        td_table_write_page_link(&page->table, page->table.page + 1, out);
        break;
    case TD_SLOT_MODELS_PAGE_NUMBER:
        td_shown_number(out, page->table.page);
        break;
    case TD_SLOT_MODELS_PAGE_COUNT:
        td_shown_number(out, td_table_page_count(&page->table));
        break;
    case TD_SLOT_MODELS_DATASETS_CAPTION:
        td_shown_number(out, page->dataset_count);
        td_buffer_puts(out, page->dataset_count == 1 ? " dataset" : " datasets");
        if (dataset_rows(page) < page->dataset_count)
            td_buffer_printf(out, "; the first %zu are shown: search for others by their names", dataset_rows(page));
        break;
    case TD_SLOT_MODELS_ORDER:
    case TD_SLOT_MODELS_COLUMN:
    case TD_SLOT_MODELS_COLUMN_CLASS:
    case TD_SLOT_MODELS_SORT_LINK:
    case TD_SLOT_MODELS_HEADING:
        write_column(place, slot, out);
        break;
    case TD_SLOT_MODELS_ID:
    case TD_SLOT_MODELS_REASON_FILE:
    case TD_SLOT_MODELS_REASON_TEXT:
    case TD_SLOT_MODELS_PARAMETERS:
    case TD_SLOT_MODELS_PARAMETERS_SHOWN:
    case TD_SLOT_MODELS_BYTES:
    case TD_SLOT_MODELS_BYTES_SHOWN:
    case TD_SLOT_MODELS_FORMAT:
    case TD_SLOT_MODELS_UPDATED:
    case TD_SLOT_MODELS_UPDATED_SHOWN:
    case TD_SLOT_MODELS_STATE:
    case TD_SLOT_MODELS_STATE_CLASS:
    case TD_SLOT_MODELS_STATE_SHOWN:
        write_model(place, slot, out);
        break;
    case TD_SLOT_MODELS_ARRIVING_ID:
    case TD_SLOT_MODELS_ARRIVED_BYTES:
    case TD_SLOT_MODELS_ARRIVED_SHOWN:
    case TD_SLOT_MODELS_ARRIVING_BYTES:
    case TD_SLOT_MODELS_ARRIVING_SHOWN:
        write_arrival(place, slot, out);
        break;
    case TD_SLOT_MODELS_DATASET:
    case TD_SLOT_MODELS_DATASET_LINK:
    case TD_SLOT_MODELS_DATASET_BYTES:
    case TD_SLOT_MODELS_DATASET_SIZE:
    case TD_SLOT_MODELS_DATASET_SPLITS:
    case TD_SLOT_MODELS_DATASET_UPDATED:
    case TD_SLOT_MODELS_DATASET_UPDATED_SHOWN:
        write_dataset(place, slot, out);
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct page *page = place->context;
    switch ((enum td_models_section)section) {
    case TD_SECTION_MODELS_KEEPS_SORT:
        return td_table_is_sorted(&page->table);
    case TD_SECTION_MODELS_SOME:
    case TD_SECTION_MODELS_SOME_ROWS:
    case TD_SECTION_MODELS_SOME_END:
        return page->model_count > 0;
    case TD_SECTION_MODELS_NONE:
        return page->model_count == 0;
    case TD_SECTION_MODELS_COLUMNS:
        return page->model_count > 0 ? COLUMNS : 0;
    case TD_SECTION_MODELS_COLUMN_CLASSES:
        return columns[place->row[0]].class[0] != '\0';
    case TD_SECTION_MODELS_SORTED:
        return page->table.sort == place->row[0];
    case TD_SECTION_MODELS_SORTS:
        return columns[place->row[0]].sorts;
    case TD_SECTION_MODELS_SORTS_NOT:
        return !columns[place->row[0]].sorts;
    case TD_SECTION_MODELS_MODELS:
        return td_table_rows_here(&page->table);
    case TD_SECTION_MODELS_REASON:
        return reason_of(model_at(place)) != NULL;
    case TD_SECTION_MODELS_PAGES:
        return td_table_page_count(&page->table) > 1;
    case TD_SECTION_MODELS_BEFORE:
        return page->table.page > 1;
    case TD_SECTION_MODELS_AFTER:
        return page->table.page < td_table_page_count(&page->table);
    case TD_SECTION_MODELS_ARRIVING_SOME:
    case TD_SECTION_MODELS_ARRIVING_END:
        return page->arrival_count > 0;
    case TD_SECTION_MODELS_ARRIVING:
        return page->arrival_count;
    case TD_SECTION_MODELS_DATASETS_SOME:
    case TD_SECTION_MODELS_DATASETS_END:
        return page->dataset_count > 0;
    case TD_SECTION_MODELS_DATASETS:
        return dataset_rows(page);
    }
    return 0;
}

/* ---- the call ------------------------------------------------------------------------------------------ */

/* Allocates the lists, with memory from the budget. Returns false with an error. */
static bool allocate(const struct td_call *call, struct page *page, struct td_error *err)
{
    const struct td_text *q = td_uri_parameter(call->uri, "q");
    const size_t count = page->snapshot->model_count + (page->has_datasets ? td_repos_of(page->snapshot)->count : 0);
    const size_t bytes = (count + 1) * sizeof *page->models;
    page->budget = td_shared_budget_of(&call->api->lists, call->request->client);
    page->q = td_text_copy(q == NULL ? TD_TEXT("") : *q);
    if (page->q != NULL && !td_budget_take(page->budget, bytes)) {
        (void)td_budget_refuse(page->budget, bytes, err);
        return false;
    }
    page->bytes = page->q == NULL ? 0 : bytes;
    page->models = page->q == NULL ? NULL : malloc(bytes);
    if (page->models != NULL)
        return true;
    (void)td_error_no_memory(err);
    return false;
}

void td_html_models(const struct td_call *call)
{
    static const struct td_page_class class = {
        .page = &td_template_models, .write = write_slot, .rows = count_rows, .destroy = destroy};
    static const char *const known[] = {"q",          "sort",  "page",    "page_size",
                                        "page_token", "match", "timeout", NULL}; /* the last four are of the JSON */
    struct td_error err = TD_ERROR_INIT;
    if (!td_call_check_parameters(call, known) || !td_call_may_list(call))
        return;
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        td_call_no_memory(call);
        return;
    }
    page->snapshot = td_snapshot_ref(call->snapshot);
    page->has_datasets = td_text_equals(call->uri->path, "/");
    if (!td_table_read(call, columns, COLUMNS, &page->table)) {
        destroy(page);
        return;
    }
    if (!td_may_wait(&err) || !allocate(call, page, &err)) {
        td_response_fail_error(call->response, &err);
        destroy(page);
        return;
    }
    find_models(page);
    find_datasets(page);
    page->arrival_count = td_incoming_call_list(call, page->arrivals);
    td_table_set_rows(&page->table, page->model_count);
    note_parameters(page);
    td_page_answer(call->response, &class, page);
}
