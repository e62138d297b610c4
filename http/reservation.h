/* Reservations. Lists and descriptions grow with the number of files served, so their memory is taken from one budget
 * before it is allocated, and all such answers together are bounded. Rank files have another budget, so that slow
 * readers of lists cannot block them. */
#ifndef TD_HTTP_RESERVATION_H
#define TD_HTTP_RESERVATION_H

#include "core/message/document.h"
#include "http/response.h"

/* The size of that budget. */
enum { TD_LISTS_BYTES = 256 * 1024 * 1024 };

/* The reservation of one call. Start with all members zero but the budget, which is borrowed and not NULL. For one
 * thread. */
struct td_reserved {
    struct td_budget *budget;
    size_t bytes;         /* reserved in all */
    size_t counted_bytes; /* taken from the budget: 0 while at most 64 KiB are reserved, so that small answers succeed
                           * when the budget is used up */
    size_t json_bytes;    /* of those, the bytes for the call's JSON */
};

/* Reserves memory that the call is about to allocate, until td_reserved_release. Allocates nothing. Errors:
 * TD_RESOURCE_EXHAUSTED when the budget has not so much left; then nothing more is reserved. */
bool td_reserved_take(struct td_reserved *reserved, size_t bytes, struct td_error *err);

/* Flushes the builder of the call's JSON, and reserves room in its buffer for one more object, whose texts have
 * text_bytes bytes together before they are escaped. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_reserved_json_room(struct td_reserved *reserved, struct td_document *builder, size_t text_bytes,
                           struct td_error *err);

/* Moves the buffer into the response as the body of a whole 200 answer, which leaves the buffer empty. The answer takes
 * over the reservation of these bytes. Errors: TD_RESOURCE_EXHAUSTED; then the response is unchanged. A later shortage
 * of memory makes the response itself an error. */
bool td_reserved_answer_json(struct td_reserved *reserved, struct td_buffer *json, struct td_response *response,
                             struct td_error *err);

/* Gives the rest of the reservation back to the budget. Call it at the end of the call, after freeing the memory. */
void td_reserved_release(struct td_reserved *reserved);

#endif
