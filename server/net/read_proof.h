/* The proof that a client has read an answer that was sent by reference. Such an answer is in the kernel's queues as
 * pages of the file, also in the queue of a receiver on this host. Its blob, and so the file's lease, is kept until the
 * client is proved to have read it: in the connection's proof and, after the connection has been closed, in a list that
 * all connections share (departed answers).
 *
 * Threads: a connection's proof belongs to its connection's thread. The functions that say so may run on any thread; of
 * these, and of td_read_proof_depart and those of the list, one at a time runs over all connections (under the lock of
 * server/net/connection). `fd` is the connection's socket. */
#ifndef TD_SERVER_NET_READ_PROOF_H
#define TD_SERVER_NET_READ_PROOF_H

#include "server/net/delivery.h"
#include "server/net/sent_body.h"
#include "storage/blob.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* With this many departed answers, no further answer is sent by reference. */
enum { TD_DEPARTED = 1024 };

/* How long a departed answer is kept if the kernel does not show whether it was read (TD_DELIVERY_UNKNOWN), or if the
 * client acknowledges nothing. */
#define TD_DEPARTED_NS UINT64_C(60000000000)

/* A complete answer by reference that may not have been read when its connection was closed. Allocated before the first
 * answer by reference of a connection, so that closing the connection needs no memory. */
struct td_departed {
    struct td_ends ends;
    struct td_blob *blob; /* one reference */
    int fd;               /* a duplicate of the connection's, while it is needed; -1: none */
    bool is_open;         /* this side was not shut down, so that the kernel still shows the client's queue */
    uint64_t arrived_ns;  /* as td_delivery_is_proved sets it */
    uint64_t known_ns;    /* when the answer was last seen to make progress or to be unread */
    uint64_t acknowledged_bytes;
    struct td_departed *next;
};

/* Which clients get answers by reference (--sendfile): all; those on other hosts, and those on this host only from
 * files that can never change; none. */
enum td_referring { TD_REFERRING_ALL, TD_REFERRING_REMOTE, TD_REFERRING_NONE };

/* The state that the proofs of all connections share. */
struct td_read_proofs {
    struct td_delivery delivery;
    struct td_departed *departed;  /* a list */
    _Atomic size_t departed_count; /* its length; may be read without the lock */
    enum td_referring referring;
};

struct td_read_proof {
    struct td_read_proofs *shared;
    /* an answer that is being sent by reference; used by the connection's thread alone */
    struct td_blob *referenced; /* one reference; NULL: none */
    bool is_held;               /* the end of the answer is held back */
    bool proves_nothing;        /* the next request does not prove that this answer was read */
    uint64_t received_bytes;    /* of all requests up to this one */
    /* a complete answer that was sent by reference and may not have been read */
    _Atomic(struct td_blob *) unread; /* one reference, owned by the thread that exchanges the pointer; NULL: none */
    _Atomic uint64_t arrived_ns;      /* when all of it was first seen to be acknowledged; 0: not yet */
    struct td_departed *departed; /* owned; allocated before the first answer by reference, with the ends; NULL: none */
    struct td_sent_shutdown end;  /* registered with td_sent_watch from then on */
    _Atomic bool is_shut_down;    /* by this side */
    _Atomic bool is_reset_at_close; /* the kernel then discards what is not acknowledged */
};

/* Errors: TD_INTERNAL. */
bool td_read_proofs_init(struct td_read_proofs *proofs, enum td_referring referring, struct td_error *err);

/* Resets the closed connections whose answers are not acknowledged, and drops all blobs. */
void td_read_proofs_fini(struct td_read_proofs *proofs);

/* Removes the departed answers from this blob (NULL: from any) that are proved to be read or are too old. Returns them,
 * for td_departed_free. */
struct td_departed *td_read_proofs_take_read(struct td_read_proofs *proofs, const struct td_blob *blob);

/* Removes the departed answers from this blob (NULL: from any) that have unacknowledged bytes, and resets their
 * connections, so that the clients do not get the end. Returns them, for td_departed_free. */
struct td_departed *td_read_proofs_take_unacknowledged(struct td_read_proofs *proofs, const struct td_blob *blob);

/* Returns the number of departed answers from this blob (NULL: from any). */
size_t td_read_proofs_count(const struct td_read_proofs *proofs, const struct td_blob *blob);

/* Drops the blobs of removed answers and frees the answers. Call it without a lock. NULL is allowed. */
void td_departed_free(struct td_departed *taken);

/* Begins without an answer. `shared` is borrowed. */
void td_read_proof_init(struct td_read_proof *proof, struct td_read_proofs *shared);

/* Frees the proof, after td_read_proof_depart. */
void td_read_proof_fini(struct td_read_proof *proof);

/* Returns whether an answer may be sent by reference from the blob: --sendfile allows it, and either the file can never
 * change, or there will be proof of when the client has read the answer. There will be no proof:
 * - if the client is on this host and its socket is not found;
 * - while an earlier answer of another blob is unproved, since a connection keeps only one;
 * - after the client has shut down its sending side;
 * - while too many closed connections have unproved answers (TD_DEPARTED). */
bool td_read_proof_may_refer(struct td_read_proof *proof, int fd, const struct td_blob *blob);

/* Sets the number of bytes of all requests up to the one that is being answered. */
void td_read_proof_expect(struct td_read_proof *proof, uint64_t received_bytes);

/* Begins an answer by reference: takes a reference on the blob, unless its file can never change. holds_end: holds the
 * end of the answer back until td_read_proof_end, and its header until bytes of its body follow. Otherwise the caller
 * calls td_read_proof_look before it sends the last bytes. */
void td_read_proof_begin(struct td_read_proof *proof, int fd, struct td_blob *blob, bool holds_end);

/* Begins an answer that is not sent by reference. While an earlier one is without proof, this answer is watched as if
 * sent by reference, so that the next request can be the proof. */
void td_read_proof_hold(struct td_read_proof *proof, int fd);

/* Checks whether the next request has come already, before the client has the end of the answer. */
void td_read_proof_look(struct td_read_proof *proof, int fd);

/* Ends the answer. is_complete: all of it was handed to the kernel; the blob is then kept until td_read_proof_confirm,
 * or until td_read_proof_settle finds that the client has read it. Otherwise the client knows that it lacks bytes.
 * Returns whether the answer had a reference. *dropped is one that the caller drops; NULL: none. */
bool td_read_proof_end(struct td_read_proof *proof, int fd, bool is_complete, struct td_blob **dropped);

/* Called when a request begins: a client that sends one has read all earlier answers, unless the request came before
 * the end of the last answer was released (the client pipelines), or the client has closed its sending side. */
void td_read_proof_confirm(struct td_read_proof *proof);

/* Returns whether the connection has sent a complete answer from the blob that may be unread. Any thread. */
bool td_read_proof_has_unread(const struct td_read_proof *proof, const struct td_blob *blob);

/* Hands over the reference on the blob if there is proof that its answer was read. Returns whether it did; the caller
 * then drops the reference. Any thread. */
bool td_read_proof_settle(struct td_read_proof *proof, int fd, struct td_blob *blob);

/* Makes the closing of the connection a reset for the client. Any thread. */
void td_read_proof_reset(struct td_read_proof *proof, int fd);

/* Looks for proof before the socket is closed, when the connection has no thread any more. */
void td_read_proof_close(struct td_read_proof *proof, int fd);

/* Moves an unread answer to the shared list. Returns a reference that the caller drops without a lock; NULL: none. Call
 * it after td_read_proof_close. */
struct td_blob *td_read_proof_depart(struct td_read_proof *proof, int fd);

#endif
