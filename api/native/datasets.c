/* The list of datasets and the description of a dataset. */
#include "api/native/listing.h"
#include "api/native/parameters.h"
#include "api/native/routes.h"
#include "catalog/dataset/dataset.h"
#include "core/digest.h"
#include "core/waiting.h"

#include <string.h>

/* Files of a split that one description lists. */
enum { LISTED_FILES = 1000 };

static const void *dataset_rows(const struct td_call *call, size_t *count, size_t *row_bytes)
{
    const struct td_datasets *datasets = td_datasets_of(call->snapshot);
    *count = datasets->count;
    *row_bytes = sizeof *datasets->items;
    return datasets->items;
}

static size_t datasets_after(const struct td_call *call, struct td_text id)
{
    return td_datasets_after(call->snapshot, id);
}

static const char *name_row(const void *row)
{
    return ((const struct td_dataset *)row)->id;
}

static void digest_row(struct td_digest *digest, const void *row)
{
    const struct td_dataset *dataset = row;
    td_digest_add_cstring(digest, dataset->id);
    td_digest_add(digest, &dataset->split_count, sizeof dataset->split_count);
    for (size_t k = 0; k < dataset->split_count; k++)
        td_digest_add_cstring(digest, dataset->splits[k].name);
}

static bool add_row(struct td_description *description, const void *row)
{
    const struct td_dataset *dataset = row;
    struct td_document *json = &description->json;
    if (!td_description_room(description, strlen(dataset->id)))
        return false;
    td_document_add_string(json, "id", dataset->id);
    td_document_begin_array(json, "splits");
    for (size_t k = 0; k < dataset->split_count; k++) {
        if (!td_description_room(description, strlen(dataset->splits[k].name)))
            return false;
        td_document_add_string(json, NULL, dataset->splits[k].name);
    }
    td_document_end(json);
    return true;
}

void td_handle_datasets(const struct td_call *call)
{
    static const struct td_list list = {.number = TD_LIST_DATASETS,
                                        .rows = dataset_rows,
                                        .kind = "datasets",
                                        .after = datasets_after,
                                        .name = name_row,
                                        .digest = digest_row,
                                        .add = add_row};
    td_listing_answer(call, &list);
}

static void add_string_or_null(struct td_document *json, const char *key, const char *text)
{
    if (text == NULL)
        td_document_add_null(json, key);
    else
        td_document_add_string(json, key, text);
}

static void add_u64_or_null(struct td_document *json, const char *key, bool known, uint64_t value)
{
    if (known)
        td_document_add_u64(json, key, value);
    else
        td_document_add_null(json, key);
}

static bool add_file(struct td_description *description, const struct td_dataset *dataset,
                     const struct td_split_file *file)
{
    struct td_document *json = &description->json;
    const char *path = td_repo_relative(dataset->repo, file->entry);
    enum td_rows_state state =
        file->rows == NULL ? TD_ROWS_READY : atomic_load_explicit(&file->rows->state, memory_order_acquire);
    const char *error = state == TD_ROWS_FAILED ? file->rows->error : NULL;
    if (!td_description_room(description, strlen(path) + (error == NULL ? 0 : strlen(error))))
        return false;
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "path", path);
    td_document_add_u64(json, "nbytes", file->entry->file->source.id.size_bytes);
    add_u64_or_null(json, "rows", state == TD_ROWS_READY, file->rows == NULL ? 1 : file->rows->index.row_count);
    if (error != NULL)
        td_document_add_string(json, "error", error);
    td_document_end(json);
    return true;
}

/* Returns the columns of the first file that has any, or NULL. */
static const char *columns_of(const struct td_split *split)
{
    for (size_t i = 0; i < split->file_count; i++)
        if (split->files[i].rows != NULL && td_file_rows_are_ready(split->files[i].rows) &&
            split->files[i].rows->index.columns != NULL)
            return split->files[i].rows->index.columns;
    return NULL;
}

/* is_ready: the number of rows is known. Looked at before the progress, so that the index is not "ready" without it. */
static void add_index(struct td_document *json, const struct td_split *split, bool is_ready)
{
    struct td_split_progress progress = td_split_progress(split);
    td_document_begin_object(json, "index");
    td_document_add_string(json, "state", is_ready ? "ready" : progress.failed != NULL ? "failed" : "building");
    td_document_add_u64(json, "done_bytes", progress.done_bytes);
    td_document_add_u64(json, "nbytes", split->file_bytes);
    td_document_end(json);
}

