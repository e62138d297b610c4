/* Transfers: turn a td_response into the response that libmicrohttpd sends, in the fastest way that is safe:
 *   flat     a small body is copied, and its files are checked after the copy
 *   pinned   a body in memory, or in mappings under a lease, is sent in place; nothing is copied
 *   checked  any other body is copied window by window; before the last window the files are checked, and the answer is
 *            broken off when one of them has changed
 * In each way, a complete answer never mixes two versions of a file. */
#ifndef TD_SERVER_TRANSFER_H
#define TD_SERVER_TRANSFER_H

#include "http/response.h"
#include "server/connection.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TD_FLAT_BYTES = 32 * 1024,           /* longest flat body */
    TD_COPY_BYTES = 2 * 1024,            /* longest body that is copied even if it could be sent in place */
    TD_WINDOW_BYTES = 256 * 1024,        /* length of a window */
    TD_COLD_BYTES = 512 * 1024,          /* shortest body of which it is checked whether it is in the page cache */
    TD_PREFETCH_BYTES = 8 * 1024 * 1024, /* read before sending a body that is not; the kernel then reads ahead */
    TD_IOVEC_RUNS = 256                  /* pieces of a pinned body; their vector must fit the connection's pool */
};

/* Makes libmicrohttpd's response, headers included, with "Connection: close" when response->close is set. A body that
 * is not flat moves out of *response. When a flat body cannot be read because its file changed, *response becomes the
 * error that is sent instead. `head`: the response announces the body's length and sends none. *body_bytes receives the
 * number of bytes that will follow the header; *direct whether the body is longer than TD_FLAT_BYTES, so that sending
 * may take long and its progress is counted byte by byte. Returns NULL when out of memory: the caller must drop the
 * connection.
 */
struct MHD_Response *td_transfer_create(struct td_response *response, struct td_connection *connection, bool head,
                                        uint64_t *body_bytes, bool *direct);

/* Returns the length of the header block that libmicrohttpd will send: the status line, Date, Content-Length, the
 * response's own fields, and the empty line. */
uint64_t td_transfer_header_bytes(const struct td_response *response, uint64_t content_bytes);

#endif
