/* Makes the answer to a request after its header has been read, and passes it to libmicrohttpd: on the connection's
 * thread, in a job or, after a wait for a change, on the waker. MHD_NO, which the functions return when memory is
 * short, drops the connection. Call on the connection's thread, in libmicrohttpd's callback, unless noted. */
#ifndef TD_SERVER_MHD_ANSWERING_H
#define TD_SERVER_MHD_ANSWERING_H

#include "server/mhd/session.h"

/* Refuses the request with this status and message, and closes the connection. head: it is a HEAD request. */
enum MHD_Result td_answer_refuse(struct td_session *session, bool head, int status, const char *message);

/* Answers, now or by a job. close: this is libmicrohttpd's first call for the request, and the connection ends with the
 * answer. */
enum MHD_Result td_answer_begin(struct td_session *session, bool close);

/* Begins the upload of a request with a body, whose sink is made now or by a job. This is libmicrohttpd's first call
 * for the request: an answer instead of the sink ends the connection. */
enum MHD_Result td_answer_open(struct td_session *session);

/* Continues after a job has begun the upload, in the stage TD_STAGE_OPENING. */
enum MHD_Result td_answer_opened(struct td_session *session);

/* Gives a piece of the body of an upload to its sink, now or by a job. Sets *len to the number of bytes that
 * libmicrohttpd has to pass again. */
enum MHD_Result td_answer_take(struct td_session *session, const char *bytes, size_t *len);

/* Continues an answer in the stage TD_STAGE_WAIT_WANTED, TD_STAGE_JOB_WANTED or TD_STAGE_JOB_BEGUN. */
enum MHD_Result td_answer_resume(struct td_session *session);

/* Retries a waiting request. may_wait: called on a job's thread, else on the waker. */
enum td_retry td_answer_retry(struct td_waiter *waiter, bool may_wait);

#endif
