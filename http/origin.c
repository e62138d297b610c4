#include "http/origin.h"

#include "core/digits.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { PORT_DIGITS = 5 };

/* Returns whether the text is a scheme (RFC 3986 section 3.1). */
static bool is_scheme(struct td_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!td_is_letter_or_digit(text.p[i]) && (text.p[i] == '\0' || strchr("+-.", text.p[i]) == NULL))
            return false;
    return text.len > 0 && td_is_letter(text.p[0]);
}

/* Returns whether the text is a host as URLs of browsers have it: letters, digits, '-', '.' and '_', or an IPv6 address
 * in brackets. */
static bool is_host(struct td_text text)
{
    bool is_address = text.len > 2 && text.p[0] == '[' && text.p[text.len - 1] == ']';
    if (is_address)
        text = td_text_n(text.p + 1, text.len - 2);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];
        bool fits = is_address ? td_hex_digit(c) >= 0 || c == ':' || c == '.'
                               : td_is_letter_or_digit(c) || c == '-' || c == '.' || c == '_';
        if (!fits)
            return false;
    }
    return text.len > 0;
}

/* Returns the port that the scheme has without one in the URL; 0: none is known. */
static uint64_t default_port(struct td_text scheme)
{
    return td_text_equals_ignore_case(scheme, "http") ? 80 : td_text_equals_ignore_case(scheme, "https") ? 443 : 0;
}

bool td_origin_of(struct td_text scheme, struct td_text authority, struct td_origin *origin)
{
    struct td_text host = authority;
    struct td_text port = td_text_take_last(&host, ':');
    uint64_t number = 0;
    if (authority.len == 0)
        return false;
    bool has_port = port.len < authority.len && authority.p[authority.len - 1] != ']';
    if (!has_port)
        host = authority;
    if (has_port && (port.len > PORT_DIGITS || !td_number_read_strict(port, UINT16_MAX, &number) || number == 0))
        return false;
    *origin = (struct td_origin){.scheme = scheme, .host = host, .port = number};
    if (number == default_port(scheme))
        origin->port = 0;
    return is_scheme(scheme) && is_host(host) && scheme.len + host.len + PORT_DIGITS + sizeof "://:" <= TD_ORIGIN_BYTES;
}

bool td_origin_read(struct td_text text, struct td_origin *origin)
{
    struct td_text authority = text;
    struct td_text scheme = td_text_take_until(&authority, ':');
    return td_text_take_char(&authority, '/') && td_text_take_char(&authority, '/') &&
           td_origin_of(scheme, authority, origin);
}

static bool is_same(struct td_text a, struct td_text b)
{
    return a.len == b.len && strncasecmp(a.p, b.p, a.len) == 0;
}

bool td_origin_equals(const struct td_origin *a, const struct td_origin *b)
{
    return is_same(a->scheme, b->scheme) && is_same(a->host, b->host) && a->port == b->port;
}

size_t td_origin_write(const struct td_origin *origin, char out[TD_ORIGIN_BYTES])
{
    int len = snprintf(out, TD_ORIGIN_BYTES, "%.*s://%.*s", (int)origin->scheme.len, origin->scheme.p,
                       (int)origin->host.len, origin->host.p);
    for (int i = 0; i < len; i++)
        out[i] = (char)tolower((unsigned char)out[i]);
    if (origin->port != 0)
        len += snprintf(out + len, TD_ORIGIN_BYTES - (size_t)len, ":%" PRIu64, origin->port);
    return (size_t)len;
}
