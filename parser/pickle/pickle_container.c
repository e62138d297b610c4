/* Tuples, lists, sets and dicts, and the items added to them. */
#include "parser/pickle/pickle_container.h"

#include "parser/pickle/pickle_map.h"
#include "parser/pickle/pickle_store.h"
#include "parser/pickle/pickle_value.h"

#include <inttypes.h>

/* Makes a tuple of the stack's values from `first` on. */
static bool push_tuple(struct td_machine *m, uint32_t first, uint32_t count)
{
    struct td_pickle_value value = {.kind = TD_PICKLE_TUPLE, .as.tuple.count = count};
    if (!td_pickle_store_tuple(m->store, td_machine_stack(m) + first, count, &value.as.tuple.first))
        return td_machine_no_memory(m);
    m->stack.count = first;
    return td_machine_push_value(m, value);
}

bool td_run_tuple(struct td_machine *m)
{
    uint32_t first, count;
    return td_machine_take_mark(m, &first, &count) && push_tuple(m, first, count);
}

bool td_run_tuple_n(struct td_machine *m)
{
    uint32_t count = m->opcode->argument;
    return td_machine_needs(m, count) && push_tuple(m, m->stack.count - count, count);
}

bool td_run_empty(struct td_machine *m)
{
    return td_machine_push_value(m, (struct td_pickle_value){.kind = (uint8_t)m->opcode->argument});
}

/* Refuses values that Python cannot hash, and so cannot put into a set or use as a key. */
static bool check_hashable(const struct td_machine *m, td_pickle_ref ref)
{
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, ref);
    if (kind != TD_PICKLE_LIST && kind != TD_PICKLE_DICT && kind != TD_PICKLE_SET && kind != TD_PICKLE_BYTEARRAY)
        return true;
    return TD_REFUSE(m, "would hash %s, which is not hashable", td_pickle_kind_name(kind));
}

const char *td_machine_made_by_torch(const struct td_machine *m, td_pickle_ref ref)
{
    const struct td_pickle *p = m->pickle;
    td_pickle_ref callable = td_pickle_callable(p, ref);
    td_pickle_ref module = td_pickle_module(p, callable);
    if (td_pickle_string_is(p, module, "torch.jit._pickle"))
        return "a value of TorchScript";
    if (!td_pickle_string_is(p, module, "torch._utils") && !td_pickle_string_is(p, module, "torch._tensor") &&
        !td_pickle_string_is(p, module, "torch.tensor"))
        return NULL;
    size_t len;
    const char *name = td_pickle_text(p, td_pickle_name(p, callable), &len);
    return td_text_begins(td_text_n(name, len), TD_TEXT("_rebuild_")) ? "a tensor" : NULL;
}

/* Returns the member of a container of this kind, or of an OBJECT, that names the bag of its items. Returns NULL where
 * items cannot be added. */
static uint32_t *items_part(const struct td_machine *m, td_pickle_ref target, enum td_pickle_kind wanted)
{
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, target);
    if (kind == wanted)
        return &td_pickle_store_value(m->store, target)->as.part;
    if (kind != TD_PICKLE_OBJECT || td_machine_made_by_torch(m, target) != NULL)
        return NULL;
    struct td_pickle_object *object = td_pickle_store_object(m->store, target);
    return wanted == TD_PICKLE_DICT ? &object->map : &object->list;
}

static const char *name_of(const struct td_machine *m, td_pickle_ref ref)
{
    const char *made = td_machine_made_by_torch(m, ref);
    return made != NULL ? made : td_pickle_kind_name(td_pickle_kind(m->pickle, ref));
}

/* Appends the stack's values from `first` on to the target, and drops them. */
static bool append_items(struct td_machine *m, td_pickle_ref target, uint32_t first, uint32_t count)
{
    bool to_set = m->opcode->argument == TD_PICKLE_SET;
    uint32_t *part = items_part(m, target, (enum td_pickle_kind)m->opcode->argument);
    if (part == NULL)
        return TD_REFUSE(m, "adds to %s; it must be %s or an object like one", name_of(m, target),
                         to_set ? "a set" : "a list");
    for (uint32_t i = 0; i < count && to_set; i++)
        if (!check_hashable(m, td_machine_stack(m)[first + i]))
            return false;
    if (!td_pickle_store_append(m->store, &m->store->lists, part, td_machine_stack(m) + first, count,
                                (uint32_t)m->opcode_at))
        return td_machine_no_memory(m);
    m->stack.count = first;
    return true;
}

bool td_run_append(struct td_machine *m)
{
    return td_machine_needs(m, 2) && append_items(m, td_machine_peek(m, 1), m->stack.count - 1, 1);
}

/* Takes the last MARK and the values above it. The target is the value below the MARK. */
static bool take_batch(struct td_machine *m, td_pickle_ref *target, uint32_t *first, uint32_t *count)
{
    if (!td_machine_take_mark(m, first, count))
        return false;
    if (*first == td_machine_fence(m))
        return TD_REFUSE(m, "has nothing below its MARK to add to");
    *target = td_machine_stack(m)[*first - 1];
    return true;
}

