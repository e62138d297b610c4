/* Where the values of a pickle live: what the opcodes (pickle_machine.h) and pickle_store.c (values,
 * containers, keys) share. For these only; readers of pickles use pickle.h.
 *
 * All is kept in growing arrays that are indexed by 32 bits and hold no pointers. Index 0 of each is taken,
 * so that 0 means "none". Functions that return false or TD_PICKLE_NIL ran out of memory, or past the
 * bound. */
#ifndef TD_PARSER_PICKLE_STORE_H
#define TD_PARSER_PICKLE_STORE_H

#include "parser/pickle/pickle.h"

struct td_pool {
    void *items;
    uint32_t count, capacity;
};

/* A pool whose items stay where they are, in chunks of TD_CHUNK_ITEMS: growing costs no copy and no slack.
 * Its user indexes from 0. */
struct td_chunks {
    struct td_pool directory; /* of pointers */
    uint32_t count;
};

enum { TD_CHUNK_ITEMS = 256 };

enum {
    TD_PICKLE_FLAG_UTF8 = 1,    /* a STRING that is UTF-8 */
    TD_PICKLE_FLAG_DECODED = 2, /* the text is in `text`, not in the caller's bytes */
    TD_PICKLE_FLAG_BIG = 4,     /* an INT that is kept as text */
    TD_PICKLE_FLAG_KEY = 8,     /* the key of an item in some map */
    TD_PICKLE_FLAG_MARKED = 16,
};

/* 16 bytes: a checkpoint has some twenty of these for every tensor. */
struct td_pickle_value {
    uint32_t at; /* of its opcode, in the caller's bytes */
    uint8_t kind, flags, call;
    union {
        bool truth;
        int64_t integer;
        double real;
        struct {
            uint32_t off, len;
        } text;
        struct {
            uint32_t first, count; /* in `cells` */
        } tuple;
        struct {
            uint32_t module, name;
        } global;
        /* LIST, SET, FROZENSET: in `lists`; DICT: in `maps`; OBJECT: in `objects`; PERSISTENT: the id */
        uint32_t part;
    } as;
};

/* A container that grows: its cells move to the pool's end when they have no room, at least doubling each
 * time, so the cells left behind are never more than those in use. */
struct td_pickle_bag {
    uint32_t first, count, capacity; /* cells; a map's items take two each, key and value */
    uint32_t order;                  /* a map with many items: first of the cells with its items' numbers, by key */
    uint32_t grown_at;               /* of the last opcode that added to it, in the caller's bytes */
};

struct td_pickle_object {
    uint32_t callable, args, kwargs, state;
    uint32_t list, map;
    uint32_t built_at; /* of the BUILD, in the caller's bytes */
};

struct td_pickle_store {
    struct td_chunks values;  /* struct td_pickle_value */
    struct td_chunks objects; /* struct td_pickle_object */
    struct td_chunks lists;   /* struct td_pickle_bag */
    struct td_chunks maps;    /* struct td_pickle_bag */
    struct td_pool cells;     /* td_pickle_ref */
    struct td_pool text;      /* char: strings that needed decoding */
    size_t used_bytes, limit_bytes;
};

struct td_pickle_store *td_pickle_store_create(size_t limit_bytes);
void td_pickle_store_destroy(struct td_pickle_store *store);

/* Room for `more` items of size bytes past count, for pools of the store and for those of its user. */
bool td_pickle_store_reserve(struct td_pickle_store *store, struct td_pool *pool, uint64_t more, size_t size);

/* One more item, all zeros; NULL when there is no room. */
void *td_chunks_add(struct td_pickle_store *store, struct td_chunks *chunks, size_t size);
void *td_chunks_at(const struct td_chunks *chunks, uint32_t index, size_t size);

/* Gives all memory back. */
void td_chunks_drop(struct td_pickle_store *store, struct td_chunks *chunks, size_t size);

/* Memory beside the pools, counted until it is given back. release takes NULL. */
void *td_pickle_store_claim(struct td_pickle_store *store, size_t count, size_t size);
void td_pickle_store_release(struct td_pickle_store *store, void *memory, size_t count, size_t size);
void td_pickle_store_drop(struct td_pickle_store *store, struct td_pool *pool, size_t size);

/* A new value, and the pointer to one, which holds for good. */
td_pickle_ref td_pickle_store_add(struct td_pickle_store *store, struct td_pickle_value value);
struct td_pickle_value *td_pickle_store_value(const struct td_pickle_store *store, td_pickle_ref ref);
td_pickle_ref *td_pickle_store_cells(const struct td_pickle_store *store);
struct td_pickle_bag *td_pickle_store_list(const struct td_pickle_store *store, uint32_t part);
struct td_pickle_bag *td_pickle_store_map(const struct td_pickle_store *store, uint32_t part);
struct td_pickle_object *td_pickle_store_object(const struct td_pickle_store *store, td_pickle_ref ref);

/* Copies count references to the end of `cells`. */
bool td_pickle_store_tuple(struct td_pickle_store *store, const td_pickle_ref *items, uint32_t count, uint32_t *first);

/* Appends count references to bag *index of bags (`lists` or `maps`), which is made when *index is 0. `at` is where the
 * opcode that does it stands. */
bool td_pickle_store_append(struct td_pickle_store *store, struct td_chunks *bags, uint32_t *index,
                            const td_pickle_ref *items, uint32_t count, uint32_t at);

/* Whether an OBJECT is a call of one of the mappings of `collections`; then which of its arguments a REDUCE takes the
 * first items from, and whether that may be pairs. */
bool td_pickle_known_mapping(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t *argument, bool *of_pairs);

/* Gives every map unique keys and, when it is large, an order to find them by. n log n in the pickle's
 * length. */
bool td_pickle_store_finish_maps(struct td_pickle *pickle);

#endif
