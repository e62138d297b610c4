#include "catalog/model/dcp_checkpoint.h"

#include "core/checked.h"
#include "parser/torch/torch_distcp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Least bytes of the pickle for each piece: a key and a value of storage_data and a chunk, objects each. torch takes
 * over 100. */
enum { BYTES_PER_PIECE = 16 };

static const char does_not_fill[] = "its pieces do not fill it exactly";

/* Returns whether two shapes are equal. Shapes of rank 0 may be NULL. */
static bool same_sizes(const uint64_t *a, const uint64_t *b, uint32_t rank)
{
    return rank == 0 || memcmp(a, b, rank * sizeof *a) == 0;
}

/* The input of a join. */
struct source {
    const struct td_dcp *dcp;
    const struct td_entry *const *parts;
    const uint32_t *places; /* the number of each file in parts */
};

/* Returns the tensor that is stored at the piece's place in its file. Returns NULL and sets *reason when it is not that
 * piece. */
static const struct td_tensor *find_item(const struct td_dcp_tensor *tensor, const struct td_dcp_piece *piece,
                                         const struct source *source, const char **reason)
{
    char name[TD_DCP_ITEM_NAME_MAX];
    size_t len = td_dcp_item_name(name, piece->item_offset, piece->item_bytes);
    const struct td_entry *part = source->parts[source->places[piece->file]];
    const struct td_tensor *item = td_manifest_find(&part->file->manifest, td_text_n(name, len));
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

/* Returns the number of the first of the tensor's pieces from number i on that has elements; piece_count when there is
 * none. Ranks without a part of a tensor store a box without elements, which is ignored. */
static uint32_t next_piece(const struct td_dcp_tensor *from, uint32_t i)
{
    for (; i < from->piece_count; i++) {
        bool empty = false;
        for (uint32_t k = 0; k < from->rank; k++)
            empty = empty || from->pieces[i].sizes[k] == 0;
        if (!empty)
            break;
    }
    return i;
}

static uint32_t count_pieces(const struct td_dcp_tensor *from)
{
    uint32_t count = 0;
    for (uint32_t i = next_piece(from, 0); i < from->piece_count; i = next_piece(from, i + 1))
        count++;
    return count;
}

/* Gives the tensor its pieces, and *grid, if they fill it exactly; else a reason. Returns false for want of memory. */
static bool join_pieces(const struct td_dcp_tensor *from, struct td_piece *pieces, uint32_t count,
                        struct td_tensor *tensor, struct td_grid **grid, struct td_error *err)
{
    struct td_tile *tiles = calloc(count, sizeof *tiles);
    struct td_error why = TD_ERROR_INIT;
    if (tiles == NULL)
        return td_error_no_memory(err);
    for (uint32_t i = 0; i < count; i++)
        tiles[i] = (struct td_tile){
            .part = pieces[i].part, .off = pieces[i].offset, .starts = pieces[i].starts, .sizes = pieces[i].sizes};
    if (td_grid_create(tiles, count, from->dtype->block_bytes, from->rank, from->shape, grid, &why)) {
        tensor->pieces = pieces;
        tensor->piece_count = count;
    } else {
        tensor->reason = does_not_fill;
    }
    free(tiles);
    return why.code != TD_RESOURCE_EXHAUSTED || td_error_no_memory(err);
}

/* Fills in a tensor of several pieces, each row-major in its file. */
static bool fill_pieces(struct td_joined_tensors *join, const struct td_dcp_tensor *from, uint32_t count,
                        const struct source *source, struct td_tensor *tensor, struct td_grid **grid,
                        struct td_error *err)
{
    struct td_piece *pieces = td_arena_array(&join->arena, count, sizeof *pieces);
    uint32_t at = 0;
    if (pieces == NULL)
        return td_error_no_memory(err);
    for (uint32_t i = next_piece(from, 0); i < from->piece_count && tensor->reason == NULL;
         i = next_piece(from, i + 1)) {
        const struct td_dcp_piece *piece = &from->pieces[i];
        const struct td_tensor *item = find_item(from, piece, source, &tensor->reason);
        if (item != NULL && item->strides != NULL)
            tensor->reason = "a piece is not contiguous";
        else if (item != NULL)
            pieces[at++] = (struct td_piece){.part = source->places[piece->file],
                                             .offset = item->offset,
                                             .starts = piece->starts,
                                             .sizes = piece->sizes};
    }
    return tensor->reason != NULL || join_pieces(from, pieces, count, tensor, grid, err);
}

/* Fills in a tensor of one piece, which must be all of it. */
static void fill_whole(const struct td_dcp_tensor *from, const struct td_dcp_piece *piece, const struct source *source,
                       struct td_tensor *tensor)
{
    const struct td_tensor *item = find_item(from, piece, source, &tensor->reason);
    if (item == NULL)
        return;
    for (uint32_t i = 0; i < from->rank; i++)
        if (piece->starts[i] != 0 || piece->sizes[i] != from->shape[i])
            tensor->reason = does_not_fill;
    if (tensor->reason == NULL) {
        tensor->offset = item->offset;
        tensor->strides = item->strides;
    }
}

/* Fills in one tensor. Names and shapes are those of dcp, which lives as long as its file, and so as the snapshots with
 * these joined tensors. */
static bool fill_tensor(struct td_joined_tensors *join, size_t number, const struct td_dcp_tensor *from,
                        const struct source *source, struct td_tensor *tensor, struct td_error *err)
{
    uint64_t elems = 1;
    bool fits = true;
    uint32_t first = next_piece(from, 0);
    *tensor = (struct td_tensor){
        .name = from->name, .name_len = from->name_len, .rank = from->rank, .dtype = from->dtype, .shape = from->shape};
    if (first < from->piece_count)
        join->tensors[number].part = source->places[from->pieces[first].file];
    for (uint32_t i = 0; i < from->rank; i++)
        fits = fits && td_mul_u64(elems, from->shape[i], &elems);
    if (!fits || !td_dtype_nbytes(from->dtype, elems, &tensor->nbytes) || tensor->nbytes > INT64_MAX) {
        tensor->nbytes = 0;
        tensor->reason = "its size is larger than 2^63-1 bytes";
        return true;
    }
    uint32_t count = count_pieces(from);
    if (count > 1)
        return fill_pieces(join, from, count, source, tensor, &join->grids[number], err);
    if (count == 1)
        fill_whole(from, &from->pieces[first], source, tensor);
    else if (elems > 0)
        tensor->reason = "no piece of it is stored";
    return true;
}

static bool fill_tensors(struct td_joined_tensors *join, const struct source *source, struct td_error *err)
{
    const struct td_dcp *dcp = source->dcp;
    struct td_tensor *tensors = td_arena_array(&join->arena, dcp->tensor_count, sizeof *tensors);
    join->tensors = td_arena_array(&join->arena, dcp->tensor_count, sizeof *join->tensors);
    join->grids = td_arena_array(&join->arena, dcp->tensor_count, sizeof(*join->grids));
    if (tensors == NULL || join->tensors == NULL || join->grids == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < dcp->tensor_count; i++) {
        const struct td_dcp_tensor *from = &dcp->tensors[i];
        if (td_dcp_missing_file(from, source->places) != SIZE_MAX)
            continue;
        size_t at = join->tensor_count++; /* counted first, so that its grid is freed in any case */
        join->tensors[at] = (struct td_tensor_ref){.tensor = &tensors[at], .part = source->places[dcp->file_count]};
        join->grids[at] = NULL;
        if (!fill_tensor(join, at, from, source, &tensors[at], err))
            return false;
    }
    return true;
}

uint64_t td_dcp_join_bytes(const struct td_dcp *dcp)
{
    const uint64_t per_tensor = sizeof(struct td_tensor) + sizeof(struct td_tensor_ref) + sizeof(struct td_grid *);
    uint64_t bytes = sizeof(struct td_joined_tensors) + dcp->tensor_count * per_tensor;
    for (size_t i = 0; i < dcp->tensor_count; i++) {
        uint32_t count = dcp->tensors[i].piece_count;
        if (count > 1)
            bytes += count * sizeof(struct td_piece) + td_grid_memory_bytes(count, dcp->tensors[i].rank);
    }
    return bytes;
}

bool td_dcp_check(const struct td_dcp *dcp, uint64_t metadata_bytes, size_t max_memory_bytes, struct td_error *err)
{
    uint64_t pieces = 0;
    for (size_t i = 0; i < dcp->tensor_count; i++)
        pieces += dcp->tensors[i].piece_count;
    if (pieces > metadata_bytes / BYTES_PER_PIECE)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "%" PRIu64 " pieces of tensors in %" PRIu64 " bytes: each takes at least %d", pieces,
                            metadata_bytes, BYTES_PER_PIECE);
    uint64_t bytes = dcp->arena.used_bytes + td_dcp_join_bytes(dcp);
    if (bytes > max_memory_bytes)
        return td_error_set(err, TD_INVALID_ARGUMENT, "its tensors take %" PRIu64 " bytes of memory, the limit is %zu",
                            bytes, max_memory_bytes);
    return true;
}

