#include "api/oci/oci_error.h"

#include "core/json_build.h"

/* Returns the code for a status that came without one. UNAVAILABLE and UNKNOWN are those of the registries that clients
 * know; the specification has codes for its own errors alone. */
static const char *code_of(int status)
{
    static const struct {
        int status;
        const char *code;
    } codes[] = {
        {400, "UNSUPPORTED"}, {401, "UNAUTHORIZED"}, {403, "DENIED"},       {404, "NAME_UNKNOWN"},
        {405, "UNSUPPORTED"}, {409, "BLOB_UNKNOWN"}, {416, "SIZE_INVALID"}, {429, "TOOMANYREQUESTS"},
        {412, "UNSUPPORTED"}, {422, "UNSUPPORTED"},  {431, "UNSUPPORTED"},  {501, "UNSUPPORTED"},
        {503, "UNAVAILABLE"}, {507, "UNAVAILABLE"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == status)
            return codes[i].code;
    return "UNKNOWN";
}

void td_oci_write_error(struct td_failure *failure, struct td_buffer *out)
{
    struct td_json_builder json;
    td_json_builder_init(&json, out);
    td_json_begin_object(&json, NULL);
    td_json_begin_array(&json, "errors");
    td_json_begin_object(&json, NULL);
    td_json_add_string(&json, "code", failure->code != NULL ? failure->code : code_of(failure->status));
    td_json_add_string(&json, "message", failure->message);
    td_json_begin_object(&json, "detail");
    td_json_end(&json);
    td_json_end(&json);
    td_json_end(&json);
    td_json_end(&json);
    td_json_builder_fini(&json);
    td_buffer_putc(out, '\n');
}