/* Adds a split, with its files from number `start` on. */
static bool add_split(struct td_description *description, const struct td_dataset *dataset,
                      const struct td_split *split, uint64_t start)
{
    struct td_document *json = &description->json;
    const struct td_split_rows *rows = td_split_rows_get(split, NULL);
    const char *columns = columns_of(split), *reason = rows == NULL ? NULL : rows->reason;
    if (!td_description_room(description, strlen(split->name) + (columns == NULL ? 0 : strlen(columns)) +
                                              (reason == NULL ? 0 : strlen(reason))))
        return false;
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "name", split->name);
    td_document_add_string(json, "format", split->format->name);
    td_document_add_string(json, "row_type", split->format->row_type);
    add_u64_or_null(json, "rows", rows != NULL, rows == NULL ? 0 : rows->row_count);
    td_document_add_u64(json, "nbytes", split->file_bytes);
    td_document_add_raw(json, "columns", td_text_of(columns == NULL ? "null" : columns));
    add_string_or_null(json, "reason", reason);
    add_string_or_null(json, "fingerprint", rows == NULL ? NULL : rows->fingerprint);
    add_index(json, split, rows != NULL);
    td_document_add_u64(json, "file_count", split->file_count);
    td_document_begin_array(json, "files");
    for (uint64_t i = start; i < split->file_count && i - start < LISTED_FILES; i++)
        if (!add_file(description, dataset, &split->files[i]))
            return false;
    td_document_end(json);
    td_document_end(json);
    return true;
}

static bool is_hashed(const struct td_dataset *dataset)
{
    for (size_t i = 0; i < dataset->split_count; i++)
        if (!dataset->splits[i].is_hashed)
            return false;
    return true;
}

/* Computes the state of the call's dataset, for td_wait_parameter: a hash over its files, by their contents or
 * identities, and its problems. Row indexes that become ready do not change it. Returns false after it answered an
 * error. */
static bool dataset_state(const struct td_call *call, bool of_contents, char state[TD_TAG_BYTES])
{
    const struct td_dataset *dataset = call->dataset;
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, dataset->id);
    td_digest_add(digest, &dataset->split_count, sizeof dataset->split_count);
    for (size_t i = 0; i < dataset->split_count; i++)
        td_digest_add_cstring(digest, of_contents ? dataset->splits[i].tag : dataset->splits[i].former_tag);
    for (size_t i = 0; i < dataset->problems.count; i++) {
        td_digest_add_cstring(digest, dataset->problems.items[i].path);
        td_digest_add_cstring(digest, dataset->problems.items[i].message);
    }
    return td_digest_finish(digest, state) || td_call_no_memory(call);
}

static void describe_dataset(const struct td_call *call, uint64_t start)
{
    const struct td_dataset *dataset = call->dataset;
    struct td_description description;
    td_description_begin(&description, call);
    bool ok = td_description_room(&description, strlen(dataset->id));
    td_document_add_string(&description.json, "id", dataset->id);
    td_document_begin_array(&description.json, "splits");
    for (size_t i = 0; ok && i < dataset->split_count; i++)
        ok = add_split(&description, dataset, &dataset->splits[i], start);
    td_document_end(&description.json);
    ok = ok && td_description_add_problems(&description, &dataset->problems);
    td_description_finish(&description, ok);
    if (call->response->status == 200) /* a browser gets a page */
        td_response_add_header(call->response, "Vary", "Accept");
}

const char *const td_dataset_parameters[] = {"file_start", "wait", "timeout", NULL};

void td_handle_dataset(const struct td_call *call)
{
    uint64_t start = 0;
    char state[TD_TAG_BYTES], former[TD_TAG_BYTES];
    if (!td_call_check_parameters(call, td_dataset_parameters) ||
        !td_call_read_number(call, "file_start", UINT64_MAX, &start) ||
        !dataset_state(call, is_hashed(call->dataset), state) || !dataset_state(call, false, former))
        return;
    enum td_wait wait = td_wait_parameter(call, state, former);
    if (wait == TD_WAIT_ANSWERED || !td_may_wait(NULL))
        return;
    describe_dataset(call, start);
    td_wait_end(call->response, wait, state);
}
