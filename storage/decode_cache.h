/* What was decoded lately, in a bounded memory that all decoded tensors share. Whoever needs a part has it made, once,
 * however many ask for it at the same time; afterwards it stays until the memory is needed for other parts. Nobody keeps
 * a part between two reads, so a slow reader holds nothing, and how many there are makes no difference to the memory.
 * Thread-safe. */
#ifndef TD_STORAGE_DECODE_CACHE_H
#define TD_STORAGE_DECODE_CACHE_H

#include "core/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_DECODE_TABLE_SLOTS = 8192,
    TD_DECODE_PART_BYTES = 1024, /* counted for every part beside its data, so that there are not too many */
    TD_DECODE_MEMORY_BYTES = 256 * 1024 * 1024, /* by default, and at least: any one part can be made in it */
    TD_DECODE_WAIT_MS = 10000,                  /* for memory that others decode in */
};

/* Parts with these numbers hold no bytes of a tensor, but what is known of its coding. */
#define TD_DECODE_INDEX UINT64_MAX         /* where decoding can begin */
#define TD_DECODE_CHECKED (UINT64_MAX - 1) /* all of it is right; nothing else */

/* Names a part. `file` is the number of a parsed file (struct td_file): two parsers may read one file under two names and
 * number their codings alike, so its identity would not do. */
struct td_decode_key {
    uint64_t file;
    uint32_t coding;
    uint64_t part;
};

/* A part while somebody uses it. data is valid until it is released. */
struct td_decoded_part {
    struct td_decode_key key;
    void *data; /* what the maker put here */
    size_t len; /* by the maker's own meaning */
    void (*destroy)(void *data);
    /* the cache's own */
    size_t held_bytes;
    unsigned users;
    bool being_made;
    struct td_decoded_part *next_in_slot, *newer, *older;
};

struct td_decode_cache {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a part was made, or memory was given back */
    size_t max_bytes, used_bytes;
    unsigned wait_ms;
    uint64_t hits, misses, evictions;
    struct td_decoded_part *slots[TD_DECODE_TABLE_SLOTS];
    struct td_decoded_part *newest, *oldest; /* those that nobody uses */
};

/* Fills in part->data, ->len and ->destroy. May use as much memory as was reserved for it. *kept_bytes is what the part
 * takes afterwards, at most that. */
typedef bool td_decode_maker(void *context, struct td_decoded_part *part, size_t *kept_bytes,
                             struct td_error *err);

/* max_bytes below TD_DECODE_MEMORY_BYTES is only for tests. */
bool td_decode_cache_init(struct td_decode_cache *cache, size_t max_bytes, struct td_error *err);
void td_decode_cache_fini(struct td_decode_cache *cache); /* nobody uses a part any more */

/* The part with this key, made by `make` with need_bytes of memory unless it is there; waits while another thread makes it,
 * and, up to TD_DECODE_WAIT_MS, for memory. The caller holds no other part meanwhile. Release it soon. Errors:
 * TD_UNAVAILABLE when no memory came free, TD_FAILED_PRECONDITION when all of it would not do, TD_RESOURCE_EXHAUSTED, and the maker's. */
bool td_decode_cache_get(struct td_decode_cache *cache, const struct td_decode_key *key, size_t need_bytes,
                         td_decode_maker *make, void *context, struct td_decoded_part **out,
                         struct td_error *err);

/* The part with this key if it is there, else NULL. */
struct td_decoded_part *td_decode_cache_find(struct td_decode_cache *cache, const struct td_decode_key *key);

/* Keeps data (malloc'd, len bytes; taken over in every case) as the part with this key, if there is room for it. */
void td_decode_cache_offer(struct td_decode_cache *cache, const struct td_decode_key *key, void *data,
                           size_t len);

void td_decode_cache_release(struct td_decode_cache *cache, struct td_decoded_part *part);

size_t td_decode_cache_used(struct td_decode_cache *cache);

struct td_decode_counts {
    uint64_t used_bytes;
    uint64_t hits;      /* parts of tensors that were there when they were needed */
    uint64_t misses;    /* times that something was unpacked */
    uint64_t evictions; /* parts that made room for others */
};
struct td_decode_counts td_decode_cache_counts(struct td_decode_cache *cache);

#endif
