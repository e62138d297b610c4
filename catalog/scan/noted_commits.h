/* The commits of a cache that this program has published of late, which scans need not let settle. Thread-safe. */
#ifndef TD_CATALOG_SCAN_NOTED_COMMITS_H
#define TD_CATALOG_SCAN_NOTED_COMMITS_H

#include "catalog/scan/settling.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct td_noted_commit;

struct td_noted_commits {
    pthread_mutex_t lock;
    /* under the lock */
    struct td_noted_commit *items; /* a ring; NULL: none was noted yet */
    size_t count;                  /* of all commits that were noted since the start */
};

/* Begins without commits. Returns false when memory is short. */
bool td_noted_commits_init(struct td_noted_commits *noted);
void td_noted_commits_fini(struct td_noted_commits *noted);

/* Notes a commit that is about to be published. The latest 512 are kept; older ones settle in their time, as those do
 * for which there is no memory. folder: as in struct td_published. */
void td_noted_commits_add(struct td_noted_commits *noted, const char *folder, const char *commit);

/* Lists the commits that were noted in the last minute, sorted by commit. Sets *out to an array, which the caller frees
 * with its texts by free(), or to NULL when there are none or memory is short. Returns the array's length. */
size_t td_noted_commits_list(struct td_noted_commits *noted, struct td_published **out);

#endif