size_t td_dcp_missing_file(const struct td_dcp_tensor *tensor, const uint32_t *places)
{
    for (uint32_t i = next_piece(tensor, 0); i < tensor->piece_count; i = next_piece(tensor, i + 1))
        if (places[tensor->pieces[i].file] == TD_DCP_NO_PART)
            return tensor->pieces[i].file;
    return SIZE_MAX;
}

static struct td_joined_tensors *join_at(const struct td_dcp *dcp, const struct td_entry *const *parts,
                                         const uint32_t *places, struct td_error *err)
{
    const struct source source = {.dcp = dcp, .parts = parts, .places = places};
    struct td_joined_tensors *join = td_joined_tensors_create(err);
    if (join == NULL || fill_tensors(join, &source, err))
        return join;
    td_joined_tensors_unref(join);
    return NULL;
}

struct td_joined_tensors *td_dcp_join(const struct td_dcp *dcp, const struct td_entry *const *parts,
                                      const uint32_t *places, struct td_error *err)
{
    if (places != NULL)
        return join_at(dcp, parts, places, err);
    uint32_t *own = calloc(dcp->file_count + 1, sizeof *own);
    if (own == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    for (size_t i = 0; i <= dcp->file_count; i++)
        own[i] = (uint32_t)i;
    struct td_joined_tensors *join = join_at(dcp, parts, own, err);
    free(own);
    return join;
}
