#include "rank/config_text.h"

#include "parser/lfs_pointer.h"
#include "slicing/engine/model_config.h"

#include <inttypes.h>
#include <stdlib.h>

bool td_model_config_text(struct td_mapping_cache *maps, const struct td_snapshot *snapshot,
                          const struct td_model *model, char **text, size_t *len, struct td_error *err)
{
    const struct td_entry *entry = model->config;
    struct td_blob *blob = NULL;
    *text = NULL;
    *len = 0;
    if (entry == NULL)
        return true;
    if (entry->file->is_lfs_pointer)
        return td_error_set(err, TD_FAILED_PRECONDITION, "config.json: %s", TD_LFS_POINTER_REASON);
    if (entry->file->source.id.size_bytes > TD_CONFIG_MAX_BYTES)
        return td_error_set(err, TD_FAILED_PRECONDITION, "config.json has %" PRIu64 " bytes; at most %d are read",
                            entry->file->source.id.size_bytes, TD_CONFIG_MAX_BYTES);
    if (!td_file_source_map(maps, snapshot->root, &entry->file->source, &blob, err))
        return false;
    *len = (size_t)blob->len_bytes;
    *text = malloc(*len + 1);
    bool ok = (*text != NULL || td_error_no_memory(err)) && td_blob_read(blob, 0, *text, *len, err) &&
              (td_blob_unchanged(blob) || td_error_set(err, TD_UNAVAILABLE, "config.json changed while it was read"));
    td_blob_unref(blob);
    if (!ok) {
        free(*text);
        *text = NULL;
    }
    return ok;
}
