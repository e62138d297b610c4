/* Probes, the version, metrics, rescans and signed URLs: answers that describe the present moment. */
#include "api/call/access.h"
#include "api/call/embedded.h"
#include "api/call/server_status.h"
#include "api/html/status_page.h"
#include "api/native/metrics_page.h"
#include "api/native/openapi_text.h"
#include "api/native/routes.h"
#include "api/proto/schema.h"
#include "catalog/dataset/dataset.h"
#include "core/clock.h"
#include "core/json/json_document.h"
#include "core/message/document.h"
#include "http/auth/signed_url.h"
#include "http/build_commit.h"
#include "http/request.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- probes and numbers -------------------------------------------------------------------------------- */

static const char *const no_parameters[] = {NULL};

void td_handle_healthz(const struct td_call *call)
{
    struct td_buffer text;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_buffer_init(&text);
    td_buffer_puts(&text, "ok\n");
    td_response_set_text(call->response, "text/plain; charset=utf-8", "no-store", &text);
}

static void write_scan(struct td_document *json, const struct td_catalog_status *status)
{
    td_document_begin_object(json, "scan");
    td_document_add_bool(json, "running", status->scanning);
    td_document_add_bool(json, "failed", status->scan_failed);
    td_document_add_u64(json, "completed", status->scan_count);
    td_document_add_u64(json, "files_found", status->files_found);
    td_document_add_u64(json, "files_to_read", status->files_to_read);
    td_document_add_u64(json, "files_read", status->files_read);
    td_document_add_seconds(json, "last_seconds", (double)status->last_scan_ns / 1e9);
    td_document_end(json);
}

static void write_digests(struct td_document *json, const struct td_catalog_status *status)
{
    td_document_begin_object(json, "digests");
    td_document_add_bool(json, "enabled", status->hasher.enabled);
    td_document_add_bool(json, "stored", status->hasher.stored);
    td_document_add_u64(json, "files", status->hasher.file_count);
    td_document_add_u64(json, "known_files", status->hasher.known_count);
    td_document_add_u64(json, "published_files", status->counts.hashed);
    td_document_add_u64(json, "bytes", status->hasher.file_bytes);
    td_document_add_u64(json, "known_bytes", status->hasher.known_bytes);
    td_document_add_u64(json, "failed", status->hasher.failed_count);
    td_document_add_u64(json, "mismatches", status->hasher.mismatch_count);
    td_document_end(json);
}

/* Adds the number of models and the state of the scan and of hashing. */
static void write_numbers(struct td_document *json, const struct td_catalog_status *status)
{
    td_document_add_string(json, "message", status->message);
    td_document_add_u64(json, "models", status->counts.models);
    td_document_add_u64(json, "tensors", status->counts.tensors);
    td_document_add_u64(json, "files", status->counts.files);
    td_document_add_u64(json, "unreadable", status->counts.refused);
    td_document_add_u64(json, "unpublished", status->counts.problems);
    td_document_add_u64(json, "unsettled", status->counts.unsettled);
    write_scan(json, status);
    write_digests(json, status);
}

void td_handle_readyz(const struct td_call *call)
{
    struct td_catalog_status status;
    struct td_buffer json;
    struct td_document builder;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_catalog_get_status(call->api->catalog, &status);
    bool ready;
    const char *state = td_server_state(call, &status, &ready);
    td_buffer_init(&json);
    td_call_begin_document(call, &builder, &json);
    td_document_add_bool(&builder, "ready", ready);
    td_document_add_string(&builder, "state", state);
    if (td_access_sees_numbers(call))
        write_numbers(&builder, &status);
    td_call_end_document(call, &builder);
    td_response_set_text(call->response, "application/json", "no-store", &json);
    if (!ready && call->kind == NULL && call->response->status == 200) {
        call->response->status = 503;
        td_response_add_header(call->response, "Retry-After", "1");
    }
}

