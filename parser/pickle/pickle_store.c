#include "parser/pickle/pickle_store.h"

#include "core/checked.h"
#include "parser/manifest.h"
#include "parser/names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    POOL_FIRST_CAPACITY = 32,
    MAP_SCANNED_ITEMS = 8, /* maps up to this size have no order: looking at each item is as quick */
};

/* ---- memory ---- */

struct td_pickle_store *td_pickle_store_create(size_t limit_bytes)
{
    if (limit_bytes != 0 && limit_bytes < sizeof(struct td_pickle_store))
        return NULL;
    struct td_pickle_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return NULL;
    store->limit_bytes = limit_bytes;
    store->used_bytes = sizeof *store;
    if (td_chunks_add(store, &store->values, sizeof(struct td_pickle_value)) != NULL &&
        td_chunks_add(store, &store->objects, sizeof(struct td_pickle_object)) != NULL &&
        td_chunks_add(store, &store->lists, sizeof(struct td_pickle_bag)) != NULL &&
        td_chunks_add(store, &store->maps, sizeof(struct td_pickle_bag)) != NULL)
        return store;
    td_pickle_store_destroy(store);
    return NULL;
}

void td_pickle_store_destroy(struct td_pickle_store *store)
{
    if (store == NULL)
        return;
    td_chunks_drop(store, &store->values, sizeof(struct td_pickle_value));
    td_chunks_drop(store, &store->objects, sizeof(struct td_pickle_object));
    td_chunks_drop(store, &store->lists, sizeof(struct td_pickle_bag));
    td_chunks_drop(store, &store->maps, sizeof(struct td_pickle_bag));
    free(store->cells.items);
    free(store->text.items);
    free(store);
}

static bool within_limit(const struct td_pickle_store *store, size_t more)
{
    return store->limit_bytes == 0 ||
           (store->used_bytes <= store->limit_bytes && more <= store->limit_bytes - store->used_bytes);
}

/* Makes room for `more` items in the pool. Not td_array_reserve: pools count in 32 bits and share one limit. Item 0
 * means "none" and is all zeros. */
bool td_pickle_store_reserve(struct td_pickle_store *store, struct td_pool *pool, uint64_t more, size_t size)
{
    bool is_new = pool->items == NULL;
    uint64_t needed = pool->count + more + (is_new ? 1 : 0);
    if (needed <= pool->capacity)
        return true;
    uint64_t capacity = (uint64_t)pool->capacity + pool->capacity / 2;
    if (capacity < POOL_FIRST_CAPACITY)
        capacity = POOL_FIRST_CAPACITY;
    if (capacity < needed)
        capacity = needed;
    if (capacity > UINT32_MAX)
        capacity = UINT32_MAX;
    size_t bytes;
    if (needed > capacity || !td_mul_size((size_t)capacity, size, &bytes) || !within_limit(store, bytes))
        return false;
    void *grown = realloc(pool->items, bytes);
    if (grown == NULL)
        return false;
    store->used_bytes += bytes - pool->capacity * size;
    pool->items = grown;
    pool->capacity = (uint32_t)capacity;
    if (is_new) {
        memset(grown, 0, size);
        pool->count = 1;
    }
    return true;
}

void td_pickle_store_drop(struct td_pickle_store *store, struct td_pool *pool, size_t size)
{
    td_pickle_store_release(store, pool->items, pool->capacity, size);
    memset(pool, 0, sizeof *pool);
}

void *td_pickle_store_claim(struct td_pickle_store *store, size_t count, size_t size)
{
    size_t bytes;
    if (!td_mul_size(count, size, &bytes) || !within_limit(store, bytes))
        return NULL;
    void *memory = calloc(count, size);
    if (memory != NULL)
        store->used_bytes += bytes;
    return memory;
}

void td_pickle_store_release(struct td_pickle_store *store, void *memory, size_t count, size_t size)
{
    if (memory == NULL)
        return;
    store->used_bytes -= count * size;
    free(memory);
}

