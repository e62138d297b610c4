/* The list of models, the description of a model, its files byte for byte, and the pages of its folders. */
#include "api/call/incoming_call.h"
#include "api/call/shown_model.h"
#include "api/html/folder_page.h"
#include "api/html/html_index.h"
#include "api/html/model_page.h"
#include "api/html/models_page.h"
#include "api/native/listing.h"
#include "api/native/parameters.h"
#include "api/native/routes.h"
#include "core/digest.h"
#include "core/json/json.h"
#include "core/message/document.h"
#include "core/waiting.h"
#include "rank/file_answer.h"
#include "rank/tensor_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- descriptions -------------------------------------------------------------------------------------- */

static bool add_checkpoints(struct td_description *description, const char *member,
                            const struct td_checkpoint *checkpoints, size_t count)
{
    struct td_document *json = &description->json;
    td_document_begin_array(json, member);
    for (size_t i = 0; i < count; i++) {
        const struct td_checkpoint *checkpoint = &checkpoints[i];
        if (!td_description_room(description, strlen(checkpoint->id)))
            return false;
        td_document_begin_object(json, NULL);
        td_document_add_string(json, "id", checkpoint->id);
        td_document_add_string(json, "format", checkpoint->format);
        td_document_add_u64(json, "tensor_count", checkpoint->tensor_count);
        td_document_add_u64(json, "total_bytes", checkpoint->total_bytes);
        td_document_end(json);
    }
    td_document_end(json);
    return true;
}

/* Adds that the model is a delta, and the version that it changes. */
static bool add_delta(struct td_description *description, const struct td_model *model)
{
    struct td_document *json = &description->json;
    if (!td_description_room(description, model->base == NULL ? 0 : strlen(model->base)))
        return false;
    td_document_add_string(json, "kind", "delta");
    td_description_add_text_or_null(description, "base", model->base);
    return true;
}

/* Adds the members that the list and the single description share. */
static bool add_model(struct td_description *description, const void *row)
{
    const struct td_model *model = row;
    struct td_document *json = &description->json;
    const struct td_shown_model shown = td_shown_model_of(description->call, model);
    if (!td_description_room(description, strlen(shown.id) + strlen(shown.version == NULL ? "" : shown.version) +
                                              (model->revision == NULL ? 0 : strlen(model->revision))))
        return false;
    td_document_add_string(json, "id", shown.id);
    if (shown.version != NULL)
        td_document_add_string(json, "version", shown.version);
    if (model->revision != NULL)
        td_document_add_string(json, "revision", model->revision);
    if (model->is_delta && !add_delta(description, model))
        return false;
    size_t parts = td_model_rank_part_count(model);
    if (!add_checkpoints(description, "checkpoints", model->checkpoints, model->checkpoint_count) ||
        (parts > 0 && !add_checkpoints(description, "parts", model->partials + model->partial_count - parts, parts)))
        return false;
    td_document_add_u64(json, "file_count", model->entry_count);
    td_document_add_u64(json, "total_bytes", model->total_bytes);
    td_document_add_u64(json, "file_bytes", model->file_bytes);
    td_description_add_updated(description, model);
    return true;
}

static void digest_checkpoints(struct td_digest *digest, const struct td_checkpoint *checkpoints, size_t count)
{
    const uint64_t number = count;
    td_digest_add(digest, &number, sizeof number);
    for (size_t i = 0; i < count; i++) {
        const uint64_t sizes[] = {checkpoints[i].tensor_count, checkpoints[i].total_bytes};
        td_digest_add_cstring(digest, checkpoints[i].id);
        td_digest_add_cstring(digest, checkpoints[i].format);
        td_digest_add(digest, sizes, sizeof sizes);
    }
}

/* Adds what add_delta shows to the digest; nothing for a model that is no delta. */
static void digest_delta(struct td_digest *digest, const struct td_model *model)
{
    if (!model->is_delta)
        return;
    td_digest_add_cstring(digest, "delta");
    td_digest_add_cstring(digest, model->base == NULL ? "" : model->base);
}

