/* Four steps. find_classes sorts the rules by `out` and slot, which gives the class of each rule and the number of
 * slots of each class. match_tensor finds the first rule for each tensor and makes the result's name and the index in a
 * stack; add_constants adds the constants of the rules that match the tensor. sort_matches sorts the tensors by result.
 * settle_constants sorts the constants by name and keeps one of each. Rules and tensors may be many (10,000 rules,
 * millions of names), so the work is counted in steps and the memory comes from an arena with a limit and a budget. */
#include "slicing/plan/plan_match.h"

#include "core/digits.h"
#include "core/json/json.h"
#include "parser/format/names.h"

#include <stdio.h>
#include <string.h>

/* A constant of a rule that matched a tensor. */
struct made_constant {
    struct made_constant *before;
    struct td_matched_constant constant;
};

/* A match that is being made. */
struct matching {
    struct td_plan_match *match;
    struct td_matched *matches; /* the match's array, still writable */
    uint32_t *dropped;          /* likewise */
    bool *used;                 /* by the rule's number */
    bool has_constants;         /* some rule is a constant */
    struct made_constant *last; /* of the constants, a list in the arena; a name may occur several times */
    size_t constant_count;
    uint64_t steps; /* left for the search */
    struct td_buffer name;
    struct td_error *err;
};

bool td_matched_refuse(const struct td_matched *matched, const char *reason, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION, "tensor \"%.160s\": %s", matched->tensor->name, reason);
}

void td_plan_write_drop_rule(const char *name, char out[TD_DROP_RULE_BYTES])
{
    enum { NAME_MAX_BYTES = 100 };
    struct td_buffer json;
    td_buffer_init(&json);
    td_json_write_cstring(&json, name);
    /* By hand and not by core/message/document.h: a constant with one text in it, within a message. */
    bool fits = !json.failed && json.len <= NAME_MAX_BYTES;
    (void)snprintf(out, TD_DROP_RULE_BYTES, "{\"match\":%.*s,\"drop\":true}", fits ? (int)json.len : 6,
                   fits ? json.data : "\"NAME\"");
    td_buffer_fini(&json);
}

uint32_t td_matched_slot(const struct td_matched *matched)
{
    return matched->rule == NULL ? 0 : matched->rule->slot;
}

static bool refuse_tensor(const struct matching *p, const struct td_matched *m, const char *reason)
{
    return td_matched_refuse(m, reason, p->err);
}

static bool refuse_memory(const struct matching *p)
{
    return td_arena_refuse(&p->match->arena, "matching the rules with the tensors", p->err);
}

/* Sorts. While it runs, the scratch memory of the sort is taken from the budget. */
static bool sort_order(struct matching *p, struct td_order *order, size_t count,
                       int (*compare)(const void *context, size_t a, size_t b), const void *context)
{
    struct td_budget *budget = p->match->arena.budget;
    size_t bytes = count * sizeof *order; /* the array itself is counted already */
    if (!td_budget_take(budget, bytes))
        return td_budget_refuse(budget, bytes, p->err);
    bool ok = td_order_sort(order, count, compare, context, p->err);
    td_budget_give(budget, bytes);
    return ok;
}

/* ---- rules that make one result ---- */

