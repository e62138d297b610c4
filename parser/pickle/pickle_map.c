#include "parser/pickle/pickle_map.h"

#include "parser/format/names.h"
#include "parser/pickle/pickle_store.h"
#include "parser/pickle/pickle_value.h"

#include <math.h>
#include <string.h>

/* ---- keys in the form in which they are compared ---- */

enum key_class {
    KEY_NONE,
    KEY_NUMBER,
    KEY_FLOAT,
    KEY_BIG_INT,
    KEY_STRING,
    KEY_BYTES,
    KEY_IDENTITY,
};

/* Two keys are equal, as in Python, where all members are equal. */
struct key {
    uint64_t prefix; /* of a text the first 8 bytes; of other keys all that counts */
    enum key_class class;
    struct td_text text;
};

/* Returns a key of class BIG_INT, STRING or BYTES. The text is borrowed. */
static struct key key_of_text(enum key_class class, struct td_text text)
{
    struct key key = {.class = class, .text = text};
    for (size_t i = 0; i < sizeof key.prefix; i++)
        key.prefix = key.prefix << 8 | (i < text.len ? (uint8_t)text.p[i] : 0);
    return key;
}

/* 1, 1.0 and True are the same key. A NaN equals only itself, the same value. */
static struct key key_of_float(double real, td_pickle_ref ref)
{
    if (isnan(real))
        return (struct key){.class = KEY_IDENTITY, .prefix = ref};
    if (real >= -0x1p63 && real < 0x1p63 && real == (double)(int64_t)real)
        return (struct key){.class = KEY_NUMBER, .prefix = (uint64_t)(int64_t)real};
    struct key key = {.class = KEY_FLOAT};
    memcpy(&key.prefix, &real, sizeof key.prefix);
    return key;
}

/* Returns the key that the value is. The text is borrowed from the pickle. */
static struct key key_of(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = td_pickle_store_value(pickle->store, ref);
    switch (value->kind) {
    case TD_PICKLE_NONE:
        return (struct key){.class = KEY_NONE};
    case TD_PICKLE_BOOL:
        return (struct key){.class = KEY_NUMBER, .prefix = value->as.truth ? 1 : 0};
    case TD_PICKLE_INT:
        if ((value->flags & TD_PICKLE_FLAG_BIG) == 0)
            return (struct key){.class = KEY_NUMBER, .prefix = (uint64_t)value->as.integer};
        return key_of_text(KEY_BIG_INT, td_pickle_store_text(pickle, value));
    case TD_PICKLE_FLOAT:
        return key_of_float(value->as.real, ref);
    case TD_PICKLE_STRING:
        return key_of_text(KEY_STRING, td_pickle_store_text(pickle, value));
    case TD_PICKLE_BYTES:
        return key_of_text(KEY_BYTES, td_pickle_store_text(pickle, value));
    default:
        return (struct key){.class = KEY_IDENTITY, .prefix = ref};
    }
}

/* Orders keys by prefix, then by class, then by text. Returns <0, 0 or >0. */
static int compare_keys(const struct key *a, const struct key *b)
{
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return a->text.p == NULL ? 0 : td_text_compare(a->text, b->text);
}

/* ---- reading a mapping ---- */

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