void *td_chunks_add(struct td_pickle_store *store, struct td_chunks *chunks, size_t size)
{
    struct td_pool *directory = &chunks->directory;
    if (chunks->count == UINT32_MAX)
        return NULL;
    if (chunks->count % TD_CHUNK_ITEMS == 0) {
        if (!td_pickle_store_reserve(store, directory, 1, sizeof(void *)))
            return NULL;
        void *chunk = td_pickle_store_claim(store, TD_CHUNK_ITEMS, size);
        if (chunk == NULL)
            return NULL;
        ((void **)directory->items)[directory->count++] = chunk;
    }
    return td_chunks_at(chunks, chunks->count++, size);
}

void *td_chunks_at(const struct td_chunks *chunks, uint32_t index, size_t size)
{
    unsigned char *chunk = ((void **)chunks->directory.items)[1 + index / TD_CHUNK_ITEMS];
    return chunk + index % TD_CHUNK_ITEMS * size;
}

void td_chunks_drop(struct td_pickle_store *store, struct td_chunks *chunks, size_t size)
{
    for (uint32_t i = 1; i < chunks->directory.count; i++)
        td_pickle_store_release(store, ((void **)chunks->directory.items)[i], TD_CHUNK_ITEMS, size);
    td_pickle_store_drop(store, &chunks->directory, sizeof(void *));
    chunks->count = 0;
}

/* ---- adding ---- */

struct td_pickle_value *td_pickle_store_value(const struct td_pickle_store *store, td_pickle_ref ref)
{
    return td_chunks_at(&store->values, ref, sizeof(struct td_pickle_value));
}

td_pickle_ref *td_pickle_store_cells(const struct td_pickle_store *store)
{
    return store->cells.items;
}

struct td_pickle_bag *td_pickle_store_list(const struct td_pickle_store *store, uint32_t part)
{
    return td_chunks_at(&store->lists, part, sizeof(struct td_pickle_bag));
}

struct td_pickle_bag *td_pickle_store_map(const struct td_pickle_store *store, uint32_t part)
{
    return td_chunks_at(&store->maps, part, sizeof(struct td_pickle_bag));
}

struct td_pickle_object *td_pickle_store_object(const struct td_pickle_store *store, td_pickle_ref ref)
{
    return td_chunks_at(&store->objects, td_pickle_store_value(store, ref)->as.part, sizeof(struct td_pickle_object));
}

td_pickle_ref td_pickle_store_add(struct td_pickle_store *store, struct td_pickle_value value)
{
    struct td_pickle_value *added = td_chunks_add(store, &store->values, sizeof value);
    if (added == NULL)
        return TD_PICKLE_NIL;
    *added = value;
    return store->values.count - 1;
}

bool td_pickle_store_tuple(struct td_pickle_store *store, const td_pickle_ref *items, uint32_t count, uint32_t *first)
{
    if (!td_pickle_store_reserve(store, &store->cells, count, sizeof *items))
        return false;
    *first = store->cells.count;
    if (count > 0)
        memcpy(td_pickle_store_cells(store) + *first, items, count * sizeof *items);
    store->cells.count += count;
    return true;
}

/* Room in the bag for `more` cells: where it is, or at the end of the pool. */
static bool bag_reserve(struct td_pickle_store *store, struct td_pickle_bag *bag, uint32_t more)
{
    if (more <= bag->capacity - bag->count)
        return true;
    bool is_last = bag->capacity > 0 && bag->first + bag->capacity == store->cells.count;
    uint64_t capacity = (uint64_t)bag->count + more;
    if (!is_last && capacity < 2 * (uint64_t)bag->capacity)
        capacity = 2 * (uint64_t)bag->capacity;
    uint64_t fresh = is_last ? capacity - bag->capacity : capacity;
    if (!td_pickle_store_reserve(store, &store->cells, fresh, sizeof(td_pickle_ref)))
        return false;
    if (!is_last) {
        td_pickle_ref *cells = td_pickle_store_cells(store);
        memcpy(cells + store->cells.count, cells + bag->first, bag->count * sizeof *cells);
        bag->first = store->cells.count;
    }
    bag->capacity = (uint32_t)capacity;
    store->cells.count += (uint32_t)fresh;
    return true;
}

bool td_pickle_store_append(struct td_pickle_store *store, struct td_chunks *bags, uint32_t *index,
                            const td_pickle_ref *items, uint32_t count, uint32_t at)
{
    if (count == 0)
        return true;
    if (*index == 0) {
        if (td_chunks_add(store, bags, sizeof(struct td_pickle_bag)) == NULL)
            return false;
        *index = bags->count - 1;
    }
    struct td_pickle_bag *bag = td_chunks_at(bags, *index, sizeof *bag);
    if (!bag_reserve(store, bag, count))
        return false;
    memcpy(td_pickle_store_cells(store) + bag->first + bag->count, items, count * sizeof *items);
    bag->count += count;
    bag->grown_at = at;
    return true;
}

