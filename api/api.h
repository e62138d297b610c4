/* The HTTP interface without a socket: takes a request and gives a response with its whole body, or with the part that
 * the request's conditions and ranges ask for. Holds the table of facades. api/openapi.yaml is the contract of the
 * native facade. */
#ifndef TD_API_API_H
#define TD_API_API_H

#include "api/call/state.h"
#include "http/body_sink.h"
#include "http/facade.h"
#include "http/request.h"
#include "http/response.h"

/* The facades of the ports. The main port and that of gRPC also serve the facades that td_api_facade finds by their
 * paths. */
extern const struct td_facade *const td_main_port;
extern const struct td_facade *const td_s3_port;
extern const struct td_facade *const td_grpc_port;

/* Returns the facade of a request that came by this port. On the main port and that of gRPC the raw
 * target decides. Call it once, as
 * soon as the target is known: every answer to the request, refusals included, has the form of its facade. */
const struct td_facade *td_api_facade(const struct td_facade *port, struct td_text target);

/* Answers the request, whose facade is set. Initialises *response, which the caller finishes. Never fails: faults
 * become error answers. A HEAD answer carries the body whose length it announces; the sender leaves the body out.
 * If response->changed is set, the caller asks the catalog for a scan. After td_waiting_forbid, the response counts
 * only if td_waiting_was_refused returns false. Thread-safe. */
void td_api_handle(struct td_api *api, const struct td_request *request, struct td_response *response);

/* Returns whether a GET, or with is_post a POST, of the raw target, on this port, is answered by a text that this
 * program writes, such as a list, rather than by bytes of files. This is a guess from the target alone, and a text may
 * be long. */
bool td_api_is_text(const struct td_facade *port, struct td_text target, bool is_post);

/* Returns whether the server must read the body of a request with this method and target into memory. The request's
 * facade must be set, as for all functions that follow. All are thread-safe. */
bool td_api_takes_body(const struct td_request *request);

/* Returns whether each message of the request is answered by itself (td_facade.answers_each). */
bool td_api_answers_each(const struct td_request *request);

/* Returns whether the facade takes uploads: then PUT, PATCH, POST and DELETE may have bodies, chunked ones, too. */
bool td_api_takes_uploads(const struct td_api *api, const struct td_facade *facade);

/* Where the body of a request goes. */
enum td_body_place {
    TD_BODY_NOWHERE, /* nobody reads it */
    TD_BODY_MEMORY,
    TD_BODY_SINK, /* td_api_begin_upload makes the sink */
};

/* Returns where the body of a request with this method and target goes, whatever its length. */
enum td_body_place td_api_body_place(const struct td_api *api, const struct td_request *request);

/* Makes the sink that takes a request's body. Call it before the body is read, for requests with the body place
 * TD_BODY_SINK. The caller releases the sink after td_api_handle, or when the body is cut. Returns NULL if the request
 * was answered without its body; *response then has the answer. The caller calls td_response_fini for *response in
 * either case. May wait for a disk. */
struct td_body_sink *td_api_begin_upload(struct td_api *api, const struct td_request *request,
                                         struct td_response *response);

/* Returns whether the request's credentials are good as of now, and no page of another site made a browser send it to
 * change something, before its body is read. td_api_handle judges it again. Does not wait. */
bool td_api_admits(struct td_api *api, const struct td_request *request);

/* Returns whether the facade refuses the request by its method. The server then passes the request on whatever is wrong
 * with its body, and reads none of it. */
bool td_api_refuses_body(const struct td_api *api, const struct td_request *request);

/* Returns whether the request must be answered even at the limit of connections: health, readiness, metrics. */
bool td_api_is_probe(const struct td_request *request);

#endif
