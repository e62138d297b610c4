#include "api/hub/hub_call.h"

#include "core/json.h"

#include <string.h>

/* An array of errors while it is written. */
struct errors {
    struct td_hub_call *hub;
    struct td_buffer *out;
    size_t count;
    struct td_error *err;
};

/* Appends one; path is that of directory/file, or of the file where the directory is empty. */
static bool write_one(struct errors *errors, struct td_text directory, const char *file, const char *message)
{
    struct td_buffer *out = errors->out;
    struct td_buffer path;
    if (errors->count >= TD_HUB_MOST_ERRORS)
        return true;
    td_buffer_init(&path);
    td_buffer_append(&path, directory.p, directory.len);
    td_buffer_puts(&path, directory.len > 0 ? "/" : "");
    td_buffer_puts(&path, file);
    bool ok = (!path.failed || td_error_no_memory(errors->err)) &&
              td_reserved_json_room(&errors->hub->reserved, out, path.len + strlen(message), errors->err);
    if (ok) {
        td_buffer_puts(out, errors->count++ == 0 ? ",\"errors\":[{\"file\":" : ",{\"file\":");
        td_json_write_string(out, td_buffer_text(&path));
        td_hub_write_error(out, message);
        td_buffer_putc(out, '}');
    }
    td_buffer_fini(&path);
    return ok;
}

static bool write_files(struct errors *errors, const struct td_repo_view *view)
{
    static const struct td_text here = {.p = "", .len = 0};
    for (size_t i = 0; i < view->entry_count && errors->count < TD_HUB_MOST_ERRORS; i++) {
        const struct td_entry *entry = &view->snapshot->entries[view->first_entry + i];
        if (entry->file->error != NULL && td_repo_view_keeps(view, entry) &&
            !write_one(errors, here, entry->path + view->prefix_len, entry->file->error))
            return false;
    }
    return true;
}

/* What is wrong with a model beside its single files: a set that is not whole. */
static bool write_sets(struct errors *errors, const struct td_repo_view *view, const struct td_model *model)
{
    struct td_text directory = td_repo_view_directory(view, model);
    for (size_t i = 0; i < model->problems.count; i++) {
        const struct td_problem *problem = &model->problems.items[i];
        const struct td_entry *entry = td_model_find_file(view->snapshot, model, td_text_of(problem->path));
        if ((entry == NULL || entry->file->error == NULL) &&
            !write_one(errors, directory, problem->path, problem->message))
            return false;
    }
    return true;
}

bool td_hub_write_errors(struct td_hub_call *hub, struct td_buffer *out, const struct td_repo_view *view,
                         struct td_error *err)
{
    struct errors errors = {.hub = hub, .out = out, .err = err};
    const struct td_model *model;
    bool ok = write_files(&errors, view);
    for (size_t i = 0; ok && (model = td_repo_view_model(view, i)) != NULL; i++)
        ok = write_sets(&errors, view, model);
    td_buffer_puts(out, errors.count > 0 ? "]" : "");
    return ok;
}
