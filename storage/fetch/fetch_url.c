#include "storage/fetch/fetch_url.h"

#include <ctype.h>
#include <string.h>

enum { MAX_URL_BYTES = 2000 };

void td_fetch_url_suggest(const char *url, struct td_buffer *out)
{
    static const struct {
        const char *scheme, *meant;
    } schemes[] = {{"tensord://", "http"}, {"tensords://", "https"}};
    struct td_text text = td_text_of(url);
    if (text.len > 0 && strstr(url, "://") == NULL)
        td_buffer_printf(out, "; did you mean http://%.200s?", url);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (td_text_begins_ignore_case(text, schemes[i].scheme)) {
            struct td_text rest = td_text_skip(text, strlen(schemes[i].scheme));
            struct td_text host = td_text_take_until(&rest, '/');
            td_buffer_printf(out, "; did you mean %s://%.*s?", schemes[i].meant, TD_SHOW(host, 200));
        }
}

/* Refuses a URL of another scheme than http and https. */
static bool refuse_scheme(const char *url, struct td_error *err)
{
    struct td_buffer hint;
    td_buffer_init(&hint);
    td_fetch_url_suggest(url, &hint);
    struct td_text text = td_buffer_text(&hint);
    (void)td_error_set(err, TD_INVALID_ARGUMENT,
                       "the URL must begin with http:// or https://, but it is \"%.200s\"%.*s", url, (int)text.len,
                       text.p);
    td_buffer_fini(&hint);
    return false;
}

bool td_fetch_url_check(const char *url, struct td_text *base, struct td_error *err)
{
    struct td_text text = td_text_of(url);
    if (text.len > MAX_URL_BYTES)
        return td_error_set(err, TD_INVALID_ARGUMENT, "a URL may have at most %d bytes", MAX_URL_BYTES);
    if (memchr(url, '@', text.len) != NULL)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "a URL with a user or a password is not taken, since other programs can see command lines; "
                            "give a token in its place, in a file");
    for (size_t i = 0; i < text.len; i++)
        if (url[i] <= ' ' || url[i] >= 0x7F || url[i] == '\\')
            return td_error_set(err, TD_INVALID_ARGUMENT, "the URL \"%.200s\" holds a character that URLs do not have",
                                url);
    bool has_tls = td_text_begins_ignore_case(text, "https://");
    if (!has_tls && !td_text_begins_ignore_case(text, "http://"))
        return refuse_scheme(url, err);
    struct td_text rest = td_text_skip(text, has_tls ? sizeof "https://" - 1 : sizeof "http://" - 1);
    if (rest.len == 0 || rest.p[0] == '/' || rest.p[0] == ':')
        return td_error_set(err, TD_INVALID_ARGUMENT, "the URL \"%.200s\" has no host", url);
    if (strpbrk(url, "?#") != NULL)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "the URL \"%.200s\" must end with its host or a path, without ? and #", url);
    while (text.p[text.len - 1] == '/')
        text.len--;
    *base = text;
    return true;
}

bool td_fetch_url_has_tls(struct td_text base)
{
    return td_text_begins_ignore_case(base, "https://");
}

struct td_text td_fetch_url_path(struct td_text base)
{
    struct td_text rest = td_text_skip(base, sizeof "http://" - 1 + (td_fetch_url_has_tls(base) ? 1 : 0));
    const char *slash = rest.len == 0 ? NULL : memchr(rest.p, '/', rest.len);
    return slash == NULL ? td_text_n(rest.p, 0) : td_text_skip(rest, (size_t)(slash - rest.p));
}

void td_fetch_url_append_path(struct td_buffer *out, struct td_text path)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < path.len; i++) {
        unsigned char c = (unsigned char)path.p[i];
        if (c < 0x80 && (isalnum(c) || strchr("/-._~", c) != NULL) && c != '\0') {
            td_buffer_putc(out, (char)c);
        } else {
            td_buffer_putc(out, '%');
            td_buffer_putc(out, digits[c >> 4]);
            td_buffer_putc(out, digits[c & 15]);
        }
    }
}
