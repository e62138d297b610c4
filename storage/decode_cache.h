/* The decode cache: recently decoded parts of tensors, in a bounded memory that all decoded tensors share. The first
 * thread that needs a part makes it; other threads that need the part wait until it is made. A part stays until other
 * parts need the memory. Damage that is found while a part is made is kept like a part, so nobody decodes the same
 * damaged bytes again. A reader releases a part after each read, so slow readers hold no memory. Thread-safe. */
#ifndef TD_STORAGE_DECODE_CACHE_H
#define TD_STORAGE_DECODE_CACHE_H

#include "core/cancel.h"
#include "core/coding.h"
#include "core/error.h"
#include "storage/blob.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_DECODE_TABLE_SLOTS = 8192,
    TD_DECODE_PART_BYTES = 1024,                /* counted for each part besides its data; bounds the number of parts */
    TD_DECODE_MEMORY_BYTES = 256 * 1024 * 1024, /* the default and the minimum: any one part can be made in it */
    TD_DECODE_MAKERS = 4,                       /* threads that may decode a whole stream at the same time */
    TD_DECODE_WAIT_MS = 10000,                  /* longest wait for memory, or for other makers to end */
    TD_DECODE_MADE_WAIT_MS = 60000,             /* longest wait for a part that another thread makes */
};

/* Numbers of parts that hold no bytes of a tensor. */
#define TD_DECODE_INDEX UINT64_MAX         /* the places at which decoding can begin */
#define TD_DECODE_CHECKED (UINT64_MAX - 1) /* no data: the whole stream was decoded once, and was right */

/* Identifies a part. `file` is the number of a parsed file (`number` of struct td_file in catalog/model/snapshot.h).
 * Device and inode are not enough: two parsers may read one file under two names, and give their codings the same
 * numbers. */
struct td_decode_key {
    uint64_t file;
    uint32_t coding; /* its number */
    uint64_t part;   /* chosen by the maker, or one of the two above */
};

enum td_decode_state {
    TD_DECODE_MAKING,  /* in the table; its maker is at work */
    TD_DECODE_READY,   /* in the table, with data */
    TD_DECODE_DAMAGED, /* in the table, with `error` in place of data */
    TD_DECODE_GONE,    /* no longer in the table; the last thread that waited for it frees it */
};

/* A part in use. Its data is valid until td_decode_cache_release. */
struct td_decoded_part {
    struct td_decode_key key;
    void *data; /* set by the maker; NULL: none */
    size_t len; /* set by the maker; for a tensor's bytes their number */
    void (*destroy)(void *data);
    /* The cache's own members; others must not read or write them. */
    enum td_decode_state state;
    bool is_costly; /* to make; kept longer than other parts */
    size_t held_bytes;
    unsigned users, waiters;
    struct td_error error; /* why making it failed */
    struct td_decoded_part *next_in_slot, *newer, *older;
};

/* TD_DECODE_PART_BYTES covers this struct. */
_Static_assert(sizeof(struct td_decoded_part) <= TD_DECODE_PART_BYTES, "a part is counted");

/* A list of the idle parts, by the time of their last use. */
struct td_decode_idle {
    struct td_decoded_part *newest, *oldest;
};

struct td_decode_cache {
    pthread_mutex_t lock; /* guards all members below; no other lock is taken under it */
    pthread_cond_t made;  /* signalled when a part that a thread waits for was made, or could not be */
    pthread_cond_t room;  /* signalled when memory or a maker's place may be free */
    size_t max_bytes, used_bytes;
    size_t costly_bytes;       /* of used_bytes: those of costly parts */
    unsigned wait_ms, made_ms; /* TD_DECODE_WAIT_MS and TD_DECODE_MADE_WAIT_MS, or less in tests */
    unsigned makers;           /* threads that decode whole streams now */
    unsigned room_waiters;
    uint64_t hits, misses, evictions;
    struct td_decoded_part *slots[TD_DECODE_TABLE_SLOTS];
    struct td_decode_idle idle, costly_idle;
};

/* Makes a part: sets part->data, ->len and ->destroy, and *kept_bytes to the bytes of memory that the part keeps. May
 * use the job's need_bytes of memory until it returns; *kept_bytes is at most that. Called without the cache's lock.
 * Fails with TD_FAILED_PRECONDITION when the stored bytes are damaged: the cache keeps this error and does not call
 * again. */
typedef bool td_decode_maker(void *context, struct td_decoded_part *part, size_t *kept_bytes, struct td_error *err);

