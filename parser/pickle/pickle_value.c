#include "parser/pickle/pickle_value.h"

#include "parser/pickle/pickle_store.h"

static const struct td_pickle_value *value_of(const struct td_pickle *pickle, td_pickle_ref ref)
{
    return td_pickle_store_get(pickle->store, ref);
}

enum td_pickle_kind td_pickle_kind(const struct td_pickle *pickle, td_pickle_ref ref)
{
    return (enum td_pickle_kind)value_of(pickle, ref)->kind;
}

const char *td_pickle_kind_name(enum td_pickle_kind kind)
{
    static const char *const names[] = {
        [TD_PICKLE_NOTHING] = "nothing",
        [TD_PICKLE_NONE] = "None",
        [TD_PICKLE_BOOL] = "a bool",
        [TD_PICKLE_INT] = "an int",
        [TD_PICKLE_FLOAT] = "a float",
        [TD_PICKLE_STRING] = "a string",
        [TD_PICKLE_BYTES] = "a bytes",
        [TD_PICKLE_BYTEARRAY] = "a bytearray",
        [TD_PICKLE_TUPLE] = "a tuple",
        [TD_PICKLE_LIST] = "a list",
        [TD_PICKLE_SET] = "a set",
        [TD_PICKLE_FROZENSET] = "a frozenset",
        [TD_PICKLE_DICT] = "a dict",
        [TD_PICKLE_GLOBAL] = "a global",
        [TD_PICKLE_PERSISTENT] = "a persistent id",
        [TD_PICKLE_OBJECT] = "an object",
    };
    return names[kind];
}

uint64_t td_pickle_position(const struct td_pickle *pickle, td_pickle_ref ref)
{
    return pickle->base + value_of(pickle, ref)->at;
}

bool td_pickle_bool(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    return value->kind == TD_PICKLE_BOOL && value->as.truth;
}

bool td_pickle_int(const struct td_pickle *pickle, td_pickle_ref ref, int64_t *out)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    if (value->kind != TD_PICKLE_INT || (value->flags & TD_PICKLE_FLAG_BIG) != 0)
        return false;
    *out = value->as.integer;
    return true;
}

bool td_pickle_float(const struct td_pickle *pickle, td_pickle_ref ref, double *out)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    if (value->kind != TD_PICKLE_FLOAT)
        return false;
    *out = value->as.real;
    return true;
}

const uint8_t *td_pickle_big_int(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    *len = 0;
    if (value->kind != TD_PICKLE_INT || (value->flags & TD_PICKLE_FLAG_BIG) == 0)
        return NULL;
    struct td_text text = td_pickle_store_text(pickle, value);
    *len = text.len;
    return (const uint8_t *)text.p;
}

const char *td_pickle_text(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    *len = 0;
    if (value->kind != TD_PICKLE_STRING && value->kind != TD_PICKLE_BYTES && value->kind != TD_PICKLE_BYTEARRAY)
        return NULL;
    struct td_text text = td_pickle_store_text(pickle, value);
    *len = text.len;
    return text.p;
}

bool td_pickle_is_utf8(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    return value->kind == TD_PICKLE_STRING && (value->flags & TD_PICKLE_FLAG_UTF8) != 0;
}

bool td_pickle_string_is(const struct td_pickle *pickle, td_pickle_ref ref, const char *text)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    return value->kind == TD_PICKLE_STRING && td_text_equals(td_pickle_store_text(pickle, value), text);
}

td_pickle_ref td_pickle_module(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    return value->kind == TD_PICKLE_GLOBAL ? value->as.global.module : TD_PICKLE_NIL;
}

td_pickle_ref td_pickle_name(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    return value->kind == TD_PICKLE_GLOBAL ? value->as.global.name : TD_PICKLE_NIL;
}

bool td_pickle_is_global(const struct td_pickle *pickle, td_pickle_ref ref, const char *module, const char *name)
{
    return td_pickle_string_is(pickle, td_pickle_name(pickle, ref), name) &&
           td_pickle_string_is(pickle, td_pickle_module(pickle, ref), module);
}

