#include "api/html_index.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char html_type[] = "text/html; charset=utf-8";

bool td_html_is_wanted(const struct td_call *call)
{
    static const char type[] = "text/html";
    const size_t type_len = sizeof type - 1;
    size_t at = 0;
    const struct td_header *header;
    struct td_text path = call->uri->path;
    if (path.p[path.len - 1] != '/')
        return false;
    while ((header = td_request_next_header(call->request, "Accept", &at)) != NULL) {
        const char *p = header->value.p;
        const char *end = p + header->value.len;
        while (p < end) {
            const char *comma = memchr(p, ',', (size_t)(end - p));
            const char *stop = comma == NULL ? end : comma;
            while (p < stop && (*p == ' ' || *p == '\t'))
                p++;
            if ((size_t)(stop - p) >= type_len && strncasecmp(p, type, type_len) == 0 &&
                (p + type_len == stop || p[type_len] == ';' || p[type_len] == ' '))
                return true;
            p = stop + 1;
        }
    }
    return false;
}

/* ---- pieces -------------------------------------------------------------------------------------------- */

static void write_text(struct td_buffer *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const char *entity = text[i] == '&'   ? "&amp;"
                             : text[i] == '<' ? "&lt;"
                             : text[i] == '>' ? "&gt;"
                             : text[i] == '"' ? "&quot;"
                                              : NULL;
        if (entity != NULL)
            td_buffer_puts(out, entity);
        else
            td_buffer_putc(out, text[i]);
    }
}

static void begin_page(struct td_buffer *out, const char *title, size_t len)
{
    td_buffer_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>");
    write_text(out, title, len);
    td_buffer_puts(out, "</title>\n<style>body{font:16px/1.5 sans-serif;margin:2em}"
                        "td{padding:0 2em 0 0}td.n{text-align:right}</style>\n</head>\n<body>\n<h1>");
    write_text(out, title, len);
    td_buffer_puts(out, "</h1>\n<table>\n");
}

/* One row: a link and up to two columns of text. */
static void write_row(struct td_buffer *out, const char *prefix, const char *path, size_t len,
                      const char *suffix, const char *shown, size_t shown_len, const char *first,
                      const char *second)
{
    td_buffer_printf(out, "<tr><td><a href=\"%s", prefix);
    td_uri_encode(out, path, len, true);
    td_buffer_printf(out, "%s\">", suffix);
    write_text(out, shown, shown_len);
    td_buffer_printf(out, "</a></td><td class=\"n\">%s</td><td>%s</td></tr>\n", first, second);
}

static void end_page(const struct td_call *call, struct td_buffer *out)
{
    td_buffer_puts(out, "</table>\n</body>\n</html>\n");
    td_response_set_text(call->response, html_type, out);
    /* nothing in a page of ours runs, whatever names files have */
    td_response_add_header(call->response, "Content-Security-Policy",
                           "default-src 'none'; style-src 'unsafe-inline'");
    td_response_add_header(call->response, "X-Content-Type-Options", "nosniff");
}

static void bytes_text(uint64_t bytes, char out[32])
{
    (void)snprintf(out, 32, "%" PRIu64, bytes);
}

/* ---- pages --------------------------------------------------------------------------------------------- */

void td_html_models(const struct td_call *call)
{
    static const char title[] = "Models";
    enum { MODELS_MAX = 10000 }; /* for people */
    size_t shown = 0;
    const struct td_snapshot *snapshot = call->snapshot;
    struct td_buffer out;
    td_buffer_init(&out);
    begin_page(&out, title, sizeof title - 1);
    for (size_t i = 0; i < snapshot->model_count && shown <= MODELS_MAX && !out.failed; i++) {
        const struct td_model *model = &snapshot->models[i];
        char bytes[32];
        if (model->is_other_revision)
            continue;
        if (shown++ == MODELS_MAX) {
            td_buffer_puts(&out, "<tr><td>and more</td></tr>\n");
            continue;
        }
        bytes_text(model->total_bytes, bytes);
        write_row(&out, "/models/", model->id, strlen(model->id), "/", model->id, strlen(model->id), bytes,
                  model->checkpoint_count > 0 ? model->checkpoints[0].format : "");
    }
    end_page(call, &out);
    td_response_add_header(call->response, "Vary", "Accept");
    td_buffer_fini(&out);
}

