/* The files of a model as they lie on disk, and the pages of its folders. */
#include "api/html/html_index.h"
#include "api/native/routes.h"
#include "rank/file_answer.h"

void td_handle_file(const struct td_call *call)
{
    static const char *const known[] = {NULL};
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    if (!td_call_check_parameters(call, known))
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
    static const char *const known[] = {NULL};
    if (td_call_check_parameters(call, known))
        (void)td_html_folder(call, TD_TEXT(""));
}
