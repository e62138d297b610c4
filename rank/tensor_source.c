#include "rank/tensor_source.h"

#include "parser/formats.h"
#include "slicing/engine/model_config.h"
#include "storage/array_blob.h"
#include "storage/decoded.h"
#include "storage/tiled.h"

#include <inttypes.h>
#include <stdlib.h>

_Static_assert((int)TD_STRIDED_MAX_RANK >= (int)TD_MAX_RANK && (int)TD_TILED_MAX_RANK >= (int)TD_MAX_RANK,
               "every tensor that parses can be gathered");

static bool map_part(const struct td_tensor_caches *caches, const struct td_snapshot *snapshot,
                     const struct td_checkpoint *checkpoint, uint32_t part, struct td_blob **out, struct td_error *err)
{
    return td_file_source_map(caches->maps, snapshot->root, &checkpoint->parts[part]->file->source, out, err);
}

/* Opens a tensor with boxes in several files. */
static bool open_pieces(const struct td_tensor_caches *caches, const struct td_snapshot *snapshot,
                        const struct td_checkpoint *checkpoint, const struct td_tensor *tensor, struct td_blob **out,
                        struct td_error *err)
{
    struct td_grid *grid = td_checkpoint_grid(checkpoint, tensor);
    size_t count;
    const uint32_t *parts = td_grid_parts(grid, &count);
    struct td_blob **sources = calloc(count, sizeof *sources);
    bool ok = sources != NULL || td_error_no_memory(err);
    for (size_t i = 0; ok && i < count; i++)
        ok = map_part(caches, snapshot, checkpoint, parts[i], &sources[i], err);
    ok = ok && td_blob_tiled(grid, sources, out, err);
    for (size_t i = 0; sources != NULL && i < count; i++)
        td_blob_unref(sources[i]);
    free(sources);
    return ok;
}

static void release_file(void *file)
{
    td_file_unref(file);
}

/* The next functions replace *blob by a blob over it; after a failure *blob is NULL. */

static bool replace_blob(bool made, struct td_blob *over, struct td_blob **blob)
{
    td_blob_unref(*blob);
    *blob = made ? over : NULL;
    return made;
}

/* Decodes a tensor with a coding. The tensor is of its file's manifest, so its name lives as long as the file. */
static bool decode_tensor(const struct td_tensor_caches *caches, struct td_file *file, const struct td_tensor *tensor,
                          const struct td_cancel *cancel, struct td_blob **blob, struct td_error *err)
{
    struct td_blob *over = NULL;
    struct td_decoded_owner owner = {.cancel = cancel,
                                     .context = td_file_ref(file),
                                     .release = release_file,
                                     .tensor = tensor->name,
                                     .file = file->source.path};
    bool made = td_blob_decoded(*blob, tensor->coding, file->number, caches->decodes, &owner, &over, err);
    return replace_blob(made, over, blob);
}

static bool gather_strides(const struct td_tensor *tensor, struct td_blob **blob, struct td_error *err)
{
    struct td_blob *over = NULL;
    bool made = td_blob_strided(*blob, tensor->offset, tensor->dtype->block_bytes, tensor->rank, tensor->shape,
                                tensor->strides, &over, err);
    return replace_blob(made, over, blob);
}

static bool swap_bytes(const struct td_tensor *tensor, uint64_t off, struct td_blob **blob, struct td_error *err)
{
    struct td_swap order;
    struct td_blob *over = NULL;
    bool made = (td_dtype_swap(tensor->dtype, &order) || td_error_set(err, TD_INTERNAL, "an unknown byte order")) &&
                td_blob_swapped(*blob, off, tensor->nbytes, &order, &over, err);
    return replace_blob(made, over, blob);
}

bool td_tensor_open_by(const struct td_tensor_caches *caches, const struct td_snapshot *snapshot,
                       const struct td_checkpoint *checkpoint, struct td_tensor_ref ref, const struct td_cancel *cancel,
                       struct td_blob **blob, uint64_t *base, struct td_error *err)
{
    const struct td_tensor *tensor = ref.tensor;
    *base = 0;
    if (tensor->piece_count > 0)
        return open_pieces(caches, snapshot, checkpoint, tensor, blob, err);
    if (!map_part(caches, snapshot, checkpoint, ref.part, blob, err))
        return false;
    if (tensor->coding != NULL && !decode_tensor(caches, checkpoint->parts[ref.part]->file, tensor, cancel, blob, err))
        return false;
    if (tensor->strides != NULL && !gather_strides(tensor, blob, err))
        return false;
    *base = tensor->strides != NULL ? 0 : tensor->offset;
    if (tensor->big_endian) {
        uint64_t off = *base;
        *base = 0;
        return swap_bytes(tensor, off, blob, err);
    }
    return true;
}

