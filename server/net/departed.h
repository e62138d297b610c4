/* Complete answers by reference that may not have been read when their connections were closed. Each keeps its blob,
 * and so the file's lease, until the client is proved to have read it. Threads: one at a time. */
#ifndef TD_SERVER_NET_DEPARTED_H
#define TD_SERVER_NET_DEPARTED_H

#include "server/net/delivery.h"
#include "storage/blob.h"

#include <stdatomic.h>

/* With this many in the list, no further answer is sent by reference. */
enum { TD_DEPARTED = 1024 };

/* How long an answer is kept if the kernel does not show whether it was read (TD_DELIVERY_UNKNOWN), or if the client
 * acknowledges nothing. */
#define TD_DEPARTED_NS UINT64_C(60000000000)

/* Allocated before the first answer by reference of a connection, so that closing the connection needs no memory. */
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

/* All zero at first. */
struct td_departed_list {
    struct td_departed *first;
    _Atomic size_t count;
};

/* Adds the answer of a connection that is about to be closed. `fd` is its descriptor; the caller has set ends and
 * is_open. Takes over *departed and the reference on the blob. Returns false, with nothing added, when bytes are
 * unacknowledged and the process has no free descriptor to watch the connection. */
bool td_departed_add(struct td_departed_list *list, struct td_departed *departed, struct td_blob *blob, int fd);

/* Removes the answers from this blob (NULL: from any) that are proved to be read or are too old. Returns them, for
 * td_departed_free. */
struct td_departed *td_departed_take_read(struct td_departed_list *list, struct td_delivery *delivery,
                                          const struct td_blob *blob);

/* Removes the answers from this blob (NULL: from any) that have unacknowledged bytes, and resets their connections, so
 * that the clients do not get the end. Returns them, for td_departed_free. */
struct td_departed *td_departed_take_unacknowledged(struct td_departed_list *list, const struct td_blob *blob);

/* Returns the number of answers from this blob in the list. */
size_t td_departed_count(const struct td_departed_list *list, const struct td_blob *blob);

/* Drops the blobs of removed answers and frees the answers. Call it without a lock. NULL is allowed. */
void td_departed_free(struct td_departed *taken);

#endif
