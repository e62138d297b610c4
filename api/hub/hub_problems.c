#include "api/hub/hub_problems.h"

#include "api/hub/hub_item.h"

#include <string.h>

/* The list of errors while it is written. */
struct errors {
    struct td_hub_call *hub;
    struct td_json_builder *json;
    size_t count;
    struct td_error *err;
};

/* Adds an error of directory/file, or of the file when the directory is empty. */
static bool add_one(struct errors *errors, struct td_text directory, const char *file, const char *message)
{
    struct td_json_builder *json = errors->json;
    struct td_buffer path;
    if (errors->count >= TD_HUB_MOST_ERRORS)
        return true;
    td_buffer_init(&path);
    td_buffer_append(&path, directory.p, directory.len);
    td_buffer_puts(&path, directory.len > 0 ? "/" : "");
    td_buffer_puts(&path, file);
    bool ok = (!path.failed || td_error_no_memory(errors->err)) &&
              td_reserved_json_room(&errors->hub->reserved, json, path.len + strlen(message), errors->err);
    if (ok) {
        if (errors->count++ == 0)
            td_json_begin_array(json, "errors");
        td_json_begin_object(json, NULL);
        td_json_add_text(json, "file", td_buffer_text(&path));
        td_hub_add_error(json, message);
        td_json_end(json);
    }
    td_buffer_fini(&path);
    return ok;
}

static bool add_files(struct errors *errors, const struct td_repo_view *view)
{
    for (size_t i = 0; i < view->entry_count && errors->count < TD_HUB_MOST_ERRORS; i++) {
        const struct td_entry *entry = &view->snapshot->entries[view->first_entry + i];
        if (entry->file->error != NULL && td_repo_view_keeps(view, entry) &&
            !add_one(errors, TD_TEXT(""), entry->path + view->prefix_len, entry->file->error))
            return false;
    }
    return true;
}

/* Adds the sets of files of a model that are not whole. */
static bool add_sets(struct errors *errors, const struct td_repo_view *view, const struct td_model *model)
{
    struct td_text directory = td_repo_view_directory(view, model);
    for (size_t i = 0; i < model->problems.count; i++) {
        const struct td_problem *problem = &model->problems.items[i];
        const struct td_entry *entry = td_model_find_file(view->snapshot, model, td_text_of(problem->path));
        if ((entry == NULL || entry->file->error == NULL) &&
            !add_one(errors, directory, problem->path, problem->message))
            return false;
    }
    return true;
}

bool td_hub_add_errors(struct td_hub_call *hub, struct td_json_builder *json, const struct td_repo_view *view,
                       struct td_error *err)
{
    struct errors errors = {.hub = hub, .json = json, .err = err};
    const struct td_repo_models models = td_repo_view_models(view);
    const struct td_model *model;
    bool ok = add_files(&errors, view);
    for (size_t i = 0; ok && (model = td_repo_models_get(&models, i)) != NULL; i++)
        ok = add_sets(&errors, view, model);
    if (errors.count > 0)
        td_json_end(json);
    return ok;
}
