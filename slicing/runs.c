/* A layout consists of blocks; a block is a list of runs, repeated by rounds (storage/composed.h). A box of a tensor
 * needs one run of a block (append_box). A cell whose pieces are joined along an inner dimension becomes one block with
 * a run for each piece and a round for each row (append_cell). What is hard: sizes come from files, so that every
 * product is checked, and a run must not begin or end within a block of the dtype, although a tensor's rows may
 * (append_box_cell). */
#include "slicing/runs.h"

#include "core/checked.h"

#include <stdlib.h>

enum { MAX_OUTER = 4096 }; /* most blocks for one selection */

static bool too_large(const struct td_tensor *tensor, struct td_error *err)
{
    return td_error_set(err, TD_INTERNAL, "tensor \"%.160s\" has more than 2^64-1 bytes", tensor->name);
}

/* Returns whether the box is within the tensor, as the caller promises. */
static bool box_is_within(const struct td_tensor *tensor, const struct td_selection *selection)
{
    bool within = selection->rank == tensor->rank;
    for (uint32_t i = 0; within && i < tensor->rank; i++)
        within = td_range_within(selection->starts[i], selection->sizes[i], tensor->shape[i]);
    return within;
}

/* Converts a box, whose runs begin and end between blocks, to bytes. Returns false when it ends past 2^64-1. */
static bool box_to_bytes(const struct td_dtype *dtype, struct td_box *box)
{
    uint64_t end;
    bool fits = td_dtype_nbytes(dtype, box->off, &box->off) && td_dtype_nbytes(dtype, box->len, &box->len) &&
                td_add_u64(box->off, box->len, &end);
    for (uint32_t i = 0; fits && i < box->level_count; i++) {
        struct td_box_level *level = &box->levels[i];
        uint64_t reach;
        fits = td_dtype_nbytes(dtype, level->stride, &level->stride) &&
               td_mul_u64(level->stride, level->count - 1, &reach) && td_add_u64(end, reach, &end);
    }
    return fits;
}

/* Appends a block for each index of the levels beyond the second. */
static bool append_box(struct td_layout *layout, uint32_t source, const struct td_box *box, struct td_error *err)
{
    static const struct td_box_level one = {.count = 1};
    const struct td_box_level *pieces = box->level_count > 0 ? &box->levels[0] : &one;
    const struct td_box_level *rounds = box->level_count > 1 ? &box->levels[1] : &one;
    uint64_t outer = 1;
    for (uint32_t i = 2; i < box->level_count; i++)
        if (!td_mul_u64(outer, box->levels[i].count, &outer) || outer > MAX_OUTER)
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "the slice is in too many places; ask for fewer dimensions' parts at once");
    for (uint64_t n = 0; n < outer; n++) {
        struct td_run run = {.source = source,
                             .off = box->off,
                             .len = box->len,
                             .count = pieces->count,
                             .stride = pieces->stride,
                             .step = rounds->stride};
        uint64_t rest = n;
        for (uint32_t i = 2; i < box->level_count; i++) {
            run.off += rest % box->levels[i].count * box->levels[i].stride;
            rest /= box->levels[i].count;
        }
        if (!td_layout_append(layout, rounds->count, &run, 1, err))
            return false;
    }
    return true;
}

bool td_layout_append_selection(struct td_layout *layout, uint32_t source, const struct td_tensor *tensor,
                                const struct td_selection *selection, struct td_error *err)
{
    struct td_box box;
    uint64_t nbytes;
    if (!box_is_within(tensor, selection))
        return td_error_set(err, TD_INTERNAL, "a slice leaves tensor \"%.160s\"", tensor->name);
    if (!td_selection_nbytes(selection, tensor->shape, tensor->dtype, &nbytes, err))
        return false;
    if (nbytes == 0)
        return true;
    if (!td_selection_box(selection, tensor->shape, &box) || !box_to_bytes(tensor->dtype, &box))
        return too_large(tensor, err);
    return append_box(layout, source, &box, err);
}

/* A tensor as seen from one of its dimensions: `outer` rows, and in each row `inner` elements for each index. */
struct geometry {
    uint64_t outer, inner;
};

/* Computes the geometry from dimension `axis`, and the size of that. A tensor without dimensions is one row of one
 * element. Returns false for an axis that the tensor lacks, and for more than 2^64-1 elements. */
