/* Arrivals: the names of items that were renamed into directories, and when. Not thread-safe. */
#ifndef TD_STORAGE_ARRIVALS_H
#define TD_STORAGE_ARRIVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_ARRIVAL_BUCKETS = 4096, TD_ARRIVALS_MAX = 100000 };

/* A name in a directory. */
struct td_arrival_key {
    uint64_t device, inode; /* of the directory */
    const char *name;       /* borrowed */
};

/* All zeros: empty. */
struct td_arrivals {
    uint64_t key; /* a secret number, so that nobody finds names that share a bucket; set before the first arrival */
    struct td_arrival *buckets[TD_ARRIVAL_BUCKETS];
    size_t count;
};

/* Notes an arrival at `wall_ns`, in place of an earlier one of this key. `walk` is the number of the walk before it.
 * Does nothing without memory, or when TD_ARRIVALS_MAX are noted: the item then settles like one that was written. */
void td_arrivals_add(struct td_arrivals *arrivals, const struct td_arrival_key *key, int64_t wall_ns, uint64_t walk);

/* Forgets the arrival of this key, if there is one. */
void td_arrivals_remove(struct td_arrivals *arrivals, const struct td_arrival_key *key);

/* Returns whether the key is an arrival, and sets *wall_ns to its time. */
bool td_arrivals_find(const struct td_arrivals *arrivals, const struct td_arrival_key *key, int64_t *wall_ns);

/* Forgets the arrivals that were noted with a lower number than `walk`. UINT64_MAX: all. */
void td_arrivals_forget(struct td_arrivals *arrivals, uint64_t walk);

#endif
