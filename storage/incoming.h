/* Incoming blobs: the bytes of a file that another thread is writing from its front, such as one that is being fetched
 * from another server. A read waits until its bytes are there. The last TD_INCOMING_HELD_BYTES can be read only after
 * the writer has finished, which it does when it has verified the whole file. So a reader that gets to the end of a
 * blob has read verified bytes, and a file that turns out to be wrong is never read to its end. An answer that has only
 * a part of the file holds its own end back in the same way (td_incoming_hold_end).
 *
 * One thread writes (attach, advance, finish, fail); any number of threads read at the same time. */
#ifndef TD_STORAGE_INCOMING_H
#define TD_STORAGE_INCOMING_H

#include "core/cancel.h"
#include "core/error.h"
#include "storage/body.h"

#include <stdbool.h>
#include <stdint.h>

enum { TD_INCOMING_HELD_BYTES = 1024 * 1024 };

/* The field by which a client says, with the value "sha256", that it checks the SHA-256 of whole files itself. Such a
 * client may have complete answers whose bytes are not checked yet, so that servers pass a file on as it arrives. */
#define TD_INCOMING_CHECKS "Tensord-Checks"

/* td_blob_prepare waits so long for the first byte of its range, and no longer than stall_ns, so that a writer that
 * fails soon becomes an error answer rather than an answer that is broken off. */
#define TD_INCOMING_PREPARE_NS UINT64_C(3000000000)

/* For a file with fewer bytes than this, td_blob_prepare waits for HEAD, too: the file may turn out to be a Git LFS
 * pointer, and the answer is then an error. */
enum { TD_INCOMING_SMALL_BYTES = 1024 };

/* Makes a blob of len_bytes bytes (0: of an empty file) with one reference for the caller. No byte has arrived yet.
 * has_sha256: readers learn the file's SHA-256 before the file has arrived. A read that waits fails when nothing has
 * arrived for stall_ns, although the writer has not failed. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_incoming_create(uint64_t len_bytes, bool has_sha256, uint64_t stall_ns, struct td_blob **out,
                        struct td_error *err);

/* Gives the blob the descriptor of the file that is being written, open for reading, before the first byte arrives. The
 * blob owns the descriptor from now on. At most once. */
void td_incoming_attach(struct td_blob *blob, int fd);

/* Says that the first `bytes` bytes are in the file. The number never goes back; a smaller one is ignored. */
void td_incoming_advance(struct td_blob *blob, uint64_t bytes);

/* Says that all bytes are in the file, and that they are right. Call td_incoming_attach before. */
void td_incoming_finish(struct td_blob *blob);

/* Fails the file, since it will never be finished or must not be read: waiting and later reads fail with this error,
 * also those of bytes that have arrived. Does nothing after td_incoming_finish. */
void td_incoming_fail(struct td_blob *blob, const struct td_error *why);

/* Returns how many bytes have arrived. Any thread. */
uint64_t td_incoming_arrived(struct td_blob *blob);

/* Returns whether a reader waits, or has waited since the last call, for bytes that have not arrived. Any thread. */
bool td_incoming_take_wanted(struct td_blob *blob);

/* Returns whether a reader was given bytes before the writer had finished. Any thread. */
bool td_incoming_has_given(struct td_blob *blob);

/* The worth of the bytes of an answer from incoming blobs. */
enum td_incoming_worth {
    TD_INCOMING_CHECKED,   /* no byte is of a blob whose writer has not finished */
    TD_INCOMING_CHECKABLE, /* some are, but readers know the SHA-256 of each such file */
    TD_INCOMING_UNCHECKED, /* some are, and nobody can check them before the writer has */
};

/* Returns the worst of a body's bytes at this moment. */
enum td_incoming_worth td_incoming_worth_of(const struct td_body *body);

/* Has the answer wait for the check before it ends: reads of the last TD_INCOMING_HELD_BYTES of the body, as far as
 * they are of incoming blobs, wait until the writer has finished. A shorter body waits as a whole. So does a body with
 * several parts of files, since a client may use each part by itself. All reads end as after td_incoming_end_with. On
 * failure the body is as it was. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_incoming_hold_end(struct td_body *body, const struct td_cancel *cancel, struct td_error *err);

/* Has the body's reads of incoming blobs wait no longer once `cancel` is asked, which they notice within 0.2 s: they
 * then fail with TD_UNAVAILABLE. cancel (NULL: none) must outlive the body's reads. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_incoming_end_with(struct td_body *body, const struct td_cancel *cancel, struct td_error *err);

/* Returns whether reading all of a body would wait at this moment, as far as one of the two functions above has made
 * its blobs. */
bool td_incoming_is_awaited(const struct td_body *body);

#endif