bool td_tensor_open(struct td_catalog *catalog, const struct td_snapshot *snapshot,
                    const struct td_checkpoint *checkpoint, struct td_tensor_ref ref, const struct td_cancel *cancel,
                    struct td_blob **blob, uint64_t *base, struct td_error *err)
{
    const struct td_tensor_caches caches = {.maps = td_catalog_maps(catalog),
                                            .decodes = td_catalog_decode_cache(catalog)};
    return td_tensor_open_by(&caches, snapshot, checkpoint, ref, cancel, blob, base, err);
}

int td_tensor_compare_places(struct td_tensor_ref x, struct td_tensor_ref y)
{
    const uint64_t coding_x = x.tensor->coding == NULL ? 0 : UINT64_C(1) + x.tensor->coding->number;
    const uint64_t coding_y = y.tensor->coding == NULL ? 0 : UINT64_C(1) + y.tensor->coding->number;
    if (x.part != y.part)
        return x.part < y.part ? -1 : 1;
    if (coding_x != coding_y)
        return coding_x < coding_y ? -1 : 1;
    return x.tensor->offset < y.tensor->offset ? -1 : x.tensor->offset > y.tensor->offset ? 1 : 0;
}

static const struct td_tensor *get_tensor(const void *context, size_t i)
{
    return td_checkpoint_tensor(context, i).tensor;
}

struct td_tensor_list td_checkpoint_tensors(const struct td_checkpoint *checkpoint)
{
    return (struct td_tensor_list){.count = checkpoint->tensor_count, .get = get_tensor, .context = checkpoint};
}

/* ---- config.json --------------------------------------------------------------------------------------- */

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

/* ---- composed answers ---------------------------------------------------------------------------------- */

struct sources {
    struct td_catalog *catalog;
    struct td_snapshot *snapshot;
    const struct td_checkpoint *checkpoint;
    struct td_rank_file *file;
    const struct td_cancel *cancel;
};

static bool open_source(void *context, uint32_t source, struct td_blob **blob, uint64_t *base, struct td_error *err)
{
    const struct sources *s = context;
    if (source == TD_RANK_SOURCE_OWN) {
        *blob = td_blob_ref(s->file->own);
        *base = 0;
        return true;
    }
    return td_tensor_open(s->catalog, s->snapshot, s->checkpoint,
                          td_checkpoint_tensor(s->checkpoint, source - TD_RANK_SOURCE_TENSOR), s->cancel, blob, base,
                          err);
}

static void close_sources(void *context)
{
    struct sources *s = context;
    td_rank_file_unref(s->file);
    td_snapshot_unref(s->snapshot);
    free(s);
}

static bool open_rank_file(struct td_catalog *catalog, struct td_snapshot *snapshot,
                           const struct td_checkpoint *checkpoint, struct td_rank_file *file,
                           const struct td_cancel *cancel, struct td_blob **out, struct td_error *err)
{
    struct sources *s = malloc(sizeof *s);
    if (s == NULL)
        return td_error_no_memory(err);
    *s = (struct sources){.catalog = catalog,
                          .snapshot = td_snapshot_ref(snapshot),
                          .checkpoint = checkpoint,
                          .file = td_rank_file_ref(file),
                          .cancel = cancel};
    struct td_source_opener opener = {.context = s, .open = open_source, .close = close_sources};
    return td_blob_composed(file->layout, &opener, out, err);
}

bool td_rank_file_append(struct td_catalog *catalog, struct td_snapshot *snapshot,
                         const struct td_checkpoint *checkpoint, struct td_rank_file *file,
                         const struct td_cancel *cancel, struct td_body *body, struct td_error *err)
{
    struct td_blob *blob = NULL;
    bool ok = open_rank_file(catalog, snapshot, checkpoint, file, cancel, &blob, err) &&
              td_body_append(body, blob, 0, file->nbytes, err);
    td_blob_unref(blob);
    return ok;
}

bool td_tensor_slice_open(const struct td_tensor_slice *slice, bool as_file, struct td_blob **blob,
                          struct td_error *err)
{
    static const struct td_rank_metadata metadata[] = {{"format", "pt"}};
    const struct td_tensor_list tensors = td_checkpoint_tensors(slice->checkpoint);
    struct td_plan plan = {0};
    struct td_rank_file *file = NULL;
    bool ok = td_plan_from_selection(&tensors, slice->number, slice->selection, slice->budget, &plan, err) &&
              td_rank_file_create(&plan, &tensors, metadata, 1, as_file, slice->budget, &file, err) &&
              open_rank_file(slice->catalog, slice->snapshot, slice->checkpoint, file, slice->cancel, blob, err);
    td_plan_fini(&plan);
    td_rank_file_unref(file);
    return ok;
}