/* Returns the rule's `out`, or NULL if the rule makes no result of that name. */
static const char *out_of(const struct td_rule_list *rules, size_t i)
{
    const struct td_rule *rule = &rules->rules[i];
    return rule->out == NULL || rule->drop || rule->refuse != NULL || rule->is_constant ? NULL : rule->out;
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

/* Gives the rules order[first..end) a class of their own. */
static void count_class(const struct td_rule_list *rules, const struct td_order *order, size_t first, size_t end,
                        uint32_t *class_of, uint32_t *slots_of)
{
    uint32_t slots = 1;
    for (size_t i = first + 1; i < end; i++)
        slots += rules->rules[order[i].index].slot != rules->rules[order[i - 1].index].slot;
    for (size_t i = first; i < end; i++) {
        class_of[order[i].index] = (uint32_t)first;
        slots_of[order[i].index] = slots;
    }
}

static bool find_classes(struct matching *p)
{
    const struct td_rule_list *rules = p->match->rules;
    size_t count = rules->count;
    struct td_order *order = td_arena_array(&p->match->arena, count, sizeof *order);
    uint32_t *class_of = td_arena_array(&p->match->arena, count, sizeof *class_of);
    uint32_t *slots_of = td_arena_array(&p->match->arena, count, sizeof *slots_of);
    if (order == NULL || class_of == NULL || slots_of == NULL)
        return refuse_memory(p);
    for (size_t i = 0; i < count; i++)
        order[i] = (struct td_order){.index = i};
    if (!sort_order(p, order, count, compare_outs, rules))
        return false;
    for (size_t first = 0; first < count;) {
        size_t end = first + 1;
        const char *out = out_of(rules, order[first].index);
        while (out != NULL && end < count && strcmp(out, out_of(rules, order[end].index)) == 0)
            end++;
        count_class(rules, order, first, end, class_of, slots_of);
        first = end;
    }
    p->match->class_of = class_of;
    p->match->slots_of = slots_of;
    return true;
}

/* ---- tensors to results ---- */

/* Reads the index in a stack from the last capture. */
static bool read_index(const struct matching *p, struct td_matched *m, const struct td_captures *captures)
{
    if (captures->count == 0)
        return refuse_tensor(p, m, "its rule stacks, but has no wildcard");
    const char *text = m->tensor->name + captures->at[captures->count - 1].off;
    uint32_t len = captures->at[captures->count - 1].len;
    uint64_t value;
    if (!td_number_read_strict(td_text_n(text, len), 999999999, &value))
        return refuse_tensor(p, m, "its last wildcard is not an index of a stack");
    m->index = (uint32_t)value;
    return true;
}

/* Refuses a tensor whose layout the rules do not know; the message ends with way_on. */
static bool refuse_layout(const struct matching *p, const struct td_matched *m, const char *reason)
{
    const char *way_on = p->match->rules->way_on;
    if (way_on == NULL)
        return refuse_tensor(p, m, reason);
    return td_error_set(p->err, TD_FAILED_PRECONDITION, "tensor \"%.160s\": %s; %s", m->tensor->name, reason, way_on);
}

static bool refuse_type(const struct matching *p, const struct td_matched *m)
{
    char reason[200];
    (void)snprintf(reason, sizeof reason,
                   "of type %.16s; the layout of quantised weights depends on how the engine runs them, so only BF16, "
                   "F16, F32 and F64 are laid out",
                   m->tensor->dtype->name);
    return refuse_layout(p, m, reason);
}

static bool is_plain(const struct td_dtype *dtype)
{
    static const char *const plain[] = {"BF16", "F16", "F32", "F64"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(dtype->name, plain[i]) == 0)
            return true;
    return false;
}

/* Checks that the tensor has bytes, and a type that the rules allow. */
static bool check_source(const struct matching *p, const struct td_matched *m)
{
    char rule[TD_DROP_RULE_BYTES];
    if (m->tensor->reason != NULL) {
        td_plan_write_drop_rule(m->tensor->name, rule);
        return td_error_set(
            p->err, TD_FAILED_PRECONDITION,
            "tensor \"%.120s\" has no bytes that could be put into a file (%.100s); a plan with the rule "
            "%s leaves it out",
            m->tensor->name, m->tensor->reason, rule);
    }
    if (p->match->rules->plain_types_only && !is_plain(m->tensor->dtype))
        return refuse_type(p, m);
    return true;
}

/* Sets *out to the name of the result that the rule makes of the tensor. */
static bool write_out(struct matching *p, const struct td_rule *rule, const struct td_tensor *tensor,
                      const struct td_captures *captures, const char **out)
{
    td_buffer_clear(&p->name);
    td_rule_write_out(rule, tensor->name, captures, &p->name);
    if (p->name.failed)
        return td_error_no_memory(p->err);
    *out = td_arena_strndup(&p->match->arena, td_buffer_text(&p->name));
    return *out != NULL || refuse_memory(p);
}

/* Sets the name of the result. */
static bool set_out(struct matching *p, struct td_matched *m, const struct td_captures *captures)
{
    if (m->rule != NULL && m->rule->out != NULL)
        return write_out(p, m->rule, m->tensor, captures, &m->out);
    m->out = m->tensor->name;
    return true;
}

static bool too_many_steps(const struct matching *p)
{
    return td_error_set(p->err, TD_FAILED_PRECONDITION,
                        "%zu rules for %zu tensors take too long to match; use fewer rules", p->match->rules->count,
                        p->match->tensors.count);
}

/* Adds the constants of the rules that match the tensor. */
static bool add_constants(struct matching *p, const struct td_tensor *tensor)
{
    struct td_captures captures;
    const struct td_rule_list *rules = p->match->rules;
    const struct td_rule *rule;
    size_t at = 0;
    if (!p->has_constants)
        return true;
    while ((rule = td_rules_next_constant(rules, &at, td_tensor_name(tensor), &captures, &p->steps)) != NULL) {
        struct made_constant *made = td_arena_alloc(&p->match->arena, sizeof *made);
        if (made == NULL)
            return refuse_memory(p);
        *made = (struct made_constant){.before = p->last, .constant.value = rule->constant};
        if (!write_out(p, rule, tensor, &captures, &made->constant.out))
            return false;
        p->used[rule - rules->rules] = true;
        p->last = made;
        p->constant_count++;
    }
    return p->steps > 0 || too_many_steps(p);
}

/* Finds the tensor's rule, and lists the tensor as matched or dropped. */
static bool match_tensor(struct matching *p, uint32_t number)
{
    const struct td_tensor *tensor = p->match->tensors.get(p->match->tensors.context, number);
    struct td_matched m = {.tensor = tensor, .number = number};
    struct td_captures captures;
    m.rule = td_rules_find(p->match->rules, td_tensor_name(tensor), &captures, &p->steps);
    if (m.rule != NULL)
        p->used[m.rule - p->match->rules->rules] = true;
    if (p->steps == 0)
        return too_many_steps(p);
    if (m.rule == NULL && tensor->rank >= 2)
        return refuse_layout(p, &m, "no rule matches it, and it has two dimensions or more");
    if (m.rule != NULL && m.rule->refuse != NULL)
        return refuse_layout(p, &m, m.rule->refuse);
    if (m.rule != NULL && m.rule->drop) {
        p->dropped[p->match->dropped_count++] = number;
        return true;
    }
    if (!check_source(p, &m) || !set_out(p, &m, &captures))
        return false;
    if (m.rule != NULL && m.rule->stack && !read_index(p, &m, &captures))
        return false;
    p->matches[p->match->match_count++] = m;
    return add_constants(p, tensor);
}

static int compare_matches(const void *context, size_t a, size_t b)
{
    const struct td_matched *left = (const struct td_matched *)context + a;
    const struct td_matched *right = (const struct td_matched *)context + b;
    int order = strcmp(left->out, right->out);
    if (order == 0)
        order = (left->index > right->index) - (left->index < right->index);
    if (order == 0)
        order = (td_matched_slot(left) > td_matched_slot(right)) - (td_matched_slot(left) < td_matched_slot(right));
    return order;
}

static bool list_unused(struct matching *p)
{
    struct td_plan_match *match = p->match;
    uint32_t *unused = td_arena_array(&match->arena, match->rules->count, sizeof *unused);
    if (unused == NULL)
        return refuse_memory(p);
    for (size_t i = 0; i < match->rules->count; i++)
        if (!p->used[i])
            unused[match->unused_count++] = (uint32_t)i;
    match->unused = unused;
    return true;
}

/* Sorts the matches by result, index and slot. */
static bool sort_matches(struct matching *p)
{
    size_t count = p->match->match_count;
    struct td_order *order = td_arena_array(&p->match->arena, count, sizeof *order);
    if (order == NULL)
        return refuse_memory(p);
    for (size_t i = 0; i < count; i++)
        order[i] = (struct td_order){.index = i};
    if (!sort_order(p, order, count, compare_matches, p->matches))
        return false;
    td_order_apply(order, count, p->matches, sizeof *p->matches);
    return true;
}

/* ---- constants ---- */

static int compare_constants(const void *context, size_t a, size_t b)
{
    const struct td_matched_constant *constants = context;
    return strcmp(constants[a].out, constants[b].out);
}

static bool two_values(const struct matching *p, const struct td_matched_constant *a,
                       const struct td_matched_constant *b)
{
    return td_error_set(p->err, TD_FAILED_PRECONDITION, "\"%.160s\" would be two constants, %.9g and %.9g", a->out,
                        (double)a->value, (double)b->value);
}

/* Keeps one constant of each name, and refuses two values for a name. `all` is sorted by name. */
static bool join_constants(struct matching *p, struct td_matched_constant *all)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->constant_count; i++) {
        bool recurs = kept > 0 && strcmp(all[kept - 1].out, all[i].out) == 0;
        if (recurs && all[kept - 1].value != all[i].value)
            return two_values(p, &all[kept - 1], &all[i]);
        if (!recurs)
            all[kept++] = all[i];
    }
    p->match->constants = all;
    p->match->constant_count = kept;
    return true;
}

