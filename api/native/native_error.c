#include "api/native/native_error.h"

#include "core/json/json_build.h"

const char *td_status_word(int status)
{
    switch (status) {
    case 400:
    case 411:
        return "INVALID_ARGUMENT";
    case 401:
        return "UNAUTHENTICATED";
    case 403:
        return "PERMISSION_DENIED";
    case 404:
        return "NOT_FOUND";
    case 405:
        return "UNIMPLEMENTED";
    case 409:
    case 412:
    case 422:
        return "FAILED_PRECONDITION";
    case 413:
    case 414:
    case 429:
    case 431:
    case 507:
        return "RESOURCE_EXHAUSTED";
    case 416:
        return "OUT_OF_RANGE";
    case 503:
        return "UNAVAILABLE";
    default:
        return "INTERNAL";
    }
}

void td_native_write_error(struct td_failure *failure, struct td_buffer *out)
{
    struct td_json_builder json;
    td_json_builder_init(&json, out);
    td_json_begin_object(&json, NULL);
    td_json_begin_object(&json, "error");
    td_json_add_u64(&json, "code", (uint64_t)failure->status);
    td_json_add_string(&json, "status", td_status_word(failure->status));
    td_json_add_string(&json, "message", failure->message);
    td_json_add_raw(&json, "details", td_text_of(failure->details == NULL ? "{}" : failure->details));
    td_json_end(&json);
    td_json_end(&json);
    td_json_builder_fini(&json);
    td_buffer_putc(out, '\n');
}
