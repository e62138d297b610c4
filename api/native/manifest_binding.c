#include "api/native/manifest_binding.h"

#include <string.h>

enum { SHOWN_BYTES = 64 };

static bool has_tag(const struct td_checkpoint *checkpoint, const char *tag)
{
    return strcmp(tag, checkpoint->tag) == 0 || strcmp(tag, checkpoint->former_tag) == 0;
}

static bool fail(const struct td_call *call, const struct td_checkpoint *checkpoint, const char *tag)
{
    td_response_fail(call->response, 412, NULL,
                     "the manifest of checkpoint \"%.200s\" has the tag \"%s\" now, not \"%.*s\": the checkpoint has "
                     "changed since that manifest was read, or it was another's; read the manifest again, GET "
                     "/models/%s/tensors, and make the request from that",
                     checkpoint->id, checkpoint->tag, TD_SHOW(td_text_of(tag), SHOWN_BYTES), call->model->id);
    return false;
}

bool td_native_check_manifest(const struct td_call *call, const struct td_checkpoint *checkpoint, const char *tag)
{
    return tag == NULL || has_tag(checkpoint, tag) || fail(call, checkpoint, tag);
}
