/* StreamRows of more rows than one answer of the native interface has: a stream that asks for them page by page. */
#ifndef TD_API_RPC_RPC_ROWS_H
#define TD_API_RPC_RPC_ROWS_H

#include "api/call/call.h"
#include "api/rpc/rpc_bytes.h"
#include "api/rpc/rpc_rules.h"

#include <stdint.h>

/* Replaces the body of the response by a stream of the rows that follow the page, which is empty. `native` is the
 * request that the response answers. The stream ends with an error at the deadline (td_clock_ns), when the server
 * drains, and when the rows change; with one or the other it ends between two pages. */
void td_rpc_rows_begin(const struct td_call *call, const struct td_method *method, const struct td_rpc_native *native,
                       const struct td_rpc_row_page *page, uint64_t deadline_ns);

#endif
