/* Lays out bytes that the native interface has answered with, of tensors and of rows, as the messages of a method. */
#ifndef TD_API_RPC_RPC_BYTES_H
#define TD_API_RPC_RPC_BYTES_H

#include "api/call/call.h"
#include "api/call/tensor_text.h"
#include "core/message/message.h"

#include <stdbool.h>
#include <stdint.h>

/* Replaces the body of a 200 answer of tensors:read by the messages of ReadTensors. chunk_bytes is the field of the
 * request. Errors: as td_messages_finish. */
bool td_rpc_lay_out_tensors(const struct td_call *call, const struct td_method *method,
                            const struct td_read_results *results, uint64_t chunk_bytes, struct td_error *err);

/* Rows of a stream that come as one body. */
struct td_rpc_row_page {
    uint64_t next; /* the position of the row after them */
    uint64_t left; /* rows that follow them */
};

/* Returns whether a stream of `wanted` rows has more rows than the response, a 200 answer with the first ones of them.
 * Sets *page to an empty page before the first row. */
bool td_rpc_has_more_rows(const struct td_response *response, uint64_t wanted, struct td_rpc_row_page *page);

/* Replaces the body of a 200 answer with rows in the form "frame" by the messages of StreamRows, or by the message of
 * BatchGetRows without a frame. wanted: the rows that a stream is to have from the answer's first one on; the end of
 * the stream is left out if some are left. page may be NULL for BatchGetRows. Returns false after it answered an error.
 */
bool td_rpc_lay_out_rows(const struct td_call *call, const struct td_method *method, uint64_t wanted,
                         struct td_rpc_row_page *page);

#endif
