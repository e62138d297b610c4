/* The plan. Values, objects and bags live in chunks, so their addresses hold while the pickle is read. The references
 * in containers live in one pool, `cells`: a tuple's cells never change, and a bag's cells move to the end of the pool
 * when they must grow. What is hard: every byte counts against one limit (has_room, claim, reserve), and an array that
 * is being enlarged counts twice while it is copied. */
#include "parser/pickle/pickle_store.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

enum { POOL_FIRST_CAPACITY = 32 };

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

bool td_pickle_store_has_room(const struct td_pickle_store *store, size_t more)
{
    return store->limit_bytes == 0 ||
           (store->used_bytes <= store->limit_bytes && more <= store->limit_bytes - store->used_bytes);
}

/* Not td_array_reserve: pools count in 32 bits and share one limit. Item 0, which means "none", is all zeros. */
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
    if (needed > capacity || !td_mul_size((size_t)capacity, size, &bytes) || !td_pickle_store_has_room(store, bytes))
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
    if (!td_mul_size(count, size, &bytes) || !td_pickle_store_has_room(store, bytes))
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

/* Makes room in the bag for `more` cells. A bag at the end of the pool grows where it is; another bag moves there. */
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

/* ---- looking up ---- */

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

const struct td_pickle_value *td_pickle_store_get(const struct td_pickle_store *store, td_pickle_ref ref)
{
    static const struct td_pickle_value nothing = {.kind = TD_PICKLE_NOTHING};
    if (store == NULL || ref == TD_PICKLE_NIL || ref >= store->values.count)
        return &nothing;
    return td_pickle_store_value(store, ref);
}

const struct td_pickle_bag *td_pickle_store_list_of(const struct td_pickle_store *store, td_pickle_ref ref)
{
    const struct td_pickle_value *value = td_pickle_store_get(store, ref);
    uint32_t part = 0;
    if (value->kind == TD_PICKLE_LIST || value->kind == TD_PICKLE_SET || value->kind == TD_PICKLE_FROZENSET)
        part = value->as.part;
    else if (value->kind == TD_PICKLE_OBJECT)
        part = td_pickle_store_object(store, ref)->list;
    return part == 0 ? NULL : td_pickle_store_list(store, part);
}

const struct td_pickle_bag *td_pickle_store_map_of(const struct td_pickle_store *store, td_pickle_ref ref)
{
    const struct td_pickle_value *value = td_pickle_store_get(store, ref);
    uint32_t part = 0;
    if (value->kind == TD_PICKLE_DICT)
        part = value->as.part;
    else if (value->kind == TD_PICKLE_OBJECT)
        part = td_pickle_store_object(store, ref)->map;
    return part == 0 ? NULL : td_pickle_store_map(store, part);
}

struct td_text td_pickle_store_text(const struct td_pickle *pickle, const struct td_pickle_value *value)
{
    const char *base =
        (value->flags & TD_PICKLE_FLAG_DECODED) != 0 ? pickle->store->text.items : (const char *)pickle->bytes;
    return value->as.text.len == 0 ? TD_TEXT("") : td_text_n(base + value->as.text.off, value->as.text.len);
}
