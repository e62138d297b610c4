/* A call: a request with the state of its processing, and the functions that the handlers of all facades need. A call
 * belongs to one thread. */
#ifndef TD_API_CALL_CALL_H
#define TD_API_CALL_CALL_H

#include "api/call/state.h"
#include "core/message/document.h"
#include "http/auth/token_set.h"
#include "http/request.h"
#include "http/response.h"
#include "http/uri.h"

#include <stdbool.h>

struct td_family; /* catalog/names/family.h */
struct td_version;
struct td_remote_family; /* catalog/upstream/remote_family.h */
struct td_read_results;  /* api/call/tensor_text.h */

enum td_caller_kind {
    TD_CALLER_NOBODY, /* no credentials: only probes and other answers that show no model */
    TD_CALLER_OPEN,   /* the server has no tokens: everything is for everybody */
    TD_CALLER_TOKEN,  /* what the token allows */
    TD_CALLER_HOLDER, /* the holder of the tokens file: everything */
};

/* The sender of a call (api/call/access.h). */
struct td_caller {
    enum td_caller_kind kind;
    struct td_token_set *tokens;  /* the call's reference; NULL: the server has no tokens */
    const struct td_token *token; /* of TD_CALLER_TOKEN, borrowed from `tokens`; else NULL */
    struct td_text bare;          /* the request's target without its signature (http/auth/signed_url.h); p is NULL: it
                                     has none */
};

/* A request on its way through a facade. The call owns the snapshot, the remote family and the members of `caller`, and
 * borrows all else. */
struct td_call {
    struct td_api *api;
    const struct td_request *request;
    const struct td_uri *uri;
    struct td_caller caller;        /* who asks */
    struct td_snapshot *kept;       /* the snapshot of a removed model (catalog/removed/removed.h), which the call then
                                       reads; NULL: the call reads the catalog's */
    struct td_snapshot *snapshot;   /* the call's reference, which td_api_handle drops; NULL: none was taken yet */
    enum td_catalog_stage stage;    /* how far the catalog was before the snapshot was taken */
    const struct td_model *model;   /* NULL when the path names no model */
    const struct td_family *family; /* that the path names, if `version` or the list of versions is asked for; or NULL
                                     */
    struct td_remote_family *remote_family; /* the call's reference: the upstream's list of versions that the call has
                                               asked for, as far as the caller may see it; or NULL */
    const struct td_version *version; /* of the family: what ?version= stands for, and `model` is its model; or NULL */
    bool takes_version;               /* ?version= is a known parameter of the route */
    const struct td_dataset *dataset; /* NULL when the path names no dataset */
    struct td_text rest;              /* the path after the route's word: a tensor, a file, a plan */
    bool is_post;                     /* the route takes POST; else GET and HEAD */
    bool begins_quickly;              /* the handler may be called anywhere: it asks td_may_wait itself */
    struct td_response *response;
    const struct td_document_kind *kind; /* what a document in the answer is written as; NULL: JSON of REST */
    struct td_read_results *results; /* where tensors:read notes what its bytes are, for a caller that knows no other
                                        way; NULL: nowhere */
    bool is_for_main_port; /* the request came by another port, but a facade of the main port owns its path: a client
                              has mixed up the ports */
};

/* Answers 400 and returns false when the query has a parameter that is not in `known` (NULL-terminated). A call with
 * takes_version may also have `version`. */
bool td_call_check_parameters(const struct td_call *call, const char *const *known);

/* Reads a whole number of at most `max`, as it stands after a parameter's name in the query. Leaves *out as it is
 * without the parameter. Returns false after it answered 400. */
bool td_call_read_number(const struct td_call *call, const char *name, uint64_t max, uint64_t *out);

/* Reads a page token (http/page_token.h) of this listing: sets *after, an initialised buffer, to the name that the page
 * before ended with, and leaves it empty for the token NULL. Returns false after it answered an error: 400 with the
 * message `wrong` for the token of another listing. */
bool td_call_read_page_token(const struct td_call *call, const struct td_text *token, struct td_text listing,
                             const char *wrong, struct td_buffer *after);

/* Answers with an error whose details list the known values (NULL-terminated, none needs escaping): {"known": [...]}.
 */