/* ---- the order of keys ---- */

enum key_class { KEY_NONE, KEY_NUMBER, KEY_FLOAT, KEY_BIG_INT, KEY_STRING, KEY_BYTES, KEY_IDENTITY };

/* A key as it is compared: keys are equal, as in Python, where all members are. */
struct key {
    uint64_t prefix; /* of texts the first bytes; of the rest all that counts */
    enum key_class class;
    struct td_text text;
};

static struct key key_of_text(enum key_class class, struct td_text text)
{
    struct key key = {.class = class, .text = {.p = text.p, .len = text.len}};
    for (size_t i = 0; i < sizeof key.prefix; i++)
        key.prefix = key.prefix << 8 | (i < text.len ? (uint8_t)text.p[i] : 0);
    return key;
}

/* 1, 1.0 and True are one key. A NaN equals nothing but itself. */
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

static struct key key_of(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = td_pickle_store_value(pickle->store, ref);
    size_t len = 0;
    const char *text;
    switch (value->kind) {
    case TD_PICKLE_NONE:
        return (struct key){.class = KEY_NONE};
    case TD_PICKLE_BOOL:
        return (struct key){.class = KEY_NUMBER, .prefix = value->as.truth ? 1 : 0};
    case TD_PICKLE_INT:
        if ((value->flags & TD_PICKLE_FLAG_BIG) == 0)
            return (struct key){.class = KEY_NUMBER, .prefix = (uint64_t)value->as.integer};
        text = (const char *)td_pickle_big_int(pickle, ref, &len);
        return key_of_text(KEY_BIG_INT, td_text_n(text, len));
    case TD_PICKLE_FLOAT:
        return key_of_float(value->as.real, ref);
    case TD_PICKLE_STRING:
    case TD_PICKLE_BYTES:
        text = td_pickle_text(pickle, ref, &len);
        return key_of_text(value->kind == TD_PICKLE_STRING ? KEY_STRING : KEY_BYTES, td_text_n(text, len));
    default:
        return (struct key){.class = KEY_IDENTITY, .prefix = ref};
    }
}

static int key_compare(const struct key *a, const struct key *b)
{
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return a->text.p == NULL ? 0 : td_text_compare(a->text, b->text);
}

static int key_tie(const void *context, size_t a, size_t b)
{
    const struct td_pickle *pickle = context;
    struct key left = key_of(pickle, (td_pickle_ref)a);
    struct key right = key_of(pickle, (td_pickle_ref)b);
    return key_compare(&left, &right);
}

static int rank_tie(const void *context, size_t a, size_t b)
{
    (void)context;
    return a < b ? -1 : a > b;
}

/* ---- finishing maps ---- */

/* Scratch for finish_maps. Keys are ranked over the whole pickle, equal keys alike: afterwards two keys are
 * compared by their ranks, so that no pickle can make many maps compare the same long strings. */
struct ranking {
    struct td_pickle *pickle;
    struct td_order *order; /* of key_count, then of the largest map */
    uint32_t *rank;         /* by td_pickle_ref; 0 = no key */
    uint32_t *place;        /* by rank: the item of the map in hand that has this key, if it has one */
    size_t key_count, rank_count;
};

static size_t count_keys(const struct td_pickle_store *store)
{
    size_t keys = 0;
    for (uint32_t ref = 1; ref < store->values.count; ref++)
        keys += (td_pickle_store_value(store, ref)->flags & TD_PICKLE_FLAG_KEY) != 0;
    return keys;
}

/* td_order_sort takes as much again, which has to be within the limit too. */
static bool sort_within_limit(struct ranking *r, size_t count, int (*tie)(const void *context, size_t a, size_t b))
{
    return within_limit(r->pickle->store, count * sizeof *r->order) &&
           td_order_sort(r->order, count, tie, r->pickle, NULL);
}

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

/* Keeps one item for each key. `place` is not cleared between maps: what it says is believed only if the
 * item there really has the key. */
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

