#include "api/native/answer_now.h"

void td_native_answer_now(const struct td_call *call, const char *type, struct td_buffer *text)
{
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    size_t len;
    char *data = td_buffer_release(text, &len);
    if (data == NULL)
        (void)td_error_no_memory(&err);
    else
        (void)td_body_append_heap(&response->body, data, len, &err);
    if (err.code != TD_OK) {
        td_response_fail_error(response, &err);
        return;
    }
    response->content_type = type;
    response->cache_control = "no-store";
}
