#define OPENSSL_API_COMPAT 0x10101000L /* as core/digest.c says */
#include "storage/fetch/fetch_hasher.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    READ_BYTES = 256 * 1024,  /* fits a processor's second cache */
    WAKE_BYTES = 1024 * 1024, /* for fewer, the thread is not woken before the end */
    NEAR_BYTES = (TD_FETCH_HELD_BLOCKS + 1) * TD_FETCH_BLOCK_BYTES, /* the waiting blocks, and the one being hashed */
};

struct td_fetch_hasher {
    int fd;
    uint64_t size_bytes;
    bool git_sha1;
    uint8_t *buffer;
    SHA256_CTX sha256; /* of the thread */
    SHA_CTX sha1;
    pthread_t thread;
    bool has_thread; /* it runs, or has ended and was not joined; of the caller's side */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t front, hashed; /* under the lock, as all below */
    /* Blocks that wait to be hashed, in the order of the file, the first one at queue[queue_at]; and empty ones. */
    struct td_fetch_block *queue[TD_FETCH_HELD_BLOCKS], *spare[TD_FETCH_HELD_BLOCKS];
    size_t queue_at, queue_count, spare_count;
    bool stop, is_done;
    struct td_error err;
};

/* ---- the thread ---------------------------------------------------------------------------------------- */

/* Returns whether there is so much to hash that the thread should begin. Under the lock. */
static bool is_enough(const struct td_fetch_hasher *hasher)
{
    return hasher->front - hasher->hashed >= WAKE_BYTES || hasher->front == hasher->size_bytes ||
           hasher->queue_count == TD_FETCH_HELD_BLOCKS;
}

/* Waits until there are bytes to hash after `done`. Sets *block to the block with them, which the caller then owns, or
 * to NULL and *end to the end of the bytes to read from the file. Returns false when the thread must end. */
static bool wait_for_bytes(struct td_fetch_hasher *hasher, uint64_t done, struct td_fetch_block **block, uint64_t *end)
{
    pthread_mutex_lock(&hasher->lock);
    hasher->hashed = done;
    while (!hasher->stop && !is_enough(hasher))
        (void)pthread_cond_wait(&hasher->changed, &hasher->lock);
    struct td_fetch_block *first = hasher->queue_count > 0 ? hasher->queue[hasher->queue_at] : NULL;
    bool goes_on = !hasher->stop && done < hasher->size_bytes;
    *block = goes_on && first != NULL && first->off == done ? first : NULL;
    *end = first != NULL ? first->off : hasher->front;
    if (*block != NULL) {
        hasher->queue_at = (hasher->queue_at + 1) % TD_FETCH_HELD_BLOCKS;
        if (hasher->queue_count-- == TD_FETCH_HELD_BLOCKS)
            (void)pthread_cond_broadcast(&hasher->changed); /* the queue has room again */
    }
    pthread_mutex_unlock(&hasher->lock);
    return goes_on;
}

/* Keeps an empty block for the next request for one, or frees it. */
static void put_spare(struct td_fetch_hasher *hasher, struct td_fetch_block *block)
{
    pthread_mutex_lock(&hasher->lock);
    bool is_kept = hasher->spare_count < TD_FETCH_HELD_BLOCKS;
    if (is_kept)
        hasher->spare[hasher->spare_count++] = block;
    pthread_mutex_unlock(&hasher->lock);
    if (!is_kept)
        free(block);
}

static void hash_bytes(struct td_fetch_hasher *hasher, const uint8_t *bytes, size_t len)
{
    (void)SHA256_Update(&hasher->sha256, bytes, len);
    if (hasher->git_sha1)
        (void)SHA1_Update(&hasher->sha1, bytes, len);
}

/* Hashes up to READ_BYTES at `done` and adds their number to it. */
static bool hash_some(struct td_fetch_hasher *hasher, uint64_t *done, uint64_t end, struct td_error *err)
{
    size_t len = end - *done < READ_BYTES ? (size_t)(end - *done) : READ_BYTES;
    ssize_t n = pread(hasher->fd, hasher->buffer, len, (off_t)*done);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0)
        return td_error_sys(err, TD_IO, errno, "cannot read back what was written");
    if (n == 0)
        return td_error_set(err, TD_IO, "another program has cut the file while it was fetched");
    hash_bytes(hasher, hasher->buffer, (size_t)n);
    *done += (uint64_t)n;
    return true;
}