/* Searches a map that has an order, which is that of compare_keys. */
static td_pickle_ref find_in_order(const struct td_pickle *pickle, const struct td_pickle_bag *bag, const char *text)
{
    const td_pickle_ref *cells = td_pickle_store_cells(pickle->store);
    struct key wanted = key_of_text(KEY_STRING, td_text_of(text));
    uint32_t low = 0;
    uint32_t high = bag->count / 2;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint32_t item = bag->first + 2 * cells[bag->order + middle];
        struct key key = key_of(pickle, cells[item]);
        int order = compare_keys(&key, &wanted);
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

/* ---- unique keys, in an order ----
 * Keys are ranked once over the whole pickle (rank_keys), which compares their bytes. Then every map drops all but the
 * last value of each key (drop_duplicates), and every map of more than MAP_SCANNED_ITEMS items gets the numbers of its
 * items in the order of the ranks (order_map), for a binary search. Both work on ranks alone. */

enum { MAP_SCANNED_ITEMS = 8 }; /* maps up to this size have no order: looking at each item is as quick */

static int key_tie(const void *context, size_t a, size_t b)
{
    const struct td_pickle *pickle = context;
    struct key left = key_of(pickle, (td_pickle_ref)a);
    struct key right = key_of(pickle, (td_pickle_ref)b);
    return compare_keys(&left, &right);
}

/* Scratch for finish_maps. Keys are ranked over the whole pickle, and equal keys have the same rank. Afterwards two
 * keys are compared by their ranks, so that no pickle can make many maps compare the same long strings. */
struct ranking {
    struct td_pickle *pickle;
    struct td_order *order; /* key_count items: first all keys, then the keys of one map */
    uint32_t *rank;         /* by td_pickle_ref; 0 = no key */
    uint32_t *place;        /* by rank: where the present map has this key, if it has the key */
    size_t key_count, rank_count;
};

/* Returns how many values are keys. */
static size_t count_keys(const struct td_pickle_store *store)
{
    size_t keys = 0;
    for (uint32_t ref = 1; ref < store->values.count; ref++)
        keys += (td_pickle_store_value(store, ref)->flags & TD_PICKLE_FLAG_KEY) != 0;
    return keys;
}

/* Sorts r->order. td_order_sort allocates as much again, which the store's limit must allow too. */
static bool sort_within_limit(struct ranking *r, size_t count, int (*tie)(const void *context, size_t a, size_t b))
{
    return td_pickle_store_has_room(r->pickle->store, count * sizeof *r->order) &&
           td_order_sort(r->order, count, tie, r->pickle, NULL);
}

/* Sets r->rank of every key, from 1 on in the order of the keys. */
static bool rank_keys(struct ranking *r)
{
    struct td_pickle_store *store = r->pickle->store;
    size_t n = 0;
    for (uint32_t ref = 1; ref < store->values.count; ref++)
        if ((td_pickle_store_value(store, ref)->flags & TD_PICKLE_FLAG_KEY) != 0)
            r->order[n++] = (struct td_order){.key = key_of(r->pickle, ref).prefix, .index = ref};
    if (!sort_within_limit(r, n, key_tie))
        return false;
    for (size_t i = 0; i < n; i++) {
        bool is_new = i == 0 || r->order[i].key != r->order[i - 1].key ||
                      key_tie(r->pickle, r->order[i - 1].index, r->order[i].index) != 0;
        r->rank_count += is_new;
        r->rank[r->order[i].index] = (uint32_t)r->rank_count;
    }
    return true;
}

/* Keeps one item for each key. `place` is not cleared between maps: an entry counts only if the item at that place has
 * the key. */
static void drop_duplicates(struct ranking *r, struct td_pickle_bag *map)
{
    td_pickle_ref *items = td_pickle_store_cells(r->pickle->store) + map->first;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->count; i += 2) {
        uint32_t rank = r->rank[items[i]];
        uint32_t place = r->place[rank];
        if (place < kept && r->rank[items[place]] == rank) {
            items[place + 1] = items[i + 1];
            if (r->pickle->duplicate_count++ == 0)
                r->pickle->duplicate = items[i];
            continue;
        }
        r->place[rank] = kept;
        items[kept] = items[i];
        items[kept + 1] = items[i + 1];
        kept += 2;
    }
    map->count = kept;
}

/* Writes the numbers of the items of a large map to the end of the cells, in the order of their keys. */
static bool order_map(struct ranking *r, struct td_pickle_bag *map)
{
    struct td_pickle_store *store = r->pickle->store;
    uint32_t count = map->count / 2;
    if (count <= MAP_SCANNED_ITEMS)
        return true;
    if (!td_pickle_store_reserve(store, &store->cells, count, sizeof(td_pickle_ref)))
        return false;
    td_pickle_ref *cells = td_pickle_store_cells(store);
    for (uint32_t i = 0; i < count; i++)
        r->order[i] = (struct td_order){.key = r->rank[cells[map->first + 2 * i]], .index = i};
    if (!sort_within_limit(r, count, NULL))
        return false;
    map->order = store->cells.count;
    store->cells.count += count;
    for (uint32_t i = 0; i < count; i++)
        cells[map->order + i] = (uint32_t)r->order[i].index;
    return true;
}

static bool finish_maps(struct ranking *r)
{
    struct td_pickle_store *store = r->pickle->store;
    r->rank = td_pickle_store_claim(store, store->values.count, sizeof *r->rank);
    r->place = td_pickle_store_claim(store, r->key_count + 1, sizeof *r->place);
    r->order = td_pickle_store_claim(store, r->key_count, sizeof *r->order);
    if (r->rank == NULL || r->place == NULL || r->order == NULL || !rank_keys(r))
        return false;
    for (uint32_t i = 1; i < store->maps.count; i++)
        drop_duplicates(r, td_pickle_store_map(store, i));
    for (uint32_t i = 1; i < store->maps.count; i++)
        if (!order_map(r, td_pickle_store_map(store, i)))
            return false;
    return true;
}

bool td_pickle_finish_maps(struct td_pickle *pickle)
{
    struct td_pickle_store *store = pickle->store;
    struct ranking r = {.pickle = pickle, .key_count = count_keys(store)};
    if (r.key_count == 0)
        return true;
    bool ok = finish_maps(&r);
    td_pickle_store_release(store, r.order, r.key_count, sizeof *r.order);
    td_pickle_store_release(store, r.place, r.key_count + 1, sizeof *r.place);
    td_pickle_store_release(store, r.rank, store->values.count, sizeof *r.rank);
    return ok;
}
