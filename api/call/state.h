/* The state that all requests share. */
#ifndef TD_API_CALL_STATE_H
#define TD_API_CALL_STATE_H

#include "api/call/publish_tidier.h"
#include "catalog/catalog.h"
#include "catalog/upstream/upstream.h"
#include "http/auth/token_set.h"
#include "http/lru.h"
#include "http/metrics.h"
#include "rank/card.h"
#include "rank/patch/patch_store.h"
#include "rank/rank_store.h"
#include "rank/virtual_hasher.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The senders from which the server accepts POST /rescan. */
enum td_rescan_from {
    TD_RESCAN_FROM_LOCAL, /* this machine, when no proxy and no page in a browser passed the request on */
    TD_RESCAN_FROM_ANY,
    TD_RESCAN_FROM_NONE,
};

/* The senders that may publish. */
enum td_publish_who {
    TD_PUBLISH_OFF,   /* nobody */
    TD_PUBLISH_LOCAL, /* this machine, by the rule of TD_RESCAN_FROM_LOCAL */
    TD_PUBLISH_ANY,
};

enum { TD_MANIFEST_CACHE_BYTES = 64 * 1024 * 1024, TD_COMMITS_BYTES = 512 * 1024 * 1024 };

struct td_cors;
struct td_joint_file;
struct td_stream_share;

/* The streams of events (api/native/event_stream.h), and those that typed clients watch models by. */
struct td_event_streams {
    pthread_mutex_t lock;
    struct td_stream_share *first; /* of all these streams, a list, under the lock (api/call/stream_share.h) */
    size_t most_of_client;         /* streams of one client; set before the first request */
    _Atomic uint64_t open;         /* streams of events */
    _Atomic uint64_t begun, sent,
        resets; /* streams of events, events that were sent, events `reset`; since the start */
};

struct td_api {
    struct td_catalog *catalog;   /* borrowed */
    struct td_upstream *upstream; /* the source of models that this server does not have; borrowed; or NULL */
    struct td_metrics metrics;
    struct td_lru manifests; /* indexes of whole manifests by checkpoint (http/rendered.h) */
    struct td_lru documents; /* struct td_made_documents (rank/made_document.h): manifests of OCI registries */
    struct td_lru plans;     /* struct td_stored_plan by id (rank/rank_store.h) */
    struct td_rank_store ranks;
    struct td_card_store cards;
    struct td_virtual_hasher *virtual_hasher; /* of rank files and layers of images */
    struct td_patch_store *patches;           /* between versions */
    struct td_shared_budget lists;            /* TD_LISTS_BYTES: memory of lists and descriptions that are being sent */
    struct td_shared_budget rows;             /* TD_ROWS_BUDGET_BYTES: memory of answers with rows of datasets */
    struct td_publish *publish;               /* what clients publish; borrowed; NULL: nobody may, --publish off */
    struct td_publish_tidier *publish_tidier; /* borrowed; NULL with `publish` alone */
    struct td_shared_budget commits;          /* TD_COMMITS_BYTES: memory of commits that are being read and made */
    pthread_mutex_t joint_lock;               /* of the two below (api/call/joint_commit.h) */
    pthread_cond_t joint_changed;
    struct td_joint_file *joint_files; /* that wait for a commit, a list */
    struct td_event_streams events;
    const struct td_cors *cors; /* sites whose pages may read answers (http/cors.h); borrowed; NULL: no other site */
    const char *s3_listen;      /* the address of the S3 port, for messages; borrowed; NULL or empty: the port is off */
    _Atomic enum td_rescan_from rescan_from; /* may change while requests run */
    enum td_publish_who publish_who; /* set before the first request, and asked by td_access_may_publish alone */
    pthread_mutex_t tokens_lock;
    struct td_token_set *tokens; /* who may ask; guarded by the lock; NULL: everybody */
    _Atomic bool metrics_open;   /* metrics and the contract need no token, wherever the request comes from */
    bool takes_uploads;          /* facades with begin_upload take uploads; set before the first request */
    _Atomic bool draining;       /* /readyz answers 503, and answers close their connections */
};

/* Starts with empty caches. The catalog is borrowed and must outlive the api. Errors: TD_INTERNAL when no lock can be
 * created; as td_virtual_hasher_create and td_patch_store_create. */
bool td_api_init(struct td_api *api, struct td_catalog *catalog, struct td_error *err);

/* Stores the digests of virtual files, and patches, in state_dir (NULL: digests in memory only, patches in files
 * without names). max_patch_bytes: as td_patch_store_keep. Call before the first request. Errors as
 * td_virtual_digests_keep. */
bool td_api_keep_state(struct td_api *api, const char *state_dir, uint64_t max_patch_bytes, const char *root,
                       struct td_error *err);

/* Frees the caches. No request may be running. */
void td_api_fini(struct td_api *api);

/* Replaces the set of tokens. Takes over the caller's reference. Running requests keep the set that they began with.
 * NULL: everybody may ask for everything. Any thread. */
void td_api_set_tokens(struct td_api *api, struct td_token_set *tokens);

/* Returns the set of tokens with a reference for the caller, or NULL. Any thread. */
struct td_token_set *td_api_tokens(struct td_api *api);

#endif
