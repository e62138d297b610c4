/* The upstream's lists of versions (GET /models/{id}/versions). A list is asked for by the first request for it; from
 * then on a thread follows it by requests that wait for a change, so that it is as new as the upstream's, until nobody
 * has asked for it for TD_VERSION_LIST_IDLE_S. While the upstream does not answer, the list stays as it is. The answers
 * are a stranger's: their size, number and rate are bounded. Thread-safe. */
#ifndef TD_CATALOG_UPSTREAM_VERSION_LISTS_H
#define TD_CATALOG_UPSTREAM_VERSION_LISTS_H

#include "catalog/upstream/remote_family.h"
#include "catalog/upstream/upstream_source.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TD_VERSION_LISTS = 32,                      /* that are followed at once */
    TD_VERSION_LIST_IDLE_S = 600,               /* longer than any request waits */
    TD_VERSION_LISTS_BYTES = 128 * 1024 * 1024, /* memory of all lists */
    TD_VERSION_LISTS_REMEMBERED = 256,          /* ids without a list whose answers are remembered */
    TD_VERSION_LIST_ABSENT_S = 5,               /* how long "no such list" is remembered */
};

struct td_version_lists_config {
    const struct td_upstream_source *source; /* borrowed; its `versions` is not NULL */
    void (*on_change)(void *context); /* called by a thread of the lists, without a lock, after one has changed */
    void *context;
};

struct td_version_lists;

/* Errors: TD_RESOURCE_EXHAUSTED. */
bool td_version_lists_create(const struct td_version_lists_config *config, struct td_version_lists **out,
                             struct td_error *err);

/* Has all threads and waits end within about 1 s. Any thread. NULL is allowed, as for td_version_lists_destroy. */
void td_version_lists_stop(struct td_version_lists *lists);

/* Ends all waits; lists are followed further. Any thread. NULL is allowed. */
void td_version_lists_end_waits(struct td_version_lists *lists);

/* Stops, waits for the threads, and frees all. */
void td_version_lists_destroy(struct td_version_lists *lists);

enum td_version_list_look {
    TD_VERSION_LIST_FOUND,
    TD_VERSION_LIST_ABSENT, /* the upstream has no model and no versions of this id, or is no tensord */
    TD_VERSION_LIST_LATER,  /* the answer takes long, the last try failed a moment ago, or too many are followed */
    TD_VERSION_LIST_NEW,    /* nothing is known of it yet, and the wish forbids to ask */
};

/* A request for a list. All is borrowed. */
struct td_version_list_wish {
    struct td_text id;
    const char *via; /* the value of TD_UPSTREAM_VIA to send */
    bool may_ask;    /* the upstream; else only what is known is answered */
    uint64_t wait_ns;
};

/* Looks for a list. TD_VERSION_LIST_FOUND: sets *out, with a reference for the caller. Waits for the first answer, at
 * most for wait_ns; a thread that may not wait is refused (td_may_wait) where it would wait. */
enum td_version_list_look td_version_lists_ask(struct td_version_lists *lists, const struct td_version_list_wish *wish,
                                               struct td_remote_family **out);

#endif
