#include "slicing/plan.h"

#include "core/checked.h"
#include "parser/names.h"
#include "slicing/split.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A tensor, and what its rule makes of it. */
struct match {
    const struct td_tensor *tensor;
    const struct td_rule *rule; /* NULL: none matched, it is whole */
    const char *out;
    uint32_t number; /* of the tensor */
    uint32_t index;  /* in a stack */
};

struct planner {
    const struct td_rule_list *rules;
    const struct td_tensor_list *tensors;
    uint64_t tp_size, tp_rank, steps;
    struct td_arena scratch;
    struct td_buffer name;
    const uint32_t *class_of,
        *slots_of;         /* of each rule, by its number: rules of one `out` are a class, and have so many
                                            different slots */
    struct match *matches; /* sorted by out, index, slot, number */
    size_t match_count;
    size_t output_capacity, piece_capacity;
    struct td_plan *plan;
    struct td_error *err;
};

static bool refuse(const struct planner *p, const struct match *m, const char *reason)
{
    return td_error_set(p->err, TD_FAILED_PRECONDITION, "tensor \"%.160s\": %s", m->tensor->name, reason);
}

static uint32_t slot_of(const struct match *m)
{
    return m->rule == NULL ? 0 : m->rule->slot;
}

/* ---- rules that make one result ---- */

static const char *out_of(const struct td_rule_list *rules, size_t i)
{
    const struct td_rule *rule = &rules->rules[i];
    return rule->out == NULL || rule->drop || rule->refuse != NULL ? NULL : rule->out;
}

static int compare_outs(const void *context, size_t a, size_t b)
{
    const struct td_rule_list *rules = context;
    const char *left = out_of(rules, a);
    const char *right = out_of(rules, b);
    if (left == NULL || right == NULL)
        return (left != NULL) - (right != NULL);
    int order = strcmp(left, right);
    if (order == 0)
        order = (rules->rules[a].slot > rules->rules[b].slot) - (rules->rules[a].slot < rules->rules[b].slot);
    return order;
}

static void count_class(const struct td_rule_list *rules, const struct td_order *order, size_t first,
                        size_t end, uint32_t *class_of, uint32_t *slots_of)
{
    uint32_t slots = 1;
    for (size_t i = first + 1; i < end; i++)
        slots += rules->rules[order[i].index].slot != rules->rules[order[i - 1].index].slot;
    for (size_t i = first; i < end; i++) {
        class_of[order[i].index] = (uint32_t)first;
        slots_of[order[i].index] = slots;
    }
}

static bool find_classes(struct planner *p)
{
    const struct td_rule_list *rules = p->rules;
    size_t count = rules->count;
    struct td_order *order = td_arena_array(&p->scratch, count, sizeof *order);
    uint32_t *class_of = td_arena_array(&p->scratch, count, sizeof *class_of);
    uint32_t *slots_of = td_arena_array(&p->scratch, count, sizeof *slots_of);
    if (order == NULL || class_of == NULL || slots_of == NULL)
        return td_error_no_memory(p->err);
    for (size_t i = 0; i < count; i++)
        order[i] = (struct td_order){.index = i};
    if (!td_order_sort(order, count, compare_outs, rules, p->err))
        return false;
    for (size_t first = 0; first < count;) {
        size_t end = first + 1;
        const char *out = out_of(rules, order[first].index);
        while (out != NULL && end < count && strcmp(out, out_of(rules, order[end].index)) == 0)
            end++;
        count_class(rules, order, first, end, class_of, slots_of);
        first = end;
    }
    p->class_of = class_of;
    p->slots_of = slots_of;
    return true;
}

static size_t rule_number(const struct planner *p, const struct match *m)
{
    return (size_t)(m->rule - p->rules->rules);
}

/* ---- tensors to results ---- */

