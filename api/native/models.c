/* The list of models and the description of a model. */
#include "api/native/listing.h"
#include "api/native/routes.h"

#include "api/html/html_index.h"
#include "http/page_token.h"
#include "http/reservation.h"
#include "rank/config_text.h"

#include "core/clock.h"
#include "core/glob.h"
#include "core/json.h"
#include "core/json_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list or a description while it is written. Its length is bounded by its budget alone, because a model may have any
 * number of files and a scan any number of errors. Each row is printed when room for the next one is reserved. */
struct description {
    const struct td_call *call;
    struct td_buffer out;
    struct td_json_builder json;
    struct td_reserved reserved;
    struct td_error err;
};

static void begin(struct description *description, const struct td_call *call)
{
    memset(description, 0, sizeof *description);
    description->call = call;
    description->reserved.budget = &call->api->lists;
    td_error_init(&description->err);
    td_buffer_init(&description->out);
    td_json_builder_init(&description->json, &description->out);
    td_json_begin_object(&description->json, NULL);
}

/* Answers the description, or the error when ok is false. */
static void finish(struct description *description, bool ok)
{
    struct td_response *response = description->call->response;
    td_json_end(&description->json);
    td_json_builder_fini(&description->json);
    td_buffer_putc(&description->out, '\n');
    if (!ok || !td_reserved_answer_json(&description->reserved, &description->out, response, &description->err))
        td_response_fail_error(response, &description->err);
    td_buffer_fini(&description->out);
    td_reserved_release(&description->reserved);
}

static bool room(struct description *description, size_t text_bytes)
{
    return td_reserved_json_room(&description->reserved, &description->json, text_bytes, &description->err);
}

static bool add_checkpoints(struct description *description, const struct td_model *model)
{
    struct td_json_builder *json = &description->json;
    td_json_begin_array(json, "checkpoints");
    for (size_t i = 0; i < model->checkpoint_count; i++) {
        const struct td_checkpoint *checkpoint = &model->checkpoints[i];
        if (!room(description, strlen(checkpoint->id)))
            return false;
        td_json_begin_object(json, NULL);
        td_json_add_string(json, "id", checkpoint->id);
        td_json_add_string(json, "format", checkpoint->format);
        td_json_add_u64(json, "tensor_count", checkpoint->tensor_count);
        td_json_add_u64(json, "total_bytes", checkpoint->total_bytes);
        td_json_end(json);
    }
    td_json_end(json);
    return true;
}

/* Adds the members that the list and the single description share. */
static bool add_model(struct description *description, const struct td_model *model)
{
    char updated[40];
    struct td_json_builder *json = &description->json;
    td_json_add_string(json, "id", model->id);
    if (model->revision != NULL)
        td_json_add_string(json, "revision", model->revision);
    if (!add_checkpoints(description, model))
        return false;
    td_json_add_u64(json, "file_count", model->entry_count);
    td_json_add_u64(json, "total_bytes", model->total_bytes);
    td_json_add_u64(json, "file_bytes", model->file_bytes);
    (void)td_wall_rfc3339(td_wall_of_ns(model->updated_ns), updated, sizeof updated);
    if (model->entry_count > 0)
        td_json_add_string(json, "updated", updated);
    else
        td_json_add_null(json, "updated");
    return true;
}

static size_t id_bytes(const struct td_model *model)
{
    return strlen(model->id) + (model->revision == NULL ? 0 : strlen(model->revision));
}

static bool add_problems(struct description *description, const struct td_problems *problems)
{
    struct td_json_builder *json = &description->json;
    td_json_begin_array(json, "errors");
    for (size_t i = 0; i < problems->count; i++) {
        const struct td_problem *problem = &problems->items[i];
        if (!room(description, strlen(problem->path) + strlen(problem->message)))
            return false;
        td_json_begin_object(json, NULL);
        td_json_add_string(json, "file", problem->path);
        td_json_add_string(json, "message", problem->message);
        td_json_end(json);
    }
    td_json_end(json);
    return true;
}

/* Adds the token of the page that begins after this model; an empty token for NULL. */
static bool add_next_page(struct description *description, struct td_text listing, const struct td_model *last)
{
    struct td_buffer token;
    td_buffer_init(&token);
    if (last != NULL)
        td_page_token_write(&token, listing, td_text_of(last->id));
    bool ok = !token.failed || td_error_no_memory(&description->err);
    td_json_add_text(&description->json, "next_page_token", td_buffer_text(&token));
    td_buffer_fini(&token);
    return ok;
}

