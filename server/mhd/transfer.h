/* Transfers: turn a td_response into the response that libmicrohttpd sends, in the fastest way that is safe:
 *   file     long runs of a file under a lease are sent by reference (sendfile): nothing is copied on this side
 *   memory   a body in memory, or in mappings under leases, is sent in place; the kernel copies it
 *   copy     a small body is copied, and its files are checked after the copy
 *   checked  any other body; before its end is sent the files are checked, and the answer is broken off if one changed
 * In each way, a complete answer never mixes two versions of a file; docs/security.md names the exceptions. */
#ifndef TD_SERVER_MHD_TRANSFER_H
#define TD_SERVER_MHD_TRANSFER_H

#include "http/response.h"
#include "server/mhd/kept_response.h"
#include "server/net/connection.h"
#include "server/serving/tls.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TD_FLAT_BYTES = 32 * 1024,       /* longest flat body */
    TD_COPY_BYTES = TD_KEPT_BYTES,   /* longest body that is copied even if it could be sent in place */
    TD_TURN_BYTES = 256 * 1024,      /* longest body that a shared thread sends at once, by reference or flat */
    TD_COLD_BYTES = 8 * 1024 * 1024, /* shortest body that is checked for being in the page cache */
    TD_PREFETCH_BYTES =
        8 * 1024 * 1024,                /* read before sending a body that is not cached; the kernel then reads ahead */
    TD_LOOK_BYTES = 1024 * 1024,        /* longest body that has all its pages checked, or touched, before it is sent */
    TD_SHARED_BYTES = 64 * 1024 * 1024, /* longest body that a shared thread sends without jobs */
    TD_BLOCK_BYTES = 64 * 1024,         /* of a window, what libmicrohttpd gets at a time from a job */
    TD_IOVEC_RUNS = 256                 /* pieces of a pinned body; their vector must fit the connection's pool */
};

/* A connection and what serves it here; used by its thread alone. */
struct td_link {
    struct td_connection *connection;
    struct MHD_Connection *mhd;
    struct td_jobs *jobs; /* for work that would wait, since its thread is shared; NULL: it has a thread of its own */
    struct td_kept_response *kept; /* owned by the session; NULL: none yet */
    struct td_tls_stream stream;   /* where GnuTLS sends; not used without TLS */
};

/* A body as it is sent. */
struct td_transfer {
    enum td_way way;
    uint64_t header_bytes;  /* without "Connection: Keep-Alive", which libmicrohttpd adds for HTTP/1.0 */
    uint64_t body_bytes;    /* that follow the header, without the framing of a chunked body */
    uint64_t framing_bytes; /* of a chunked body and its trailers */
    bool is_kept;           /* the response is the connection's and may be used again */
    bool is_long; /* more than TD_FLAT_BYTES: sending may take long, and its progress is counted byte by byte */
};

/* Makes libmicrohttpd's response, headers included, with "Connection: close" when response->close is set, and fills in
 * *transfer. A body that is not copied moves out of *response. When a body cannot be copied because its file changed,
 * *response becomes the error that is sent instead. `head`: the response announces the body's length and sends none.
 * TD_WAY_FILE: the caller calls td_connection_end_answer when the answer is complete or broken off, and
 * td_read_proof_confirm when the next request begins. Returns NULL when out of memory: the caller must drop the
 * connection; or when the running thread must not wait and sending would (td_waiting_was_refused). */
struct MHD_Response *td_transfer_create(struct td_response *response, struct td_link *link, bool head,
                                        struct td_transfer *transfer);

/* Ends the caller's use of the response that td_transfer_create has made. NULL is allowed. */
void td_transfer_release(struct MHD_Response *mhd_response, const struct td_transfer *transfer);

#endif