static void *hasher_main(void *argument)
{
    struct td_fetch_hasher *hasher = argument;
    struct td_error err = TD_ERROR_INIT;
    struct td_fetch_block *block;
    pthread_mutex_lock(&hasher->lock);
    uint64_t done = hasher->hashed;
    pthread_mutex_unlock(&hasher->lock);
    uint64_t end;
    while (err.code == TD_OK && wait_for_bytes(hasher, done, &block, &end)) {
        if (block == NULL) {
            (void)hash_some(hasher, &done, end, &err);
            continue;
        }
        hash_bytes(hasher, block->bytes, block->len);
        done += block->len;
        block->len = 0;
        put_spare(hasher, block);
    }
    pthread_mutex_lock(&hasher->lock);
    hasher->hashed = done;
    hasher->err = err;
    hasher->is_done = true;
    (void)pthread_cond_broadcast(&hasher->changed);
    pthread_mutex_unlock(&hasher->lock);
    return NULL;
}

/* ---- the caller's side --------------------------------------------------------------------------------- */

size_t td_fetch_block_add(struct td_fetch_block *block, const void *bytes, size_t len)
{
    return td_array_fill(block->bytes, sizeof block->bytes, &block->len, bytes, len);
}

bool td_fetch_sums_fit(const struct td_fetch_sums *sums, const struct td_fetch_expected *expected)
{
    return (!expected->has_sha256 || memcmp(expected->sha256, sums->sha256, TD_SHA256_BYTES) == 0) &&
           (!expected->has_git_sha1 ||
            (sums->has_git_sha1 && memcmp(expected->git_sha1, sums->git_sha1, TD_FETCH_SHA1_BYTES) == 0));
}

/* Creates the lock and the condition. Returns false, with nothing to undo, when the system refuses. */
static bool init_lock(struct td_fetch_hasher *hasher)
{
    if (pthread_mutex_init(&hasher->lock, NULL) != 0)
        return false;
    if (td_clock_condition_init(&hasher->changed))
        return true;
    (void)pthread_mutex_destroy(&hasher->lock);
    return false;
}

/* Sets the digests to those of no bytes. */
static void begin_sums(struct td_fetch_hasher *hasher)
{
    char prefix[32];
    int prefix_len = snprintf(prefix, sizeof prefix, "blob %" PRIu64, hasher->size_bytes);
    (void)SHA256_Init(&hasher->sha256);
    (void)SHA1_Init(&hasher->sha1);
    (void)SHA1_Update(&hasher->sha1, prefix, (size_t)prefix_len + 1);
}

static bool start_thread(struct td_fetch_hasher *hasher, struct td_error *err)
{
    if (hasher->buffer == NULL && (hasher->buffer = malloc(READ_BYTES)) == NULL)
        return td_error_no_memory(err);
    int sys = td_small_thread_start(hasher_main, hasher, &hasher->thread);
    hasher->has_thread = sys == 0;
    return sys == 0 || td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start a thread that hashes");
}

bool td_fetch_hasher_start(int fd, uint64_t size_bytes, bool git_sha1, struct td_fetch_hasher **out,
                           struct td_error *err)
{
    struct td_fetch_hasher *hasher = calloc(1, sizeof *hasher);
    if (hasher == NULL || !init_lock(hasher)) {
        free(hasher);
        return td_error_no_memory(err);
    }
    hasher->fd = fd;
    hasher->size_bytes = size_bytes;
    hasher->git_sha1 = git_sha1;
    td_error_init(&hasher->err);
    begin_sums(hasher);
    if (start_thread(hasher, err)) {
        *out = hasher;
        return true;
    }
    td_fetch_hasher_stop(hasher);
    return false;
}

struct td_fetch_block *td_fetch_hasher_block(struct td_fetch_hasher *hasher)
{
    struct td_fetch_block *block = NULL;
    pthread_mutex_lock(&hasher->lock);
    if (hasher->spare_count > 0)
        block = hasher->spare[--hasher->spare_count];
    pthread_mutex_unlock(&hasher->lock);
    if (block == NULL && (block = malloc(sizeof *block)) != NULL)
        block->len = 0;
    return block;
}

/* Moves the front, and wakes the thread when there is enough to do. The lock is held. */
static void advance_front(struct td_fetch_hasher *hasher, uint64_t front)
{
    if (front > hasher->front)
        hasher->front = front;
    if (is_enough(hasher))
        (void)pthread_cond_broadcast(&hasher->changed);
}

void td_fetch_hasher_advance(struct td_fetch_hasher *hasher, uint64_t front)
{
    pthread_mutex_lock(&hasher->lock);
    advance_front(hasher, front);
    pthread_mutex_unlock(&hasher->lock);
}

void td_fetch_hasher_set_size(struct td_fetch_hasher *hasher, uint64_t size_bytes)
{
    pthread_mutex_lock(&hasher->lock);
    hasher->size_bytes = size_bytes;
    advance_front(hasher, size_bytes);
    pthread_mutex_unlock(&hasher->lock);
}

