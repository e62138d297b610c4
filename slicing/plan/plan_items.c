#include "slicing/plan/plan_items.h"

#include "core/checked.h"
#include "parser/format/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct item_planner {
    const struct td_tensor_list *tensors;
    struct td_plan *plan;
    struct td_error *err;
};

static bool refuse_memory(const struct td_plan *plan, struct td_error *err)
{
    return td_arena_refuse(&plan->arena, "the list of what is asked for", err);
}

const struct td_tensor *td_plan_items_find(const struct td_tensor_list *tensors, const char *name, uint32_t *number)
{
    size_t len = strlen(name);
    size_t low = 0;
    size_t high = tensors->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct td_tensor *tensor = tensors->get(tensors->context, middle);
        int order = td_text_compare(td_text_n(name, len), td_tensor_name(tensor));
        if (order == 0) {
            *number = (uint32_t)middle;
            return tensor;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Makes a copy of the selection, which the plan owns, and computes the result's shape and size. */
static bool take_selection(struct item_planner *p, const struct td_tensor *tensor, const struct td_selection *selection,
                           struct td_plan_piece *piece, struct td_plan_output *out)
{
    struct td_selection *copy = td_arena_alloc(&p->plan->arena, sizeof *copy);
    if (copy == NULL)
        return refuse_memory(p->plan, p->err);
    *copy = *selection;
    if (!td_selection_nbytes(copy, tensor->shape, tensor->dtype, &out->nbytes, p->err))
        return false;
    uint64_t sizes[TD_MAX_RANK];
    out->rank = td_selection_shape(copy, sizes);
    uint64_t *shape = td_arena_array(&p->plan->arena, out->rank, sizeof *shape);
    if (shape == NULL)
        return refuse_memory(p->plan, p->err);
    for (uint32_t d = 0; d < out->rank; d++)
        shape[d] = sizes[d];
    out->shape = shape;
    piece->selection = copy;
    return true;
}

/* Parses the slice, and selects it. */
static bool take_slice(struct item_planner *p, const struct td_tensor *tensor, const char *slice,
                       struct td_plan_piece *piece, struct td_plan_output *out)
{
    struct td_selection selection;
    struct td_error why;
    struct item_planner inner = {.tensors = p->tensors, .plan = p->plan, .err = &why};
    td_error_init(&why);
    return (td_slice_parse(td_text_of(slice), tensor->rank, tensor->shape, &selection, &why) &&
            take_selection(&inner, tensor, &selection, piece, out)) ||
           td_error_set(p->err, why.code, "tensor \"%.160s\": %s", tensor->name, why.message);
}

static bool take_whole(struct item_planner *p, const struct td_tensor *tensor, struct td_plan_piece *piece,
                       struct td_plan_output *out)
{
    uint64_t *shape = td_arena_array(&p->plan->arena, tensor->rank, sizeof *shape);
    if (shape == NULL)
        return refuse_memory(p->plan, p->err);
    for (uint32_t d = 0; d < tensor->rank; d++)
        shape[d] = tensor->shape[d];
    out->rank = tensor->rank;
    out->shape = shape;
    out->nbytes = tensor->nbytes;
    piece->size = tensor->rank == 0 ? 1 : tensor->shape[0];
    return true;
}

/* Appends a result with its piece, for which the arrays have room. */
static bool append_result(struct item_planner *p, const struct td_tensor *tensor, const char *name,
                          const struct td_plan_piece *piece, struct td_plan_output *out)
{
    struct td_plan *plan = p->plan;
    if (!td_add_u64(plan->total_bytes, out->nbytes, &plan->total_bytes))
        return td_error_set(p->err, TD_FAILED_PRECONDITION,
                            "tensor \"%.160s\": the sizes add up to more than "
                            "2^64-1 bytes",
                            tensor->name);
    out->dtype = tensor->dtype;
    out->name = td_arena_strndup(&plan->arena, td_text_of(name));
    if (out->name == NULL)
        return refuse_memory(p->plan, p->err);
    if (piece->selection == NULL && piece->size == 0)
        out->piece_count = 0;
    else
        plan->pieces[plan->piece_count++] = *piece;
    plan->outputs[plan->output_count++] = *out;
    return true;
}

static bool add_item(struct item_planner *p, const struct td_plan_item *item)
{
    struct td_plan *plan = p->plan;
    struct td_plan_piece piece = {.count = 1};
    struct td_plan_output out = {.cell_count = 1, .first_piece = plan->piece_count, .piece_count = 1};
    const struct td_tensor *tensor = td_plan_items_find(p->tensors, item->name, &piece.tensor);
    const char *name = item->as != NULL ? item->as : item->name;
    if (tensor == NULL)
        return td_error_set(p->err, TD_NOT_FOUND, "tensor \"%.160s\" not found", item->name);
    if (tensor->reason != NULL)
        return td_error_set(p->err, TD_FAILED_PRECONDITION, "tensor \"%.160s\": %s", item->name, tensor->reason);
    if (!(item->slice != NULL ? take_slice(p, tensor, item->slice, &piece, &out) : take_whole(p, tensor, &piece, &out)))
        return false;
    return append_result(p, tensor, name, &piece, &out);
}

static struct td_text output_name(const void *context, size_t i)
{
    const struct td_plan *plan = context;
    return td_text_of(plan->outputs[i].name);
}

/* Checks that no two results have the same name. */
static bool check_names(const struct td_plan *plan, struct td_error *err)
{
    struct td_names names = {.count = plan->output_count, .context = plan, .get = output_name};
    struct td_budget *budget = plan->arena.budget;
    struct td_order *order;
    size_t twice = 0;
    size_t bytes = 2 * plan->output_count * sizeof *order; /* includes the scratch memory of the sort */
    if (!td_budget_take(budget, bytes))
        return td_budget_refuse(budget, bytes, err);
    bool ok = td_names_order(&names, &order, err);
    if (ok) {
        twice = td_names_duplicate(&names, order);
        free(order);
    }
    td_budget_give(budget, bytes);
    if (!ok)
        return false;
    return twice == names.count ||
           td_error_set(err, TD_INVALID_ARGUMENT,
                        "two results are named \"%.160s\"; \"as\" gives one of them another name",
                        plan->outputs[twice].name);
}

/* Makes an empty plan with room for `count` results. */
static bool begin_plan(struct td_plan *plan, size_t count, struct td_budget *budget, struct td_error *err)
{
    *plan = (struct td_plan){.tp_size = 1};
    td_arena_init_budget(&plan->arena, TD_PLAN_MAX_MEMORY_BYTES, budget);
    plan->outputs = td_arena_array(&plan->arena, count, sizeof *plan->outputs);
    plan->pieces = td_arena_array(&plan->arena, count, sizeof *plan->pieces);
    return (plan->outputs != NULL && plan->pieces != NULL) || refuse_memory(plan, err);
}

bool td_plan_from_items(const struct td_plan_item *items, size_t count, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_plan *out, struct td_error *err)
{
    struct item_planner p = {.tensors = tensors, .plan = out, .err = err};
    bool ok = begin_plan(out, count, budget, err);
    for (size_t i = 0; ok && i < count; i++)
        ok = add_item(&p, &items[i]);
    ok = ok && check_names(out, err);
    if (!ok)
        td_plan_fini(out);
    return ok;
}

bool td_plan_from_selection(const struct td_tensor_list *tensors, size_t number, const struct td_selection *selection,
                            struct td_budget *budget, struct td_plan *out, struct td_error *err)
{
    struct item_planner p = {.tensors = tensors, .plan = out, .err = err};
    struct td_plan_piece piece = {.tensor = (uint32_t)number, .count = 1};
    struct td_plan_output result = {.cell_count = 1, .piece_count = 1};
    const struct td_tensor *tensor = tensors->get(tensors->context, number);
    bool ok = begin_plan(out, 1, budget, err) && take_selection(&p, tensor, selection, &piece, &result) &&
              append_result(&p, tensor, tensor->name, &piece, &result);
    if (!ok)
        td_plan_fini(out);
    return ok;
}
