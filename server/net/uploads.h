/* The memory that bodies of requests may take: all of them together, and those of one client address, which may take
 * half, so that one client does not keep the requests of all others out.
 *
 * Threads: calls may overlap, but for one upload. */
#ifndef TD_SERVER_NET_UPLOADS_H
#define TD_SERVER_NET_UPLOADS_H

#include "core/error.h"
#include "server/net/address_counts.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* All bodies may take this many times the longest one, and those of an address half of it. */
enum { TD_UPLOADS_AT_ONCE = 8 };

struct td_uploads {
    uint64_t longest_bytes;         /* of one body */
    _Atomic uint64_t bytes;         /* of all bodies; never more than they may have */
    pthread_mutex_t lock;           /* of `units` */
    struct td_address_counts units; /* of each address; bodies of less than a unit do not count */
};

/* One body, as far as it has arrived. All zero: nothing has. */
struct td_upload {
    uint64_t bytes;
    uint32_t units; /* counted for the address */
};

enum td_upload_verdict {
    TD_UPLOAD_FITS,
    TD_UPLOAD_NO_MEMORY, /* all bodies together would be too long */
    TD_UPLOAD_NO_SHARE,  /* those of the address would be */
};

/* Prepares the counts, for bodies of at most `longest_bytes`. Fails with TD_RESOURCE_EXHAUSTED when the kernel gives
 * no random bytes. */
bool td_uploads_init(struct td_uploads *uploads, uint64_t longest_bytes, struct td_error *err);

void td_uploads_fini(struct td_uploads *uploads);

/* Counts bytes of a body that have arrived from an address. With another verdict than TD_UPLOAD_FITS the whole body is
 * taken away, as by td_uploads_remove: the caller frees it, and counts no more of it. */
enum td_upload_verdict td_uploads_add(struct td_uploads *uploads, const struct in6_addr *address,
                                      struct td_upload *upload, uint64_t bytes);

/* Takes a body away, which then is as if nothing had arrived. */
void td_uploads_remove(struct td_uploads *uploads, const struct in6_addr *address, struct td_upload *upload);

#endif
