/* Range requests (RFC 9110 section 14), applied here for all endpoints. Only range.c has inclusive ends; everything
 * else uses offset and length.
 *
 * Policy, where the RFC leaves a choice: an unknown unit or a malformed set is ignored (14.2: 200 and the whole); two
 * Range lines are no valid field and are ignored (200); ranges of an empty representation are ignored, unless the
 * response refuses them (refuses_empty_ranges); more than TD_MAX_RANGES ranges, or more than two that overlap, are
 * answered 416 ("an excessive request of small or overlapping ranges", 15.5.17); when one of several ranges is
 * satisfiable, the answer is that range alone; parts come in the order asked for and are never joined. */
#ifndef TD_HTTP_RANGE_H
#define TD_HTTP_RANGE_H

#include "http/request.h"
#include "http/response.h"

#include <stddef.h>
#include <stdint.h>

enum { TD_MAX_RANGES = 256 };

struct td_byte_range {
    uint64_t off, len; /* len > 0, within the representation */
};

enum td_range_result {
    TD_RANGE_IGNORE,       /* no range request: send the whole */
    TD_RANGE_PARTIAL,      /* *count ranges, all satisfiable */
    TD_RANGE_UNSATISFIABLE /* answer 416 */
};

/* Reads a Range field value against a representation of `size` bytes. For TD_RANGE_PARTIAL, writes the satisfiable
 * ranges to `ranges`, which has room for TD_MAX_RANGES, and their number to *count; otherwise both are undefined. */
enum td_range_result td_range_parse(struct td_text value, uint64_t size, struct td_byte_range *ranges, size_t *count);

/* Applies the request's Range field to a 200 answer that accepts ranges: turns the answer into 206, 206
 * multipart/byteranges or 416, or leaves it alone; turns it into an error answer when memory is short. The caller has
 * checked If-Range. */
void td_range_apply(const struct td_request *request, struct td_response *response);

#endif