bool td_pickle_store_finish_maps(struct td_pickle *pickle)
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

/* ---- reading ---- */

/* NIL and numbers that are none of the pickle's values have the kind TD_PICKLE_NOTHING, and so no parts. */
static const struct td_pickle_value *value_of(const struct td_pickle *pickle, td_pickle_ref ref)
{
    static const struct td_pickle_value nothing = {.kind = TD_PICKLE_NOTHING};
    if (pickle->store == NULL || ref == TD_PICKLE_NIL || ref >= pickle->store->values.count)
        return &nothing;
    return td_pickle_store_value(pickle->store, ref);
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

static const char *text_of(const struct td_pickle *pickle, const struct td_pickle_value *value, size_t *len)
{
    const char *base =
        (value->flags & TD_PICKLE_FLAG_DECODED) != 0 ? pickle->store->text.items : (const char *)pickle->bytes;
    *len = value->as.text.len;
    return value->as.text.len == 0 ? "" : base + value->as.text.off;
}

const uint8_t *td_pickle_big_int(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    *len = 0;
    if (value->kind != TD_PICKLE_INT || (value->flags & TD_PICKLE_FLAG_BIG) == 0)
        return NULL;
    return (const uint8_t *)text_of(pickle, value, len);
}

const char *td_pickle_text(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    *len = 0;
    if (value->kind != TD_PICKLE_STRING && value->kind != TD_PICKLE_BYTES && value->kind != TD_PICKLE_BYTEARRAY)
        return NULL;
    return text_of(pickle, value, len);
}

bool td_pickle_is_utf8(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    return value->kind == TD_PICKLE_STRING && (value->flags & TD_PICKLE_FLAG_UTF8) != 0;
}

bool td_pickle_string_is(const struct td_pickle *pickle, td_pickle_ref ref, const char *text)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    size_t len;
    if (value->kind != TD_PICKLE_STRING)
        return false;
    const char *own = text_of(pickle, value, &len);
    return len == strlen(text) && memcmp(own, text, len) == 0;
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

/* What holds the items of a list, a set, or of what was appended to an object; NULL when there are none. */
static const struct td_pickle_bag *list_of(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    uint32_t part = 0;
    if (value->kind == TD_PICKLE_LIST || value->kind == TD_PICKLE_SET || value->kind == TD_PICKLE_FROZENSET)
        part = value->as.part;
    else if (value->kind == TD_PICKLE_OBJECT)
        part = td_pickle_store_object(pickle->store, ref)->list;
    return part == 0 ? NULL : td_pickle_store_list(pickle->store, part);
}

/* The cells of a tuple, a list, a set, or of what was appended to an object. */
static const td_pickle_ref *items_of(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t *count)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    const struct td_pickle_bag *bag = list_of(pickle, ref);
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

/* ---- mappings ---- */

static const struct td_pickle_bag *map_of(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = value_of(pickle, ref);
    uint32_t part = 0;
    if (value->kind == TD_PICKLE_DICT)
        part = value->as.part;
    else if (value->kind == TD_PICKLE_OBJECT)
        part = td_pickle_store_object(pickle->store, ref)->map;
    return part == 0 ? NULL : td_pickle_store_map(pickle->store, part);
}

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
    const struct td_pickle_bag *bag = map_of(pickle, ref);
    *map = (struct td_pickle_map){.owner = ref, .count = bag == NULL ? 0 : bag->count / 2};
    return bag != NULL || td_pickle_kind(pickle, ref) == TD_PICKLE_DICT ||
           td_pickle_known_mapping(pickle, ref, &argument, &of_pairs);
}

static td_pickle_ref map_cell(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i,
                              uint32_t which)
{
    if (i >= map->count)
        return TD_PICKLE_NIL;
    const struct td_pickle_bag *bag = map_of(pickle, map->owner);
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
        int order = key_compare(&key, &wanted);
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
    const struct td_pickle_bag *bag = map_of(pickle, map->owner);
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

/* ---- what came later ---- */

static bool grew_after(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t at)
{
    const struct td_pickle_bag *list = list_of(pickle, ref);
    const struct td_pickle_bag *map = map_of(pickle, ref);
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

size_t td_pickle_memory_bytes(const struct td_pickle *pickle)
{
    return pickle->store == NULL ? 0 : pickle->store->used_bytes;
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
