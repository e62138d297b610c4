/* Computes the digests of a file that is still being written, on a thread of its own, in order, up to the first missing
 * byte. Bytes that arrive in order are hashed from the memory from which they were written (a block); others are read
 * from the file, mostly from the page cache. So pieces may arrive in any order, and bytes that an earlier process has
 * fetched are read back. Thread-safe. */
#ifndef TD_STORAGE_FETCH_FETCH_HASHER_H
#define TD_STORAGE_FETCH_FETCH_HASHER_H

#include "core/cancel.h"
#include "core/digest.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_FETCH_SHA1_BYTES = 20,
    TD_FETCH_BLOCK_BYTES = 512 * 1024, /* of one block; fits a processor's second cache */
    TD_FETCH_HELD_BLOCKS = 8,          /* bound on blocks that wait to be hashed */
    /* The longest file without a digest whose Git object id is computed, if it is wanted. A Hub has the ids of files of
       up to 10 MB. */
    TD_FETCH_GIT_BYTES = 16 * 1024 * 1024,
};

/* The length and digests that the file must have. */
struct td_fetch_expected {
    uint64_t size_bytes;
    bool has_sha256, has_git_sha1; /* which digests are known */
    uint8_t sha256[TD_SHA256_BYTES];
    uint8_t git_sha1[TD_FETCH_SHA1_BYTES];
};

struct td_fetch_sums {
    uint8_t sha256[TD_SHA256_BYTES];
    bool has_git_sha1;                     /* it was computed */
    uint8_t git_sha1[TD_FETCH_SHA1_BYTES]; /* of "blob SIZE", a NUL and the content, as Git names it */
};

/* Bytes of the file in memory. */
struct td_fetch_block {
    uint64_t off;      /* in the file */
    size_t len;        /* 0: empty */
    uint64_t since_ns; /* when the first byte came; used by the thread that fills the block */
    uint8_t bytes[TD_FETCH_BLOCK_BYTES];
};

/* Copies as many of the bytes into the block as fit, and returns their number. */
size_t td_fetch_block_add(struct td_fetch_block *block, const void *bytes, size_t len);

/* Returns whether the sums match the expected digests; true when no digest is expected. */
bool td_fetch_sums_fit(const struct td_fetch_sums *sums, const struct td_fetch_expected *expected);

struct td_fetch_hasher;

/* The size of a file that is not known yet: td_fetch_hasher_set_size follows. Without git_sha1, which needs it. */
#define TD_FETCH_SIZE_UNKNOWN UINT64_MAX

/* Starts the thread, for the descriptor of a file (borrowed) that will have size_bytes. git_sha1: computes the Git
 * object id too. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_fetch_hasher_start(int fd, uint64_t size_bytes, bool git_sha1, struct td_fetch_hasher **out,
                           struct td_error *err);

/* Returns an empty block, owned by the caller until td_fetch_hasher_give takes it; NULL when out of memory. */
struct td_fetch_block *td_fetch_hasher_block(struct td_fetch_hasher *hasher);

/* Sets the size of a file that was started with TD_FETCH_SIZE_UNKNOWN, once all its bytes are in the file. */
void td_fetch_hasher_set_size(struct td_fetch_hasher *hasher, uint64_t size_bytes);

/* Informs the thread that all bytes before `front` are in the file. A smaller `front` than before is ignored. */
void td_fetch_hasher_advance(struct td_fetch_hasher *hasher, uint64_t front);

/* Passes a block that is in the file to the thread, and so moves the front to the block's end. When
 * TD_FETCH_HELD_BLOCKS wait and the thread works on the first of them, waits until it has hashed one, which takes less
 * time than reading the block back. Returns false when the caller keeps the block, and the front stays: the block does
 * not begin at the front, or too many wait and the thread is far behind. */
bool td_fetch_hasher_give(struct td_fetch_hasher *hasher, struct td_fetch_block *block);

/* Waits until all size_bytes are hashed and sets *sums. Errors: TD_IO; TD_CONFLICT when cancelled. */
bool td_fetch_hasher_wait(struct td_fetch_hasher *hasher, const struct td_cancel *cancel, struct td_fetch_sums *sums,
                          struct td_error *err);

/* Stops the thread and frees its memory. The bytes that were hashed need not be hashed again: td_fetch_hasher_wake
 * continues after them. Until then blocks and the front are taken as before. */
void td_fetch_hasher_rest(struct td_fetch_hasher *hasher);

/* Starts the thread again after td_fetch_hasher_rest; after a failure of its own, from the beginning of the file. Does
 * nothing while it works, and after its end. Not at the same time as td_fetch_hasher_rest and td_fetch_hasher_wait.
 * Errors: TD_RESOURCE_EXHAUSTED. */
bool td_fetch_hasher_wake(struct td_fetch_hasher *hasher, struct td_error *err);

/* Stops the thread and frees the hasher with the blocks that were passed to it. NULL is allowed. */
void td_fetch_hasher_stop(struct td_fetch_hasher *hasher);

#endif
