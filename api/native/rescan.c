#include "api/native/routes.h"

#include "api/native/answer_now.h"
#include "catalog/dataset/dataset.h"
#include "core/clock.h"
#include "core/json_build.h"

#include <string.h>

/* The most ids in each list of the answer. */
enum { NAMED_MAX = 1000 };

/* Returns whether somebody else than the connection's peer sent the request: a proxy adds one of these headers to what
 * it passes on, a browser to what scripts and forms of other pages send. */
static bool is_passed_on(const struct td_request *request)
{
    static const char *const names[] = {"Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP",
                                        "Via",       "Origin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t at = 0;
        if (td_request_next_header(request, names[i], &at) != NULL)
            return true;
    }
    return false;
}

static bool check_sender(const struct td_call *call)
{
    enum td_rescan_from from = atomic_load(&call->api->rescan_from);
    if (from == TD_RESCAN_FROM_ANY ||
        (from == TD_RESCAN_FROM_LOCAL && call->request->is_local && !is_passed_on(call->request)))
        return true;
    td_response_fail(call->response, 403, NULL,
                     from == TD_RESCAN_FROM_NONE
                         ? "POST /rescan is switched off (--rescan-from none)"
                         : "POST /rescan is for this machine alone, not through a proxy nor from a page in a browser "
                           "(--rescan-from any allows it)");
    return false;
}

/* Returns whether `count` entries are the same in both runs. Snapshots share unchanged files. */
static bool are_same_entries(const struct td_entry *x, const struct td_entry *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (x[i].file != y[i].file || strcmp(x[i].path, y[i].path) != 0)
            return false;
    return true;
}

/* Returns whether the model has the same files in both snapshots. */
static bool is_same_model(const struct td_snapshot *a, const struct td_model *x, const struct td_snapshot *b,
                          const struct td_model *y)
{
    return x->entry_count == y->entry_count && x->checkpoint_count == y->checkpoint_count &&
           are_same_entries(&a->entries[x->first_entry], &b->entries[y->first_entry], x->entry_count);
}

/* Returns whether the dataset has the same files in both snapshots. */
static bool is_same_dataset(const struct td_snapshot *a, const struct td_repo *x, const struct td_snapshot *b,
                            const struct td_repo *y)
{
    return x->entry_count == y->entry_count &&
           are_same_entries(&a->entries[x->first_entry], &b->entries[y->first_entry], x->entry_count);
}

/* Adds a list of the ids of the models in `of` that `other` lacks. With `changed` the list also has the ids of models
 * that have other files there. `of` and `other` may be NULL: an empty snapshot. */
static void write_ids(struct td_json_builder *json, const char *key, const struct td_snapshot *of,
                      const struct td_snapshot *other, bool changed)
{
    size_t count = 0;
    td_json_begin_array(json, key);
    for (size_t i = 0; of != NULL && of != other && i < of->model_count && count < NAMED_MAX; i++) {
        const struct td_model *model = &of->models[i];
        const struct td_model *there = other == NULL ? NULL : td_snapshot_find_model(other, td_text_of(model->id));
        if (model->is_other_revision || (there != NULL && (!changed || is_same_model(of, model, other, there))))
            continue;
        count++;
        td_json_add_string(json, NULL, model->id);
        td_json_flush(json);
    }
    td_json_end(json);
}

/* Does the same for datasets. */
static void write_dataset_ids(struct td_json_builder *json, const char *key, const struct td_snapshot *of,
                              const struct td_snapshot *other, bool changed)
{
    size_t count = 0;
    td_json_begin_array(json, key);
    for (size_t i = 0; of != NULL && of != other && i < of->dataset_count && count < NAMED_MAX; i++) {
        const struct td_dataset *dataset = &of->datasets[i];
        const struct td_dataset *there = other == NULL ? NULL : td_dataset_find(other, td_text_of(dataset->id));
        if (there != NULL && (!changed || is_same_dataset(of, dataset->repo, other, there->repo)))
            continue;
        count++;
        td_json_add_string(json, NULL, dataset->id);
        td_json_flush(json);
    }
    td_json_end(json);
}

/* The numbers of what is published, as far as the call's sender may see it. */
struct totals {
    size_t models, datasets, files;
    uint64_t tensors;
};

static struct totals count(const struct td_snapshot *snapshot)
{
    struct totals totals = {.datasets = snapshot == NULL ? 0 : snapshot->dataset_count,
                            .files = snapshot == NULL ? 0 : snapshot->entry_count};
    for (size_t i = 0; snapshot != NULL && i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        totals.models += model->is_other_revision ? 0 : 1;
        for (size_t k = 0; !model->is_other_revision && k < model->checkpoint_count; k++)
            totals.tensors += model->checkpoints[k].tensor_count;
    }
    return totals;
}

static void write_report(const struct td_call *call, const struct td_snapshot *before, bool settled, uint64_t took_ns)
{
    struct td_buffer json;
    struct td_json_builder builder;
    struct td_catalog_status status;
    struct td_error err = TD_ERROR_INIT;
    struct td_snapshot *after = td_call_acquire(call, &err);
    if (err.code != TD_OK) {
        td_response_fail_error(call->response, &err);
        return;
    }
    const struct totals totals = count(after);
    td_catalog_get_status(call->api->catalog, &status);
    td_buffer_init(&json);
    td_json_builder_init(&builder, &json);
    td_json_begin_object(&builder, NULL);
    write_ids(&builder, "published", after, before, true);
    write_ids(&builder, "removed", before, after, false);
    write_dataset_ids(&builder, "published_datasets", after, before, true);
    write_dataset_ids(&builder, "removed_datasets", before, after, false);
    td_json_add_bool(&builder, "complete", settled);
    td_json_add_u64(&builder, "unsettled", status.unsettled_count);
    td_json_add_u64(&builder, "models", totals.models);
    td_json_add_u64(&builder, "datasets", totals.datasets);
    td_json_add_u64(&builder, "tensors", totals.tensors);
    td_json_add_u64(&builder, "files", totals.files);
    td_json_add_seconds(&builder, "seconds", (double)took_ns / 1e9);
    td_json_end(&builder);
    td_json_builder_fini(&builder);
    td_buffer_putc(&json, '\n');
    td_snapshot_unref(after);
    td_native_answer_now(call, "application/json", &json);
}

void td_handle_rescan(const struct td_call *call)
{
    static const char *const no_parameters[] = {NULL};
    struct td_error err = TD_ERROR_INIT;
    struct td_rescan done;
    if (!td_call_check_parameters(call, no_parameters) || !check_sender(call))
        return;
    uint64_t began_ns = td_clock_ns();
    struct td_snapshot *before = td_call_acquire(call, &err);
    if (err.code != TD_OK || !td_catalog_rescan(call->api->catalog, &call->api->draining, &done, &err))
        td_response_fail_error(call->response, &err);
    else if (done.failed)
        td_response_fail(call->response, 503, NULL, "the scan failed, what was published before stays: %s",
                         done.message);
    else if (!done.done)
        td_response_fail(call->response, 503, NULL, "the scan takes longer; /readyz shows how far it is");
    else
        write_report(call, before, done.settled, td_clock_ns() - began_ns);
    td_snapshot_unref(before);
}