static void write_traffic(struct td_document *json, const struct td_server_status *status)
{
    static const char *const names[TD_SAMPLED_COUNT] = {[TD_SAMPLED_REQUESTS] = "requests",
                                                        [TD_SAMPLED_SENT_BYTES] = "bytes_sent",
                                                        [TD_SAMPLED_UPLOAD_BYTES] = "bytes_uploaded"};
    td_document_add_u64(json, "connections", status->connections);
    td_document_add_u64(json, "max_connections", status->max_connections);
    td_document_add_u64(json, "in_flight", status->in_flight);
    td_document_add_u64(json, "waiters", status->waiters);
    td_document_add_u64(json, "requests", status->requests);
    td_document_add_u64(json, "bytes_sent", status->sent_bytes);
    td_document_add_u64(json, "hashed_bytes", status->catalog.hasher.known_bytes);
    td_document_add_u64(json, "hash_total_bytes", status->catalog.hasher.file_bytes);
    td_document_add_u64(json, "uploads", status->uploads);
    td_document_add_u64(json, "bytes_uploaded", status->upload_bytes);
    td_document_begin_object(json, "seconds");
    for (size_t what = 0; what < TD_SAMPLED_COUNT; what++) {
        td_document_begin_array(json, names[what]);
        for (size_t i = 0; i < status->second_count; i++)
            td_document_add_u64(json, NULL, status->seconds[i][what]);
        td_document_end(json);
    }
    td_document_end(json);
}

static void write_lists(struct td_document *json, const struct td_server_status *status)
{
    td_document_begin_array(json, "arriving");
    for (size_t i = 0; i < status->arrival_count; i++) {
        td_document_begin_object(json, NULL);
        td_document_add_string(json, "id", status->arrivals[i].id);
        td_document_add_u64(json, "arrived_bytes", status->arrivals[i].progress.arrived_bytes);
        td_document_add_u64(json, "total_bytes", status->arrivals[i].progress.total_bytes);
        td_document_end(json);
    }
    td_document_end(json);
    td_document_begin_array(json, "problems");
    for (size_t i = 0; i < status->problem_count; i++) {
        td_document_begin_object(json, NULL);
        if (status->problems[i].model[0] != '\0')
            td_document_add_string(json, "model", status->problems[i].model);
        td_document_add_string(json, "file", status->problems[i].path);
        td_document_add_string(json, "message", status->problems[i].message);
        td_document_end(json);
    }
    td_document_end(json);
}

static void answer_status(const struct td_call *call)
{
    struct td_document builder;
    struct td_buffer json;
    struct td_server_status *status = malloc(sizeof *status);
    if (status == NULL) {
        td_call_no_memory(call);
        return;
    }
    td_server_status_get(call, status);
    td_buffer_init(&json);
    td_call_begin_document(call, &builder, &json);
    td_document_add_bool(&builder, "ready", status->ready);
    td_document_add_string(&builder, "state", status->state);
    write_numbers(&builder, &status->catalog);
    write_traffic(&builder, status);
    write_lists(&builder, status);
    td_call_end_document(call, &builder);
    td_server_status_fini(status);
    free(status);
    td_response_set_text(call->response, "application/json", "no-cache", &json);
}

void td_handle_status(const struct td_call *call)
{
    static const char *const formats[] = {"html", "json", NULL};
    static const char *const known[] = {"format", NULL};
    const struct td_text *format = td_uri_parameter(call->uri, "format");
    if (!td_call_check_parameters(call, known))
        return;
    if (format == NULL || td_text_equals(*format, "html"))
        td_html_status(call);
    else if (td_text_equals(*format, "json"))
        answer_status(call);
    else
        td_call_fail_known(call, 400, formats, "unknown format \"%.*s\"; it is html or json", TD_SHOW(*format, 64));
}

void td_handle_metrics(const struct td_call *call)
{
    struct td_catalog_status status;
    struct td_buffer text;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_catalog_get_status(call->api->catalog, &status);
    td_buffer_init(&text);
    td_native_write_metrics(&call->api->metrics, &status, td_budget_used(&call->api->ranks.live),
                            td_budget_used(&call->api->lists.whole), atomic_load(&call->api->draining), &text);
    struct td_upstream_status upstream = {.fetching = 0};
    if (call->api->upstream != NULL)
        td_upstream_get_status(call->api->upstream, &upstream);
    td_native_write_upstream_metrics(&upstream, &text);
    struct td_publish_status publish = {.upload_count = 0};
    if (call->api->publish != NULL)
        td_publish_report(call->api->publish, &publish);
    td_native_write_publish_metrics(&publish, &text);
    td_native_write_event_metrics(&call->api->events, td_catalog_events(call->api->catalog), &text);
    td_response_set_text(call->response, "text/plain; version=0.0.4; charset=utf-8", "no-store", &text);
}

