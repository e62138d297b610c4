#include "storage/arrivals.h"

#include "core/mix64.h"

#include <stdlib.h>
#include <string.h>

struct td_arrival {
    struct td_arrival *next;
    uint64_t device, inode, walk;
    int64_t wall_ns;
    char name[];
};

static size_t bucket_of(const struct td_arrivals *arrivals, const struct td_arrival_key *key)
{
    uint64_t hash = td_mix64(td_mix64(arrivals->key ^ key->device) ^ key->inode);
    for (const char *c = key->name; *c != '\0'; c++)
        hash = td_mix64(hash ^ (unsigned char)*c);
    return (size_t)(hash % TD_ARRIVAL_BUCKETS);
}

/* Returns the link that leads to the arrival of this key, or the one at the end of its bucket. */
static struct td_arrival **link_to(struct td_arrival **bucket, const struct td_arrival_key *key)
{
    while (*bucket != NULL && ((*bucket)->inode != key->inode || (*bucket)->device != key->device ||
                               strcmp((*bucket)->name, key->name) != 0))
        bucket = &(*bucket)->next;
    return bucket;
}

void td_arrivals_add(struct td_arrivals *arrivals, const struct td_arrival_key *key, int64_t wall_ns, uint64_t walk)
{
    td_arrivals_remove(arrivals, key);
    size_t len = strlen(key->name);
    struct td_arrival *arrival = arrivals->count >= TD_ARRIVALS_MAX ? NULL : malloc(sizeof *arrival + len + 1);
    if (arrival == NULL)
        return;
    struct td_arrival **bucket = &arrivals->buckets[bucket_of(arrivals, key)];
    *arrival = (struct td_arrival){
        .next = *bucket, .device = key->device, .inode = key->inode, .walk = walk, .wall_ns = wall_ns};
    memcpy(arrival->name, key->name, len + 1);
    *bucket = arrival;
    arrivals->count++;
}

void td_arrivals_remove(struct td_arrivals *arrivals, const struct td_arrival_key *key)
{
    if (arrivals->count == 0)
        return;
    struct td_arrival **link = link_to(&arrivals->buckets[bucket_of(arrivals, key)], key);
    struct td_arrival *arrival = *link;
    if (arrival == NULL)
        return;
    *link = arrival->next;
    free(arrival);
    arrivals->count--;
}

bool td_arrivals_find(const struct td_arrivals *arrivals, const struct td_arrival_key *key, int64_t *wall_ns)
{
    if (arrivals->count == 0)
        return false;
    struct td_arrival *bucket = arrivals->buckets[bucket_of(arrivals, key)];
    const struct td_arrival *arrival = *link_to(&bucket, key);
    if (arrival != NULL)
        *wall_ns = arrival->wall_ns;
    return arrival != NULL;
}

void td_arrivals_forget(struct td_arrivals *arrivals, uint64_t walk)
{
    for (size_t i = 0; i < TD_ARRIVAL_BUCKETS && arrivals->count > 0; i++) {
        struct td_arrival **link = &arrivals->buckets[i];
        while (*link != NULL) {
            struct td_arrival *arrival = *link;
            if (arrival->walk >= walk) {
                link = &arrival->next;
                continue;
            }
            *link = arrival->next;
            free(arrival);
            arrivals->count--;
        }
    }
}
