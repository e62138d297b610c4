#include "catalog/model/file_kind.h"

#include "core/text.h"
#include "parser/formats.h"
#include "parser/torch/torch_dcp.h"
#include "parser/torch/torch_distcp.h"

#include <stddef.h>
#include <string.h>

const char *td_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static bool is_shard_index(const char *name)
{
    const char *at = strstr(name, ".safetensors.index.");
    if (at == NULL)
        at = strstr(name, ".bin.index.");
    return at != NULL && at != name && td_has_extension(name, ".json");
}

bool td_is_keras_map(const char *path)
{
    return td_has_extension(td_base_name(path), ".weights.json");
}

bool td_is_checkpoint_kind(enum td_file_kind kind)
{
    return kind != TD_FILE_PLAIN && kind != TD_FILE_MAYBE_TENSORS;
}

enum td_file_kind td_file_kind_of(const char *path)
{
    const char *name = td_base_name(path);
    const struct td_format *format = td_format_for_name(name);
    if (strcmp(name, TD_DCP_METADATA_NAME) == 0)
        return TD_FILE_DCP_METADATA;
    if (format != NULL)
        return format == &td_format_distcp ? TD_FILE_DCP_PART : TD_FILE_TENSORS;
    if (td_format_may_have_name(name))
        return TD_FILE_MAYBE_TENSORS;
    return is_shard_index(name) || td_is_keras_map(name) ? TD_FILE_SHARD_INDEX : TD_FILE_PLAIN;
}

/* ---- images -------------------------------------------------------------------------------------------- */

bool td_is_image_file(const char *name)
{
    static const char *const extensions[] = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (td_has_extension_any_case(name, extensions[i]))
            return true;
    return false;
}
