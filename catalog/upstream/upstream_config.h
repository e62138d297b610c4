/* The upstream's limits, its configuration, and the numbers that it reports. */
#ifndef TD_CATALOG_UPSTREAM_UPSTREAM_CONFIG_H
#define TD_CATALOG_UPSTREAM_UPSTREAM_CONFIG_H

#include "catalog/catalog.h"
#include "catalog/upstream/upstream_source.h"

#include <stddef.h>
#include <stdint.h>

struct td_upstream_store; /* catalog/upstream/upstream_store.h */

enum {
    TD_UPSTREAM_MODELS = 4,           /* models that are listed and fetched at once; more wait */
    TD_UPSTREAM_CLIENT_MODELS = 3,    /* of one client's, so that others get a turn */
    TD_UPSTREAM_QUEUE = 32,           /* models that wait; more are refused */
    TD_UPSTREAM_CLIENT_QUEUE = 8,     /* of one client's */
    TD_UPSTREAM_WORKERS = 16,         /* threads that fetch */
    TD_UPSTREAM_FILES = 14,           /* files at once that readers wait for */
    TD_UPSTREAM_BACKGROUND_FILES = 4, /* files at once that no reader waits for */
    TD_UPSTREAM_MODEL_FILES = 4096,   /* of a model; each takes a descriptor */
    TD_UPSTREAM_NAMES = 4096,         /* names of models that are remembered, also absent ones */
    TD_UPSTREAM_UPKEEP_S = 60,        /* how often idle threads write the times of reads */
    TD_UPSTREAM_ABSENT_S = 60,        /* how long the upstream's answer that a model does not exist is remembered */
    TD_UPSTREAM_WAIT_S = 10,          /* how long a request waits for a list of files */
    TD_UPSTREAM_LIST_RETRY_S = 15,    /* how long a server without progress is retried for a list */
    TD_UPSTREAM_LATE_LIST_S = 30,     /* bound on the last request for a list, when all bytes are here */
    TD_UPSTREAM_FILE_RETRY_S = 60,    /* how long it is retried for a file */
    TD_UPSTREAM_UNDECIDED = 12,       /* times that a kept model is compared while digests are not known */
    TD_UPSTREAM_STALL_S = 120,        /* a reader of an arriving file gives up when no byte has arrived for so long */
};

_Static_assert(TD_UPSTREAM_STALL_S > TD_UPSTREAM_FILE_RETRY_S, "readers give up after the fetch itself does");

struct td_upstream_config {
    struct td_upstream_source source; /* borrowed; outlives the upstream */
    struct td_upstream_store *store;  /* borrowed */
    struct td_catalog *catalog;       /* borrowed; receives digests and requests for scans; NULL: none */
    uint64_t wait_ns;                 /* TD_UPSTREAM_WAIT_S, but for tests */
    uint64_t absent_ns;               /* TD_UPSTREAM_ABSENT_S, but for tests */
    uint64_t late_list_ns;            /* TD_UPSTREAM_LATE_LIST_S, but for tests */
    uint64_t upkeep_ns;               /* TD_UPSTREAM_UPKEEP_S, but for tests */
    size_t max_names;                 /* TD_UPSTREAM_NAMES, but for tests */
    size_t max_files;                 /* of all models on their way; each takes a descriptor */
};

/* Why fetches have failed, for metrics. */
enum td_upstream_failure {
    TD_UPSTREAM_FAILED_SPACE,       /* the disk or --cache-max-bytes has no room */
    TD_UPSTREAM_FAILED_CONTENT,     /* the upstream's bytes or answers are wrong */
    TD_UPSTREAM_FAILED_UNREACHABLE, /* the upstream does not answer */
    TD_UPSTREAM_FAILED_OTHER,
    TD_UPSTREAM_FAILURES
};

struct td_upstream_status {
    size_t fetching, waiting;  /* models */
    uint64_t begun, published; /* models, since the start */
    uint64_t absent;           /* times that the upstream had no such model */
    uint64_t fetched_bytes;    /* that have arrived from the upstream, since the start */
    uint64_t early_requests;   /* requests that were answered from a model on its way */
    uint64_t evicted;          /* models */
    uint64_t renewed;          /* kept models that were removed because the upstream has others in their place */
    bool is_following;         /* the upstream's events */
    uint64_t failures[TD_UPSTREAM_FAILURES];
    uint64_t kept_bytes; /* of all kept models */
    size_t kept_count;
    size_t unverified; /* published models without digests for all files */
};

#endif
