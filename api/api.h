/* The HTTP interface without a socket: a request goes in, a response with its whole (or cut) body comes out.
 * Routing, conditionals and ranges happen here; see api/openapi.yaml for the contract. */
#ifndef TD_API_API_H
#define TD_API_API_H

#include "api/native/manifest.h"
#include "catalog/catalog.h"
#include "http/lru.h"
#include "http/metrics.h"
#include "http/request.h"
#include "http/response.h"
#include "http/uri.h"
#include "rank/rank_store.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { TD_PLAN_STORE_BYTES = 64 * 1024 * 1024 };

/* The senders from which the server accepts POST /rescan. */
enum td_rescan_from {
    TD_RESCAN_FROM_LOCAL, /* this machine, when no proxy and no page in a browser passed the request on */
    TD_RESCAN_FROM_ANY,
    TD_RESCAN_FROM_NONE,
};

struct td_api {
    struct td_catalog *catalog;
    struct td_metrics metrics;
    struct td_manifest_cache views;
    struct td_lru plans; /* registered plans' texts by id */
    struct td_rank_store shards;
    struct td_budget lists; /* TD_LISTS_BYTES: memory of lists and descriptions that are being sent */
    const char *s3_listen;  /* where clients of S3 are served, for messages; borrowed; NULL or empty: nowhere */
    enum td_rescan_from rescan_from;
    _Atomic bool draining; /* readyz answers 503, answers close their connections */
};

/* catalog is borrowed and must outlive the api. */
bool td_api_init(struct td_api *api, struct td_catalog *catalog, struct td_error *err);
void td_api_fini(struct td_api *api);

/* Whose a request is that came by this port (API or S3): on the main one its raw target says it. Who makes a request
 * asks once, as soon as the target is known; all that is answered to it, refusals too, has that facade's form. */
enum td_facade td_api_facade(enum td_facade port, struct td_text target);

/* Answers the request; *response is initialised here and finished by the caller. Never fails: faults become error
 * answers. A HEAD answer carries the body whose length it announces; the sender leaves it out. Thread-safe. */
void td_api_handle(struct td_api *api, const struct td_request *request, struct td_response *response);

/* Whether a POST to this target has a use for a body, so that it is read. */
bool td_api_takes_body(const struct td_request *request);

/* True for the paths that must answer even at the connection limit: health, readiness, metrics. */
bool td_api_is_probe(const struct td_request *request);

#endif
