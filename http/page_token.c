#include "http/page_token.h"

#include "core/digest.h"

#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

enum { TOKEN_TAG_BYTES = 12 }; /* digits of the digest that a token carries */

/* Writes a digest of listing and last. 48 bits suffice against mistakes, and forging a token gains nothing. */
static bool token_tag(struct td_text listing, struct td_text last, char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    td_digest_add(digest, listing.p, listing.len);
    td_digest_add(digest, last.p, last.len);
    return td_digest_finish(digest, tag);
}

static void base64url_write(struct td_buffer *out, const unsigned char *p, size_t len)
{
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        unsigned bits = (unsigned)p[i] << 16;
        bits |= n > 1 ? (unsigned)p[i + 1] << 8 : 0;
        bits |= n > 2 ? (unsigned)p[i + 2] : 0;
        for (size_t k = 0; k <= n; k++)
            td_buffer_putc(out, alphabet[bits >> (18 - 6 * k) & 63]);
    }
}

static bool base64url_read(struct td_text in, struct td_buffer *out)
{
    unsigned bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < in.len; i++) {
        const char *at = in.p[i] == '\0' ? NULL : strchr(alphabet, in.p[i]);
        if (at == NULL)
            return false;
        bits = (bits << 6 | (unsigned)(at - alphabet)) & 0xFFFFU;
        held += 6;
        if (held >= 8) {
            held -= 8;
            td_buffer_putc(out, (char)(bits >> held & 0xFF));
        }
    }
    return held < 6 && (bits & ((1U << held) - 1)) == 0 && !out->failed;
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
    if (raw.failed)
        out->failed = true;
    else
        base64url_write(out, (const unsigned char *)raw.data, raw.len);
    td_buffer_fini(&raw);
}

bool td_page_token_read(struct td_text token, struct td_text listing, struct td_buffer *last)
{
    struct td_buffer raw;
    char tag[TD_TAG_BYTES];
    td_buffer_init(&raw);
    td_buffer_clear(last);
    bool ok = base64url_read(token, &raw) && raw.len >= TOKEN_TAG_BYTES;
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
