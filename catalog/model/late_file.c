#include "catalog/model/late_file.h"

#include <stdlib.h>

struct late_file {
    struct td_blob blob; /* first, so that a pointer to one is a pointer to the other */
    struct td_mapping_cache *maps;
    struct td_root *root;
    struct td_file *file;
};

static void late_destroy(struct td_blob *blob)
{
    struct late_file *late = (struct late_file *)(void *)blob;
    td_file_unref(late->file);
    td_root_unref(late->root);
    free(late);
}

static bool late_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct late_file *late = (struct late_file *)(void *)blob;
    struct td_blob *mapped;
    if (!td_file_source_map(late->maps, late->root, &late->file->source, &mapped, err))
        return false;
    bool ok = td_blob_read(mapped, off, out, len, err) &&
              (td_blob_unchanged(mapped) ||
               td_error_set(err, TD_UNAVAILABLE, "\"%s\" changed while it was read", late->file->source.path));
    td_blob_unref(mapped);
    return ok;
}

static bool late_resident(struct td_blob *blob, uint64_t off, uint64_t len)
{
    (void)blob;
    (void)off;
    (void)len;
    return false; /* to open the file may take long */
}

static const struct td_blob_class late_class = {.destroy = late_destroy, .read = late_read, .resident = late_resident};

bool td_late_file(struct td_mapping_cache *maps, struct td_root *root, struct td_file *file, struct td_blob **out,
                  struct td_error *err)
{
    struct late_file *late = calloc(1, sizeof *late);
    if (late == NULL)
        return td_error_no_memory(err);
    td_blob_init(&late->blob, &late_class, file->source.id.size_bytes);
    late->maps = maps;
    late->root = td_root_ref(root);
    late->file = td_file_ref(file);
    *out = &late->blob;
    return true;
}
