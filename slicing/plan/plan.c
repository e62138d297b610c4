/* Matches come sorted by result, index in a stack, slot and number, so that each result is a group of neighbours. For
 * each group: check that it has every slot of every cell once (check_group); that its tensors can be joined
 * (check_shapes); split each tensor for this rank, add up the size along the axis, and append the pieces (plan_cells).
 * What is hard:
 *   - Results and pieces are counted only as they are made. Their arrays grow outside the arena, but from the same
 * budget (grow), and move into the arena at the end (settle).
 *   - Types with blocks, such as GGUF's or those below a byte, cannot be cut everywhere (check_blocks).
 *   - A refusal must name the tensor, and the part that is missing or there twice. */
#include "slicing/plan/plan.h"

#include "core/array.h"
#include "core/checked.h"
#include "slicing/plan/split.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct planner {
    const struct td_plan_match *match;
    size_t output_capacity, piece_capacity;
    struct td_plan *plan;
    struct td_error *err;
};

static bool refuse_tensor(const struct planner *p, const struct td_matched *m, const char *reason)
{
    return td_matched_refuse(m, reason, p->err);
}

static size_t rule_number(const struct planner *p, const struct td_matched *m)
{
    return (size_t)(m->rule - p->match->rules->rules);
}

/* ---- one result ---- */

/* The tensors of one result: `cells` times `slots` matches, cell by cell. */
struct group {
    const struct td_matched *matches;
    size_t count, cells, slots;
    bool stack;
    uint32_t axis;
};

static bool two_for_one(const struct planner *p, const struct td_matched *a, const struct td_matched *b)
{
    return td_error_set(p->err, TD_FAILED_PRECONDITION,
                        "tensors \"%.110s\" and \"%.110s\" would both be the same part of \"%.110s\"", a->tensor->name,
                        b->tensor->name, a->out);
}

/* Returns the first rule of the result's class whose slot the cell lacks. */
static const struct td_rule *missing_rule(const struct planner *p, const struct group *group, size_t cell)
{
    const struct td_rule_list *rules = p->match->rules;
    const uint32_t *class_of = p->match->class_of;
    const struct td_rule *found = group->matches[0].rule;
    size_t class = class_of[found - rules->rules];
    size_t first = 0;
    while (first < group->count && group->matches[first].index < cell)
        first++;
    for (size_t i = 0; i < rules->count; i++) {
        size_t k = first;
        while (k < group->count && group->matches[k].index == cell &&
               td_matched_slot(&group->matches[k]) != rules->rules[i].slot)
            k++;
        if (class_of[i] == class && (k == group->count || group->matches[k].index != cell))
            return &rules->rules[i];
    }
    return found;
}

static bool lacks_part(const struct planner *p, const struct group *group, size_t cell, const struct td_matched *beside)
{
    const struct td_rule *rule = missing_rule(p, group, cell);
    char index[40] = "";
    if (group->stack)
        (void)snprintf(index, sizeof index, " of index %zu", cell);
    return td_error_set(p->err, TD_FAILED_PRECONDITION,
                        "\"%.110s\" lacks a part beside tensor \"%.110s\": slot %" PRIu32
                        "%s, from a tensor like \"%.110s\"",
                        beside->out, beside->tensor->name, rule->slot, index, rule->match);
}

/* Checks that the matches are the slots of cell 0, then those of cell 1, and so on: none twice, none missing. */
static bool check_cells(const struct planner *p, const struct group *group)
{
    const struct td_matched *all = group->matches;
    for (size_t i = 1; i < group->count; i++)
        if (all[i].index == all[i - 1].index && td_matched_slot(&all[i]) == td_matched_slot(&all[i - 1]))
            return two_for_one(p, &all[i - 1], &all[i]);
    for (size_t i = 0; i < group->cells * group->slots; i++)
        if (i >= group->count || all[i].index != i / group->slots)
            return lacks_part(p, group, i / group->slots, &all[i > 0 ? i - 1 : 0]);
    return true;
}

