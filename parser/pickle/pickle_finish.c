/* Keys are ranked once over the whole pickle (rank_keys), which compares their bytes. Then every map drops all but the
 * last value of each key (drop_duplicates), and every map of more than MAP_SCANNED_ITEMS items gets the numbers of its
 * items in the order of the ranks (order_map), for a binary search. Both work on ranks alone. */
#include "parser/pickle/pickle_finish.h"

#include "parser/format/names.h"
#include "parser/pickle/pickle_key.h"
#include "parser/pickle/pickle_store.h"

enum { MAP_SCANNED_ITEMS = 8 }; /* maps up to this size have no order: looking at each item is as quick */

static int key_tie(const void *context, size_t a, size_t b)
{
    const struct td_pickle *pickle = context;
    struct td_pickle_key left = td_pickle_key_of(pickle, (td_pickle_ref)a);
    struct td_pickle_key right = td_pickle_key_of(pickle, (td_pickle_ref)b);
    return td_pickle_key_compare(&left, &right);
}

static int rank_tie(const void *context, size_t a, size_t b)
{
    (void)context;
    return a < b ? -1 : a > b;
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
            r->order[n++] = (struct td_order){.key = td_pickle_key_of(r->pickle, ref).prefix, .index = ref};
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
    if (!sort_within_limit(r, count, rank_tie))
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
