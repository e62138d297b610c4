#include "server/net/uploads.h"

/* Units of a body of the longest length. Shares are counted in units, so that short bodies need no lock. */
enum { UNITS_OF_LONGEST = 128 };

/* Returns half of a number, at least 1. */
static size_t half_of(size_t number)
{
    return number < 2 ? 1 : number / 2;
}

bool td_uploads_init(struct td_uploads *uploads, uint64_t longest_bytes, size_t max_connections, struct td_error *err)
{
    uploads->longest_bytes = longest_bytes;
    atomic_init(&uploads->bytes, 0);
    uploads->max_sinks = half_of(max_connections);
    uploads->sinks = 0;
    if (!td_address_counts_init(&uploads->units, err))
        return false;
    if (!td_address_counts_init(&uploads->sinks_of, err)) {
        td_address_counts_fini(&uploads->units);
        return false;
    }
    pthread_mutex_init(&uploads->lock, NULL);
    return true;
}

void td_uploads_fini(struct td_uploads *uploads)
{
    td_address_counts_fini(&uploads->units);
    td_address_counts_fini(&uploads->sinks_of);
    pthread_mutex_destroy(&uploads->lock);
}

/* Counts units for the address until the body has `units`. Returns the units of all bodies of the address. When memory
 * is short, units are not counted; the limit of all bodies still applies. */
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

/* Adds bytes to the sum of all bodies. Returns false, and adds nothing, when the sum would exceed its limit. */
static bool add_to_all(struct td_uploads *uploads, uint64_t bytes)
{
    uint64_t most = uploads->longest_bytes * TD_UPLOADS_AT_ONCE;
    uint64_t all = atomic_load(&uploads->bytes);
    do {
        if (bytes > most - all)
            return false;
    } while (!atomic_compare_exchange_weak(&uploads->bytes, &all, all + bytes));
    return true;
}

enum td_upload_verdict td_uploads_add(struct td_uploads *uploads, const struct in6_addr *address,
                                      struct td_upload *upload, uint64_t bytes)
{
    uint64_t unit_bytes = uploads->longest_bytes / UNITS_OF_LONGEST + 1;
    uint32_t units = (uint32_t)((upload->bytes + bytes) / unit_bytes);
    enum td_upload_verdict verdict = TD_UPLOAD_FITS;
    if (bytes > uploads->longest_bytes - upload->bytes)
        verdict = TD_UPLOAD_TOO_LONG;
    else if (units > upload->units &&
             count_units(uploads, address, upload, units) > UNITS_OF_LONGEST * TD_UPLOADS_AT_ONCE / 2)
        verdict = TD_UPLOAD_NO_SHARE;
    else if (!add_to_all(uploads, bytes))
        verdict = TD_UPLOAD_NO_MEMORY;
    if (verdict == TD_UPLOAD_FITS)
        upload->bytes += bytes;
    else
        td_uploads_remove(uploads, address, upload);
    return verdict;
}

enum td_upload_verdict td_uploads_enter(struct td_uploads *uploads, const struct in6_addr *address)
{
    enum td_upload_verdict verdict = TD_UPLOAD_FITS;
    pthread_mutex_lock(&uploads->lock);
    if (td_address_counts_get(&uploads->sinks_of, address) >= half_of(uploads->max_sinks))
        verdict = TD_UPLOAD_NO_SHARE;
    else if (uploads->sinks >= uploads->max_sinks || !td_address_counts_add(&uploads->sinks_of, address))
        verdict = TD_UPLOAD_NO_MEMORY;
    else
        uploads->sinks++;
    pthread_mutex_unlock(&uploads->lock);
    return verdict;
}

void td_uploads_leave(struct td_uploads *uploads, const struct in6_addr *address)
{
    pthread_mutex_lock(&uploads->lock);
    td_address_counts_remove(&uploads->sinks_of, address);
    uploads->sinks--;
    pthread_mutex_unlock(&uploads->lock);
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

const char *td_upload_refusal_text(enum td_upload_verdict verdict)
{
    switch (verdict) {
    case TD_UPLOAD_TOO_LONG:
        return "the body is longer than --max-body-bytes";
    case TD_UPLOAD_NO_SHARE:
        return "the bodies of your address's other requests take half of the memory set aside for bodies, its share; "
               "try again";
    default:
        return "the bodies of other requests take all the memory set aside for bodies; try again";
    }
}

/* ---- the room for unpacked bodies ----------------------------------------------------------------------- */

static const struct td_upload_room *of(const struct td_body_room *room)
{
    return (const struct td_upload_room *)(const void *)room;
}

static bool take_room(const struct td_body_room *room, uint64_t bytes, struct td_error *err)
{
    const struct td_upload_room *self = of(room);
    enum td_upload_verdict verdict = td_uploads_add(self->uploads, self->address, self->unpacked, bytes);
    return verdict == TD_UPLOAD_FITS ||
           td_error_set(err, verdict == TD_UPLOAD_TOO_LONG ? TD_FAILED_PRECONDITION : TD_RESOURCE_EXHAUSTED, "%s",
                        td_upload_refusal_text(verdict));
}

static void give_room(const struct td_body_room *room)
{
    const struct td_upload_room *self = of(room);
    if (self->unpacked->bytes > 0) /* nearly no request: the shared counter is not touched */
        td_uploads_remove(self->uploads, self->address, self->unpacked);
}

void td_upload_room_init(struct td_upload_room *room, struct td_uploads *uploads, const struct in6_addr *address,
                         struct td_upload *unpacked)
{
    *room = (struct td_upload_room){
        .room = {.most_bytes = uploads->longest_bytes, .take = take_room, .give = give_room},
        .uploads = uploads,
        .address = address,
        .unpacked = unpacked,
    };
}
