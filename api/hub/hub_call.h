/* The state of a request that the parts of the Hub's facade share, its parameters and its links. Private to api/hub/.
 */
#ifndef TD_API_HUB_HUB_CALL_H
#define TD_API_HUB_HUB_CALL_H

#include "api/call/call.h"
#include "api/hub/hub_path.h"
#include "core/arena.h"
#include "http/reservation.h"
#include "rank/repo_view.h"

enum {
    TD_HUB_PAGE_ITEMS = 5000,        /* most items of a tree in one answer */
    TD_HUB_PAGE_BYTES = 1024 * 1024, /* a page of a tree ends with the item that crosses this */
    TD_HUB_MOST_SIBLINGS = 50000 /* a description with more files lists none; huggingface_hub then asks for the tree */
};

/* A request with the state of its processing. For one thread. */
struct td_hub_call {
    const struct td_call *call;
    struct td_call *own;          /* what `call` points to, to change its snapshot; NULL while nothing is looked up */
    struct td_snapshot *incoming; /* the snapshot of a model on its way, with a reference; NULL: none */
    struct td_hub_path path;
    struct td_arena arena; /* for the answer */
    bool as_dataset;
    struct td_text id; /* the repository's id, as the client wrote it */
    const struct td_repo *repo;
    struct td_text revision; /* "main" when none was given */
    struct td_text below;    /* the path after verb and revision: a path of the tree */
    struct td_repo_view view;
    struct td_reserved reserved; /* memory that grows with the number of files served */
};

/* Writes the Link field that leads to the next page at `target` (path and query). The link is absolute, because clients
 * do not resolve it. Returns false when the request has no plain Host, when the field is too long, and when `target`
 * has failed. */
bool td_hub_next_link(const struct td_hub_call *hub, const struct td_buffer *target, char link[TD_HEADER_VALUE_BYTES]);

/* Adds the Link field, and Vary: X-Forwarded-Proto, because the link's scheme depends on that field and the keys of
 * caches hold the host alone. */
void td_hub_add_link(const struct td_hub_call *hub, const char *link);

/* Returns the decimal number in a query parameter, at most 999,999,999; `fallback` when the parameter is missing or not
 * such a number. */
uint64_t td_hub_number(const struct td_hub_call *hub, const char *name, uint64_t fallback);

/* Returns whether a query parameter is "1" or "true" in any case of letters. */
bool td_hub_flag(const struct td_hub_call *hub, const char *name);

/* Opens hub->view at hub->revision; hub->view.commit is empty after a failure. Answers nothing. Errors as
 * td_repo_view_open. */
bool td_hub_try_view(struct td_hub_call *hub, struct td_error *err);

#endif