/* Answers with an embedded text of this media type (static). */
static void answer_embedded(const struct td_call *call, const unsigned char *packed, size_t packed_len, size_t len,
                            const char *type)
{
    struct td_buffer text;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    td_buffer_init(&text);
    td_embedded_append(packed, packed_len, len, &text);
    td_response_set_json(call->response, &text);
    if (call->response->status == 200)
        call->response->content_type = type;
}

void td_handle_openapi(const struct td_call *call)
{
    answer_embedded(call, td_openapi_packed, td_openapi_packed_len, td_openapi_json_len, "application/json");
}

/* Answers with the schema, api/proto, as a FileDescriptorSet. */
void td_handle_schema(const struct td_call *call)
{
    answer_embedded(call, td_schema_packed, TD_SCHEMA_PACKED_BYTES, TD_SCHEMA_SET_BYTES, "application/x-protobuf");
}

/* Begins a JSON object with the program's name and version. */
static void begin_version(const struct td_call *call, struct td_document *json, struct td_buffer *out)
{
    td_buffer_init(out);
    td_call_begin_document(call, json, out);
    td_document_add_string(json, "name", "tensord");
    td_document_add_string(json, "version", TD_VERSION);
}

/* Ends the object, and answers with it. */
static void answer_version(const struct td_call *call, struct td_document *json)
{
    td_call_end_document(call, json);
    td_response_set_json(call->response, json->out);
}

void td_handle_version(const struct td_call *call)
{
    struct td_buffer json;
    struct td_document builder;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    begin_version(call, &builder, &json);
    td_document_add_string(&builder, "commit", td_build_commit());
    answer_version(call, &builder);
}

void td_handle_start(const struct td_call *call)
{
    static const struct {
        const char *name, *path;
    } links[] = {
        {"models", "/models"},   {"datasets", "/datasets"}, {"events", "/events"}, {"openapi", "/openapi.json"},
        {"metrics", "/metrics"}, {"ready", "/readyz"},      {"pages", "/"}}; /* for Accept: text/html */
    struct td_buffer json;
    struct td_document builder;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    begin_version(call, &builder, &json);
    td_document_begin_object(&builder, "links");
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        td_document_add_string(&builder, links[i].name, links[i].path);
    td_document_end(&builder);
    answer_version(call, &builder);
    td_response_add_header(call->response, "Vary", "Accept");
}

/* ---- rescans ------------------------------------------------------------------------------------------- */

/* The most ids in each list of the answer. */
enum { NAMED_MAX = 1000 };