/* How to make a part. Everything is borrowed. */
struct td_decode_job {
    struct td_decode_key key;
    size_t need_bytes; /* the most memory that making takes */
    bool is_long;      /* decodes a whole stream: at most TD_DECODE_MAKERS at once, and the part is costly */
    td_decode_maker *make;
    void *context;
    const struct td_cancel *cancel; /* of the caller; NULL: none */
};

/* Initialises an empty cache of max_bytes: TD_DECODE_MEMORY_BYTES or more, except in tests. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_decode_cache_init(struct td_decode_cache *cache, size_t max_bytes, struct td_error *err);

/* Frees all parts. Call when nobody uses one. */
void td_decode_cache_fini(struct td_decode_cache *cache);

/* Sets *out to the part with the job's key; makes the part by the job unless the cache has it. Waits while another
 * thread makes the part, for memory and for a maker's place, each for a bounded time (wait_ms, made_ms) and until
 * job->cancel is asked; makes nothing when cancel has been asked before. The caller must hold no other part during the
 * call, and releases this one soon. Errors: TD_RESOURCE_EXHAUSTED when a wait ended or memory is short,
 * TD_FAILED_PRECONDITION when the job needs more than max_bytes or the bytes are known to be damaged, and the
 * maker's. */
bool td_decode_cache_get(struct td_decode_cache *cache, const struct td_decode_job *job, struct td_decoded_part **out,
                         struct td_error *err);

/* Returns the part with this key, for the caller to release, or NULL when the cache does not have it ready. Does not
 * wait. */
struct td_decoded_part *td_decode_cache_find(struct td_decode_cache *cache, const struct td_decode_key *key);

/* Returns whether the part with this key is known to be damaged. If so, sets *err to the error that says how. */
bool td_decode_cache_is_damaged(struct td_decode_cache *cache, const struct td_decode_key *key, struct td_error *err);

/* Returns whether anybody still waits for the part that a maker makes: the caller of td_decode_cache_get, unless
 * `cancel` is asked, or another thread. Only for makers. */
bool td_decode_cache_is_wanted(struct td_decode_cache *cache, const struct td_decoded_part *part,
                               const struct td_cancel *cancel);

/* Keeps data, len bytes from malloc, as the part with this key, unless the cache has that part or would have to drop
 * costly parts for it. Takes ownership of data in every case. */
void td_decode_cache_offer(struct td_decode_cache *cache, const struct td_decode_key *key, void *data, size_t len);

/* Ends the use of a part that td_decode_cache_get or td_decode_cache_find gave. */
void td_decode_cache_release(struct td_decode_cache *cache, struct td_decoded_part *part);

/* Figures for metrics. hits, misses and evictions count from the start of the cache. */
struct td_decode_counts {
    uint64_t used_bytes;
    uint64_t hits;      /* parts of tensors that were in the cache when they were needed */
    uint64_t misses;    /* parts whose making was begun */
    uint64_t evictions; /* parts that were dropped to make room */
};

/* Returns the figures of this moment. */
struct td_decode_counts td_decode_cache_counts(struct td_decode_cache *cache);

/* ---- for decoded blobs --------------------------------------------------------------------------------- */

/* A coding, and where its bytes come from. The decoded blob that it is a member of keeps everything alive. */
struct td_decoding {
    struct td_blob *source; /* the whole file */
    const struct td_coding *coding;
    struct td_decode_cache *cache;
    const struct td_cancel *cancel; /* of the request that reads; NULL: none */
    struct td_decode_key key;       /* `part` is not set */
};

/* Copies len stored bytes of the file, at the coding's base plus off, to out. Errors: TD_FAILED_PRECONDITION when the
 * bytes are outside the file, else as td_blob_read. */
bool td_decoding_stored(const struct td_decoding *d, uint64_t off, void *out, size_t len, struct td_error *err);

/* Gets a part from the cache: calls td_decode_cache_get with a copy of the job in which key and cancel are set. Damage
 * is reported as td_decoding_report does, so the cache keeps the damage of an unchanged file only. */
bool td_decoding_get(const struct td_decoding *d, uint64_t part, const struct td_decode_job *job,
                     struct td_decoded_part **out, struct td_error *err);

/* Copies *own to *err, but turns damage (TD_FAILED_PRECONDITION) into TD_UNAVAILABLE when the file has changed. Returns
 * false. */
bool td_decoding_report(const struct td_decoding *d, const struct td_error *own, struct td_error *err);

#endif
