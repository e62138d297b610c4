/* Leases of blobs. A client that reads that a blob is here does not send it, and commits it later, so the blob must
 * stay until then, however long ago it arrived. The leases are in memory, so an end of the server ends them: the commit
 * then says that the blob is missing, and the client sends it. Thread-safe, except init and fini; nothing waits. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_LEASES_H
#define TD_CATALOG_PUBLISH_PUBLISH_LEASES_H

#include "core/digest.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_PUBLISH_LEASES_MOST = 1 << 20 /* leases of single blobs; each takes 16 to 64 bytes */ };

struct td_publish_lease {
    uint64_t key;      /* a hash of the repository's folder and the blob's digest; 0: a free slot */
    int64_t renewed_s; /* since 1970 */
};

struct td_publish_leases {
    pthread_mutex_t lock;
    struct td_publish_lease *slots; /* a hash table */
    size_t count, slot_count;       /* slot_count is a power of two, or 0 */
    int64_t all_s;                  /* all blobs have a lease of this time: there was no room for that of one */
    uint64_t going;                 /* the key of the blob that is being removed; 0: none */
};

void td_publish_leases_init(struct td_publish_leases *leases);
void td_publish_leases_fini(struct td_publish_leases *leases);

/* Gives a blob of the repository's folder a lease that begins now, or renews it. Without room for it, all blobs get
 * one. Returns false when the blob is being removed. */
bool td_publish_lease(struct td_publish_leases *leases, const char *folder, const uint8_t sha256[TD_SHA256_BYTES]);

/* Returns the time (since 1970) at which the blob's lease was renewed last; INT64_MIN: it has none. */
int64_t td_publish_lease_renewed_s(struct td_publish_leases *leases, const char *folder,
                                   const uint8_t sha256[TD_SHA256_BYTES]);

/* Begins the removal of a blob: until td_publish_lease_end, td_publish_lease returns false for it. Returns false, and
 * begins nothing, when the blob has a lease that was renewed at since_s or later; then sets *renewed_s. One thread at a
 * time. */
bool td_publish_lease_begin_end(struct td_publish_leases *leases, const char *folder,
                                const uint8_t sha256[TD_SHA256_BYTES], int64_t since_s, int64_t *renewed_s);
void td_publish_lease_end(struct td_publish_leases *leases);

/* Forgets leases that were not renewed since then. */
void td_publish_leases_expire(struct td_publish_leases *leases, int64_t since_s);

#endif
