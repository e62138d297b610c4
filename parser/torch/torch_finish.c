#include "parser/torch/torch_finish.h"

#include "parser/format/manifest.h"
#include "parser/format/names.h"

#include <stdlib.h>

static struct td_text tensor_name(const void *context, size_t i)
{
    const struct td_tensor *tensors = context;
    return td_tensor_name(&tensors[i]);
}

/* Two tensors can have one path: {"a": {"b": x}, "a.b": y}, or {1: x, "1": y}. */
static bool number_tensors(struct td_manifest *manifest, struct td_error *err)
{
    struct td_names names = {.count = manifest->tensor_count, .context = manifest->tensors, .get = tensor_name};
    struct td_text *fresh;
    if (!td_names_number_repeated(&names, &manifest->arena, &fresh, err))
        return false;
    for (size_t i = 0; fresh != NULL && i < names.count; i++) {
        if (fresh[i].p == NULL)
            continue;
        manifest->tensors[i].name = fresh[i].p;
        manifest->tensors[i].name_len = (uint32_t)fresh[i].len;
    }
    free(fresh);
    return true;
}

static bool number_metadata(struct td_manifest *manifest, struct td_error *err)
{
    struct td_names names = td_metadata_keys(manifest->metadata, manifest->metadata_count);
    struct td_text *fresh;
    if (!td_names_number_repeated(&names, &manifest->arena, &fresh, err))
        return false;
    for (size_t i = 0; fresh != NULL && i < names.count; i++)
        if (fresh[i].p != NULL)
            manifest->metadata[i].key = fresh[i].p;
    free(fresh);
    return true;
}

bool td_torch_finish(struct td_manifest *manifest, struct td_error *err)
{
    manifest->bare = manifest->bare && manifest->tensor_count == 1; /* without attributes that are tensors */
    return number_metadata(manifest, err) && number_tensors(manifest, err) && td_manifest_finish(manifest, err);
}
