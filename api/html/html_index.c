#include "api/html/html_index.h"

#include "api/call/find_name.h"
#include "api/html/folder_page.h"
#include "api/html/model_page.h"

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
