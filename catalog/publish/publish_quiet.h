/* Repositories that need no tidying for a while, because nothing in them expires and nobody has opened them since they
 * were tidied. In memory. Thread-safe, except init and fini; nothing waits. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_QUIET_H
#define TD_CATALOG_PUBLISH_PUBLISH_QUIET_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TD_PUBLISH_QUIET_BUCKETS = 1024,
    TD_PUBLISH_QUIET_S = 3600, /* the longest time: another program may change a repository, too */
};

struct td_publish_quiet_repo;

struct td_publish_quiet {
    pthread_mutex_t lock;
    struct td_publish_quiet_repo *buckets[TD_PUBLISH_QUIET_BUCKETS]; /* a hash table by folder */
};

void td_publish_quiet_init(struct td_publish_quiet *quiet);
void td_publish_quiet_fini(struct td_publish_quiet *quiet);

/* Notes that the repository of this folder needs no tidying until then (since 1970), at most for TD_PUBLISH_QUIET_S
 * from now_s on. Without memory, notes nothing. */
void td_publish_quiet_set(struct td_publish_quiet *quiet, const char *folder, int64_t now_s, int64_t until_s);

/* Forgets the repository: it is opened, and may change. */
void td_publish_quiet_end(struct td_publish_quiet *quiet, const char *folder);

/* Returns whether the repository needs no tidying. */
bool td_publish_quiet_is(struct td_publish_quiet *quiet, const char *folder, int64_t now_s);

/* Lowers *until_s to the first time (since 1970) at which something of then_s is more than `seconds` old. */
void td_publish_quiet_lower(int64_t *until_s, int64_t then_s, uint64_t seconds);

#endif