/* Finds the numbers of slots and cells, and checks that all tensors of the group may be parts of one result. */
static bool check_group(const struct planner *p, struct group *group)
{
    const struct td_matched *head = &group->matches[0];
    size_t number = head->rule == NULL ? 0 : rule_number(p, head);
    group->slots = head->rule == NULL ? 1 : p->match->slots_of[number];
    group->stack = head->rule != NULL && head->rule->stack;
    for (size_t i = 1; i < group->count; i++) {
        const struct td_matched *m = &group->matches[i];
        if (head->rule == NULL || m->rule == NULL ||
            p->match->class_of[number] != p->match->class_of[rule_number(p, m)] || m->rule->stack != group->stack)
            return two_for_one(p, head, m);
    }
    group->cells = (group->count + group->slots - 1) / group->slots;
    if (!check_cells(p, group))
        return false;
    if (group->stack && head->rule->stack_size > 0 && head->rule->stack_size != group->cells)
        return td_error_set(p->err, TD_FAILED_PRECONDITION,
                            "\"%.160s\" has %zu parts of a stack (tensor \"%.160s\"), %" PRIu64 " are wanted",
                            head->out, group->cells, head->tensor->name, head->rule->stack_size);
    return true;
}

/* Finds the dimension that is split or joined; 0 where it does not matter. */
static bool find_axis(const struct planner *p, const struct td_matched *m, size_t slots, uint32_t *axis)
{
    *axis = 0;
    if (m->tensor->rank == 0 || m->rule == NULL || (m->rule->whole && slots == 1))
        return true;
    int64_t dim = m->rule->dim;
    if (dim < 0)
        dim += m->tensor->rank;
    if (dim < 0 || dim >= m->tensor->rank)
        return td_error_set(p->err, TD_FAILED_PRECONDITION,
                            "tensor \"%.160s\": has %" PRIu32
                            " dimension%s, numbered from 0; its rule splits dimension %" PRId32,
                            m->tensor->name, m->tensor->rank, m->tensor->rank == 1 ? "" : "s", m->rule->dim);
    *axis = (uint32_t)dim;
    return true;
}

/* Returns whether two tensors have the same type and the same dimensions except the axis, or, with `all`, including it.
 */
static bool same_but_axis(const struct td_tensor *a, const struct td_tensor *b, uint32_t axis, bool all)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (uint32_t d = 0; d < a->rank; d++)
        if ((all || d != axis) && a->shape[d] != b->shape[d])
            return false;
    return true;
}

/* Writes a type and a shape, such as "BF16 [4096,1024]", cut off if there are many dimensions. */
static void describe_tensor(const struct td_tensor *tensor, char *out, size_t capacity)
{
    size_t n = (size_t)snprintf(out, capacity, "%s [", tensor->dtype->name);
    for (uint32_t d = 0; d < tensor->rank && n < capacity - 1; d++)
        n += (size_t)snprintf(out + n, capacity - n, "%s%" PRIu64, d > 0 ? "," : "", tensor->shape[d]);
    if (n < capacity - 1)
        (void)snprintf(out + n, capacity - n, "]");
}

static bool cannot_join(const struct planner *p, const struct td_matched *a, const struct td_matched *b)
{
    char left[56];
    char right[56];
    describe_tensor(a->tensor, left, sizeof left);
    describe_tensor(b->tensor, right, sizeof right);
    return td_error_set(p->err, TD_FAILED_PRECONDITION,
                        "tensors \"%.85s\", %s, and \"%.85s\", %s, cannot be joined to \"%.85s\": types, "
                        "dimensions or shapes differ",
                        a->tensor->name, left, b->tensor->name, right, a->out);
}

/* Checks that the slots of a cell can be joined along the axis, and that each slot has one shape in all cells. */
static bool check_shapes(const struct planner *p, struct group *group)
{
    const struct td_matched *head = &group->matches[0];
    if (!find_axis(p, head, group->slots, &group->axis))
        return false;
    for (size_t i = 1; i < group->count; i++) {
        const struct td_matched *m = &group->matches[i];
        uint32_t axis;
        const struct td_matched *like = i < group->slots ? head : &group->matches[i % group->slots];
        if (!find_axis(p, m, group->slots, &axis))
            return false;
        if (axis != group->axis || (group->slots > 1 && m->tensor->rank == 0) ||
            !same_but_axis(like->tensor, m->tensor, axis, i >= group->slots))
            return cannot_join(p, like, m);
    }
    return true;
}

