/* Streams: bodies without an end that is known, whose pieces come when there is something to say, such as server-sent
 * events. A handler puts a stream into its response; the server reads from it, and waits in between like a request that
 * waits for a change. One thread at a time uses a stream. */
#ifndef TD_HTTP_STREAM_H
#define TD_HTTP_STREAM_H

#include "core/buffer.h"
#include "http/trailers.h"

#include <stdint.h>

struct td_stream;

enum td_stream_state {
    TD_STREAM_HAS_BYTES, /* *out has bytes to send */
    TD_STREAM_WAITS,     /* there is nothing to send before something is published, or before *until_ns */
    TD_STREAM_ENDS,      /* the answer is complete */
};

struct td_stream_class {
    /* Appends the next bytes to *out, which is empty, or sets *until_ns (td_clock_ns). Failed buffers break the answer
     * off. On a thread that must not wait the read may be refused (td_waiting_was_refused): the stream is then as it
     * was, the result does not count, and a thread that may wait has to read. */
    enum td_stream_state (*read)(struct td_stream *stream, struct td_buffer *out, uint64_t *until_ns);
    /* Has the next reads give the end of the answer, since the server ends. NULL: the answer is broken off. */
    void (*stop)(struct td_stream *stream);
    /* Adds the trailers of an answer that has ended. NULL: there are none. */
    void (*add_trailers)(struct td_stream *stream, struct td_trailers *out);
    void (*destroy)(struct td_stream *stream);
};

/* The first member of each stream. */
struct td_stream {
    const struct td_stream_class *class;
};

/* Frees the stream. NULL is allowed. */
static inline void td_stream_destroy(struct td_stream *stream)
{
    if (stream != NULL)
        stream->class->destroy(stream);
}

#endif