static bool check_sender(const struct td_call *call)
{
    enum td_rescan_from from = atomic_load(&call->api->rescan_from);
    if (from == TD_RESCAN_FROM_ANY || (from == TD_RESCAN_FROM_LOCAL && td_access_is_of_this_machine(call)))
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
static void write_ids(struct td_document *json, const char *key, const struct td_snapshot *of,
                      const struct td_snapshot *other, bool changed)
{
    size_t count = 0;
    td_document_begin_array(json, key);
    for (size_t i = 0; of != NULL && of != other && i < of->model_count && count < NAMED_MAX; i++) {
        const struct td_model *model = &of->models[i];
        const struct td_model *there = other == NULL ? NULL : td_snapshot_find_model(other, td_text_of(model->id));
        if (model->is_other_revision || (there != NULL && (!changed || is_same_model(of, model, other, there))))
            continue;
        count++;
        td_document_add_string(json, NULL, model->id);
    }
    td_document_end(json);
}

/* Does the same for datasets. */
static void write_dataset_ids(struct td_document *json, const char *key, const struct td_snapshot *of,
                              const struct td_snapshot *other, bool changed)
{
    size_t count = 0;
    td_document_begin_array(json, key);
    const struct td_datasets *datasets = of == NULL || of == other ? NULL : td_datasets_of(of);
    for (size_t i = 0; datasets != NULL && i < datasets->count && count < NAMED_MAX; i++) {
        const struct td_dataset *dataset = &datasets->items[i];
        const struct td_dataset *there = other == NULL ? NULL : td_dataset_find(other, td_text_of(dataset->id));
        if (there != NULL && (!changed || is_same_dataset(of, dataset->repo, other, there->repo)))
            continue;
        count++;
        td_document_add_string(json, NULL, dataset->id);
    }
    td_document_end(json);
}

/* The numbers of published models and datasets that the call's sender may see. */
struct totals {
    size_t models, datasets, files;
    uint64_t tensors;
};

static struct totals count_all(const struct td_snapshot *snapshot)
{
    struct totals totals = {.datasets = snapshot == NULL ? 0 : td_datasets_of(snapshot)->count,
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
    struct td_document builder;
    struct td_catalog_status status;
    struct td_error err = TD_ERROR_INIT;
    struct td_snapshot *after = td_call_acquire(call, &err);
    if (err.code != TD_OK) {
        td_response_fail_error(call->response, &err);
        return;
    }
    const struct totals totals = count_all(after);
    td_catalog_get_status(call->api->catalog, &status);
    td_buffer_init(&json);
    td_call_begin_document(call, &builder, &json);
    write_ids(&builder, "published", after, before, true);
    write_ids(&builder, "removed", before, after, false);
    write_dataset_ids(&builder, "published_datasets", after, before, true);
    write_dataset_ids(&builder, "removed_datasets", before, after, false);
    td_document_add_bool(&builder, "complete", settled);
    td_document_add_u64(&builder, "unsettled", status.counts.unsettled);
    td_document_add_u64(&builder, "models", totals.models);
    td_document_add_u64(&builder, "datasets", totals.datasets);
    td_document_add_u64(&builder, "tensors", totals.tensors);
    td_document_add_u64(&builder, "files", totals.files);
    td_document_add_seconds(&builder, "seconds", (double)took_ns / 1e9);
    td_call_end_document(call, &builder);
    td_snapshot_unref(after);
    td_response_set_text(call->response, "application/json", "no-store", &json);
}

void td_handle_rescan(const struct td_call *call)
{
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

/* ---- signed URLs --------------------------------------------------------------------------------------- */

/* The most bytes of a body, which suffice for the longest path with all characters escaped; and the memory that reading
 * one may take: in any case, and for each of its bytes. */
enum { BODY_BYTES = 8 * TD_SIGNED_URL_PATH_BYTES, BODY_FREE_BYTES = 16 * 1024, BODY_PER_BYTE = 100 };

/* A request for a signature. */
struct wish {
    struct td_text path; /* in the arena */
    enum td_signed_method method;
    uint64_t valid_s;
};

static bool read_path(const struct td_json_document *document, const cJSON *item, struct wish *wish)
{
    if (!td_json_item_is_string(item))
        return td_json_document_fail(document, item, "\"path\" must be a string, such as \"/models/org/name\"");
    const char *path = td_json_document_string(document, item);
    if (path == NULL)
        return false;
    wish->path = td_text_of(path);
    return true;
}

static bool read_expires_in(const struct td_json_document *document, const cJSON *item, struct wish *wish)
{
    bool is_number = cJSON_IsRaw(item);
    if (is_number && !td_json_document_u64(document, item, &wish->valid_s))
        return false;
    if (is_number && wish->valid_s > 0 && wish->valid_s <= TD_SIGNED_URL_MOST_S)
        return true;
    return td_json_document_fail(document, item, "\"expires_in\" must be a number of seconds from 1 to %" PRIu64,
                                 TD_SIGNED_URL_MOST_S);
}

static bool read_method(const struct td_json_document *document, const cJSON *item, struct wish *wish)
{
    return (cJSON_IsString(item) && td_signed_method_read(td_text_of(item->valuestring), &wish->method)) ||
           td_json_document_fail(document, item, "\"method\" must be \"GET\" or \"PUT\"");
}

/* The members of a wish. */
static const struct {
    const char *name;
    bool (*read)(const struct td_json_document *document, const cJSON *item, struct wish *wish);
    bool is_needed;
} wish_members[] = {{"path", read_path, true}, {"expires_in", read_expires_in, true}, {"method", read_method, false}};

enum { WISH_MEMBERS = sizeof wish_members / sizeof *wish_members };

/* Reads {"path": "/...", "expires_in": 3600, "method": "PUT"}, each at most once. */
static bool read_wish(struct td_text body, struct td_arena *arena, struct wish *wish, struct td_error *err)
{
    struct td_json_document document;
    unsigned seen = 0;
    td_json_document_read(&document, body, arena, err);
    const cJSON *root = td_json_document_object(&document, "an object with \"path\" and \"expires_in\"");
    if (root == NULL)
        return false;
    for (const cJSON *item = root->child; item != NULL; item = item->next) {
        size_t i = 0;
        while (i < WISH_MEMBERS && strcmp(item->string, wish_members[i].name) != 0)
            i++;
        if (i == WISH_MEMBERS)
            return td_json_document_unknown_key(&document, item, "known are \"path\", \"expires_in\" and \"method\"");
        if ((seen >> i & 1) != 0)
            return td_json_document_fail_key(&document, item, "\"%s\" is given twice", item->string);
        if (!wish_members[i].read(&document, item, wish))
            return false;
        seen |= 1U << i;
    }
    for (size_t i = 0; i < WISH_MEMBERS; i++)
        if (wish_members[i].is_needed && (seen >> i & 1) == 0)
            return td_json_document_fail_end(&document, root, "\"%s\" is missing", wish_members[i].name);
    return td_json_document_end(&document);
}

/* Answers {"path", "url", "expires"}; without "url" when the Host that the client used is unknown. */
static void answer_url(const struct td_call *call, struct td_text path, int64_t expires_s)
{
    struct td_buffer json, url;
    struct td_document builder;
    char expires[40];
    struct td_text host = td_request_host(call->request);
    (void)td_wall_rfc3339((struct td_wall){.seconds = expires_s}, expires, sizeof expires);
    td_buffer_init(&json);
    td_buffer_init(&url);
    td_buffer_printf(&url, "%s://%.*s", td_request_scheme(call->request), (int)host.len, host.p);
    td_buffer_append(&url, path.p, path.len);
    td_call_begin_document(call, &builder, &json);
    td_document_add_text(&builder, "path", path);
    if (host.len > 0)
        td_document_add_text(&builder, "url", td_buffer_text(&url));
    td_document_add_string(&builder, "expires", expires);
    td_document_end(&builder);
    json.failed = json.failed || url.failed;
    td_buffer_putc(&json, '\n');
    td_buffer_fini(&url);
    td_response_set_text(call->response, "application/json", "no-store", &json);
    td_buffer_fini(&json);
}

/* Signs without checking that the path exists, so that the answer does not reveal it. */
void td_handle_sign(const struct td_call *call)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_arena arena;
    struct td_buffer path;
    struct wish wish = {.valid_s = 0};
    int64_t expires_s = 0;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    if (call->caller.token == NULL) {
        td_response_fail(call->response, 404, NULL, "there is nothing to sign with: this server has no --tokens");
        return;
    }
    if (call->request->body.len > BODY_BYTES) {
        td_response_fail(call->response, 413, NULL, "the body to sign by has at most %d bytes", BODY_BYTES);
        return;
    }
    td_arena_init(&arena, BODY_FREE_BYTES + BODY_PER_BYTE * call->request->body.len);
    td_buffer_init(&path);
    if (!read_wish(call->request->body, &arena, &wish, &err))
        td_call_fail_json(call, &err);
    else if (!td_signed_url_write(call->caller.tokens, call->caller.token, wish.method, wish.path,
                                  td_wall_now().seconds, wish.valid_s, &path, &expires_s, &err))
        td_response_fail_error(call->response, &err);
    else
        answer_url(call, td_buffer_text(&path), expires_s);
    td_buffer_fini(&path);
    td_arena_fini(&arena);
}