static bool read_index(const struct planner *p, struct match *m, const struct td_captures *captures)
{
    const char *text = m->tensor->name + captures->at[captures->count - 1].off;
    uint32_t len = captures->at[captures->count - 1].len;
    uint32_t value = 0;
    if (len == 0 || len > 9 || (len > 1 && text[0] == '0'))
        return refuse(p, m, "its last wildcard is not an index of a stack");
    for (uint32_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return refuse(p, m, "its last wildcard is not an index of a stack");
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    m->index = value;
    return true;
}

static bool is_plain(const struct td_dtype *dtype)
{
    static const char *const plain[] = {"BF16", "F16", "F32", "F64"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(dtype->name, plain[i]) == 0)
            return true;
    return false;
}

/* What no rule of the list changes. */
static bool check_source(const struct planner *p, const struct match *m)
{
    if (m->tensor->reason != NULL)
        return refuse(p, m, m->tensor->reason);
    if (p->rules->plain_types_only && !is_plain(m->tensor->dtype))
        return td_error_set(
            p->err, TD_FAILED_PRECONDITION,
            "tensor \"%.160s\": of type %.16s; the layout of quantised weights depends on how the "
            "engine runs them, so only BF16, F16, F32 and F64 are laid out",
            m->tensor->name, m->tensor->dtype->name);
    return true;
}

static bool set_out(struct planner *p, struct match *m, const struct td_captures *captures)
{
    if (m->rule == NULL || m->rule->out == NULL) {
        m->out = m->tensor->name;
        return true;
    }
    td_buffer_clear(&p->name);
    td_rule_write_out(m->rule, m->tensor->name, captures, &p->name);
    m->out = p->name.failed ? NULL : td_arena_strndup(&p->scratch, p->name.data, p->name.len);
    return m->out != NULL || td_error_no_memory(p->err);
}

static bool drop(struct planner *p, const struct match *m)
{
    const char *name = td_arena_strndup(&p->plan->arena, m->tensor->name, m->tensor->name_len);
    if (name == NULL)
        return td_error_no_memory(p->err);
    p->plan->dropped[p->plan->dropped_count++] = name;
    return true;
}

static bool match_tensor(struct planner *p, uint32_t number)
{
    const struct td_tensor *tensor = p->tensors->get(p->tensors->context, number);
    struct match m = {.tensor = tensor, .number = number};
    struct td_captures captures;
    m.rule = td_rules_find(p->rules, tensor->name, tensor->name_len, &captures, &p->steps);
    if (p->steps == 0)
        return td_error_set(p->err, TD_FAILED_PRECONDITION,
                            "%zu rules for %zu tensors take too long to match; use fewer rules",
                            p->rules->count, p->tensors->count);
    if (m.rule == NULL && tensor->rank >= 2)
        return refuse(p, &m, "no rule matches it, and it has two dimensions or more");
    if (m.rule != NULL && m.rule->refuse != NULL)
        return refuse(p, &m, m.rule->refuse);
    if (m.rule != NULL && m.rule->drop)
        return drop(p, &m);
    if (!check_source(p, &m) || !set_out(p, &m, &captures))
        return false;
    if (m.rule != NULL && m.rule->stack && (captures.count == 0 || !read_index(p, &m, &captures)))
        return captures.count > 0 ? false : refuse(p, &m, "its rule stacks, but has no wildcard");
    p->matches[p->match_count++] = m;
    return true;
}

static int compare_matches(const void *context, size_t a, size_t b)
{
    const struct match *left = (const struct match *)context + a;
    const struct match *right = (const struct match *)context + b;
    int order = strcmp(left->out, right->out);
    if (order == 0)
        order = (left->index > right->index) - (left->index < right->index);
    if (order == 0)
        order = (slot_of(left) > slot_of(right)) - (slot_of(left) < slot_of(right));
    return order;
}

static bool match_tensors(struct planner *p)
{
    size_t count = p->tensors->count;
    struct td_order *order = td_arena_array(&p->scratch, count, sizeof *order);
    p->matches = td_arena_array(&p->scratch, count, sizeof *p->matches);
    p->plan->dropped = td_arena_array(&p->plan->arena, count, sizeof *p->plan->dropped);
    if (order == NULL || p->matches == NULL || p->plan->dropped == NULL)
        return td_error_no_memory(p->err);
    for (size_t i = 0; i < count; i++)
        if (!match_tensor(p, (uint32_t)i))
            return false;
    for (size_t i = 0; i < p->match_count; i++)
        order[i] = (struct td_order){.index = i};
    if (!td_order_sort(order, p->match_count, compare_matches, p->matches, p->err))
        return false;
    td_order_apply(order, p->match_count, p->matches, sizeof *p->matches);
    return true;
}

/* ---- one result ---- */

/* The tensors of one result: `cells` times `slots` matches, one after the other. */
struct group {
    const struct match *matches;
    size_t count, cells, slots;
    bool stack;
    uint32_t axis;
};

static bool two_for_one(const struct planner *p, const struct match *a, const struct match *b)
{
    return td_error_set(p->err, TD_FAILED_PRECONDITION,
                        "tensors \"%.110s\" and \"%.110s\" would both be the same part of \"%.110s\"",
                        a->tensor->name, b->tensor->name, a->out);
}

/* Sorted as they are, the matches are the slots of cell 0, those of cell 1 ...: none twice, none missing. */
static bool check_cells(const struct planner *p, const struct group *group)
{
    const struct match *all = group->matches;
    for (size_t i = 1; i < group->count; i++)
        if (all[i].index == all[i - 1].index && slot_of(&all[i]) == slot_of(&all[i - 1]))
            return two_for_one(p, &all[i - 1], &all[i]);
    for (size_t i = 0; i < group->cells * group->slots; i++)
        if (i >= group->count || all[i].index != i / group->slots)
            return td_error_set(p->err, TD_FAILED_PRECONDITION,
                                "\"%.160s\" lacks a part beside tensor \"%.160s\"; the rules join %zu",
                                all[0].out, all[i > 0 ? i - 1 : 0].tensor->name, group->slots);
    return true;
}

static bool check_group(const struct planner *p, struct group *group)
{
    const struct match *head = &group->matches[0];
    size_t number = head->rule == NULL ? 0 : rule_number(p, head);
    group->slots = head->rule == NULL ? 1 : p->slots_of[number];
    group->stack = head->rule != NULL && head->rule->stack;
    for (size_t i = 1; i < group->count; i++) {
        const struct match *m = &group->matches[i];
        if (head->rule == NULL || m->rule == NULL || p->class_of[number] != p->class_of[rule_number(p, m)] ||
            m->rule->stack != group->stack)
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

/* The dimension that is split or joined; 0 where it does not matter. */
static bool find_axis(const struct planner *p, const struct match *m, size_t slots, uint32_t *axis)
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
                            " dimensions, its rule splits dimension %" PRId32,
                            m->tensor->name, m->tensor->rank, m->rule->dim);
    *axis = (uint32_t)dim;
    return true;
}

/* Whether two tensors can lie side by side along the axis, or, with all dimensions, one after the other. */
static bool same_but_axis(const struct td_tensor *a, const struct td_tensor *b, uint32_t axis, bool all)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (uint32_t d = 0; d < a->rank; d++)
        if ((all || d != axis) && a->shape[d] != b->shape[d])
            return false;
    return true;
}