/* Adds what add_model shows of the model to the digest. */
static void digest_model(struct td_digest *digest, const void *row)
{
    const struct td_model *model = row;
    const uint64_t numbers[] = {model->entry_count, model->total_bytes, model->file_bytes, (uint64_t)model->updated_ns};
    size_t parts = td_model_rank_part_count(model);
    td_digest_add_cstring(digest, model->id);
    td_digest_add_cstring(digest, model->revision == NULL ? "" : model->revision);
    td_digest_add(digest, numbers, sizeof numbers);
    digest_delta(digest, model);
    digest_checkpoints(digest, model->checkpoints, model->checkpoint_count);
    digest_checkpoints(digest, parts == 0 ? NULL : model->partials + model->partial_count - parts, parts);
}

static const void *model_rows(const struct td_call *call, size_t *count, size_t *row_bytes)
{
    *count = call->snapshot->model_count;
    *row_bytes = sizeof *call->snapshot->models;
    return call->snapshot->models;
}

static size_t models_after(const struct td_call *call, struct td_text id)
{
    return td_snapshot_models_after(call->snapshot, id);
}

static const char *name_row(const void *row)
{
    const struct td_model *model = row;
    return model->is_other_revision ? NULL : model->id;
}

void td_handle_models(const struct td_call *call)
{
    static const struct td_list list = {.number = TD_LIST_MODELS,
                                        .rows = model_rows,
                                        .kind = "models",
                                        .has_html = true,
                                        .has_problems = true,
                                        .after = models_after,
                                        .name = name_row,
                                        .digest = digest_model,
                                        .add = add_model};
    if (td_uri_parameter(call->uri, "wait") == NULL && td_html_is_wanted(call)) {
        td_html_models(call);
        return;
    }
    td_listing_answer(call, &list);
}

/* Adds config.json with its numbers unchanged, or null when the file is missing, is not JSON, or is too long. Returns
 * false when the file changed while it was read or memory is short. */
static bool add_config(struct td_description *description)
{
    const struct td_call *call = description->call;
    struct td_error *err = &description->err;
    struct td_buffer json;
    char *text = NULL;
    size_t len;
    td_buffer_init(&json);
    bool ok =
        td_model_config_text(td_catalog_maps(call->api->catalog), call->snapshot, call->model, &text, &len, err) &&
        text != NULL && td_json_minify(td_text_n(text, len), &json, err);
    td_document_add_raw(&description->json, "config", ok ? td_buffer_text(&json) : TD_TEXT("null"));
    free(text);
    td_buffer_fini(&json);
    if (err->code == TD_UNAVAILABLE || err->code == TD_RESOURCE_EXHAUSTED)
        return false;
    td_error_init(err);
    return true;
}

static bool add_files(struct td_description *description)
{
    const struct td_call *call = description->call;
    const struct td_model *model = call->model;
    struct td_document *json = &description->json;
    td_document_begin_array(json, "files");
    for (size_t i = 0; i < model->entry_count; i++) {
        const struct td_entry *entry = &call->snapshot->entries[model->first_entry + i];
        const char *path = td_model_relative(model, entry);
        const char *error = entry->file->error;
        const char *sha256 = td_file_sha256(entry->file);
        if (!td_description_room(description, strlen(path) + (error == NULL ? 0 : strlen(error))))
            return false;
        td_document_begin_object(json, NULL);
        td_document_add_string(json, "path", path);
        td_document_add_u64(json, "size", entry->file->source.id.size_bytes);
        if (entry->file->format != NULL)
            td_document_add_string(json, "format", entry->file->format->name);
        if (sha256 != NULL)
            td_document_add_string(json, "sha256", sha256);
        if (error != NULL)
            td_document_add_string(json, "error", error);
        td_document_end(json);
    }
    td_document_end(json);
    return true;
}

/* If the model comes from the upstream, adds the state of its fetch to the description and to the digest. */
static void add_upstream(struct td_description *description, struct td_digest *digest)
{
    const struct td_call *call = description->call;
    struct td_document *json = &description->json;
    struct td_incoming_state state;
    if (!td_incoming_call_state(call, &state))
        return;
    td_document_begin_object(json, "upstream");
    td_document_add_string(json, "state", state.is_kept ? "here" : "incoming");
    if (state.is_kept)
        td_document_add_bool(json, "verified", state.is_verified);
    if (state.has_progress) {
        td_document_add_u64(json, "arrived_bytes", state.arrived_bytes);
        td_document_add_u64(json, "total_bytes", state.total_bytes);
    }
    td_document_end(json);
    const uint64_t facts[] = {state.is_kept, state.is_verified, state.arrived_bytes, state.total_bytes};
    td_digest_add(digest, facts, sizeof facts);
}

