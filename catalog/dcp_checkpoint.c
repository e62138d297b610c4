#include "catalog/dcp_checkpoint.h"

#include "core/checked.h"
#include "storage/tiled.h"

#include <stdlib.h>
#include <string.h>

/* Shapes of rank 0 may be NULL. */
static bool same_sizes(const uint64_t *a, const uint64_t *b, uint32_t rank)
{
    return rank == 0 || memcmp(a, b, rank * sizeof *a) == 0;
}

/* What stands at the piece's item in its file; NULL (and a reason) when it is not that piece. */
static const struct td_tensor *find_item(const struct td_dcp_tensor *tensor, const struct td_dcp_piece *piece,
                                         const struct td_entry *const *parts, const char **reason)
{
    char name[TD_DCP_ITEM_NAME_MAX];
    size_t len = td_dcp_item_name(name, piece->item_offset, piece->item_bytes);
    const struct td_tensor *item = td_manifest_find(&parts[piece->file]->file->manifest, name, len);
    if (piece->reason != NULL)
        *reason = piece->reason;
    else if (item == NULL)
        *reason = "a piece is not where .metadata says";
    else if (item->reason != NULL)
        *reason = item->reason;
    else if (item->dtype != tensor->dtype || item->rank != tensor->rank ||
             !same_sizes(item->shape, piece->sizes, tensor->rank))
        *reason = "a piece has another dtype or shape than .metadata says";
    else
        return item;
    return NULL;
}

static bool check_tiles(const struct td_dcp_tensor *from, const char **reason, struct td_error *err)
{
    struct td_tile *tiles = calloc((size_t)from->piece_count + 1, sizeof *tiles);
    struct td_error why;
    if (tiles == NULL)
        return td_error_no_memory(err);
    td_error_init(&why);
    for (uint32_t i = 0; i < from->piece_count; i++)
        tiles[i] = (struct td_tile){.starts = from->pieces[i].starts, .sizes = from->pieces[i].sizes};
    if (!td_tiles_check(tiles, from->piece_count, from->rank, from->shape, &why))
        *reason = "its pieces do not fill it exactly";
    free(tiles);
    return why.code != TD_RESOURCE_EXHAUSTED || td_error_no_memory(err);
}

/* Several pieces, each row-major in its file. */
static bool fill_pieces(struct td_join *join, const struct td_dcp_tensor *from,
                        const struct td_entry *const *parts, struct td_tensor *tensor, struct td_error *err)
{
    if (!check_tiles(from, &tensor->reason, err))
        return false;
    struct td_piece *pieces = td_arena_array(&join->arena, from->piece_count, sizeof *pieces);
    if (pieces == NULL)
        return td_error_no_memory(err);
    for (uint32_t i = 0; i < from->piece_count && tensor->reason == NULL; i++) {
        const struct td_dcp_piece *piece = &from->pieces[i];
        const struct td_tensor *item = find_item(from, piece, parts, &tensor->reason);
        if (item != NULL && item->strides != NULL)
            tensor->reason = "a piece is not contiguous";
        else if (item != NULL)
            pieces[i] = (struct td_piece){
                .part = piece->file, .offset = item->offset, .starts = piece->starts, .sizes = piece->sizes};
    }
    tensor->pieces = pieces;
    tensor->piece_count = tensor->reason == NULL ? from->piece_count : 0;
    return true;
}

/* Ranks that have no part of a tensor store a box without elements; these say nothing. */
static bool drop_empty(struct td_join *join, struct td_dcp_tensor *tensor, struct td_error *err)
{
    struct td_dcp_piece *kept = td_arena_array(&join->arena, tensor->piece_count, sizeof *kept);
    uint32_t count = 0;
    if (kept == NULL)
        return td_error_no_memory(err);
    for (uint32_t i = 0; i < tensor->piece_count; i++) {
        bool empty = false;
        for (uint32_t k = 0; k < tensor->rank; k++)
            empty = empty || tensor->pieces[i].sizes[k] == 0;
        if (!empty)
            kept[count++] = tensor->pieces[i];
    }
    tensor->pieces = kept;
    tensor->piece_count = count;
    return true;
}

/* Its names and numbers are dcp's, which lives as long as its file, and so as the snapshots with this join. */
static bool fill_tensor(struct td_join *join, const struct td_dcp_tensor *from,
                        const struct td_entry *const *parts, struct td_tensor *tensor, struct td_error *err)
{
    uint64_t elems = 1;
    bool fits = true;
    *tensor = (struct td_tensor){.name = from->name,
                                 .name_len = from->name_len,
                                 .rank = from->rank,
                                 .dtype = from->dtype,
                                 .shape = from->shape};
    for (uint32_t i = 0; i < from->rank; i++)
        fits = fits && td_mul_u64(elems, from->shape[i], &elems);
    if (!fits || !td_dtype_nbytes(from->dtype, elems, &tensor->nbytes)) {
        tensor->nbytes = 0;
        tensor->reason = "its size is larger than 2^64-1 bytes";
        return true;
    }
    if (from->piece_count == 0) {
        tensor->reason = elems == 0 ? NULL : "no piece of it is stored";
        return true;
    }
    if (from->piece_count > 1)
        return fill_pieces(join, from, parts, tensor, err);
    const struct td_tensor *item = find_item(from, &from->pieces[0], parts, &tensor->reason);
    if (item != NULL && !same_sizes(from->pieces[0].sizes, from->shape, from->rank)) {
        tensor->reason = "its pieces do not fill it exactly";
    } else if (item != NULL) {
        tensor->offset = item->offset;
        tensor->strides = item->strides;
    }
    return true;
}

static bool fill(struct td_join *join, const struct td_dcp *dcp, const struct td_entry *const *parts,
                 struct td_error *err)
{
    struct td_tensor *tensors = td_arena_array(&join->arena, dcp->tensor_count, sizeof *tensors);
    join->tensors = malloc((dcp->tensor_count + 1) * sizeof *join->tensors);
    if (tensors == NULL || join->tensors == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < dcp->tensor_count; i++) {
        struct td_dcp_tensor from = dcp->tensors[i];
        if (!drop_empty(join, &from, err) || !fill_tensor(join, &from, parts, &tensors[i], err))
            return false;
        uint32_t part = from.piece_count > 0 ? from.pieces[0].file : (uint32_t)dcp->file_count;
        join->tensors[i] = (struct td_tensor_ref){.tensor = &tensors[i], .part = part};
    }
    join->tensor_count = dcp->tensor_count;
    return true;
}

struct td_join *td_dcp_join(const struct td_dcp *dcp, const struct td_entry *const *parts,
                            struct td_error *err)
{
    struct td_join *join = calloc(1, sizeof *join);
    if (join == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    atomic_init(&join->refs, 1);
    td_arena_init(&join->arena, 0);
    if (!fill(join, dcp, parts, err)) {
        td_join_unref(join);
        return NULL;
    }
    return join;
}
