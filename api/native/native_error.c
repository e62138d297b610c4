#include "api/native/native_error.h"

#include "core/json.h"

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
    td_buffer_printf(out, "{\"error\":{\"code\":%d,\"status\":\"%s\",\"message\":", failure->status,
                     td_status_word(failure->status));
    td_json_write_cstring(out, failure->message);
    td_buffer_printf(out, ",\"details\":%s}}\n", failure->details == NULL ? "{}" : failure->details);
}