/* Makes the sorted list of the constants. */
static bool settle_constants(struct matching *p)
{
    size_t count = p->constant_count;
    size_t i = 0;
    if (count == 0)
        return true;
    struct td_matched_constant *all = td_arena_array(&p->match->arena, count, sizeof *all);
    struct td_order *order = td_arena_array(&p->match->arena, count, sizeof *order);
    if (all == NULL || order == NULL)
        return refuse_memory(p);
    for (const struct made_constant *made = p->last; made != NULL; made = made->before, i++) {
        all[i] = made->constant;
        order[i] = (struct td_order){.index = i};
    }
    if (!sort_order(p, order, count, compare_constants, all))
        return false;
    td_order_apply(order, count, all, sizeof *all);
    return join_constants(p, all);
}

static bool match_tensors(struct matching *p)
{
    struct td_plan_match *match = p->match;
    size_t count = match->tensors.count;
    match->matches = p->matches = td_arena_array(&match->arena, count, sizeof *p->matches);
    match->dropped = p->dropped = td_arena_array(&match->arena, count, sizeof *p->dropped);
    p->used = td_arena_array(&match->arena, match->rules->count, sizeof *p->used);
    if (p->matches == NULL || p->dropped == NULL || p->used == NULL)
        return refuse_memory(p);
    memset(p->used, 0, match->rules->count * sizeof *p->used);
    for (size_t i = 0; i < match->rules->count; i++)
        p->has_constants = p->has_constants || match->rules->rules[i].is_constant;
    for (size_t i = 0; i < count; i++)
        if (!match_tensor(p, (uint32_t)i))
            return false;
    return list_unused(p) && sort_matches(p) && settle_constants(p);
}

