/* Transfers: a td_response becomes what libmicrohttpd sends, in the way that is fastest for it and safe:
 *   flat     small bodies: copied, the file checked after the copy
 *   pinned   bodies in memory or in mappings under a lease: straight from the mapping, nothing copied
 *   checked  everything else: through a window; before the last one the files are checked again, and the answer is
 *            broken off rather than completed when one changed
 * Whichever way, a complete answer never mixes two versions of a file. */
#ifndef TD_SERVER_TRANSFER_H
#define TD_SERVER_TRANSFER_H

#include "api/response.h"
#include "server/connection.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TD_FLAT_BYTES = 32 * 1024, /* at most; larger ones are windowed */
    TD_COPY_BYTES = 2 * 1024,  /* so little is copied even where it could be sent in place */
    TD_WINDOW_BYTES = 256 * 1024,
    TD_COLD_BYTES = 512 * 1024,          /* from here on it is worth asking whether the bytes are in memory */
    TD_PREFETCH_BYTES = 8 * 1024 * 1024, /* if not, so many are read first; the kernel then reads on ahead */
    TD_IOVEC_RUNS = 256                  /* libmicrohttpd's copy of the vector must fit the connection's pool */
};

/* Makes the response to send, headers included. The body moves out of *response; on a failure *response becomes the
 * error that is sent instead. NULL: out of memory, drop the connection. head: the length is announced, nothing sent.
 * Adds "Connection: close" when response->close is set. *body_bytes is what will be sent after the header. *direct
 * is true when sending may take long enough to be watched byte by byte. */
struct MHD_Response *td_transfer_create(struct td_response *response, struct td_connection *connection, bool head,
                                        uint64_t *body_bytes, bool *direct);

/* Length of the header block that libmicrohttpd makes of the response: status line, Date, Content-Length, ours. */
uint64_t td_transfer_header_bytes(const struct td_response *response, uint64_t content_bytes);

#endif
