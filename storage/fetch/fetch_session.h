/* A session: the connections of one thread to a client's servers, which stay open from file to file; small answers; and
 * requests with a body.
 * Threads: one per session, any number of sessions per client. */
#ifndef TD_STORAGE_FETCH_FETCH_SESSION_H
#define TD_STORAGE_FETCH_FETCH_SESSION_H

#include "core/buffer.h"
#include "core/cancel.h"
#include "core/error.h"
#include "storage/fetch/fetch_answer.h"
#include "storage/fetch/fetch_client.h"
#include "storage/fetch/fetch_upload.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reports to a person, in one line without a line feed, what happens and why: a server that failed and is asked again.
 * Called by the session's thread. */
struct td_fetch_notes {
    void (*report)(void *context, const char *text);
    void *context;
};

struct td_fetch_session;

/* Makes a session of the client, which must outlive it. cancel and notes (both may be NULL) are borrowed. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_fetch_session_create(const struct td_fetch_client *client, const struct td_cancel *cancel,
                             const struct td_fetch_notes *notes, struct td_fetch_session **out, struct td_error *err);

/* Closes the connections and frees the session. NULL is allowed. */
void td_fetch_session_destroy(struct td_fetch_session *session);

/* Gets a small answer: GET of `path` (with its query, percent-encoded, beginning with '/') from the servers in turn
 * until one answers with a final status; failures are retried for retry_for_ns, with backoff. Sets `body` to the body,
 * *answer and *server. A status of 400 and above is not an error, and its body is not kept. *server: from this one
 * alone (`only`), else begin with it. Errors: TD_UNAVAILABLE when no server answered in time (the message says why, of
 * the last one), TD_FAILED_PRECONDITION for a body of more than max_bytes, TD_PERMISSION_DENIED for a certificate that
 * is not trusted, TD_RESOURCE_EXHAUSTED; TD_CONFLICT when cancelled. */
bool td_fetch_session_get(struct td_fetch_session *session, const char *path, size_t max_bytes, bool only,
                          size_t *server, struct td_fetch_answer *answer, struct td_buffer *body, struct td_error *err);

/* Sends a request with a body to a server, and gets the answer, whose body, of at most max_bytes, is kept for every
 * status. retries: failures are retried for retry_for_ns, with backoff; the request must then be one that may be sent
 * again. No status is an error but those after which a retry may help, and redirects. Errors: as td_fetch_session_get;
 * TD_UNAVAILABLE, with *answer as far as it came, without `retries` too; TD_FAILED_PRECONDITION for a redirect, and
 * when the file became shorter; TD_IO when it cannot be read. */
bool td_fetch_session_send(struct td_fetch_session *session, const struct td_fetch_request *request, size_t max_bytes,
                           bool retries, size_t server, struct td_fetch_answer *answer, struct td_buffer *body,
                           struct td_error *err);

/* Waits until the time (td_clock_ns) has come. Returns false when cancelled. */
bool td_fetch_session_wait(const struct td_fetch_session *session, uint64_t until_ns);

/* Bounds the small answers that follow: all of them together, with their waits and tries, end until `until_ns`
 * (td_clock_ns), with TD_UNAVAILABLE. 0: no bound. */
void td_fetch_session_end_at(struct td_fetch_session *session, uint64_t until_ns);

/* Excludes each server i with left_out[i] from later small answers. left_out is borrowed. NULL excludes none. */
void td_fetch_session_leave_out(struct td_fetch_session *session, const bool *left_out);

/* For fetch_file alone: the client, the multi handle of libcurl (CURLM *), and the arguments of
 * td_fetch_session_create. */
const struct td_fetch_client *td_fetch_session_client(const struct td_fetch_session *session);
void *td_fetch_session_multi(const struct td_fetch_session *session);
const struct td_cancel *td_fetch_session_cancel(const struct td_fetch_session *session);
void td_fetch_session_report(const struct td_fetch_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reports why a server failed, and when it is asked again: in wait_ns; 0: not for this file or answer. */
void td_fetch_session_report_failure(const struct td_fetch_session *session, const struct td_error *why,
                                     uint64_t wait_ns);

#endif