/* Returns whether the queue will soon have room for a block at the front: the thread is at the waiting blocks, or just
 * before them, and not still at bytes that an earlier process has fetched. Under the lock. */
static bool has_room_soon(const struct td_fetch_hasher *hasher)
{
    return !hasher->is_done && hasher->front - hasher->hashed <= NEAR_BYTES;
}

bool td_fetch_hasher_give(struct td_fetch_hasher *hasher, struct td_fetch_block *block)
{
    pthread_mutex_lock(&hasher->lock);
    bool is_next = block->off == hasher->front;
    while (is_next && hasher->queue_count == TD_FETCH_HELD_BLOCKS && has_room_soon(hasher))
        (void)pthread_cond_wait(&hasher->changed, &hasher->lock);
    bool is_taken = is_next && hasher->queue_count < TD_FETCH_HELD_BLOCKS;
    if (is_taken) {
        hasher->queue[(hasher->queue_at + hasher->queue_count++) % TD_FETCH_HELD_BLOCKS] = block;
        advance_front(hasher, block->off + block->len);
    }
    pthread_mutex_unlock(&hasher->lock);
    return is_taken;
}

bool td_fetch_hasher_wait(struct td_fetch_hasher *hasher, const struct td_cancel *cancel, struct td_fetch_sums *sums,
                          struct td_error *err)
{
    bool is_cancelled = false;
    pthread_mutex_lock(&hasher->lock);
    while (!hasher->is_done && !is_cancelled) {
        struct timespec until = td_clock_timespec(td_clock_part_ns(UINT64_MAX));
        (void)pthread_cond_timedwait(&hasher->changed, &hasher->lock, &until);
        is_cancelled = !hasher->is_done && td_cancel_is_asked(cancel);
    }
    bool is_whole = hasher->is_done && hasher->hashed == hasher->size_bytes;
    if (!is_whole)
        (void)td_error_copy(err, &hasher->err);
    pthread_mutex_unlock(&hasher->lock);
    if (!is_whole)
        return td_error_set(err, TD_CONFLICT, "stopped while the digest was computed");
    (void)SHA256_Final(sums->sha256, &hasher->sha256); /* the thread has ended its work */
    (void)SHA1_Final(sums->git_sha1, &hasher->sha1);
    sums->has_git_sha1 = hasher->git_sha1;
    return true;
}

void td_fetch_hasher_rest(struct td_fetch_hasher *hasher)
{
    if (hasher->has_thread) {
        pthread_mutex_lock(&hasher->lock);
        hasher->stop = true;
        (void)pthread_cond_broadcast(&hasher->changed);
        pthread_mutex_unlock(&hasher->lock);
        (void)pthread_join(hasher->thread, NULL);
        hasher->has_thread = false;
    }
    pthread_mutex_lock(&hasher->lock);
    for (; hasher->queue_count > 0; hasher->queue_count--) {
        free(hasher->queue[hasher->queue_at]);
        hasher->queue_at = (hasher->queue_at + 1) % TD_FETCH_HELD_BLOCKS;
    }
    while (hasher->spare_count > 0)
        free(hasher->spare[--hasher->spare_count]);
    pthread_mutex_unlock(&hasher->lock);
    free(hasher->buffer);
    hasher->buffer = NULL;
}

bool td_fetch_hasher_wake(struct td_fetch_hasher *hasher, struct td_error *err)
{
    pthread_mutex_lock(&hasher->lock);
    bool has_failed = hasher->is_done && hasher->err.code != TD_OK;
    bool has_all = hasher->is_done && !has_failed && hasher->hashed == hasher->size_bytes;
    pthread_mutex_unlock(&hasher->lock);
    if (has_all || (hasher->has_thread && !has_failed))
        return true;
    td_fetch_hasher_rest(hasher);
    if (has_failed)
        begin_sums(hasher);
    pthread_mutex_lock(&hasher->lock);
    hasher->stop = hasher->is_done = false;
    hasher->hashed = has_failed ? 0 : hasher->hashed;
    td_error_init(&hasher->err);
    pthread_mutex_unlock(&hasher->lock);
    if (start_thread(hasher, err))
        return true;
    pthread_mutex_lock(&hasher->lock);
    hasher->stop = hasher->is_done = true; /* nobody waits for it */
    pthread_mutex_unlock(&hasher->lock);
    return false;
}

void td_fetch_hasher_stop(struct td_fetch_hasher *hasher)
{
    if (hasher == NULL)
        return;
    td_fetch_hasher_rest(hasher);
    (void)pthread_cond_destroy(&hasher->changed);
    (void)pthread_mutex_destroy(&hasher->lock);
    free(hasher);
}