/* Computes this rank's part of a tensor along the axis. */
static bool split_tensor(const struct planner *p, const struct td_matched *m, uint32_t axis, struct td_split *out)
{
    const struct td_tensor *tensor = m->tensor;
    uint64_t size = tensor->rank == 0 ? 1 : tensor->shape[axis];
    if (m->rule != NULL && !m->rule->whole && tensor->rank > 0)
        return td_split_dimension(m->rule, tensor->name, size, p->plan->tp_size, p->plan->tp_rank, out, p->err);
    *out = (struct td_split){.count = size > 0, .size = size};
    out->pieces[0] = (struct td_split_piece){.size = size, .count = 1};
    return true;
}

/* Checks that the runs of each piece begin and end between blocks of the type: GGUF's blocks, and bytes of types
 * smaller than a byte. */
static bool check_blocks(const struct planner *p, const struct td_matched *m, uint32_t axis,
                         const struct td_split *split)
{
    const struct td_tensor *tensor = m->tensor;
    uint64_t block = tensor->dtype->block_elems;
    if (block <= 1 || tensor->rank == 0 || split->size == 0)
        return true;
    uint64_t inner = 1; /* modulo the block, which suffices */
    for (uint32_t d = axis + 1; d < tensor->rank; d++)
        inner = inner * (tensor->shape[d] % block) % block;
    bool rows = axis > 0; /* the pieces recur for each index of the outer dimensions */
    for (uint32_t i = 0; i < split->count; i++) {
        const struct td_split_piece *piece = &split->pieces[i];
        if (piece->size % block * inner % block != 0 || piece->start % block * inner % block != 0 ||
            piece->stride % block * inner % block != 0)
            return refuse_tensor(p, m, "a rank's part would begin or end within a block of its type");
    }
    return !rows || tensor->shape[axis] % block * inner % block == 0 ||
           refuse_tensor(p, m, "a rank's part would begin or end within a block of its type");
}

static const char this_plan[] = "the plan of one rank";

static bool refuse_memory(const struct planner *p)
{
    return td_arena_refuse(&p->plan->arena, this_plan, p->err);
}

/* Makes room for one more item in an array outside the arena, whose memory comes from the arena's budget. `items` is
 * the address of the array's pointer. */
static bool grow_array(struct planner *p, void *items, size_t count, size_t *capacity, size_t size)
{
    struct td_arena *arena = &p->plan->arena;
    if (td_array_next_capacity(count, count + 1) > TD_PLAN_MAX_MEMORY_BYTES / size) {
        arena->lack = TD_ARENA_LACKS_LIMIT;
        return refuse_memory(p);
    }
    return td_array_reserve(items, capacity, count + 1, size, arena->budget, p->err);
}

static bool append_pieces(struct planner *p, const struct td_matched *m, const struct td_split *split)
{
    struct td_plan *plan = p->plan;
    for (uint32_t i = 0; i < split->count; i++) {
        const struct td_split_piece *piece = &split->pieces[i];
        if (!grow_array(p, &plan->pieces, plan->piece_count, &p->piece_capacity, sizeof *plan->pieces))
            return false;
        plan->pieces[plan->piece_count++] = (struct td_plan_piece){.tensor = piece->zeros ? TD_PIECE_ZEROS : m->number,
                                                                   .start = piece->start,
                                                                   .size = piece->size,
                                                                   .count = piece->count,
                                                                   .stride = piece->stride};
    }
    return true;
}

/* Sets the result's shape: the dimension of the stack, if there is one, then those of a cell with `size` along the
 * axis. */
static bool set_shape(struct planner *p, const struct group *group, uint64_t size, struct td_plan_output *out)
{
    const struct td_tensor *tensor = group->matches[0].tensor;
    uint32_t extra = group->stack ? 1 : 0;
    if (tensor->rank + extra > TD_MAX_RANK)
        return refuse_tensor(p, &group->matches[0], "a stack of it would have more than 64 dimensions");
    out->rank = tensor->rank + extra;
    uint64_t *shape = td_arena_array(&p->plan->arena, out->rank, sizeof *shape);
    if (shape == NULL)
        return refuse_memory(p);
    if (group->stack)
        shape[0] = group->cells;
    for (uint32_t d = 0; d < tensor->rank; d++)
        shape[d + extra] = d == group->axis ? size : tensor->shape[d];
    out->shape = shape;
    uint64_t elems = 1;
    bool empty = false;
    bool fits = true;
    for (uint32_t d = 0; d < out->rank; d++) {
        empty = empty || shape[d] == 0;
        fits = fits && td_mul_u64(elems, shape[d] == 0 ? 1 : shape[d], &elems);
    }
    if (empty)
        elems = 0;
    if ((!fits && !empty) || !td_dtype_nbytes(out->dtype, elems, &out->nbytes) ||
        !td_add_u64(p->plan->total_bytes, out->nbytes, &p->plan->total_bytes))
        return refuse_tensor(p, &group->matches[0],
                             "the result's size is past 2^64-1 or is not a whole number of blocks");
    return true;
}