static bool geometry_of(const struct td_tensor *tensor, uint32_t axis, struct geometry *out, uint64_t *size)
{
    bool fits = tensor->rank == 0 || axis < tensor->rank;
    *out = (struct geometry){1, 1};
    *size = 1;
    for (uint32_t i = 0; fits && i < tensor->rank; i++) {
        uint64_t *into = i < axis ? &out->outer : i == axis ? size : &out->inner;
        fits = td_mul_u64(*into, tensor->shape[i], into);
    }
    uint64_t all;
    return fits && td_mul_u64(out->outer, *size, &all) && td_mul_u64(all, out->inner, &all);
}

/* A result that is being laid out. */
struct job {
    struct td_layout *layout;
    uint32_t source;
    const struct td_plan *plan;
    const struct td_plan_output *output;
    const struct td_tensor_list *tensors;
    struct geometry cell;
    struct td_run *runs; /* room for those of one cell */
    uint64_t run_count;  /* in a cell */
};

static bool bad_plan(const struct td_plan_output *output, struct td_error *err)
{
    return td_error_set(err, TD_INTERNAL, "the plan of tensor \"%.160s\" does not fit its sources", output->name);
}

static bool is_zeros(const struct td_plan_piece *piece)
{
    return piece->tensor == TD_PIECE_ZEROS;
}

static const struct td_tensor *tensor_of(const struct job *job, const struct td_plan_piece *piece)
{
    if (piece->tensor >= job->tensors->count || piece->tensor >= UINT32_MAX - job->source)
        return NULL;
    return job->tensors->get(job->tensors->context, piece->tensor);
}

/* Returns whether the boxes of a piece are within the dimension. */
static bool boxes_are_within(const struct td_plan_piece *piece, uint64_t size)
{
    uint64_t last;
    return td_mul_u64(piece->count - 1, piece->stride, &last) && td_add_u64(last, piece->start, &last) &&
           td_range_within(last, piece->size, size);
}

static bool splits_block(const char *name, const struct td_dtype *dtype, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "tensor \"%.160s\": %s stores blocks of %u elements; a part begins or ends within one", name,
                        dtype->name, (unsigned)dtype->block_elems);
}

static bool zeros_to_run(const struct job *job, const struct td_plan_piece *piece, struct td_run *run,
                         struct td_error *err)
{
    *run = (struct td_run){.source = TD_RUN_ZEROS, .count = 1};
    if (!td_mul_u64(piece->size, job->cell.inner, &run->len))
        return bad_plan(job->output, err);
    return td_dtype_nbytes(job->output->dtype, run->len, &run->len) ||
           splits_block(job->output->name, job->output->dtype, err);
}

static bool piece_to_run(const struct job *job, const struct td_plan_piece *piece, struct td_run *run,
                         struct td_error *err)
{
    struct geometry g;
    uint64_t size;
    if (is_zeros(piece))
        return zeros_to_run(job, piece, run, err);
    const struct td_tensor *tensor = tensor_of(job, piece);
    *run = (struct td_run){.source = job->source + piece->tensor, .count = piece->count};
    if (piece->count == 0 || piece->size == 0)
        return true;
    if (tensor == NULL || piece->selection != NULL || !geometry_of(tensor, job->output->axis, &g, &size) ||
        g.outer != job->cell.outer || g.inner != job->cell.inner || !boxes_are_within(piece, size))
        return bad_plan(job->output, err);
    /* All values are within the tensor, and its bytes fit 64 bits, so only a cut within a block can fail. */
    uint64_t stride = piece->count > 1 ? piece->stride : 0;
    uint64_t step = g.outer > 1 ? size : 0;
    if (!td_dtype_nbytes(tensor->dtype, piece->start * g.inner, &run->off) ||
        !td_dtype_nbytes(tensor->dtype, piece->size * g.inner, &run->len) ||
        !td_dtype_nbytes(tensor->dtype, stride * g.inner, &run->stride) ||
        !td_dtype_nbytes(tensor->dtype, step * g.inner, &run->step))
        return splits_block(tensor->name, tensor->dtype, err);
    return true;
}

