/* The memory of a pickle: where its values live. Only for parser/pickle; readers of pickles use pickle.h.
 *
 * Everything is in growing arrays that are indexed by 32 bits and hold no pointers. Index 0 of each array is taken, so
 * that 0 means "none". A function that returns false, NULL or TD_PICKLE_NIL for want of room has run out of memory or
 * past the bound; it sets no error. */
#ifndef TD_PARSER_PICKLE_PICKLE_STORE_H
#define TD_PARSER_PICKLE_PICKLE_STORE_H

#include "core/text.h"
#include "parser/pickle/pickle_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An array that moves when it grows. */
struct td_pool {
    void *items;
    uint32_t count, capacity;
};

/* An array whose items never move: it grows in chunks of TD_CHUNK_ITEMS, without copies and with little slack. Indices
 * begin at 0. */
struct td_chunks {
    struct td_pool directory; /* of pointers */
    uint32_t count;
};

enum { TD_CHUNK_ITEMS = 256 };

enum {
    TD_PICKLE_FLAG_UTF8 = 1,    /* a STRING that is UTF-8 */
    TD_PICKLE_FLAG_DECODED = 2, /* the text is in the store's `text`, not in the caller's bytes */
    TD_PICKLE_FLAG_BIG = 4,     /* an INT that is kept as text */
    TD_PICKLE_FLAG_KEY = 8,     /* the key of an item in some map */
    TD_PICKLE_FLAG_MARKED = 16,
};

/* 16 bytes: a checkpoint has some twenty values for every tensor. */
struct td_pickle_value {
    uint32_t at; /* position of its opcode in the caller's bytes */
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
        /* LIST, SET, FROZENSET: index into `lists`; DICT: into `maps`; OBJECT: into `objects`; PERSISTENT: the id */
        uint32_t part;
    } as;
};

/* The cells of a container. When they have no room to grow they move to the end of the pool with at least twice the
 * room, so the cells left behind are never more than those in use. */
struct td_pickle_bag {
    uint32_t first, count, capacity; /* cells; a map's items take two each, key and value */
    uint32_t order;    /* of a map with many items: the first cell of its items' numbers, by key; else 0 */
    uint32_t grown_at; /* position of the last opcode that added items, in the caller's bytes */
};

struct td_pickle_object {
    uint32_t callable, args, kwargs, state;
    uint32_t list, map;
    uint32_t built_at; /* position of the BUILD, in the caller's bytes */
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

/* Returns an empty store whose memory, its own size included, stays within limit_bytes (0 = no bound). */
struct td_pickle_store *td_pickle_store_create(size_t limit_bytes);

/* Frees the store, its chunks, cells and text. NULL is allowed. */
void td_pickle_store_destroy(struct td_pickle_store *store);

/* ---- memory, counted against the limit ---- */

/* Returns whether the limit allows `more` bytes. */
bool td_pickle_store_has_room(const struct td_pickle_store *store, size_t more);

/* Makes room for `more` items of size bytes past count, in a pool of the store or of its user. */
bool td_pickle_store_reserve(struct td_pickle_store *store, struct td_pool *pool, uint64_t more, size_t size);
/* Frees the pool, which has items of size bytes. */
void td_pickle_store_drop(struct td_pickle_store *store, struct td_pool *pool, size_t size);

/* Returns `count` zeroed items of size bytes, which count until they are released. release accepts NULL. */
void *td_pickle_store_claim(struct td_pickle_store *store, size_t count, size_t size);
void td_pickle_store_release(struct td_pickle_store *store, void *memory, size_t count, size_t size);

/* Adds an item, all zeros; NULL when there is no room. */
void *td_chunks_add(struct td_pickle_store *store, struct td_chunks *chunks, size_t size);

/* Returns the item at an index below count. */
void *td_chunks_at(const struct td_chunks *chunks, uint32_t index, size_t size);
/* Frees the chunks, which have items of size bytes. */
void td_chunks_drop(struct td_pickle_store *store, struct td_chunks *chunks, size_t size);

/* ---- adding ---- */

/* Adds a value. Returns its number. */
td_pickle_ref td_pickle_store_add(struct td_pickle_store *store, struct td_pickle_value value);

/* Copies count references to the end of `cells` and sets *first to where they begin. */
bool td_pickle_store_tuple(struct td_pickle_store *store, const td_pickle_ref *items, uint32_t count, uint32_t *first);

/* Appends count references to bag *index of bags (`lists` or `maps`); when *index is 0, makes a bag and sets *index.
 * `at` is the position of the opcode that appends. */
bool td_pickle_store_append(struct td_pickle_store *store, struct td_chunks *bags, uint32_t *index,
                            const td_pickle_ref *items, uint32_t count, uint32_t at);

/* ---- looking up ----
 * The first five need a value, a bag or an object that exists. Pointers to values, bags and objects stay valid; the
 * pointer to the cells does so until cells are added. */

struct td_pickle_value *td_pickle_store_value(const struct td_pickle_store *store, td_pickle_ref ref);
td_pickle_ref *td_pickle_store_cells(const struct td_pickle_store *store);
struct td_pickle_bag *td_pickle_store_list(const struct td_pickle_store *store, uint32_t part);
struct td_pickle_bag *td_pickle_store_map(const struct td_pickle_store *store, uint32_t part);
struct td_pickle_object *td_pickle_store_object(const struct td_pickle_store *store, td_pickle_ref ref);

/* Returns the value; for NIL, for numbers beyond the values and for a NULL store a value of kind TD_PICKLE_NOTHING. */
const struct td_pickle_value *td_pickle_store_get(const struct td_pickle_store *store, td_pickle_ref ref);

/* Returns the bag with the items of a LIST, SET or FROZENSET, or with the items appended to an OBJECT; NULL without
 * items, and for other kinds. */
const struct td_pickle_bag *td_pickle_store_list_of(const struct td_pickle_store *store, td_pickle_ref ref);

/* Returns the bag with the items of a DICT, or with the items set in an OBJECT; NULL without items, and for other
 * kinds. */
const struct td_pickle_bag *td_pickle_store_map_of(const struct td_pickle_store *store, td_pickle_ref ref);

/* Returns the bytes of a value that is kept as text: a STRING, BYTES, BYTEARRAY, or an INT with TD_PICKLE_FLAG_BIG. The
 * text is borrowed and its pointer is never NULL. */
struct td_text td_pickle_store_text(const struct td_pickle *pickle, const struct td_pickle_value *value);

#endif
