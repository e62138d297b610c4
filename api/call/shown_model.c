#include "api/call/shown_model.h"

#include "catalog/names/family.h"
#include "core/digest.h"

#include <stdio.h>

struct td_shown_model td_shown_model_of(const struct td_call *call, const struct td_model *model)
{
    struct td_shown_model shown = {.id = model->id};
    if (call->version != NULL)
        shown = (struct td_shown_model){.id = call->family->id, .version = call->version->name};
    return shown;
}

void td_shown_model_add(const struct td_call *call, const struct td_model *model, struct td_document *json)
{
    const struct td_shown_model shown = td_shown_model_of(call, model);
    td_document_add_string(json, "model", shown.id);
    if (shown.version != NULL)
        td_document_add_string(json, "version", shown.version);
}

void td_shown_model_write_path(const struct td_shown_model *shown, const char *below, struct td_buffer *out)
{
    td_buffer_puts(out, "/models/");
    td_uri_encode(out, td_text_of(shown->id), true);
    td_buffer_putc(out, '/');
    td_buffer_puts(out, below);
}

const char *td_shown_model_write_query(const struct td_shown_model *shown, const char *separator, struct td_buffer *out)
{
    if (shown->version == NULL)
        return separator;
    td_buffer_printf(out, "%sversion=", separator);
    td_uri_encode(out, td_text_of(shown->version), false);
    return "&";
}

void td_shown_model_add_version(struct td_response *response, const char *version)
{
    struct td_buffer name;
    td_buffer_init(&name);
    td_uri_encode(&name, td_text_of(version), false);
    if (!name.failed)
        td_response_add_header_text(response, "X-Tensord-Version", td_buffer_text(&name));
    td_buffer_fini(&name);
}

bool td_shown_model_tag(const struct td_call *call, const char *tag, char out[TD_TAG_BYTES])
{
    (void)snprintf(out, TD_TAG_BYTES, "%s", tag);
    if (call->version == NULL || !call->family->is_cache)
        return true;
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, tag);
    td_digest_add_cstring(digest, call->version->name);
    return td_digest_finish(digest, out) || td_call_no_memory(call);
}

bool td_shown_model_key(const struct td_shown_model *shown, const char *tag, char out[TD_TAG_BYTES],
                        struct td_error *err)
{
    (void)snprintf(out, TD_TAG_BYTES, "%s", tag);
    if (shown->version == NULL)
        return true;
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, tag);
    td_digest_add_cstring(digest, shown->id);
    td_digest_add_cstring(digest, shown->version);
    return td_digest_finish(digest, out) || td_error_no_memory(err);
}
