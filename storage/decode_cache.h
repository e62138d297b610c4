/* What was decoded lately, in a bounded memory that all decoded tensors share. Whoever needs a part has it made, once,
 * however many ask for it at the same time; afterwards it stays until the memory is needed for other parts. Damage that
 * is found while a part is made stays in its place: nobody decodes the same damaged bytes again. Nobody keeps a part
 * between two reads, so a slow reader holds nothing, and how many there are makes no difference to the memory.
 * Thread-safe. */
#ifndef TD_STORAGE_DECODE_CACHE_H
#define TD_STORAGE_DECODE_CACHE_H

#include "core/cancel.h"
#include "core/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_DECODE_TABLE_SLOTS = 8192,
    TD_DECODE_PART_BYTES = 1024, /* counted for every part beside its data, so that there are not too many */
    TD_DECODE_MEMORY_BYTES = 256 * 1024 * 1024, /* by default, and at least: any one part can be made in it */
    TD_DECODE_MAKERS = 4,                       /* decode whole streams at once */
    TD_DECODE_WAIT_MS = 10000,                  /* for memory that others decode in, and for a maker's place */
    TD_DECODE_MADE_WAIT_MS = 60000,             /* for a part that another thread is making */
};

/* Parts with these numbers hold no bytes of a tensor, but what is known of its coding. */
#define TD_DECODE_INDEX UINT64_MAX         /* where decoding can begin */
#define TD_DECODE_CHECKED (UINT64_MAX - 1) /* all of it is right; nothing else */

/* Names a part. `file` is the number of a parsed file (struct td_file): two parsers may read one file under two names
 * and number their codings alike, so its identity would not do. */
struct td_decode_key {
    uint64_t file;
    uint32_t coding;
    uint64_t part;
};

enum td_decode_state {
    TD_DECODE_MAKING,  /* in the table; its maker works at it */
    TD_DECODE_READY,   /* in the table */
    TD_DECODE_DAMAGED, /* in the table, without data */
    TD_DECODE_GONE,    /* no longer in the table; the last of those who waited for it frees it */
};

/* A part while somebody uses it. data is valid until it is released. */
struct td_decoded_part {
    struct td_decode_key key;
    void *data; /* what the maker put here */
    size_t len; /* by the maker's own meaning */
    void (*destroy)(void *data);
    /* the cache's own */
    enum td_decode_state state;
    bool is_costly; /* to make again: kept longer than other parts */
    size_t held_bytes;
    unsigned users, waiters;
    struct td_error error; /* why making it failed */
    struct td_decoded_part *next_in_slot, *newer, *older;
};

_Static_assert(sizeof(struct td_decoded_part) <= TD_DECODE_PART_BYTES, "a part is counted");

/* Parts that nobody uses. */
struct td_decode_idle {
    struct td_decoded_part *newest, *oldest;
};

struct td_decode_cache {
    pthread_mutex_t lock; /* of all that follows; no other lock is taken under it */
    pthread_cond_t made;  /* a part was made that somebody waits for, or its making failed */
    pthread_cond_t room;  /* memory can be had, or a maker's place */
    size_t max_bytes, used_bytes;
    size_t costly_bytes;       /* of the used ones: of costly parts */
    unsigned wait_ms, made_ms; /* TD_DECODE_WAIT_MS, TD_DECODE_MADE_WAIT_MS */
    unsigned makers;           /* of whole streams */
    unsigned room_waiters;
    uint64_t hits, misses, evictions;
    struct td_decoded_part *slots[TD_DECODE_TABLE_SLOTS];
    struct td_decode_idle idle, costly_idle;
};

/* Fills in part->data, ->len and ->destroy. May use as much memory as was reserved for it. *kept_bytes is what the part
 * takes afterwards, at most that. TD_FAILED_PRECONDITION says that the stored bytes are damaged, for good. */
typedef bool td_decode_maker(void *context, struct td_decoded_part *part, size_t *kept_bytes, struct td_error *err);

/* How a part is made. All is borrowed. */
struct td_decode_job {
    struct td_decode_key key;
    size_t need_bytes;
    bool is_long; /* decodes a whole stream: TD_DECODE_MAKERS do so at once; the part is costly */
    td_decode_maker *make;
    void *context;
    const struct td_cancel *cancel; /* of who asks for the part; NULL: none */
};

/* max_bytes below TD_DECODE_MEMORY_BYTES is only for tests. */
bool td_decode_cache_init(struct td_decode_cache *cache, size_t max_bytes, struct td_error *err);
void td_decode_cache_fini(struct td_decode_cache *cache); /* nobody uses a part any more */

/* Gets the part, made by the job unless it is there. Waits for another thread that makes it, for memory and for a
 * maker's place; each wait is bounded, and ends when job->cancel asks. Nothing is made when it asks already. The caller
 * holds no other part meanwhile. Release it soon. Errors: TD_RESOURCE_EXHAUSTED when a wait ended or there is no
 * memory, TD_FAILED_PRECONDITION when all of the cache's memory would not do, and the maker's; damage is told without
 * decoding again. */
bool td_decode_cache_get(struct td_decode_cache *cache, const struct td_decode_job *job, struct td_decoded_part **out,
                         struct td_error *err);

/* The part with this key if it is there, else NULL. */
struct td_decoded_part *td_decode_cache_find(struct td_decode_cache *cache, const struct td_decode_key *key);

/* Returns whether the part with this key is known to be damaged, and then why. */
bool td_decode_cache_is_damaged(struct td_decode_cache *cache, const struct td_decode_key *key, struct td_error *err);

/* For a maker: returns whether anybody still waits for the part, who asked for it or another thread. */
bool td_decode_cache_is_wanted(struct td_decode_cache *cache, const struct td_decoded_part *part,
                               const struct td_cancel *cancel);

/* Keeps data (malloc'd, len bytes; taken over in every case) as the part with this key, if there is room for it beside
 * costly parts. */
void td_decode_cache_offer(struct td_decode_cache *cache, const struct td_decode_key *key, void *data, size_t len);

void td_decode_cache_release(struct td_decode_cache *cache, struct td_decoded_part *part);

struct td_decode_counts {
    uint64_t used_bytes;
    uint64_t hits;      /* parts of tensors that were there when they were needed */
    uint64_t misses;    /* times that something was unpacked */
    uint64_t evictions; /* parts that made room for others */
};
struct td_decode_counts td_decode_cache_counts(struct td_decode_cache *cache);

#endif
