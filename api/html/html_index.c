/* Plan: every page is a head, rows, and a tail. The functions here write the head and choose the function that writes
 * one row; html_view renders the rows while the page is sent, so a folder of a million files costs no memory.
 *
 * What is hard: names come from disk, so every text is escaped, links are percent-encoded, and the
 * Content-Security-Policy allows no scripts. Rows are numbered by entries, and the row of a sub-folder jumps over all
 * entries in it. */
#include "api/html/html_index.h"

#include "api/call/find_name.h"
#include "api/html/folder_page.h"
#include "api/html/html_view.h"

#include <stdio.h>
#include <string.h>

bool td_html_is_accepted(const struct td_call *call)
{
    return td_request_accepts(call->request, "text/html");
}

bool td_html_is_wanted(const struct td_call *call)
{
    struct td_text path = call->uri->path;
    return path.p[path.len - 1] == '/' && td_html_is_accepted(call);
}

void td_html_add_vary(const struct td_call *call)
{
    const struct td_text path = call->uri->path;
    if (call->response->status == 200 && path.p[path.len - 1] == '/')
        td_response_add_header(call->response, "Vary", "Accept");
}

/* ---- pieces -------------------------------------------------------------------------------------------- */

/* Writes the links to the start and to the page above (encoded; empty: none). The start is "/#": the http file system
 * of fsspec takes a plain "/" for an item of the folder. */
static void write_ways(struct td_buffer *out, struct td_text above)
{
    td_buffer_puts(out, "<p><a href=\"/#\">all models</a>");
    if (above.len > 0) {
        td_buffer_puts(out, " &middot; <a href=\"");
        td_buffer_append(out, above.p, above.len);
        td_buffer_puts(out, "\">up</a>");
    }
    td_buffer_puts(out, "</p>\n");
}

/* Writes the beginning of every page, up to the rows. above: the link to the page above; NULL: no links to other pages.
 */
static void begin_page(const struct td_call *call, struct td_html_page *page, struct td_text title,
                       const struct td_text *above, const char *headings)
{
    struct td_buffer *out = &page->head;
    memset(page, 0, sizeof *page);
    page->snapshot = call->snapshot;
    page->model = call->model;
    page->tail = "</table>\n</body>\n</html>\n";
    td_buffer_init(&page->base);
    td_buffer_init(out);
    td_html_begin(out, title);
    if (above != NULL)
        write_ways(out, *above);
    td_buffer_puts(out, "<table>\n");
    td_buffer_puts(out, headings);
}

/* A row: a link (`prefix` as it is, then `path` encoded, then `suffix`), a size (NULL: none), and a text, with
 * `subject` before it (NULL: nothing). */
struct row {
    struct td_text prefix, path, shown;
    const char *suffix; /* of the link */
    const uint64_t *bytes;
    const char *subject, *text;
};

/* Writes "1.5 MiB" for a reader, the exact number as the cell's title. */
static void write_size_cell(struct td_buffer *out, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024; unit++)
        value /= 1024;
    td_buffer_puts(out, "<td class=\"n\" title=\"");
    td_buffer_u64(out, bytes);
    td_buffer_printf(out, unit == 0 ? " bytes\">%.0f %s</td>" : " bytes\">%.1f %s</td>", value, units[unit]);
}

static void write_row(struct td_buffer *out, const struct row *row)
{
    td_buffer_puts(out, "<tr><td><a href=\"");
    td_buffer_append(out, row->prefix.p, row->prefix.len);
    td_uri_encode(out, row->path, true);
    td_buffer_puts(out, row->suffix);
    td_buffer_puts(out, "\">");
    td_html_write_text(out, row->shown);
    td_buffer_puts(out, "</a></td>");
    if (row->bytes != NULL)
        write_size_cell(out, *row->bytes);
    else
        td_buffer_puts(out, "<td></td>");
    td_buffer_puts(out, "<td>");
    if (row->subject != NULL) {
        td_html_write_text(out, td_text_of(row->subject));
        td_buffer_puts(out, ": ");
    }
    td_html_write_text(out, td_text_of(row->text));
    td_buffer_puts(out, "</td></tr>\n");
}

/* Answers 200 with the whole page and takes over its buffers. Returns false, with no answer, when memory is short. */
static bool set_page(const struct td_call *call, const struct td_html_page *page, struct td_error *err)
{
    struct td_response *response = call->response;
    struct td_blob *blob = NULL;
    char tag[TD_TAG_BYTES];
    bool ok =
        td_html_view_create(page, &blob, tag, err) && td_body_append(&response->body, blob, 0, blob->len_bytes, err);
    td_blob_unref(blob);
    if (!ok)
        return false;
    td_html_describe(response, tag, "default-src 'none'; style-src 'unsafe-inline'");
    return true;
}

/* Does the same for a page that only clients that ask for HTML get; a failure becomes the answer. */
static void answer_page(const struct td_call *call, const struct td_html_page *page)
{
    struct td_error err = TD_ERROR_INIT;
    if (!set_page(call, page, &err))
        td_response_fail_error(call->response, &err);
    td_response_add_header(call->response, "Vary", "Accept");
}

/* ---- one model ----------------------------------------------------------------------------------------- */

/* The links of a complete checkpoint on the page of its model. */
static const struct {
    const char *name, *before, *after; /* the text beside the link is before, the checkpoint's id, after */
} resources[] = {
    {"tensors", "the manifest of checkpoint ", ", as JSON"},
    {"model.safetensors", "all tensors of checkpoint ", " in one file"},
};

enum { RESOURCES = sizeof resources / sizeof *resources };