static bool add_models(struct description *description, size_t at, size_t limit, struct td_text listing)
{
    const struct td_snapshot *snapshot = description->call->snapshot;
    const struct td_text *match = td_uri_parameter(description->call->uri, "match");
    const struct td_model *last = NULL;
    struct td_json_builder *json = &description->json;
    size_t shown = 0;
    bool more = false;
    td_json_begin_array(json, "models");
    for (; at < snapshot->model_count && !more; at++) {
        const struct td_model *model = &snapshot->models[at];
        if (model->is_other_revision || (match != NULL && !td_glob_match(*match, td_text_of(model->id))))
            continue;
        more = shown == limit;
        if (more)
            break;
        shown++;
        if (!room(description, id_bytes(model)))
            return false;
        td_json_begin_object(json, NULL);
        if (!add_model(description, model))
            return false;
        td_json_end(json);
        last = model;
    }
    td_json_end(json);
    return (snapshot->problems.count == 0 || add_problems(description, &snapshot->problems)) &&
           add_next_page(description, listing, more ? last : NULL);
}

void td_handle_models(const struct td_call *call)
{
    static const char *const known[] = {"page_size", "page_token", "match", NULL};
    const struct td_text *filters[] = {td_uri_parameter(call->uri, "match")};
    size_t limit = TD_PAGE_SIZE_MAX;
    bool first;
    struct td_buffer name;
    struct td_buffer after;
    if (td_html_is_wanted(call)) {
        td_html_models(call);
        return;
    }
    td_buffer_init(&name);
    td_buffer_init(&after);
    if (td_call_check_parameters(call, known) && td_listing_page_size(call, &limit) &&
        td_listing_name(call, &name, "models", "", filters, 1) &&
        td_listing_page_token(call, td_buffer_text(&name), &after, &first)) {
        size_t at = first ? 0 : td_snapshot_models_after(call->snapshot, td_buffer_text(&after));
        struct description description;
        begin(&description, call);
        finish(&description, add_models(&description, at, limit, td_buffer_text(&name)));
        td_html_add_vary(call);
    }
    td_buffer_fini(&name);
    td_buffer_fini(&after);
}

/* Adds config.json with its numbers unchanged, or null when the file is missing, no JSON, or too long. Returns false
 * when the file changed meanwhile or memory is short. */
static bool add_config(struct description *description)
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
    td_json_add_raw(&description->json, "config", ok ? td_buffer_text(&json) : TD_TEXT("null"));
    free(text);
    td_buffer_fini(&json);
    if (err->code == TD_UNAVAILABLE || err->code == TD_RESOURCE_EXHAUSTED)
        return false;
    td_error_init(err);
    return true;
}

static bool add_files(struct description *description)
{
    const struct td_call *call = description->call;
    const struct td_model *model = call->model;
    struct td_json_builder *json = &description->json;
    td_json_begin_array(json, "files");
    for (size_t i = 0; i < model->entry_count; i++) {
        const struct td_entry *entry = &call->snapshot->entries[model->first_entry + i];
        const char *path = td_model_relative(model, entry);
        const char *error = entry->file->error;
        const char *sha256 = td_file_sha256(entry->file);
        if (!room(description, strlen(path) + (error == NULL ? 0 : strlen(error))))
            return false;
        td_json_begin_object(json, NULL);
        td_json_add_string(json, "path", path);
        td_json_add_u64(json, "size", entry->file->source.id.size_bytes);
        if (entry->file->format != NULL)
            td_json_add_string(json, "format", entry->file->format->name);
        if (sha256 != NULL)
            td_json_add_string(json, "sha256", sha256);
        if (error != NULL)
            td_json_add_string(json, "error", error);
        td_json_end(json);
    }
    td_json_end(json);
    return true;
}

void td_handle_model(const struct td_call *call)
{
    static const char *const known[] = {NULL};
    struct description description;
    if (!td_call_check_parameters(call, known))
        return;
    if (td_html_is_wanted(call)) {
        td_html_model(call);
        return;
    }
    begin(&description, call);
    bool ok = room(&description, id_bytes(call->model)) && add_model(&description, call->model) &&
              add_config(&description) && add_files(&description) && add_problems(&description, &call->model->problems);
    finish(&description, ok);
    td_html_add_vary(call);
}