void td_call_fail_known(const struct td_call *call, int status, const char *const *known, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Answers 400 with the position for a body that is not the JSON that it must be; answers other errors as
 * td_response_fail_error does. */
void td_call_fail_json(const struct td_call *call, const struct td_error *err);

/* Begins a document in the call's kind, the body of the answer, at the end of the buffer. td_call_end_document ends the
 * outermost object, and adds a newline to JSON of REST. */
void td_call_begin_document(const struct td_call *call, struct td_document *document, struct td_buffer *out);
void td_call_end_document(const struct td_call *call, struct td_document *document);

/* Returns whether the running thread may begin to answer the call now. A thread that may wait (td_may_wait) may answer
 * every call. Any other thread may answer /healthz, /readyz, the routes that send bytes of files, and calls that begin
 * quickly; lists and plans may take long. */
bool td_call_may_answer(const struct td_call *call);

/* Returns whether it is no use any more to wait for something on behalf of the call: nobody waits for the answer, or
 * the server drains. */
bool td_call_over(const struct td_call *call);

/* Returns whether a wait for a change is over: the client has ended its side, even if it may still read, or the server
 * drains. */
bool td_call_ends_wait(const struct td_call *call);

/* Returns a number that identifies the client for shares of memory and of queues: a hash of its token, else of its
 * address (for IPv6, of its /64). */
uint64_t td_call_client(const struct td_call *call);

/* Lets caches keep the answer forever: what the client asked for never changes. Shared caches may only if everybody
 * may ask for it. */
void td_call_make_immutable(const struct td_call *call);

/* Answers 503: out of memory. Returns false. */
bool td_call_no_memory(const struct td_call *call);

/* Returns the current snapshot, or the view of it that the call's sender may see, with a reference for the caller. NULL
 * when there is no snapshot yet. On failure also returns NULL and sets *err, as td_view_get does. Nothing else in api/
 * may ask the catalog for a snapshot. */
struct td_snapshot *td_call_acquire(const struct td_call *call, struct td_error *err);

/* Sets call->stage, and call->snapshot to what td_call_acquire returns. */
void td_call_look_for_snapshot(struct td_call *call, struct td_error *err);

/* Does the same, at most once for each call. Without a snapshot, answers the error, or 503 and why the server is not
 * ready yet, and returns false. */
bool td_call_take_snapshot(struct td_call *call);

/* The next five functions concern calls that come before the server is ready for the first time (td_catalog_stage). An
 * unknown name may then belong to a file that is about to be published, so the answer is 503 instead of 404 or an
 * incomplete list. */

enum { TD_EARLY_REASON_BYTES = 320 };

/* Returns true if the call came before the server was ready for the first time: a name that its snapshot lacks may
 * appear soon. Then writes the reason for a 503. */
bool td_call_is_early(const struct td_call *call, char reason[TD_EARLY_REASON_BYTES]);

/* Returns true if the server has not yet published all files that were below this directory (empty: anywhere) at its
 * start. The description of a model or a list would then lack them. Then writes the reason for a 503. */
bool td_call_lacks_files(const struct td_call *call, struct td_text directory, char reason[TD_EARLY_REASON_BYTES]);

/* The three below answer in the form of facades whose errors have a status and a message alone. */

/* Replaces a 404 by a 503 if td_call_is_early returns true. */
void td_call_mend_early(const struct td_call *call);

/* Returns true if td_call_lacks_files returns false for the directory. Otherwise answers 503 and returns false. */
bool td_call_may_describe(const struct td_call *call, struct td_text directory);

/* Does the same for a list of everything that the caller may see. */
bool td_call_may_list(const struct td_call *call);

/* Answers 405 with the method that the route (is_post) takes. */
void td_call_refuse_method(const struct td_call *call);

/* Calls the handler, unless td_call_may_answer forbids it, then td_call_finish. Answers 405 instead when the route
 * (is_post) does not take the request's method. */
void td_call_serve(const struct td_call *call, void (*handle)(const struct td_call *call));

/* The next two functions concern answers from files that are still arriving. No answer is completed before its bytes
 * are verified, and no client joins wrong bytes with right ones. */

/* Holds back the end of the answer until its file is verified (td_incoming_hold_end). If the client verifies the file
 * itself, the answer may be completed earlier, but no cache may store it. The answer stops waiting for bytes when its
 * client disconnects. Does nothing without an upstream. Call it after ranges have been applied. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_call_hold_answer(const struct td_api *api, const struct td_request *request, struct td_response *response,
                         struct td_error *err);

/* Returns whether the entity tag allows a range to be answered with a part. Returns false when the client would resume
 * with an entity tag under which wrong bytes may have been sent: a request with If-Range must then get the whole file,
 * and this function answers 412 to one with If-Match alone. */
bool td_call_may_go_on(const struct td_api *api, const struct td_request *request, struct td_response *response);

/* Cuts a whole 200 answer to GET or HEAD down to the part that the request's conditions and ranges ask for, and turns
 * that part into bytes of files; a failure becomes an error answer. `head`: the request is a HEAD; ranges do not apply.
 * Call it once, when the handler is done. */
void td_call_finish(const struct td_call *call, bool head);

#endif