/* Writes the one box of a piece. */
static bool selection_of(const struct job *job, const struct td_plan_piece *piece, const struct td_tensor *tensor,
                         struct td_selection *out)
{
    uint32_t axis = job->output->axis;
    if (piece->selection != NULL) {
        *out = *piece->selection;
        return true;
    }
    td_selection_all(tensor->rank, tensor->shape, out);
    if (tensor->rank == 0)
        return true;
    if (axis >= tensor->rank)
        return false;
    out->starts[axis] = piece->start;
    out->sizes[axis] = piece->size;
    return true;
}

/* Appends a cell that is one box. Nothing is joined row by row, so that a whole tensor is one run even if its rows end
 * within a block. */
static bool append_box_cell(const struct job *job, const struct td_plan_piece *piece, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_selection selection;
    const struct td_tensor *tensor = tensor_of(job, piece);
    if (tensor == NULL || !selection_of(job, piece, tensor, &selection))
        return bad_plan(job->output, err);
    if (td_layout_append_selection(job->layout, job->source + piece->tensor, tensor, &selection, &why))
        return true;
    enum td_code code = why.code == TD_INVALID_ARGUMENT ? TD_FAILED_PRECONDITION : why.code;
    return td_error_set(err, code, "tensor \"%.160s\": %s", tensor->name, why.message);
}

static bool append_cell(const struct job *job, const struct td_plan_piece *pieces, struct td_error *err)
{
    if (job->run_count == 1 && !is_zeros(&pieces[0]) && (pieces[0].selection != NULL || pieces[0].count == 1))
        return append_box_cell(job, &pieces[0], err);
    for (uint64_t i = 0; i < job->run_count; i++)
        if (!piece_to_run(job, &pieces[i], &job->runs[i], err))
            return false;
    if (job->cell.outer > 1)
        return td_layout_append(job->layout, job->cell.outer, job->runs, (size_t)job->run_count, err);
    for (uint64_t i = 0; i < job->run_count; i++) /* a block for each run is simpler to read */
        if (!td_layout_append(job->layout, 1, &job->runs[i], 1, err))
            return false;
    return true;
}

/* Finds the geometry of a cell by its first source. A result of zeros alone needs none. */
static bool find_geometry(struct job *job, bool *all_zeros, struct td_error *err)
{
    const struct td_plan_piece *pieces = job->plan->pieces + job->output->first_piece;
    size_t i = 0;
    while (i < job->output->piece_count && is_zeros(&pieces[i]))
        i++;
    *all_zeros = i == job->output->piece_count;
    if (*all_zeros)
        return true;
    const struct td_tensor *tensor = tensor_of(job, &pieces[i]);
    if (tensor == NULL)
        return bad_plan(job->output, err);
    if (pieces[i].selection != NULL) /* it is the cell's only piece */
        return true;
    uint64_t size;
    return geometry_of(tensor, job->output->axis, &job->cell, &size) || bad_plan(job->output, err);
}

static bool append_cells(struct job *job, struct td_error *err)
{
    const struct td_plan_output *output = job->output;
    const struct td_plan_piece *pieces = job->plan->pieces + output->first_piece;
    bool all_zeros;
    if (!find_geometry(job, &all_zeros, err))
        return false;
    if (all_zeros) {
        const struct td_run zeros = {.source = TD_RUN_ZEROS, .len = output->nbytes, .count = 1};
        return td_layout_append(job->layout, 1, &zeros, 1, err);
    }
    for (uint64_t i = 0; i < output->cell_count; i++, pieces += job->run_count)
        if (!append_cell(job, pieces, err))
            return false;
    return true;
}

bool td_layout_append_output(struct td_layout *layout, uint32_t source, const struct td_plan *plan,
                             const struct td_plan_output *output, const struct td_tensor_list *tensors,
                             struct td_error *err)
{
    uint64_t before = layout->total_bytes;
    if (output->nbytes == 0)
        return true;
    if (output->cell_count == 0 || output->piece_count == 0 || output->piece_count % output->cell_count != 0)
        return bad_plan(output, err);
    struct job job = {.layout = layout,
                      .source = source,
                      .plan = plan,
                      .output = output,
                      .tensors = tensors,
                      .cell = {1, 1},
                      .run_count = output->piece_count / output->cell_count};
    job.runs = calloc((size_t)job.run_count, sizeof *job.runs);
    if (job.runs == NULL)
        return td_error_no_memory(err);
    bool ok = append_cells(&job, err);
    free(job.runs);
    if (!ok)
        return false;
    return layout->total_bytes - before == output->nbytes || bad_plan(output, err);
}
