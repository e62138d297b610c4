/* The state of one connection that libmicrohttpd serves (a session), and of the request on it (an exchange).
 *
 * Threads: a session belongs to its connection's thread, which may serve others too; while the connection is suspended,
 * to the job or the waker that makes its answer. */
#ifndef TD_SERVER_MHD_SESSION_H
#define TD_SERVER_MHD_SESSION_H

#include "api/api.h"
#include "core/buffer.h"
#include "http/request_id.h"
#include "server/mhd/transfer.h"
#include "server/net/request_guard.h"
#include "server/serving/serving.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_late_release; /* server/mhd/sink_body.c */

/* The stages of a request, in this order. */
enum td_stage {
    TD_STAGE_NONE,        /* the session has no request */
    TD_STAGE_LINE,        /* its request line was read */
    TD_STAGE_JUDGED,      /* the request guard has passed it */
    TD_STAGE_OPENING,     /* the connection is suspended until a job has begun the upload, or is resumed after that */
    TD_STAGE_WAIT_WANTED, /* the connection is to be suspended until something changes */
    TD_STAGE_JOB_WANTED,  /* a job is to make the answer */
    TD_STAGE_JOB_BEGUN,   /* the connection is suspended until the job has made the answer, or is resumed after that */
    TD_STAGE_QUEUED,      /* libmicrohttpd has the response */
};

/* The body of an answer that is a stream (server/mhd/stream_body.h). */
struct td_stream_body {
    struct td_stream *stream;          /* owned; NULL: the answer is no stream */
    struct td_buffer piece;            /* the bytes that the stream has given last */
    size_t passed_bytes;               /* of them, to libmicrohttpd */
    struct MHD_Response *mhd_response; /* borrowed; takes the trailers */
    bool is_stopped;                   /* it was asked to end */
    bool was_read;                     /* by a job, with this result: */
    enum td_stream_state state;
    uint64_t until_ns;
};

/* One request, from its request line to its last byte. */
struct td_exchange {
    enum td_stage stage;
    uint64_t start_ns;
    const struct td_facade *facade; /* decided by the port and the path */
    struct td_header headers[TD_MAX_HEADER_FIELDS];
    size_t header_count;
    bool too_many;
    const char *method;                 /* belongs to libmicrohttpd, like the headers, until the request is completed */
    struct td_buffer upload;            /* the part of the request's body that has arrived; freed once it is handled */
    struct td_upload counted;           /* the same in the server's uploads */
    struct td_upload unpacked;          /* what the handler has unpacked of it, there */
    enum td_upload_verdict no_room_for; /* the limit that the body exceeds; TD_UPLOAD_FITS: none */
    uint64_t content_bytes;             /* length of the request's body, as far as it has arrived */
    bool has_upload;
    bool wants_sink;                      /* the body goes to a sink */
    bool has_sink;                        /* the sink was made; it may be released again */
    bool sink_failed;                     /* the sink did not take all */
    bool is_cut_short;                    /* the answer comes before the body was read */
    struct td_body_sink *sink;            /* owned; NULL: not made yet, or released */
    struct td_late_release *late_release; /* owned; for a sink of a shared thread */
    uint64_t body_bytes;                  /* as declared, or TD_BODY_LENGTH_UNKNOWN */
    struct td_buffer piece;               /* of the body, for the job that gives it to the sink */
    size_t taken_bytes;                   /* of a piece that a job took, and libmicrohttpd still has */
    bool is_http_1_0;
    bool is_last;                        /* the client wants the connection closed after the answer */
    bool waits;                          /* it counts as one that waits for a change; so does a stream */
    uint64_t wait_since_ns, wait_end_ns; /* when it began to wait, and was last tried again or, of a stream, has
                                            ended; 0: it never waited */
    /* of the answer */
    int status;
    enum td_route route;
    bool changed; /* it is an error, because a file has changed */
    char request_id[TD_REQUEST_ID_BYTES];
    char token[TD_RESPONSE_TOKEN_BYTES]; /* the name of the token that asked */
    struct td_transfer transfer;
    struct td_stream_body stream;
    struct MHD_Response *mhd_response; /* owned until it is queued; NULL: no memory */
    uint64_t given_bytes;              /* with TLS, to the socket before a long answer */
    uint64_t received_bytes;           /* of all requests up to this one */
};

/* The state of one connection; used by its thread alone or, while it is suspended, by the job or the waker alone. */
struct td_session {
    struct td_job job; /* first: on the way back a job is a session */
    struct td_waiter waiter;
    bool job_closes; /* the job's answer ends the connection */
    struct td_serving *serving;
    struct td_link link;
    struct td_upload_room room;             /* for exchange.unpacked */
    struct td_tls_credentials *credentials; /* one reference; NULL: without TLS */
    uint64_t received_bytes;                /* of all requests, with their headers */
    uint64_t sent_bytes;                    /* of all answers that have ended, with their headers */
    char *target;                           /* raw; kept between requests while small */
    size_t target_len, target_capacity;
    struct td_exchange exchange;
    struct td_access_lines access_lines; /* all zero when the log is off */
};

/* Begins the session of a connection that libmicrohttpd has just begun. Returns NULL when memory is short: every
 * request on it is then refused. */
struct td_session *td_session_begin(struct td_serving *serving, struct MHD_Connection *mhd);

/* Ends the session and removes its connection, which libmicrohttpd is about to close. session NULL: memory was short
 * when the connection began. */
void td_session_end(const struct td_serving *serving, struct td_session *session, struct MHD_Connection *mhd);

/* Begins an exchange: keeps the raw target before libmicrohttpd decodes it, and decides on the facade. Hides the query
 * in libmicrohttpd's copy of the target. Returns false when memory is short, or the connection is not registered. */
bool td_session_begin_request(struct td_session *session, const char *target);

/* Reports the answer, if the exchange has one: counts it and the bytes that were really sent, and writes its line of
 * the access log; asks for a scan when a file had changed. Then releases the exchange. code: libmicrohttpd's reason for
 * the end. */
void td_session_end_request(struct td_session *session, enum MHD_RequestTerminationCode code);

/* Returns the address of the client; all zero when the session has no entry in the registry. */
const struct in6_addr *td_session_address(const struct td_session *session);

/* Returns the request; it borrows from the session. */
struct td_request td_session_request(const struct td_session *session);

/* Appends a part of the request's body. Beyond the limits of uploads the body is dropped and marked as failed, for the
 * answer after its end; its further bytes take no memory, and are not counted. Returns false, for the caller to close
 * the connection, once TD_LINGER_BYTES more than the longest body have come. */
bool td_session_add_upload(struct td_session *session, const char *bytes, size_t len);

/* Frees the request's body and subtracts it from the server's sum. */
void td_session_drop_upload(struct td_session *session);

/* Counts the request as one that waits for a change, and no longer as one that is being answered. Returns false when
 * too many wait already. */
bool td_session_enter_wait(struct td_session *session, uint64_t until_ns);

/* Ends the wait that td_session_enter_wait began, if it returned true. */
void td_session_leave_wait(struct td_session *session);

/* Marks the beginning of a retry. The time of the answer counts from here on. */
void td_session_end_waiting(struct td_session *session);

#endif
