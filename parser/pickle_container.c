/* Tuples, lists, sets and dicts, and what is added to them. */
#include "parser/pickle_machine.h"

#include <inttypes.h>
#include <string.h>

static bool push_tuple(struct td_machine *m, uint32_t first, uint32_t count)
{
    struct td_pickle_value value = {.kind = TD_PICKLE_TUPLE, .as.tuple.count = count};
    if (!td_pickle_store_tuple(m->store, td_machine_stack(m) + first, count, &value.as.tuple.first))
        return td_machine_no_memory(m);
    m->stack.count = first;
    return td_machine_push_value(m, value);
}

bool td_run_tuple(struct td_machine *m, const struct td_operand *operand)
{
    uint32_t first, count;
    (void)operand;
    return td_machine_take_mark(m, &first, &count) && push_tuple(m, first, count);
}

bool td_run_tuple_n(struct td_machine *m, const struct td_operand *operand)
{
    uint32_t count = m->opcode->argument;
    (void)operand;
    return td_machine_needs(m, count) && push_tuple(m, m->stack.count - count, count);
}

bool td_run_empty(struct td_machine *m, const struct td_operand *operand)
{
    (void)operand;
    return td_machine_push_value(m, (struct td_pickle_value){.kind = (uint8_t)m->opcode->argument});
}

/* Real pickle could not put these into a set or under a key. */
static bool check_hashable(const struct td_machine *m, td_pickle_ref ref)
{
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, ref);
    if (kind != TD_PICKLE_LIST && kind != TD_PICKLE_DICT && kind != TD_PICKLE_SET &&
        kind != TD_PICKLE_BYTEARRAY)
        return true;
    return TD_REFUSE(m, "would hash %s, which is not hashable", td_pickle_kind_name(kind));
}

/* What torch makes tensors of: not containers, though objects. */
static bool is_tensor(const struct td_pickle *pickle, td_pickle_ref ref)
{
    static const char prefix[] = "_rebuild_";
    td_pickle_ref callable = td_pickle_callable(pickle, ref);
    td_pickle_ref module = td_pickle_module(pickle, callable);
    if (!td_pickle_string_is(pickle, module, "torch._utils") &&
        !td_pickle_string_is(pickle, module, "torch._tensor"))
        return false;
    size_t len;
    const char *name = td_pickle_text(pickle, td_pickle_name(pickle, callable), &len);
    return len >= sizeof prefix - 1 && memcmp(name, prefix, sizeof prefix - 1) == 0;
}

/* Appends the stack's values from `first` on to what lies below them. */
static bool append_items(struct td_machine *m, td_pickle_ref target, uint32_t first, uint32_t count)
{
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, target);
    bool to_set = m->opcode->argument == TD_PICKLE_SET;
    bool is_object = kind == TD_PICKLE_OBJECT && !is_tensor(m->pickle, target);
    if (!is_object && kind != (enum td_pickle_kind)m->opcode->argument)
        return TD_REFUSE(m, "adds to %s; it must be %s or an object like one",
                         kind == TD_PICKLE_OBJECT ? "a tensor" : td_pickle_kind_name(kind),
                         to_set ? "a set" : "a list");
    for (uint32_t i = 0; i < count && to_set; i++)
        if (!check_hashable(m, td_machine_stack(m)[first + i]))
            return false;
    uint32_t *part = is_object ? &td_pickle_store_object(m->store, target)->list
                               : &td_pickle_store_value(m->store, target)->as.part;
    if (!td_pickle_store_append(m->store, &m->store->lists, part, td_machine_stack(m) + first, count))
        return td_machine_no_memory(m);
    m->stack.count = first;
    return true;
}

bool td_run_append(struct td_machine *m, const struct td_operand *operand)
{
    (void)operand;
    return td_machine_needs(m, 2) && append_items(m, td_machine_peek(m, 1), m->stack.count - 1, 1);
}

/* Values since the last MARK, and below it what they are for. */
static bool take_batch(struct td_machine *m, td_pickle_ref *target, uint32_t *first, uint32_t *count)
{
    if (!td_machine_take_mark(m, first, count))
        return false;
    if (*first == td_machine_fence(m))
        return TD_REFUSE(m, "has nothing below its MARK to add to");
    *target = td_machine_stack(m)[*first - 1];
    return true;
}

bool td_run_appends(struct td_machine *m, const struct td_operand *operand)
{
    td_pickle_ref target;
    uint32_t first, count;
    (void)operand;
    return take_batch(m, &target, &first, &count) && append_items(m, target, first, count);
}

static bool set_items(struct td_machine *m, td_pickle_ref target, uint32_t first, uint32_t count)
{
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, target);
    bool is_object = kind == TD_PICKLE_OBJECT && !is_tensor(m->pickle, target);
    if (kind != TD_PICKLE_DICT && !is_object)
        return TD_REFUSE(m, "sets items of %s; it must be a dict or an object like one",
                         kind == TD_PICKLE_OBJECT ? "a tensor" : td_pickle_kind_name(kind));
    if (count % 2 != 0)
        return TD_REFUSE(m, "has %" PRIu32 " values; keys and values must come in pairs", count);
    const td_pickle_ref *items = td_machine_stack(m) + first;
    for (uint32_t i = 0; i < count; i += 2) {
        if (!is_object && !check_hashable(m, items[i]))
            return false;
        td_pickle_store_value(m->store, items[i])->flags |= TD_PICKLE_FLAG_KEY;
    }
    uint32_t *part = is_object ? &td_pickle_store_object(m->store, target)->map
                               : &td_pickle_store_value(m->store, target)->as.part;
    if (!td_pickle_store_append(m->store, &m->store->maps, part, items, count))
        return td_machine_no_memory(m);
    m->stack.count = first;
    return true;
}

bool td_run_setitem(struct td_machine *m, const struct td_operand *operand)
{
    (void)operand;
    return td_machine_needs(m, 3) && set_items(m, td_machine_peek(m, 2), m->stack.count - 2, 2);
}

bool td_run_setitems(struct td_machine *m, const struct td_operand *operand)
{
    td_pickle_ref target;
    uint32_t first, count;
    (void)operand;
    return take_batch(m, &target, &first, &count) && set_items(m, target, first, count);
}

/* LIST, FROZENSET and DICT are made of the values since the last MARK. */
bool td_run_make(struct td_machine *m, const struct td_operand *operand)
{
    unsigned kind = m->opcode->argument;
    uint32_t first, count;
    (void)operand;
    if (!td_machine_take_mark(m, &first, &count))
        return false;
    for (uint32_t i = 0; i < count && kind == TD_PICKLE_FROZENSET; i++)
        if (!check_hashable(m, td_machine_stack(m)[first + i]))
            return false;
    td_pickle_ref made = td_machine_add(m, (struct td_pickle_value){.kind = (uint8_t)kind});
    if (made == TD_PICKLE_NIL)
        return td_machine_no_memory(m);
    if (kind == TD_PICKLE_DICT)
        return set_items(m, made, first, count) && td_machine_push(m, made);
    uint32_t *part = &td_pickle_store_value(m->store, made)->as.part;
    if (!td_pickle_store_append(m->store, &m->store->lists, part, td_machine_stack(m) + first, count))
        return td_machine_no_memory(m);
    m->stack.count = first;
    return td_machine_push(m, made);
}