/* Sets the entity tag of a 200 answer to a hash. While digests of files are missing, the hash is over the description's
 * bytes. Afterwards it is over what `digest` holds: the state, which td_wait_end adds, then covers the rest of the
 * description but `updated`, since replicas have files with other times. Frees the digest. */
static void set_tag(const struct td_call *call, struct td_digest *digest)
{
    char tag[TD_TAG_BYTES];
    td_digest_add_cstring(digest, TD_VERSION); /* another version may describe the same model differently */
    if (td_digest_finish(digest, tag) && call->response->status == 200 && call->model->content_tag[0] != '\0')
        td_response_set_etag(call->response, tag);
}

const char *const td_model_parameters[] = {"wait", "timeout", NULL};

void td_handle_model(const struct td_call *call)
{
    struct td_description description;
    if (!td_call_check_parameters(call, td_model_parameters))
        return;
    const struct td_model *model = call->model;
    char state[TD_TAG_BYTES];
    char former[TD_TAG_BYTES];
    if (!td_shown_model_tag(call, model->content_tag[0] != '\0' ? model->content_tag : model->tag, state) ||
        !td_shown_model_tag(call, model->tag, former))
        return;
    enum td_wait wait = td_wait_parameter(call, state, former);
    if (wait == TD_WAIT_ANSWERED || !td_may_wait(NULL))
        return;
    if (wait == TD_WAIT_NONE && td_html_is_wanted(call)) {
        td_html_model(call);
        return;
    }
    struct td_digest *digest = td_digest_create();
    td_description_begin(&description, call);
    bool ok = add_model(&description, call->model) && add_config(&description) && add_files(&description) &&
              td_description_add_problems(&description, &call->model->problems);
    digest_delta(digest, model); /* its base may come and go while its own files stay */
    if (ok)
        add_upstream(&description, digest);
    td_description_finish(&description, ok);
    td_html_add_vary(call);
    set_tag(call, digest);
    td_wait_end(call->response, wait, state);
}

/* ---- files --------------------------------------------------------------------------------------------- */

/* Refuses a parameter that chooses something on another path of a model, since a client that sends it here means other
 * bytes than it would get. Passes over those that nobody knows, as S3 does: clients such as Netron add one to get past
 * caches. Returns false after it answered 400. */
static bool check_file_parameters(const struct td_call *call)
{
    static const char *const of_others[] = {
        "checkpoint", "partial",   "slice",      "shard",   "format", "bins",           "digests",
        "match",      "page_size", "page_token", "dtype",   "since",  "since_manifest", "manifest",
        "plan",       "engine",    "tp_size",    "tp_rank", "range",  "wait",           "timeout"};
    static const char *const known[] = {"version", NULL};
    for (size_t i = 0; i < sizeof of_others / sizeof *of_others; i++) {
        if (td_uri_parameter(call->uri, of_others[i]) == NULL)
            continue;
        td_call_fail_known(
            call, 400, known,
            "the query parameter \"%s\" is for other paths, and would change nothing here; known here: %s",
            of_others[i], known[0]);
        return false;
    }
    return true;
}

void td_handle_file(const struct td_call *call)
{
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    if (!check_file_parameters(call))
        return;
    const struct td_entry *entry = td_model_find_file(call->snapshot, call->model, call->rest);
    struct td_text folder = call->rest; /* it ends with '/', except in requests of fsspec */
    folder.len -= folder.p[folder.len - 1] == '/' ? 1 : 0;
    if (entry == NULL && folder.len > 0 && td_html_folder(call, folder))
        return;
    if (entry == NULL) {
        td_response_fail(response, 404, NULL, "model \"%s\" has no file \"%.*s\"", call->model->id,
                         TD_SHOW(call->rest, 400));
        return;
    }
    if (!td_file_answer(call->api->catalog, call->snapshot, entry, response, &err))
        td_response_fail_error(response, &err);
}

void td_handle_files(const struct td_call *call)
{
    if (check_file_parameters(call))
        (void)td_html_folder(call, TD_TEXT(""));
}
