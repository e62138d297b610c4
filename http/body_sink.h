/* Where the body of an upload goes, piece by piece: a file, a hash, or nothing. The handler of an upload embeds a
 * td_body_sink as the first member of its own struct, and gets it back as the request's `sink`. */
#ifndef TD_HTTP_BODY_SINK_H
#define TD_HTTP_BODY_SINK_H

#include <stdbool.h>
#include <stddef.h>

struct td_body_sink;

/* All calls of one sink come one after the other, but maybe on different threads. */
struct td_body_sink_ops {
    /* Takes the next bytes of the body, at least one. Returns false when the upload has failed: the sink keeps the
     * reason for the handler, and gets no more bytes. May wait for a disk. */
    bool (*write)(struct td_body_sink *sink, const void *bytes, size_t len);
    /* Releases the sink; called exactly once. If no handler was called with the sink before, the body was cut. May wait
     * for a disk. */
    void (*release)(struct td_body_sink *sink);
};

struct td_body_sink {
    const struct td_body_sink_ops *ops;
    bool is_document; /* it takes a text for the handler, not the bytes of a file: the body may be packed, and then the
                         sink gets it unpacked (api/call/coded_body.h) */
};

#endif
