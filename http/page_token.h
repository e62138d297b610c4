/* Page tokens: opaque to clients, valid on every replica and across restarts. A token carries the last name shown
 * and a digest that ties it to its listing and filters, so one from elsewhere is recognised as foreign. */
#ifndef TD_HTTP_PAGE_TOKEN_H
#define TD_HTTP_PAGE_TOKEN_H

#include "core/buffer.h"
#include "http/request.h"

#include <stdbool.h>

/* Appends the token for "continue after `last`" (base64url, no padding). listing names what is being paged
 * through, filters included. */
void td_page_token_write(struct td_buffer *out, struct td_text listing, struct td_text last);

/* Decodes a token of the same listing into *last (emptied first). False: not one of ours, or of another listing; or
 * out of memory, and then last->failed is set. */
bool td_page_token_read(struct td_text token, struct td_text listing, struct td_buffer *last);

#endif