static bool check_shapes(const struct planner *p, struct group *group)
{
    const struct match *head = &group->matches[0];
    if (!find_axis(p, head, group->slots, &group->axis))
        return false;
    for (size_t i = 1; i < group->count; i++) {
        const struct match *m = &group->matches[i];
        uint32_t axis;
        const struct match *like = i < group->slots ? head : &group->matches[i % group->slots];
        if (!find_axis(p, m, group->slots, &axis))
            return false;
        if (axis != group->axis || (group->slots > 1 && m->tensor->rank == 0) ||
            !same_but_axis(like->tensor, m->tensor, axis, i >= group->slots))
            return td_error_set(p->err, TD_FAILED_PRECONDITION,
                                "tensors \"%.160s\" and \"%.160s\" cannot be joined to \"%.100s\": types, "
                                "dimensions or shapes differ",
                                like->tensor->name, m->tensor->name, head->out);
    }
    return true;
}

/* What of one tensor is this rank's, along the axis. */
static bool split_tensor(const struct planner *p, const struct match *m, uint32_t axis, struct td_split *out)
{
    const struct td_tensor *tensor = m->tensor;
    uint64_t size = tensor->rank == 0 ? 1 : tensor->shape[axis];
    if (m->rule != NULL && !m->rule->whole && tensor->rank > 0)
        return td_split_dimension(m->rule, tensor->name, size, p->tp_size, p->tp_rank, out, p->err);
    *out = (struct td_split){.count = size > 0, .size = size};
    out->pieces[0] = (struct td_split_piece){.size = size, .count = 1};
    return true;
}

