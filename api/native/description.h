/* A list or a description while it is written as JSON. Its length is bounded by its budget alone, because a model or a
 * dataset may have any number of files and a scan any number of errors. Each row is printed when room for the next one
 * is reserved. For one thread. */
#ifndef TD_API_NATIVE_DESCRIPTION_H
#define TD_API_NATIVE_DESCRIPTION_H

#include "api/call.h"
#include "core/json_build.h"
#include "http/reservation.h"

#include <stdbool.h>

struct td_description {
    const struct td_call *call;
    struct td_buffer out;
    struct td_json_builder json;
    struct td_reserved reserved;
    struct td_error err;
};

/* Starts the document, an object. Call td_description_finish in every case. */
void td_description_begin(struct td_description *description, const struct td_call *call);

/* Ends the object, and answers it, or the error in `err` when ok is false. */
void td_description_finish(struct td_description *description, bool ok);

/* Reserves room for one more row, whose texts have text_bytes bytes together. Returns false, with the error in `err`,
 * when the budget is used up. */
bool td_description_room(struct td_description *description, size_t text_bytes);

/* Adds "errors": a list of {"file", "message"}. Returns as td_description_room. */
bool td_description_add_problems(struct td_description *description, const struct td_problems *problems);

/* Adds "next_page_token": the token of the page that begins after the row with this id; an empty token for NULL.
 * `listing` names the listing (api/native/listing.h). Returns false when memory is short. */
bool td_description_add_next_page(struct td_description *description, struct td_text listing, const char *last_id);

#endif
