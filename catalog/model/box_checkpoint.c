#include "catalog/model/box_checkpoint.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

/* A box of a tensor in one of the parts. */
struct box {
    const struct td_tensor *tensor;
    const uint64_t *starts;
    uint32_t part;
};

/* State of a join. Its results are allocated in join->arena. */
struct joining {
    struct td_joined_tensors *join;
    struct td_tensor *tensors;
    const char *unfilled;
    struct td_error *err;
};

static int numbers_compare(const uint64_t *a, const uint64_t *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (a[i] != b[i]) // NOLINT(clang-analyzer-core.NullDereference): NULL only for rank 0
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* Orders boxes by name, rank, starts and part. */
static int box_compare(const void *a, const void *b)
{
    const struct box *x = a;
    const struct box *y = b;
    int order = td_text_compare(td_tensor_name(x->tensor), td_tensor_name(y->tensor));
    if (order == 0)
        order = (x->tensor->rank > y->tensor->rank) - (x->tensor->rank < y->tensor->rank);
    if (order == 0)
        order = numbers_compare(x->starts, y->starts, x->tensor->rank);
    return order != 0 ? order : (x->part > y->part) - (x->part < y->part);
}

static bool is_empty(const struct td_tensor *tensor)
{
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == 0)
            return true;
    return false;
}

/* Moves the boxes to keep to the front and returns their number. Drops repeated boxes and empty ones: a rank that holds
 * no elements of a tensor writes an empty box. */
static size_t drop_needless(struct box *boxes, size_t count)
{
    const uint32_t rank = boxes[0].tensor->rank;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct td_tensor *before = kept == 0 ? NULL : boxes[kept - 1].tensor;
        bool is_again = before != NULL && numbers_compare(boxes[kept - 1].starts, boxes[i].starts, rank) == 0 &&
                        numbers_compare(before->shape, boxes[i].tensor->shape, rank) == 0;
        if (!is_again && !is_empty(boxes[i].tensor))
            boxes[kept++] = boxes[i];
    }
    return kept;
}

/* Sets the pieces and the grid of a tensor with several boxes. Returns false when memory is short, or when the boxes do
 * not fill the tensor; j->unfilled is then its name. */
static bool fill_boxes(struct joining *j, const struct box *boxes, size_t count, struct td_tensor *tensor,
                       struct td_grid **grid)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_tile *tiles = calloc(count, sizeof *tiles);
    struct td_piece *pieces = td_arena_array(&j->join->arena, count, sizeof *pieces);
    bool ok = tiles != NULL && pieces != NULL && count <= UINT32_MAX;
    for (size_t i = 0; ok && i < count; i++) {
        const struct td_tensor *box = boxes[i].tensor;
        pieces[i] = (struct td_piece){
            .part = boxes[i].part, .offset = box->offset, .starts = boxes[i].starts, .sizes = box->shape};
        tiles[i] =
            (struct td_tile){.part = boxes[i].part, .off = box->offset, .starts = boxes[i].starts, .sizes = box->shape};
    }
    bool has_memory = ok;
    ok = ok && tensor->dtype->block_elems == 1 && tensor->dtype->block_bytes > 0 &&
         td_grid_create(tiles, count, tensor->dtype->block_bytes, tensor->rank, tensor->shape, grid, &why);
    free(tiles);
    if (!has_memory || why.code == TD_RESOURCE_EXHAUSTED)
        return td_error_no_memory(j->err);
    tensor->pieces = pieces;
    tensor->piece_count = (uint32_t)count;
    if (!ok)
        j->unfilled = tensor->name;
    return ok;
}

/* Computes the tensor's shape, which is the largest end of a box in each dimension, and its size. Returns false when
 * memory is short, or when dtypes or ranks differ or the size is too large. */
static bool measure_tensor(struct joining *j, const struct box *boxes, size_t count, struct td_tensor *tensor)
{
    uint64_t *shape = td_arena_array(&j->join->arena, tensor->rank + 1, sizeof *shape);
    uint64_t elems = 1;
    bool fits = true;
    if (shape == NULL)
        return td_error_no_memory(j->err);
    memset(shape, 0, (tensor->rank + 1) * sizeof *shape);
    for (size_t i = 0; i < count && fits; i++) {
        fits = boxes[i].tensor->dtype == tensor->dtype && boxes[i].tensor->rank == tensor->rank;
        for (uint32_t k = 0; fits && k < tensor->rank; k++) {
            uint64_t end = boxes[i].starts[k] + boxes[i].tensor->shape[k]; /* the parser has checked the sum */
            shape[k] = end > shape[k] ? end : shape[k];
        }
    }
    for (uint32_t i = 0; i < tensor->rank; i++)
        fits = fits && td_mul_u64(elems, shape[i], &elems);
    fits = fits && td_dtype_nbytes(tensor->dtype, elems, &tensor->nbytes) && tensor->nbytes <= INT64_MAX;
    tensor->shape = tensor->rank == 0 ? NULL : shape;
    if (!fits)
        j->unfilled = tensor->name;
    return fits;
}