/* Writes the row of a link to a resource of the model itself. */
static void write_own_link(struct td_buffer *out, const struct td_model *model, const char *suffix, const char *shown,
                           const char *text)
{
    struct row row = {.prefix = td_text_of("/models/"), .path = td_text_of(model->id)};
    row.suffix = suffix;
    row.shown = td_text_of(shown);
    row.text = text;
    write_row(out, &row);
}

/* Writes the query that selects the checkpoint, for a link (encoded) or for a reader. The default needs none. */
static void write_query(struct td_buffer *out, const struct td_checkpoint *checkpoint, bool is_default, bool encoded)
{
    if (!is_default) {
        td_buffer_puts(out, "?checkpoint=");
        if (encoded)
            td_uri_encode(out, td_text_of(checkpoint->id), false);
        else
            td_html_write_text(out, td_text_of(checkpoint->id));
    }
    if (checkpoint->lacks != NULL)
        td_buffer_puts(out, is_default ? "?partial=1" : "&amp;partial=1");
}

/* Writes the row of a link to a resource of a checkpoint. */
static void write_link(struct td_buffer *out, const struct td_model *model, const struct td_checkpoint *checkpoint,
                       bool is_default, const char *name, const char *before, const char *after)
{
    td_buffer_puts(out, "<tr><td><a href=\"/models/");
    td_uri_encode(out, td_text_of(model->id), true);
    td_buffer_printf(out, "/%s", name);
    write_query(out, checkpoint, is_default, true);
    td_buffer_printf(out, "\">%s", name);
    write_query(out, checkpoint, is_default, false);
    td_buffer_printf(out, "</a></td><td></td><td>%s", before);
    td_html_write_text(out, td_text_of(checkpoint->id));
    td_buffer_printf(out, "%s</td></tr>\n", after);
}

static void write_problem(struct td_buffer *out, const struct td_problem *problem)
{
    td_buffer_puts(out, "<tr><td>");
    td_html_write_text(out, td_text_of(problem->path));
    td_buffer_puts(out, "</td><td></td><td>");
    td_html_write_text(out, td_text_of(problem->message));
    td_buffer_puts(out, "</td></tr>\n");
}

/* Writes a row of a model's page: the files, the checkpoints, the incomplete checkpoints, the description, and then the
 * problems. */
static size_t write_of_model(const struct td_html_page *page, size_t at, struct td_buffer *out)
{
    const struct td_model *model = page->model;
    size_t partials_at = 1 + model->checkpoint_count * RESOURCES;
    size_t description_at = partials_at + model->partial_count;
    if (at == 0) {
        char text[TD_SHARD_VERSION_BYTES + 64] = "the files";
        if (model->is_delta)
            (void)snprintf(text, sizeof text, "the files, which hold the changes to %s%s",
                           model->base == NULL ? "another version" : "version ",
                           model->base == NULL ? "" : model->base);
        write_own_link(out, model, "/files/", "files/", text);
    } else if (at < partials_at) {
        const struct td_checkpoint *checkpoint = &model->checkpoints[(at - 1) / RESOURCES];
        size_t which = (at - 1) % RESOURCES;
        if (which == 0 || checkpoint->fits_safetensors)
            write_link(out, model, checkpoint, checkpoint == model->checkpoints, resources[which].name,
                       resources[which].before, resources[which].after);
    } else if (at < description_at) {
        const struct td_checkpoint *partial = &model->partials[at - partials_at];
        write_link(out, model, partial, td_model_is_default_checkpoint(model, partial), "tensors",
                   partial->is_rank_part ? "one rank's part of the tensors, "
                                         : "the available tensors of the incomplete checkpoint ",
                   ", as JSON");
    } else if (at == description_at) {
        write_own_link(out, model, "", "description", "as JSON");
    } else {
        write_problem(out, &model->problems.items[at - description_at - 1]);
    }
    return at + 1;
}

void td_html_model(const struct td_call *call)
{
    const struct td_text above = td_text_of("/models/");
    struct td_html_page page;
    begin_page(call, &page, td_text_of(call->model->id), &above, "");
    const struct td_model *model = call->model;
    page.end_row = 2 + model->checkpoint_count * RESOURCES + model->partial_count + model->problems.count;
    page.write_row = write_of_model;
    answer_page(call, &page);
}

/* ---- names as on the Hub's site ------------------------------------------------------------------------ */

/* Answers with the files of a repository. */
static void answer_repository(const struct td_call *call, const struct td_named_page *page)
{
    const struct td_repo *repo = page->repo;
    struct td_html_files files = {.name = td_text_of(repo->hub_id),
                                  .first_entry = repo->first_entry,
                                  .entry_count = repo->entry_count,
                                  .prefix_len = repo->prefix_len};
    struct td_buffer base;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&base);
    td_buffer_puts(&base, page->as_dataset ? "/datasets/" : "/");
    td_uri_encode(&base, td_text_of(repo->hub_id), true);
    td_buffer_puts(&base, "/resolve/main/");
    files.base = td_buffer_text(&base);
    bool ok = base.failed ? td_error_no_memory(&err) : td_html_files_page(call, &files, td_text_of(""), &err);
    td_buffer_fini(&base);
    if (!ok)
        td_response_fail_error(call->response, &err);
    td_response_add_header(call->response, "Vary", "Accept");
}

void td_html_named(const struct td_call *call)
{
    struct td_named_page page;
    struct td_call named = *call;
    if (!td_name_find_page(call->snapshot, call->uri->path, &page)) {
        td_response_fail(call->response, 404, NULL, "nothing at this path");
        return;
    }
    named.model = page.model;
    if (page.model != NULL)
        td_html_model(&named);
    else
        answer_repository(call, &page);
}