/* Appends the pieces of all cells, and computes the size of a cell along the axis. */
static bool plan_cells(struct planner *p, const struct group *group, uint64_t *size)
{
    *size = 0;
    for (size_t slot = 0; slot < group->slots; slot++) {
        struct td_split split;
        const struct td_matched *m = &group->matches[slot];
        if (!split_tensor(p, m, group->axis, &split) || !check_blocks(p, m, group->axis, &split))
            return false;
        if (!td_add_u64(*size, split.size, size))
            return refuse_tensor(p, m, "a dimension of the result is past 2^64-1");
    }
    for (size_t i = 0; i < group->count; i++) {
        struct td_split split;
        const struct td_matched *m = &group->matches[i];
        if (!split_tensor(p, m, group->axis, &split) || !append_pieces(p, m, &split))
            return false;
    }
    return true;
}

static bool plan_group(struct planner *p, struct group *group)
{
    struct td_plan *plan = p->plan;
    const struct td_matched *head = &group->matches[0];
    struct td_plan_output out = {.dtype = head->tensor->dtype, .first_piece = plan->piece_count};
    uint64_t size;
    if (!grow_array(p, &plan->outputs, plan->output_count, &p->output_capacity, sizeof *plan->outputs) ||
        !check_group(p, group) || !check_shapes(p, group) || !plan_cells(p, group, &size) ||
        !set_shape(p, group, size, &out))
        return false;
    out.name = td_arena_strndup(&plan->arena, td_text_of(head->out));
    if (out.name == NULL)
        return refuse_memory(p);
    out.axis = group->axis;
    out.cell_count = group->cells;
    out.piece_count = plan->piece_count - out.first_piece;
    plan->outputs[plan->output_count++] = out;
    return true;
}

static bool plan_constant(struct planner *p, const struct td_matched_constant *constant)
{
    struct td_plan *plan = p->plan;
    struct td_plan_output out = {.dtype = td_dtype_find(TD_TEXT("F32")),
                                 .nbytes = sizeof(float),
                                 .cell_count = 1,
                                 .first_piece = plan->piece_count,
                                 .is_constant = true,
                                 .constant = constant->value};
    if (!grow_array(p, &plan->outputs, plan->output_count, &p->output_capacity, sizeof *plan->outputs))
        return false;
    out.name = td_arena_strndup(&plan->arena, td_text_of(constant->out));
    if (out.name == NULL)
        return refuse_memory(p);
    if (!td_add_u64(plan->total_bytes, out.nbytes, &plan->total_bytes))
        return td_error_set(p->err, TD_FAILED_PRECONDITION, "\"%.160s\": the sizes add up to more than 2^64-1 bytes",
                            out.name);
    plan->outputs[plan->output_count++] = out;
    return true;
}

/* Plans the constants from number *next on whose names come before the result of `before`; NULL: all of them. */
static bool plan_constants(struct planner *p, size_t *next, const struct td_matched *before)
{
    const struct td_plan_match *match = p->match;
    for (; *next < match->constant_count; ++*next) {
        const struct td_matched_constant *constant = &match->constants[*next];
        int order = before == NULL ? -1 : strcmp(constant->out, before->out);
        if (order > 0)
            return true;
        if (order == 0)
            return refuse_tensor(p, before, "its result has the name of a constant");
        if (!plan_constant(p, constant))
            return false;
    }
    return true;
}