/* Joins the boxes of one name into one tensor. */
static bool join_tensor(struct joining *j, struct box *boxes, size_t count)
{
    const size_t at = j->join->tensor_count;
    struct td_tensor *tensor = &j->tensors[at];
    const struct td_tensor *first = boxes[0].tensor;
    *tensor = (struct td_tensor){
        .name = first->name, .name_len = first->name_len, .rank = first->rank, .dtype = first->dtype};
    j->join->tensors[at] = (struct td_tensor_ref){.tensor = tensor, .part = boxes[0].part};
    j->join->grids[at] = NULL;
    j->join->tensor_count++; /* counted first, so that its grid is freed in any case */
    if (!measure_tensor(j, boxes, count, tensor))
        return false;
    size_t kept = drop_needless(boxes, count);
    j->join->tensors[at].part = boxes[0].part;
    if (kept > 1)
        return fill_boxes(j, boxes, kept, tensor, &j->join->grids[at]);
    bool is_whole = kept == 1 && numbers_compare(boxes[0].tensor->shape, tensor->shape, tensor->rank) == 0;
    tensor->offset = boxes[0].tensor->offset;
    if (!is_whole && tensor->nbytes > 0)
        j->unfilled = tensor->name;
    return j->unfilled == NULL;
}

static bool join_boxes(struct joining *j, struct box *boxes, size_t count)
{
    struct td_arena *arena = &j->join->arena;
    j->tensors = td_arena_array(arena, count + 1, sizeof *j->tensors);
    j->join->tensors = td_arena_array(arena, count + 1, sizeof *j->join->tensors);
    j->join->grids = td_arena_array(arena, count + 1, sizeof(*j->join->grids));
    if (j->tensors == NULL || j->join->tensors == NULL || j->join->grids == NULL)
        return td_error_no_memory(j->err);
    if (count > 0)
        qsort(boxes, count, sizeof *boxes, box_compare);
    for (size_t first = 0, end; first < count; first = end) {
        struct td_text name = td_tensor_name(boxes[first].tensor);
        end = first + 1;
        while (end < count && td_text_compare(name, td_tensor_name(boxes[end].tensor)) == 0)
            end++;
        if (!join_tensor(j, &boxes[first], end - first))
            return false;
    }
    return true;
}

struct td_joined_tensors *td_boxes_join(const struct td_entry *const *parts, size_t part_count, const char **unfilled,
                                        struct td_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < part_count; i++)
        count += parts[i]->file->manifest.tensor_count;
    struct joining j = {.join = td_joined_tensors_create(err), .err = err};
    struct box *boxes = j.join == NULL ? NULL : calloc(count + 1, sizeof *boxes);
    *unfilled = NULL;
    if (boxes == NULL) {
        (void)td_error_no_memory(err);
        td_joined_tensors_unref(j.join);
        return NULL;
    }
    count = 0;
    for (size_t i = 0; i < part_count; i++) {
        const struct td_manifest *manifest = &parts[i]->file->manifest;
        for (size_t k = 0; k < manifest->tensor_count; k++)
            boxes[count++] =
                (struct box){.tensor = &manifest->tensors[k], .starts = manifest->starts[k], .part = (uint32_t)i};
    }
    bool ok = join_boxes(&j, boxes, count);
    free(boxes);
    *unfilled = j.unfilled;
    if (ok)
        return j.join;
    td_joined_tensors_unref(j.join);
    return NULL;
}

uint64_t td_boxes_join_bytes(const struct td_manifest *manifest)
{
    uint64_t bytes = 0;
    for (size_t i = 0; manifest->starts != NULL && i < manifest->tensor_count; i++) {
        const uint32_t rank = manifest->tensors[i].rank;
        bytes += sizeof(struct td_tensor) + sizeof(struct td_tensor_ref) + sizeof(struct td_grid *) +
                 sizeof(struct td_piece) + (rank + 1) * sizeof(uint64_t) + td_grid_memory_bytes(1, rank);
    }
    return bytes == 0 ? 0 : bytes + sizeof(struct td_joined_tensors);
}

/* Returns whether this key of a file's metadata describes the file's boxes. */
static bool is_own_key(const char *key)
{
    return strcmp(key, "DCP_SHARDING_INFO") == 0 || strcmp(key, "DCP_VERSION") == 0;
}

bool td_boxes_drop_metadata(struct td_checkpoint *checkpoint, struct td_arena *arena, struct td_error *err)
{
    struct td_metadata *kept = td_arena_array(arena, checkpoint->metadata_count + 1, sizeof *kept);
    size_t count = 0;
    if (kept == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < checkpoint->metadata_count; i++)
        if (!is_own_key(checkpoint->metadata[i].key))
            kept[count++] = checkpoint->metadata[i];
    checkpoint->metadata = kept;
    checkpoint->metadata_count = count;
    return true;
}
