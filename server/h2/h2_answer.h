/* The answer of a stream of HTTP/2, on its way from the threads that make it to libnghttp2, which asks for bytes while
 * the client's windows are open. All functions are for the thread of the connection's loop. */
#ifndef TD_SERVER_H2_H2_ANSWER_H
#define TD_SERVER_H2_H2_ANSWER_H

#include "server/h2/h2_session.h"

#include <stdbool.h>

/* Starts to handle the request. */
void td_h2_answer_begin(struct td_h2_stream *stream);

/* Starts to answer the complete messages that have arrived. The request's facade answers each message by itself
 * (`answers_each`). Returns false when there is nothing to answer yet, and while a thread works for the stream. */
bool td_h2_answer_messages(struct td_h2_stream *stream);

/* Starts to handle the request when its body is complete. */
void td_h2_answer_whole(struct td_h2_stream *stream);

/* Continues with a stream whose answer was begun or continued by a thread. */
void td_h2_answer_continue(struct td_h2_stream *stream);

/* Has libnghttp2 ask for bytes again, if it waits for some. */
void td_h2_answer_resume(struct td_h2_stream *stream);

/* Returns whether all bytes of the answer, as far as it is made, were given to libnghttp2. */
bool td_h2_answer_is_exhausted(const struct td_h2_stream *stream);

/* Breaks the answer off, for a reason of the server. */
void td_h2_answer_break_off(struct td_h2_stream *stream, enum td_cut cut);

/* Ends the answer with the gRPC status UNAVAILABLE, of a request whose messages are answered each by itself, while none
 * is to be answered. */
void td_h2_answer_end_conversation(struct td_h2_stream *stream);

#endif
