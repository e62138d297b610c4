#include "server/uploads.h"

/* A body of the longest length has this many units: shares are counted that exactly, and short bodies without a lock.
 */
enum { UNITS_OF_LONGEST = 128 };

bool td_uploads_init(struct td_uploads *uploads, uint64_t longest_bytes, struct td_error *err)
{
    uploads->longest_bytes = longest_bytes;
    atomic_init(&uploads->bytes, 0);
    if (!td_address_counts_init(&uploads->units, err))
        return false;
    pthread_mutex_init(&uploads->lock, NULL);
    return true;
}

void td_uploads_fini(struct td_uploads *uploads)
{
    td_address_counts_fini(&uploads->units);
    pthread_mutex_destroy(&uploads->lock);
}

/* Counts units for the address until the body has `units`. Returns the units of all of the address's bodies. What
 * cannot be counted without memory is not: the sum of all bodies bounds it. */
static size_t count_units(struct td_uploads *uploads, const struct in6_addr *address, struct td_upload *upload,
                          uint32_t units)
{
    pthread_mutex_lock(&uploads->lock);
    while (upload->units < units && td_address_counts_add(&uploads->units, address))
        upload->units++;
    size_t all = td_address_counts_get(&uploads->units, address);
    pthread_mutex_unlock(&uploads->lock);
    return all;
}

enum td_upload_verdict td_uploads_add(struct td_uploads *uploads, const struct in6_addr *address,
                                      struct td_upload *upload, uint64_t bytes)
{
    uint64_t unit_bytes = uploads->longest_bytes / UNITS_OF_LONGEST + 1;
    upload->bytes += bytes;
    uint64_t all = atomic_fetch_add(&uploads->bytes, bytes) + bytes;
    uint32_t units = (uint32_t)(upload->bytes / unit_bytes);
    if (units > upload->units &&
        count_units(uploads, address, upload, units) > UNITS_OF_LONGEST * TD_UPLOADS_AT_ONCE / 2)
        return TD_UPLOAD_NO_SHARE;
    return all > uploads->longest_bytes * TD_UPLOADS_AT_ONCE ? TD_UPLOAD_NO_MEMORY : TD_UPLOAD_FITS;
}

void td_uploads_remove(struct td_uploads *uploads, const struct in6_addr *address, struct td_upload *upload)
{
    atomic_fetch_sub(&uploads->bytes, upload->bytes);
    if (upload->units > 0) {
        pthread_mutex_lock(&uploads->lock);
        for (; upload->units > 0; upload->units--)
            td_address_counts_remove(&uploads->units, address);
        pthread_mutex_unlock(&uploads->lock);
    }
    upload->bytes = 0;
}
