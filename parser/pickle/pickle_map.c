#include "parser/pickle/pickle_map.h"

#include "parser/pickle/pickle_key.h"
#include "parser/pickle/pickle_store.h"
#include "parser/pickle/pickle_value.h"

bool td_pickle_known_mapping(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t *argument, bool *of_pairs)
{
    static const struct {
        const char *name;
        uint32_t argument;
        bool of_pairs;
    } known[] = {{"OrderedDict", 0, true}, {"defaultdict", 1, true}, {"Counter", 0, false}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (td_pickle_is_call(pickle, ref, "collections", known[i].name)) {
            *argument = known[i].argument;
            *of_pairs = known[i].of_pairs;
            return true;
        }
    return false;
}

bool td_pickle_map(const struct td_pickle *pickle, td_pickle_ref ref, struct td_pickle_map *map)
{
    uint32_t argument;
    bool of_pairs;
    const struct td_pickle_bag *bag = td_pickle_store_map_of(pickle->store, ref);
    *map = (struct td_pickle_map){.owner = ref, .count = bag == NULL ? 0 : bag->count / 2};
    return bag != NULL || td_pickle_store_get(pickle->store, ref)->kind == TD_PICKLE_DICT ||
           td_pickle_known_mapping(pickle, ref, &argument, &of_pairs);
}

/* Returns the key (`which` 0) or the value (1) of item i; NIL when the map has no item i. */
static td_pickle_ref map_cell(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i,
                              uint32_t which)
{
    if (i >= map->count)
        return TD_PICKLE_NIL;
    const struct td_pickle_bag *bag = td_pickle_store_map_of(pickle->store, map->owner);
    if (bag == NULL || i >= bag->count / 2)
        return TD_PICKLE_NIL;
    return td_pickle_store_cells(pickle->store)[bag->first + 2 * i + which];
}

td_pickle_ref td_pickle_map_key(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i)
{
    return map_cell(pickle, map, i, 0);
}

td_pickle_ref td_pickle_map_value(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i)
{
    return map_cell(pickle, map, i, 1);
}

/* Searches a map that has an order, which is that of td_pickle_key_compare. */
static td_pickle_ref find_in_order(const struct td_pickle *pickle, const struct td_pickle_bag *bag, const char *text)
{
    const td_pickle_ref *cells = td_pickle_store_cells(pickle->store);
    struct td_pickle_key wanted = td_pickle_key_of_text(TD_KEY_STRING, td_text_of(text));
    uint32_t low = 0;
    uint32_t high = bag->count / 2;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint32_t item = bag->first + 2 * cells[bag->order + middle];
        struct td_pickle_key key = td_pickle_key_of(pickle, cells[item]);
        int order = td_pickle_key_compare(&key, &wanted);
        if (order == 0)
            return cells[item + 1];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return TD_PICKLE_NIL;
}

td_pickle_ref td_pickle_map_find(const struct td_pickle *pickle, const struct td_pickle_map *map, const char *key)
{
    const struct td_pickle_bag *bag = td_pickle_store_map_of(pickle->store, map->owner);
    if (bag != NULL && bag->order != 0)
        return find_in_order(pickle, bag, key);
    for (uint32_t i = 0; i < map->count; i++)
        if (td_pickle_string_is(pickle, map_cell(pickle, map, i, 0), key))
            return map_cell(pickle, map, i, 1);
    return TD_PICKLE_NIL;
}

td_pickle_ref td_pickle_get(const struct td_pickle *pickle, td_pickle_ref ref, const char *key)
{
    struct td_pickle_map map;
    return td_pickle_map(pickle, ref, &map) ? td_pickle_map_find(pickle, &map, key) : TD_PICKLE_NIL;
}