void td_html_model(const struct td_call *call)
{
    static const struct {
        const char *suffix, *shown, *what;
        bool of_checkpoint;
    } links[] = {
        {"/files/", "files/", "the files", false},
        {"/tensors", "tensors", "the manifest, as JSON", true},
        {"/model.safetensors", "model.safetensors", "all tensors in one file", true},
        {"", "description", "as JSON", false},
    };
    const struct td_model *model = call->model;
    struct td_buffer out;
    td_buffer_init(&out);
    begin_page(&out, model->id, strlen(model->id));
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (!links[i].of_checkpoint || model->checkpoint_count > 0)
            write_row(&out, "/models/", model->id, strlen(model->id), links[i].suffix, links[i].shown,
                      strlen(links[i].shown), "", links[i].what);
    for (size_t i = 0; i < model->problems.count; i++) {
        td_buffer_puts(&out, "<tr><td>");
        write_text(&out, model->problems.items[i].path, strlen(model->problems.items[i].path));
        td_buffer_puts(&out, "</td><td></td><td>");
        write_text(&out, model->problems.items[i].message, strlen(model->problems.items[i].message));
        td_buffer_puts(&out, "</td></tr>\n");
    }
    end_page(call, &out);
    td_response_add_header(call->response, "Vary", "Accept");
    td_buffer_fini(&out);
}

/* The items directly in a folder: files, and the folders in it once each. from is where their names begin in the paths
 * below the model. */
static void write_items(const struct td_call *call, size_t first, size_t end, size_t from,
                        struct td_buffer *out)
{
    const struct td_model *model = call->model;
    const char *folder = "";
    size_t folder_len = 0;
    struct td_buffer prefix;
    td_buffer_init(&prefix);
    td_buffer_puts(&prefix, "/models/");
    td_uri_encode(&prefix, model->id, strlen(model->id), true);
    td_buffer_puts(&prefix, "/files/");
    const char *base = td_buffer_terminate(&prefix);
    for (size_t i = first; i < end && base != NULL && !out->failed; i++) {
        const struct td_entry *entry = &call->snapshot->entries[i];
        const char *path = td_model_relative(model, entry);
        const char *name = path + from;
        size_t name_len = strcspn(name, "/");
        char bytes[32];
        bytes_text(entry->file->source.id.size_bytes, bytes);
        if (name[name_len] == '\0') {
            write_row(out, base, path, strlen(path), "", name, name_len, bytes, "");
        } else if (name_len + 1 != folder_len || strncmp(folder, name, folder_len) != 0) {
            folder = name;
            folder_len = name_len + 1;
            write_row(out, base, path, from + folder_len, "", name, folder_len, "", "");
        }
    }
    out->failed = out->failed || base == NULL;
    td_buffer_fini(&prefix);
}

/* The entries below a folder of the model's files: a run, since paths are sorted. */
static bool find_run(const struct td_call *call, struct td_text path, size_t *first, size_t *count)
{
    const struct td_model *model = call->model;
    struct td_buffer folder;
    *first = model->first_entry;
    *count = model->entry_count;
    if (path.len == 0)
        return true;
    td_buffer_init(&folder);
    if (model->directory_len > 0)
        td_buffer_printf(&folder, "%s/", model->id);
    td_buffer_append(&folder, path.p, path.len);
    bool ok = !folder.failed;
    if (ok)
        td_snapshot_entries_below(call->snapshot, folder.data, folder.len, first, count);
    td_buffer_fini(&folder);
    /* files directly in the root are a model each: what lies below is not theirs */
    return ok && *count > 0 && *first >= model->first_entry &&
           *first + *count <= model->first_entry + model->entry_count;
}

bool td_html_folder(const struct td_call *call, struct td_text path)
{
    size_t first;
    size_t count;
    if (!find_run(call, path, &first, &count))
        return false;
    struct td_buffer title;
    struct td_buffer out;
    td_buffer_init(&title);
    td_buffer_init(&out);
    td_buffer_printf(&title, "%s: files/", call->model->id);
    td_buffer_append(&title, path.p, path.len);
    const char *text = td_buffer_terminate(&title);
    begin_page(&out, text == NULL ? "" : text, title.len);
    write_items(call, first, first + count, path.len == 0 ? 0 : path.len + 1, &out);
    out.failed = out.failed || text == NULL;
    end_page(call, &out);
    td_buffer_fini(&title);
    td_buffer_fini(&out);
    return true;
}