/* Runs of a piece begin and end between the blocks of the type: rows of 2^n elements in types below a byte, GGUF's block
 * types. */
static bool check_blocks(const struct planner *p, const struct match *m, uint32_t axis,
                         const struct td_split *split)
{
    const struct td_tensor *tensor = m->tensor;
    uint64_t block = tensor->dtype->block_elems;
    if (block <= 1 || tensor->rank == 0 || split->size == 0)
        return true;
    uint64_t inner = 1; /* modulo the block, which is all that counts */
    for (uint32_t d = axis + 1; d < tensor->rank; d++)
        inner = inner * (tensor->shape[d] % block) % block;
    bool rows = axis > 0; /* pieces recur with the outer dimensions */
    for (uint32_t i = 0; i < split->count; i++) {
        const struct td_split_piece *piece = &split->pieces[i];
        if (piece->size % block * inner % block != 0 || piece->start % block * inner % block != 0 ||
            piece->stride % block * inner % block != 0)
            return refuse(p, m, "a rank's part would begin or end within a block of its type");
    }
    return !rows || tensor->shape[axis] % block * inner % block == 0 ||
           refuse(p, m, "a rank's part would begin or end within a block of its type");
}

static bool grow(void **items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity == 0 ? 64 : *capacity + *capacity / 2;
    size_t bytes;
    if (!td_mul_size(wanted, size, &bytes) || bytes > TD_PLAN_MAX_MEMORY_BYTES)
        return false;
    void *grown = realloc(*items, bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

static bool append_pieces(struct planner *p, const struct match *m, const struct td_split *split)
{
    struct td_plan *plan = p->plan;
    for (uint32_t i = 0; i < split->count; i++) {
        const struct td_split_piece *piece = &split->pieces[i];
        void *pieces = plan->pieces;
        bool room = grow(&pieces, plan->piece_count, &p->piece_capacity, sizeof *plan->pieces);
        plan->pieces = pieces;
        if (!room)
            return td_error_no_memory(p->err);
        plan->pieces[plan->piece_count++] =
            (struct td_plan_piece){.tensor = piece->zeros ? TD_PIECE_ZEROS : m->number,
                                   .start = piece->start,
                                   .size = piece->size,
                                   .count = piece->count,
                                   .stride = piece->stride};
    }
    return true;
}

/* Dimensions of the result: those of a cell, with `size` along the axis, after the stack's. */
static bool set_shape(struct planner *p, const struct group *group, uint64_t size, struct td_plan_output *out)
{
    const struct td_tensor *tensor = group->matches[0].tensor;
    uint32_t extra = group->stack ? 1 : 0;
    if (tensor->rank + extra > TD_MAX_RANK)
        return refuse(p, &group->matches[0], "a stack of it would have more than 64 dimensions");
    out->rank = tensor->rank + extra;
    uint64_t *shape = td_arena_array(&p->plan->arena, out->rank, sizeof *shape);
    if (shape == NULL)
        return td_error_no_memory(p->err);
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
        return refuse(p, &group->matches[0], "the result's size is past 2^64-1 or no whole number of blocks");
    return true;
}

static bool plan_cells(struct planner *p, const struct group *group, uint64_t *size)
{
    *size = 0;
    for (size_t slot = 0; slot < group->slots; slot++) {
        struct td_split split;
        const struct match *m = &group->matches[slot];
        if (!split_tensor(p, m, group->axis, &split) || !check_blocks(p, m, group->axis, &split))
            return false;
        if (!td_add_u64(*size, split.size, size))
            return refuse(p, m, "a dimension of the result is past 2^64-1");
    }
    for (size_t i = 0; i < group->count; i++) {
        struct td_split split;
        const struct match *m = &group->matches[i];
        if (!split_tensor(p, m, group->axis, &split) || !append_pieces(p, m, &split))
            return false;
    }
    return true;
}

static bool plan_group(struct planner *p, struct group *group)
{
    struct td_plan *plan = p->plan;
    const struct match *head = &group->matches[0];
    struct td_plan_output out = {.dtype = head->tensor->dtype, .first_piece = plan->piece_count};
    uint64_t size;
    void *outputs = plan->outputs;
    bool room = grow(&outputs, plan->output_count, &p->output_capacity, sizeof *plan->outputs);
    plan->outputs = outputs;
    if (!room)
        return td_error_no_memory(p->err);
    if (!check_group(p, group) || !check_shapes(p, group) || !plan_cells(p, group, &size) ||
        !set_shape(p, group, size, &out))
        return false;
    out.name = td_arena_strndup(&plan->arena, head->out, strlen(head->out));
    if (out.name == NULL)
        return td_error_no_memory(p->err);
    out.axis = group->axis;
    out.cell_count = group->cells;
    out.piece_count = plan->piece_count - out.first_piece;
    plan->outputs[plan->output_count++] = out;
    return true;
}

static bool plan_groups(struct planner *p)
{
    const struct match *matches = p->matches;
    for (size_t first = 0; matches != NULL && first < p->match_count;) {
        struct group group = {.matches = &matches[first], .count = 1};
        while (first + group.count < p->match_count &&
               strcmp(matches[first].out, matches[first + group.count].out) == 0)
            group.count++;
        if (!plan_group(p, &group))
            return false;
        first += group.count;
    }
    return true;
}

/* ---- plans ---- */

/* What grew by realloc goes into the arena. */
static bool settle(struct td_plan *plan, bool ok, struct td_error *err)
{
    struct td_plan_output *outputs = plan->outputs;
    struct td_plan_piece *pieces = plan->pieces;
    plan->outputs = td_arena_array(&plan->arena, plan->output_count, sizeof *outputs);
    plan->pieces = td_arena_array(&plan->arena, plan->piece_count, sizeof *pieces);
    bool room = plan->outputs != NULL && plan->pieces != NULL;
    if (room && plan->output_count > 0)
        memcpy(plan->outputs, outputs, plan->output_count * sizeof *outputs);
    if (room && plan->piece_count > 0)
        memcpy(plan->pieces, pieces, plan->piece_count * sizeof *pieces);
    free(outputs);
    free(pieces);
    return ok && (room || td_error_no_memory(err));
}

void td_plan_fini(struct td_plan *plan)
{
    td_arena_fini(&plan->arena);
    *plan = (struct td_plan){0};
}

bool td_plan_from_rules(const struct td_rule_list *rules, const struct td_tensor_list *tensors,
                        uint64_t tp_size, uint64_t tp_rank, struct td_plan *out, struct td_error *err)
{
    struct planner p = {.rules = rules,
                        .tensors = tensors,
                        .tp_size = tp_size,
                        .tp_rank = tp_rank,
                        .steps = TD_PLAN_MAX_STEPS,
                        .plan = out,
                        .err = err};
    *out = (struct td_plan){.tp_size = tp_size, .tp_rank = tp_rank};
    if (tp_size == 0 || tp_size > TD_MAX_TP_SIZE)
        return td_error_set(err, TD_INVALID_ARGUMENT, "tp_size is %" PRIu64 "; at least 1 and at most %d",
                            tp_size, TD_MAX_TP_SIZE);
    if (tp_rank >= tp_size)
        return td_error_set(err, TD_INVALID_ARGUMENT, "rank %" PRIu64 " of %" PRIu64 "; ranks count from 0",
                            tp_rank, tp_size);
    if (tensors->count >= TD_PIECE_ZEROS)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "more than 2^32-2 tensors");
    td_arena_init(&out->arena, TD_PLAN_MAX_MEMORY_BYTES);
    td_arena_init(&p.scratch, TD_PLAN_MAX_MEMORY_BYTES);
    td_buffer_init(&p.name);
    bool ok = find_classes(&p) && match_tensors(&p) && plan_groups(&p);
    ok = settle(out, ok, err);
    td_buffer_fini(&p.name);
    td_arena_fini(&p.scratch);
    if (!ok)
        td_plan_fini(out);
    return ok;
}
