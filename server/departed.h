/* Complete answers that were sent by reference and may not have been read when their connections were closed. Each
 * keeps its blob, and so the file's lease, until there is proof that the client has read it. Threads: one at a time. */
#ifndef TD_SERVER_DEPARTED_H
#define TD_SERVER_DEPARTED_H

#include "server/delivery.h"
#include "storage/blob.h"

#include <stdatomic.h>

/* While there are so many, no further answer is to be sent by reference. */
enum { TD_DEPARTED = 1024 };

/* For so long an answer is kept of which the kernel does not show whether it was read (TD_DELIVERY_UNKNOWN), and one of
 * which the client acknowledges nothing. */
#define TD_DEPARTED_NS UINT64_C(60000000000)

/* Made with the first answer of a connection that goes by reference, so that its end needs no memory. */
struct td_departed {
    struct td_ends ends;
    struct td_blob *blob; /* one reference */
    int fd;               /* a duplicate of the connection's, while it is needed; -1: none */
    bool is_open;         /* this side was not shut down: the kernel then shows the client's queue as long as it is */
    uint64_t arrived_ns;  /* as td_delivery_is_proved sets it */
    uint64_t known_ns;    /* when something was last known of the answer: it goes on, or lies unread */
    uint64_t acknowledged_bytes;
    struct td_departed *next;
};

/* All zero at first. */
struct td_departed_list {
    struct td_departed *first;
    _Atomic size_t count;
};

/* Adds what the connection with this descriptor leaves, which is about to be closed. Takes *departed and the reference
 * on the blob over; ends and is_open are set. Returns false, with nothing added, when bytes are unacknowledged and no
 * descriptor is left to watch them. */
bool td_departed_add(struct td_departed_list *list, struct td_departed *departed, struct td_blob *blob, int fd);

/* Takes those answers out of the list that are proved to be read, or are too old; of this blob, or of all (NULL).
 * Returns them, for td_departed_free. */
struct td_departed *td_departed_take_read(struct td_departed_list *list, struct td_delivery *delivery,
                                          const struct td_blob *blob);

/* Takes those out of which bytes are unacknowledged, and resets their connections, so that the clients lack the end. As
 * td_departed_take_read. */
struct td_departed *td_departed_take_unacknowledged(struct td_departed_list *list, const struct td_blob *blob);

/* Returns the number of answers from this blob in the list. */
size_t td_departed_count(const struct td_departed_list *list, const struct td_blob *blob);

/* Drops the blobs of all that were taken out together, and frees them. Without a lock. NULL: none. */
void td_departed_free(struct td_departed *taken);

#endif
