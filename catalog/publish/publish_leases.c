#include "catalog/publish/publish_leases.h"

#include "core/clock.h"
#include "core/mix64.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_SLOTS = 64 };

void td_publish_leases_init(struct td_publish_leases *leases)
{
    *leases = (struct td_publish_leases){.all_s = INT64_MIN};
    (void)pthread_mutex_init(&leases->lock, NULL); /* cannot fail without attributes (glibc) */
}

void td_publish_leases_fini(struct td_publish_leases *leases)
{
    (void)pthread_mutex_destroy(&leases->lock);
    free(leases->slots);
}

/* Two blobs with the same key, if that ever happens, have one lease: the blob that needs it stays, and so does the
 * other one. */
static uint64_t key_of(const char *folder, const uint8_t sha256[TD_SHA256_BYTES])
{
    uint64_t key;
    memcpy(&key, sha256, sizeof key);
    for (const char *c = folder; *c != '\0'; c++)
        key = td_mix64(key ^ (unsigned char)*c) + 1;
    return key == 0 ? 1 : key;
}

/* Returns the slot that has the key, or the free one for it. The table has a free slot. */
static struct td_publish_lease *find_slot(struct td_publish_lease *slots, size_t slot_count, uint64_t key)
{
    size_t at = (size_t)key & (slot_count - 1);
    while (slots[at].key != 0 && slots[at].key != key)
        at = (at + 1) & (slot_count - 1);
    return &slots[at];
}

/* Moves the leases that were renewed at since_s or later into a table of so many slots. Returns false, and changes
 * nothing, when memory is short. */
static bool rebuild(struct td_publish_leases *leases, size_t slot_count, int64_t since_s)
{
    struct td_publish_lease *slots = calloc(slot_count, sizeof *slots);
    size_t count = 0;
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < leases->slot_count; i++) {
        const struct td_publish_lease *lease = &leases->slots[i];
        if (lease->key == 0 || lease->renewed_s < since_s)
            continue;
        *find_slot(slots, slot_count, lease->key) = *lease;
        count++;
    }
    free(leases->slots);
    leases->slots = slots;
    leases->slot_count = slot_count;
    leases->count = count;
    return true;
}

/* Makes room for one more lease. */
static bool make_room(struct td_publish_leases *leases)
{
    if (leases->count >= TD_PUBLISH_LEASES_MOST)
        return false;
    return 2 * leases->count < leases->slot_count ||
           rebuild(leases, leases->slot_count == 0 ? LEAST_SLOTS : 2 * leases->slot_count, INT64_MIN);
}

/* Returns when the lease of the key was renewed last. The lock is held. */
static int64_t renewed_s_of(const struct td_publish_leases *leases, uint64_t key)
{
    const struct td_publish_lease *lease =
        leases->slot_count == 0 ? NULL : find_slot(leases->slots, leases->slot_count, key);
    bool has_own = lease != NULL && lease->key == key && lease->renewed_s > leases->all_s;
    return has_own ? lease->renewed_s : leases->all_s;
}

bool td_publish_lease(struct td_publish_leases *leases, const char *folder, const uint8_t sha256[TD_SHA256_BYTES])
{
    uint64_t key = key_of(folder, sha256);
    int64_t now_s = td_wall_now().seconds;
    pthread_mutex_lock(&leases->lock);
    bool ok = leases->going != key;
    struct td_publish_lease *lease =
        ok && leases->slot_count > 0 ? find_slot(leases->slots, leases->slot_count, key) : NULL;
    if (ok && (lease == NULL || lease->key == 0)) {
        bool has_room = make_room(leases);
        if (!has_room)
            leases->all_s = now_s;
        lease = has_room ? find_slot(leases->slots, leases->slot_count, key) : NULL;
        leases->count += has_room ? 1 : 0;
    }
    if (lease != NULL)
        *lease = (struct td_publish_lease){.key = key, .renewed_s = now_s};
    pthread_mutex_unlock(&leases->lock);
    return ok;
}

int64_t td_publish_lease_renewed_s(struct td_publish_leases *leases, const char *folder,
                                   const uint8_t sha256[TD_SHA256_BYTES])
{
    pthread_mutex_lock(&leases->lock);
    int64_t renewed_s = renewed_s_of(leases, key_of(folder, sha256));
    pthread_mutex_unlock(&leases->lock);
    return renewed_s;
}

bool td_publish_lease_begin_end(struct td_publish_leases *leases, const char *folder,
                                const uint8_t sha256[TD_SHA256_BYTES], int64_t since_s, int64_t *renewed_s)
{
    uint64_t key = key_of(folder, sha256);
    pthread_mutex_lock(&leases->lock);
    *renewed_s = renewed_s_of(leases, key);
    bool ok = *renewed_s < since_s;
    if (ok)
        leases->going = key;
    pthread_mutex_unlock(&leases->lock);
    return ok;
}

void td_publish_lease_end(struct td_publish_leases *leases)
{
    pthread_mutex_lock(&leases->lock);
    leases->going = 0;
    pthread_mutex_unlock(&leases->lock);
}

void td_publish_leases_expire(struct td_publish_leases *leases, int64_t since_s)
{
    size_t count = 0;
    pthread_mutex_lock(&leases->lock);
    for (size_t i = 0; i < leases->slot_count; i++)
        count += leases->slots[i].key != 0 && leases->slots[i].renewed_s >= since_s ? 1 : 0;
    size_t slot_count = LEAST_SLOTS;
    while (slot_count <= 2 * count)
        slot_count *= 2;
    if (count < leases->count)
        (void)rebuild(leases, slot_count, since_s); /* without memory, the next turn does it */
    pthread_mutex_unlock(&leases->lock);
}
