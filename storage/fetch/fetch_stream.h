/* Reads an answer without an end, such as a stream of events, on the caller's thread. */
#ifndef TD_STORAGE_FETCH_FETCH_STREAM_H
#define TD_STORAGE_FETCH_FETCH_STREAM_H

#include "core/cancel.h"
#include "core/error.h"
#include "core/text.h"
#include "storage/fetch/fetch_client.h"

#include <stdbool.h>
#include <stddef.h>

enum { TD_FETCH_STREAM_VALUE_BYTES = 256 }; /* of the longest `last_id` that is sent, with a NUL */

/* A request, and the functions that take its answer. All is borrowed. */
struct td_fetch_stream {
    const char *path;    /* below the base URL of the server */
    const char *type;    /* the media type of the stream, sent as Accept */
    const char *last_id; /* sent as Last-Event-ID, if it is printable ASCII and short enough; NULL: none */
    unsigned silence_s;  /* a connection on which nothing arrives for so long has failed */
    const struct td_cancel *cancel;
    void *context;
    void (*on_open)(void *context);                    /* the answer is the stream */
    bool (*take)(void *context, struct td_text bytes); /* takes the next bytes; false: ends the answer */
};

/* Asks one server, and reads until the answer ends. Sets *status to the answer's status, 0 without one; another status
 * than 200 is not an error, and *is_stream is then false, as for another media type. Returns true when the answer has
 * ended, by the server or by `take`. Errors: as td_fetch_session_get for one server without retries; TD_CONFLICT when
 * cancelled, within about 1 s. */
bool td_fetch_stream_read(const struct td_fetch_client *client, size_t server, const struct td_fetch_stream *stream,
                          unsigned *status, bool *is_stream, struct td_error *err);

#endif