bool td_run_appends(struct td_machine *m)
{
    td_pickle_ref target;
    uint32_t first, count;
    return take_batch(m, &target, &first, &count) && append_items(m, target, first, count);
}

/* Sets items of the target: the stack's values from `first` on are keys and values in turn. Drops them. */
static bool set_items(struct td_machine *m, td_pickle_ref target, uint32_t first, uint32_t count)
{
    bool is_dict = td_pickle_kind(m->pickle, target) == TD_PICKLE_DICT;
    uint32_t *part = items_part(m, target, TD_PICKLE_DICT);
    if (part == NULL)
        return TD_REFUSE(m, "sets items of %s; it must be a dict or an object like one", name_of(m, target));
    if (count % 2 != 0)
        return TD_REFUSE(m, "has %" PRIu32 " values; keys and values must come in pairs", count);
    const td_pickle_ref *items = td_machine_stack(m) + first;
    for (uint32_t i = 0; i < count; i += 2) {
        if (is_dict && !check_hashable(m, items[i]))
            return false;
        td_pickle_store_value(m->store, items[i])->flags |= TD_PICKLE_FLAG_KEY;
    }
    if (!td_pickle_store_append(m->store, &m->store->maps, part, items, count, (uint32_t)m->opcode_at))
        return td_machine_no_memory(m);
    m->stack.count = first;
    return true;
}

bool td_run_setitem(struct td_machine *m)
{
    return td_machine_needs(m, 3) && set_items(m, td_machine_peek(m, 2), m->stack.count - 2, 2);
}

bool td_run_setitems(struct td_machine *m)
{
    td_pickle_ref target;
    uint32_t first, count;
    return take_batch(m, &target, &first, &count) && set_items(m, target, first, count);
}

/* Makes a LIST, FROZENSET or DICT of the values above the last MARK. */
bool td_run_make(struct td_machine *m)
{
    unsigned kind = m->opcode->argument;
    uint32_t first, count;
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
    if (!td_pickle_store_append(m->store, &m->store->lists, part, td_machine_stack(m) + first, count,
                                (uint32_t)m->opcode_at))
        return td_machine_no_memory(m);
    m->stack.count = first;
    return td_machine_push(m, made);
}

/* ---- mappings made from other mappings ---- */

/* Copies one item. All calls of mappings together copy no more items than a pickle of this length can hold. */
static bool copy_item(struct td_machine *m, td_pickle_ref made, td_pickle_ref key, td_pickle_ref value)
{
    enum { BYTES_OF_AN_ITEM = 3 }; /* K, a number, N: no item is shorter */
    td_pickle_ref item[] = {key, value};
    uint32_t *part = &td_pickle_store_object(m->store, made)->map;
    if (m->copied == m->len / BYTES_OF_AN_ITEM)
        return TD_REFUSE(m, "copies more items than the pickle has, by copying some of them again and again");
    m->copied++;
    if (!check_hashable(m, key))
        return false;
    td_pickle_store_value(m->store, key)->flags |= TD_PICKLE_FLAG_KEY;
    return td_pickle_store_append(m->store, &m->store->maps, part, item, 2, (uint32_t)m->opcode_at) ||
           td_machine_no_memory(m);
}

static bool copy_pairs(struct td_machine *m, td_pickle_ref made, td_pickle_ref from)
{
    const struct td_pickle *p = m->pickle;
    for (uint32_t i = 0; i < td_pickle_count(p, from); i++) {
        td_pickle_ref pair = td_pickle_item(p, from, i);
        enum td_pickle_kind kind = td_pickle_kind(p, pair);
        if ((kind != TD_PICKLE_TUPLE && kind != TD_PICKLE_LIST) || td_pickle_count(p, pair) != 2)
            return TD_REFUSE(m, "makes a dict of pairs, but one item is not a pair");
        if (!copy_item(m, made, td_pickle_item(p, pair, 0), td_pickle_item(p, pair, 1)))
            return false;
    }
    return true;
}

bool td_machine_fill_mapping(struct td_machine *m, td_pickle_ref made)
{
    const struct td_pickle *p = m->pickle;
    struct td_pickle_map map;
    uint32_t argument;
    bool of_pairs;
    if (!td_pickle_known_mapping(p, made, &argument, &of_pairs))
        return true;
    td_pickle_ref args = td_pickle_args(p, made);
    td_pickle_ref from = td_pickle_item(p, args, argument);
    enum td_pickle_kind kind = td_pickle_kind(p, from);
    if (td_pickle_count(p, args) > argument + 1)
        return TD_REFUSE(m, "makes a dict of too many arguments");
    if (from == TD_PICKLE_NIL)
        return true;
    if (of_pairs && (kind == TD_PICKLE_LIST || kind == TD_PICKLE_TUPLE))
        return copy_pairs(m, made, from);
    if (!td_pickle_map(p, from, &map))
        return TD_REFUSE(m, "makes a dict of %s; it must be a dict%s", td_pickle_kind_name(kind),
                         of_pairs ? " or a list of pairs" : "");
    for (uint32_t i = 0; i < map.count; i++)
        if (!copy_item(m, made, td_pickle_map_key(p, &map, i), td_pickle_map_value(p, &map, i)))
            return false;
    return true;
}
