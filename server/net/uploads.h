/* Limits the memory of request bodies: of all bodies together, and of each client address to half of that, so that one
 * client cannot block the requests of all others. Limits the number of uploads, whose bodies take no memory, in the
 * same way, so that uploads cannot take all connections.
 *
 * Threads: calls may overlap, but for one upload. */
#ifndef TD_SERVER_NET_UPLOADS_H
#define TD_SERVER_NET_UPLOADS_H

#include "core/error.h"
#include "http/body_room.h"
#include "server/net/address_counts.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The limit of all bodies is this many times the longest one; the limit of an address is half of that. */
enum { TD_UPLOADS_AT_ONCE = 8 };

struct td_uploads {
    uint64_t longest_bytes;            /* of one body */
    _Atomic uint64_t bytes;            /* of all bodies; never above their limit */
    pthread_mutex_t lock;              /* of `units` */
    struct td_address_counts units;    /* of each address; bodies of less than a unit do not count */
    size_t max_sinks, sinks;           /* uploads at once; `sinks` and `sinks_of` are under the lock, too */
    struct td_address_counts sinks_of; /* uploads of each address */
};

/* The bytes of one body that have arrived. All zero: none. */
struct td_upload {
    uint64_t bytes;
    uint32_t units; /* counted for the address */
};

/* The room for what a handler unpacks of the request's body, as bytes of a further body of the same address. */
struct td_upload_room {
    struct td_body_room room; /* first: handlers get a pointer to it */
    struct td_uploads *uploads;
    const struct in6_addr *address;
    struct td_upload *unpacked;
};

enum td_upload_verdict {
    TD_UPLOAD_FITS,
    TD_UPLOAD_NO_MEMORY, /* all bodies together would be too long, or all uploads too many */
    TD_UPLOAD_NO_SHARE,  /* the same for those of the address */
    TD_UPLOAD_TOO_LONG,  /* the body is longer than the longest one */
};

/* Prepares the counts, for bodies of at most `longest_bytes`, and for uploads on half of `max_connections`. Fails with
 * TD_RESOURCE_EXHAUSTED when the kernel gives no random bytes. */
bool td_uploads_init(struct td_uploads *uploads, uint64_t longest_bytes, size_t max_connections, struct td_error *err);

void td_uploads_fini(struct td_uploads *uploads);

/* Counts bytes of a body that have arrived from an address. With another verdict than TD_UPLOAD_FITS the whole body is
 * subtracted, as by td_uploads_remove: the caller frees it, and counts no more of it. */
enum td_upload_verdict td_uploads_add(struct td_uploads *uploads, const struct in6_addr *address,
                                      struct td_upload *upload, uint64_t bytes);

/* Prepares the room, without a byte taken. It borrows all arguments. *unpacked must be all zero. */
void td_upload_room_init(struct td_upload_room *room, struct td_uploads *uploads, const struct in6_addr *address,
                         struct td_upload *unpacked);

/* Counts one more upload of the address. With another verdict than TD_UPLOAD_FITS, which is also the result when memory
 * is short, nothing is counted. */
enum td_upload_verdict td_uploads_enter(struct td_uploads *uploads, const struct in6_addr *address);

/* Counts one upload less. */
void td_uploads_leave(struct td_uploads *uploads, const struct in6_addr *address);

/* Returns the sentence for the client whose body has another verdict than TD_UPLOAD_FITS, which is answered 413 when it
 * is too long and else 503. Static. */
const char *td_upload_refusal_text(enum td_upload_verdict verdict);

/* Subtracts a body; *upload is then as before its first byte. */
void td_uploads_remove(struct td_uploads *uploads, const struct in6_addr *address, struct td_upload *upload);

#endif
