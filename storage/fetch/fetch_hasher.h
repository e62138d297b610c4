/* Digests of a file that is still being written, by a thread of its own: it reads the file in order, from the page
 * cache mostly, as far as the file is complete from its beginning. So pieces may arrive in any order, and the part of a
 * file that an earlier process has fetched is read again. Thread-safe. */
#ifndef TD_STORAGE_FETCH_HASHER_H
#define TD_STORAGE_FETCH_HASHER_H

#include "core/cancel.h"
#include "core/digest.h"
#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { TD_FETCH_SHA1_BYTES = 20 };

struct td_fetch_sums {
    uint8_t sha256[TD_SHA256_BYTES];
    uint8_t git_sha1[TD_FETCH_SHA1_BYTES]; /* of "blob SIZE", a NUL and the content, as Git names it */
};

struct td_fetch_hasher;

/* Starts the thread, for the descriptor of a file (borrowed) that will have size_bytes. git_sha1: compute that one
 * too. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_fetch_hasher_start(int fd, uint64_t size_bytes, bool git_sha1, struct td_fetch_hasher **out,
                           struct td_error *err);

/* Tells the thread that all before `front` is in the file. */
void td_fetch_hasher_advance(struct td_fetch_hasher *hasher, uint64_t front);

/* Waits until all size_bytes are hashed and sets *sums. Errors: TD_IO; TD_CONFLICT when cancelled. */
bool td_fetch_hasher_wait(struct td_fetch_hasher *hasher, const struct td_cancel *cancel, struct td_fetch_sums *sums,
                          struct td_error *err);

/* Stops the thread and frees it. NULL is allowed. */
void td_fetch_hasher_stop(struct td_fetch_hasher *hasher);

#endif