void td_plan_match_fini(struct td_plan_match *match)
{
    td_arena_fini(&match->arena);
    *match = (struct td_plan_match){0};
}

struct td_unused_rule td_plan_match_explain(const struct td_plan_match *match, uint32_t rule, uint64_t *steps)
{
    struct td_rule alone = match->rules->rules[rule];
    const struct td_rule_list itself = {.rules = &alone, .count = 1};
    const struct td_rule_list others = {.rules = match->rules->rules,
                                        .count = alone.is_constant ? match->rules->count : rule};
    struct td_unused_rule why = {.known = *steps > 0};
    alone.is_constant = false; /* td_rules_find skips constants */
    for (size_t i = 0; why.known && !why.several && i < match->tensors.count; i++) {
        const struct td_tensor *tensor = match->tensors.get(match->tensors.context, i);
        struct td_captures captures;
        const struct td_rule *taker = NULL;
        if (td_rules_find(&itself, td_tensor_name(tensor), &captures, steps) != NULL)
            taker = td_rules_find(&others, td_tensor_name(tensor), &captures, steps);
        why.known = *steps > 0;
        why.several = taker != NULL && why.taker != NULL && taker != why.taker;
        why.taker = why.taker == NULL ? taker : why.taker;
    }
    return why;
}

bool td_plan_match(const struct td_rule_list *rules, const struct td_tensor_list *tensors, struct td_budget *budget,
                   struct td_plan_match *out, struct td_error *err)
{
    struct matching p = {.match = out, .steps = TD_PLAN_MAX_STEPS, .err = err};
    *out = (struct td_plan_match){.rules = rules, .tensors = *tensors};
    td_arena_init_budget(&out->arena, TD_PLAN_MAX_MEMORY_BYTES, budget);
    if (tensors->count > TD_PLAN_MAX_TENSORS)
        return td_error_set(err, TD_FAILED_PRECONDITION, "more than 2^32-2 tensors");
    td_buffer_init(&p.name);
    bool ok = find_classes(&p) && match_tensors(&p);
    td_buffer_fini(&p.name);
    if (!ok)
        td_plan_match_fini(out);
    return ok;
}
