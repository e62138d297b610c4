/* Memory of an answer that grows with what is served, counted before it is taken: what calls list and their JSON come
 * out of one budget, so all such answers together are bounded. It is not that of the files that are made: slow readers
 * of lists keep nobody from those. */
#ifndef TD_HTTP_RESERVATION_H
#define TD_HTTP_RESERVATION_H

#include "core/buffer.h"
#include "http/response.h"

enum { TD_LISTS_BYTES = 256 * 1024 * 1024 };

/* What one call holds. Zero but for the budget, which is borrowed. */
struct td_reserved {
    struct td_budget *budget;
    size_t bytes;         /* altogether */
    size_t counted_bytes; /* taken from the budget for it: nothing as long as it is little */
    size_t json_bytes;    /* what of it is the JSON's */
};

/* Counts memory that the call is about to take, until td_reserved_release. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_reserved_take(struct td_reserved *reserved, size_t bytes, struct td_error *err);

/* Room, reserved, for one more object of the call's JSON, whose texts have so many bytes together, not yet escaped.
 * Errors likewise. */
bool td_reserved_json_room(struct td_reserved *reserved, struct td_buffer *json, size_t text_bytes,
                           struct td_error *err);

/* Makes the buffer (emptied) a whole 200 answer. What was reserved for it becomes the answer's. False when memory is
 * short: nothing was answered. */
bool td_reserved_answer_json(struct td_reserved *reserved, struct td_buffer *json, struct td_response *response,
                             struct td_error *err);

/* Gives back what is reserved. At the end of the call, when the memory is free. */
void td_reserved_release(struct td_reserved *reserved);

#endif