/* Returns the cells of a tuple, a list, a set, or of the items appended to an object. */
static const td_pickle_ref *items_of(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t *count)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    const struct td_pickle_bag *bag = td_pickle_store_list_of(pickle->store, ref);
    uint32_t first = 0;
    *count = 0;
    if (value->kind == TD_PICKLE_TUPLE) {
        *count = value->as.tuple.count;
        first = value->as.tuple.first;
    } else if (bag != NULL) {
        *count = bag->count;
        first = bag->first;
    }
    return *count == 0 ? NULL : td_pickle_store_cells(pickle->store) + first;
}

uint32_t td_pickle_count(const struct td_pickle *pickle, td_pickle_ref ref)
{
    uint32_t count;
    (void)items_of(pickle, ref, &count);
    return count;
}

td_pickle_ref td_pickle_item(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t i)
{
    uint32_t count;
    const td_pickle_ref *items = items_of(pickle, ref, &count);
    return i < count ? items[i] : TD_PICKLE_NIL;
}

td_pickle_ref td_pickle_persistent(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    return value->kind == TD_PICKLE_PERSISTENT ? value->as.part : TD_PICKLE_NIL;
}

static struct td_pickle_object object_of(const struct td_pickle *pickle, td_pickle_ref ref)
{
    if (td_pickle_kind(pickle, ref) != TD_PICKLE_OBJECT)
        return (struct td_pickle_object){.callable = TD_PICKLE_NIL};
    return *td_pickle_store_object(pickle->store, ref);
}

td_pickle_ref td_pickle_callable(const struct td_pickle *pickle, td_pickle_ref ref)
{
    return object_of(pickle, ref).callable;
}

td_pickle_ref td_pickle_args(const struct td_pickle *pickle, td_pickle_ref ref)
{
    return object_of(pickle, ref).args;
}

td_pickle_ref td_pickle_kwargs(const struct td_pickle *pickle, td_pickle_ref ref)
{
    return object_of(pickle, ref).kwargs;
}

td_pickle_ref td_pickle_state(const struct td_pickle *pickle, td_pickle_ref ref)
{
    return object_of(pickle, ref).state;
}

enum td_pickle_call td_pickle_call(const struct td_pickle *pickle, td_pickle_ref ref)
{
    return (enum td_pickle_call)value_of(pickle, ref)->call;
}

bool td_pickle_is_call(const struct td_pickle *pickle, td_pickle_ref ref, const char *module, const char *name)
{
    return td_pickle_is_global(pickle, td_pickle_callable(pickle, ref), module, name);
}

/* ---- items added late ---- */

static bool grew_after(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t at)
{
    const struct td_pickle_bag *list = td_pickle_store_list_of(pickle->store, ref);
    const struct td_pickle_bag *map = td_pickle_store_map_of(pickle->store, ref);
    return (list != NULL && list->grown_at > at) || (map != NULL && map->grown_at > at);
}

bool td_pickle_grew_after(const struct td_pickle *pickle, td_pickle_ref ref, td_pickle_ref call)
{
    return grew_after(pickle, ref, value_of(pickle, call)->at);
}

bool td_pickle_state_grew(const struct td_pickle *pickle, td_pickle_ref ref)
{
    struct td_pickle_object object = object_of(pickle, ref);
    return grew_after(pickle, object.state, object.built_at);
}

/* ---- walking ---- */

bool td_pickle_mark(struct td_pickle *pickle, td_pickle_ref ref)
{
    if (td_pickle_kind(pickle, ref) == TD_PICKLE_NOTHING)
        return false;
    struct td_pickle_value *value = td_pickle_store_value(pickle->store, ref);
    bool was_marked = (value->flags & TD_PICKLE_FLAG_MARKED) != 0;
    value->flags |= TD_PICKLE_FLAG_MARKED;
    return !was_marked;
}

void td_pickle_unmark(struct td_pickle *pickle, td_pickle_ref ref)
{
    if (td_pickle_kind(pickle, ref) != TD_PICKLE_NOTHING)
        td_pickle_store_value(pickle->store, ref)->flags &= (uint8_t)~TD_PICKLE_FLAG_MARKED;
}

void td_pickle_unmark_all(struct td_pickle *pickle)
{
    for (td_pickle_ref ref = 1; ref <= pickle->value_count; ref++)
        td_pickle_unmark(pickle, ref);
}