/* Plans the results in the order of their names. */
static bool plan_groups(struct planner *p)
{
    const struct td_matched *matches = p->match->matches;
    size_t next = 0;
    for (size_t first = 0; matches != NULL && first < p->match->match_count;) {
        struct group group = {.matches = &matches[first], .count = 1};
        while (first + group.count < p->match->match_count &&
               strcmp(matches[first].out, matches[first + group.count].out) == 0)
            group.count++;
        if (!plan_constants(p, &next, &matches[first]) || !plan_group(p, &group))
            return false;
        first += group.count;
    }
    return plan_constants(p, &next, NULL);
}

/* ---- plans ---- */

/* Copies results that are sorted by name in the order of the file, in which those of one type stay sorted by name. */
static void copy_in_order(const struct td_plan_output *outputs, size_t count, struct td_plan_output *to)
{
    size_t counts[TD_DTYPE_COUNT] = {0};
    size_t places[TD_DTYPE_COUNT];
    size_t place = 0;
    for (size_t i = 0; i < count; i++)
        counts[td_dtype_number(outputs[i].dtype)]++;
    for (size_t number = TD_DTYPE_COUNT; number-- > 0;) {
        places[number] = place;
        place += counts[number];
    }
    for (size_t i = 0; i < count; i++)
        to[places[td_dtype_number(outputs[i].dtype)]++] = outputs[i];
}

/* Frees an array that grew outside the arena. */
static void drop_array(struct planner *p, void *items, size_t capacity, size_t size)
{
    free(items);
    td_budget_give(p->plan->arena.budget, capacity * size);
}

/* Moves the arrays of results and pieces into the arena, the results in the order of the file. */
static bool move_to_arena(struct planner *p)
{
    struct td_plan *plan = p->plan;
    struct td_plan_output *outputs = td_arena_array(&plan->arena, plan->output_count, sizeof *outputs);
    if (outputs != NULL)
        copy_in_order(plan->outputs, plan->output_count, outputs);
    drop_array(p, plan->outputs, p->output_capacity, sizeof *outputs);
    plan->outputs = outputs;
    struct td_plan_piece *pieces = td_arena_array(&plan->arena, plan->piece_count, sizeof *pieces);
    if (pieces != NULL && plan->piece_count > 0)
        memcpy(pieces, plan->pieces, plan->piece_count * sizeof *pieces);
    drop_array(p, plan->pieces, p->piece_capacity, sizeof *pieces);
    plan->pieces = pieces;
    return (outputs != NULL && pieces != NULL) || refuse_memory(p);
}

void td_plan_fini(struct td_plan *plan)
{
    td_arena_fini(&plan->arena);
    *plan = (struct td_plan){0};
}

/* Lists the names of the tensors that are left out. */
static bool list_dropped(struct planner *p)
{
    struct td_plan *plan = p->plan;
    const struct td_plan_match *match = p->match;
    plan->dropped = td_arena_array(&plan->arena, match->dropped_count, sizeof *plan->dropped);
    if (plan->dropped == NULL)
        return refuse_memory(p);
    for (size_t i = 0; i < match->dropped_count; i++) {
        const struct td_tensor *tensor = match->tensors.get(match->tensors.context, match->dropped[i]);
        plan->dropped[i] = td_arena_strndup(&plan->arena, td_tensor_name(tensor));
        if (plan->dropped[i] == NULL)
            return refuse_memory(p);
        plan->dropped_count++;
    }
    return true;
}

static bool check_rank(uint64_t tp_size, uint64_t tp_rank, struct td_error *err)
{
    if (!td_tp_size_check(tp_size, err))
        return false;
    if (tp_rank >= tp_size)
        return td_error_set(err, TD_INVALID_ARGUMENT, "rank %" PRIu64 " of %" PRIu64 "; ranks count from 0", tp_rank,
                            tp_size);
    return true;
}

bool td_plan_from_match(const struct td_plan_match *match, uint64_t tp_size, uint64_t tp_rank, struct td_plan *out,
                        struct td_error *err)
{
    struct planner p = {.match = match, .plan = out, .err = err};
    *out = (struct td_plan){.tp_size = tp_size, .tp_rank = tp_rank};
    if (!check_rank(tp_size, tp_rank, err))
        return false;
    td_arena_init_budget(&out->arena, TD_PLAN_MAX_MEMORY_BYTES, match->arena.budget);
    bool ok = list_dropped(&p) && plan_groups(&p);
    ok = move_to_arena(&p) && ok;
    if (!ok)
        td_plan_fini(out);
    return ok;
}
