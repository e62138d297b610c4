/* Reservations: the memory of lists and descriptions, which grow with what is served, is taken from one budget before
 * it is allocated, so that all such answers together are bounded. Rank files have another budget: slow readers of lists
 * keep nobody from those. */
#ifndef TD_HTTP_RESERVATION_H
#define TD_HTTP_RESERVATION_H

#include "core/json_build.h"
#include "http/response.h"

/* The budget of all such answers. */
enum { TD_LISTS_BYTES = 256 * 1024 * 1024 };

/* The reservation of one call. Starts as zero with a budget, which is borrowed. */
struct td_reserved {
    struct td_budget *budget;
    size_t bytes;         /* reserved in all */
    size_t counted_bytes; /* taken from the budget: 0 while at most 64 KiB are reserved */
    size_t json_bytes;    /* of those, the bytes for the call's JSON */
};

/* Reserves memory that the call is about to allocate, until td_reserved_release. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_reserved_take(struct td_reserved *reserved, size_t bytes, struct td_error *err);

/* Flushes the builder of the call's JSON, and reserves room in its buffer for one more object, whose texts have
 * text_bytes bytes together before they are escaped. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_reserved_json_room(struct td_reserved *reserved, struct td_json_builder *builder, size_t text_bytes,
                           struct td_error *err);

/* Makes the buffer, which it empties, a whole 200 answer. The answer takes over the reservation of these bytes. Returns
 * false, TD_RESOURCE_EXHAUSTED, without an answer. */
bool td_reserved_answer_json(struct td_reserved *reserved, struct td_buffer *json, struct td_response *response,
                             struct td_error *err);

/* Gives the reservation back to the budget. Call it at the end of the call, after freeing the memory. */
void td_reserved_release(struct td_reserved *reserved);

#endif
