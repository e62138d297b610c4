#include "api/native/commit_answer.h"

void td_commit_answer_add_missing(struct td_document *json, const struct td_publish_blob *blob)
{
    td_document_begin_array(json, "missing");
    for (size_t i = 0; i < blob->missing_count; i++) {
        td_document_begin_array(json, NULL);
        td_document_add_u64(json, NULL, blob->missing[i].first);
        td_document_add_u64(json, NULL, blob->missing[i].last);
        td_document_end(json);
    }
    td_document_end(json);
}

void td_commit_answer_parent(const struct td_call *call, const char *revision, const char *commit)
{
    struct td_buffer details;
    td_buffer_init(&details);
    td_buffer_printf(&details, "{\"commit\":\"%s\"}", commit);
    const char *text = td_buffer_terminate(&details);
    if (text == NULL)
        (void)td_call_no_memory(call);
    else if (commit[0] == '\0')
        td_response_fail(call->response, 412, text, "there is no revision \"%.200s\" yet", revision);
    else
        td_response_fail(call->response, 412, text, "\"%.200s\" is at commit %s, not at the given parent", revision,
                         commit);
    td_buffer_fini(&details);
}

void td_commit_answer(const struct td_call *call, struct td_text id, const struct td_commit_order *order,
                      const struct td_commit_result *result, int status)
{
    struct td_buffer json;
    struct td_document builder;
    td_buffer_init(&json);
    td_document_init(&builder, &json);
    td_document_begin_object(&builder, NULL);
    td_document_add_text(&builder, "model", id);
    td_document_add_string(&builder, "revision", order->revision);
    td_document_add_string(&builder, "commit", result->commit);
    td_document_add_string(&builder, "parent", result->parent);
    td_document_add_bool(&builder, "changed", result->verdict == TD_COMMIT_MOVED);
    td_document_add_u64(&builder, "files", result->file_count);
    td_document_add_u64(&builder, "bytes", result->file_bytes);
    td_document_end(&builder);
    td_buffer_putc(&json, '\n');
    td_response_set_text(call->response, "application/json", "no-store", &json);
    td_buffer_fini(&json);
    if (call->response->status == 200)
        call->response->status = status;
}
