/* Page tokens: opaque to clients, valid on every replica and across restarts. A token carries the last name that was
 * shown, and a digest that ties it to its listing and filters, so that a token of another listing is refused. */
#ifndef TD_HTTP_PAGE_TOKEN_H
#define TD_HTTP_PAGE_TOKEN_H

#include "core/buffer.h"
#include "core/text.h"

#include <stdbool.h>

/* Appends the token for "continue after `last`" (base64url, no padding). `listing` is any text that identifies the
 * listing and its filters; td_page_token_read needs the same text. Sets out->failed when memory is short. */
void td_page_token_write(struct td_buffer *out, struct td_text listing, struct td_text last);

/* Decodes a token of this listing into *last, an initialised buffer, which is emptied first. Returns false when the
 * token is malformed or belongs to another listing, and when memory is short; only then last->failed is set. */
bool td_page_token_read(struct td_text token, struct td_text listing, struct td_buffer *last);

#endif
