#include "http/page_token.h"

#include "core/base64.h"
#include "core/digest.h"

#include <string.h>

enum { TOKEN_TAG_BYTES = 12 }; /* digits of the digest that a token carries */

/* Writes a digest of listing and last. 48 bits suffice against mistakes, and forging a token gains nothing. */
static bool token_tag(struct td_text listing, struct td_text last, char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    td_digest_add(digest, listing.p, listing.len);
    td_digest_add(digest, last.p, last.len);
    return td_digest_finish(digest, tag);
}

void td_page_token_write(struct td_buffer *out, struct td_text listing, struct td_text last)
{
    char tag[TD_TAG_BYTES];
    struct td_buffer raw;
    if (!token_tag(listing, last, tag)) {
        out->failed = true;
        return;
    }
    td_buffer_init(&raw);
    td_buffer_append(&raw, tag, TOKEN_TAG_BYTES);
    td_buffer_append(&raw, last.p, last.len);
    if (raw.failed) {
        out->failed = true;
    } else if (td_buffer_reserve(out, TD_BASE64URL_CHARS(raw.len))) {
        td_base64url_write(raw.data, raw.len, out->data + out->len);
        out->len += TD_BASE64URL_CHARS(raw.len);
    }
    td_buffer_fini(&raw);
}

bool td_page_token_read(struct td_text token, struct td_text listing, struct td_buffer *last)
{
    struct td_buffer raw;
    char tag[TD_TAG_BYTES];
    td_buffer_init(&raw);
    td_buffer_clear(last);
    bool ok = td_buffer_reserve(&raw, token.len) && td_base64url_read(token, raw.data, &raw.len) &&
              raw.len >= TOKEN_TAG_BYTES;
    last->failed = raw.failed;
    if (ok) {
        struct td_text name = {.p = raw.data + TOKEN_TAG_BYTES, .len = raw.len - TOKEN_TAG_BYTES};
        last->failed = !token_tag(listing, name, tag);
        ok = !last->failed && memcmp(tag, raw.data, TOKEN_TAG_BYTES) == 0;
        if (ok)
            td_buffer_append(last, name.p, name.len);
        ok = ok && !last->failed;
    }
    td_buffer_fini(&raw);
    return ok;
}
