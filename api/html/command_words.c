#include "api/html/command_words.h"

#include "core/utf8.h"

#include <string.h>

static bool is_printable(char c)
{
    return c >= 0x20 && c < 0x7f;
}

/* Returns whether every character is a letter, a digit, or one of the others. */
static bool consists_of(struct td_text text, const char *others)
{
    for (size_t i = 0; i < text.len; i++)
        if (!td_is_letter_or_digit(text.p[i]) && (text.p[i] == '\0' || strchr(others, text.p[i]) == NULL))
            return false;
    return true;
}

static bool prints(struct td_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_printable(text.p[i]))
            return false;
    return true;
}

void td_command_word(struct td_buffer *out, struct td_text text)
{
    if (text.len > 0 && consists_of(text, "-_./:@%+,")) {
        td_buffer_append(out, text.p, text.len);
        return;
    }
    const bool is_plain = prints(text);
    td_buffer_puts(out, is_plain ? "'" : "$'");
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.p[i];
        if (!is_printable(c))
            td_buffer_printf(out, "\\x%02x", (unsigned char)c);
        else if (is_plain && c == '\'')
            td_buffer_puts(out, "'\\''");
        else if (!is_plain && (c == '\'' || c == '\\'))
            td_buffer_printf(out, "\\%c", c);
        else
            td_buffer_putc(out, c);
    }
    td_buffer_putc(out, '\'');
}

/* Returns the code point of a well-formed sequence of n bytes. */
static uint32_t code_point(const unsigned char *p, size_t n)
{
    uint32_t cp = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        cp = cp << 6 | (p[i] & 0x3fu);
    return cp;
}

void td_command_string(struct td_buffer *out, struct td_text text)
{
    const unsigned char *p = (const unsigned char *)text.p;
    td_buffer_putc(out, '"');
    for (size_t at = 0; at < text.len;) {
        const size_t n = td_utf8_sequence(p + at, text.len - at);
        const uint32_t cp = n == 0 ? 0xfffd : code_point(p + at, n);
        if (cp == '"' || cp == '\\')
            td_buffer_printf(out, "\\%c", (char)cp);
        else if (cp < 0x80 && is_printable((char)cp))
            td_buffer_putc(out, (char)cp);
        else
            td_buffer_printf(out, cp > 0xffff ? "\\U%08x" : "\\u%04x", cp);
        at += n == 0 ? 1 : n;
    }
    td_buffer_putc(out, '"');
}

bool td_command_origin(struct td_buffer *out, const struct td_call *call)
{
    const struct td_text host = td_request_host(call->request);
    if (host.len == 0)
        return false;
    td_buffer_printf(out, "%s://%.*s", td_request_scheme(call->request), (int)host.len, host.p);
    return true;
}

bool td_command_s3_origin(struct td_buffer *out, const struct td_call *call)
{
    struct td_text host = td_request_host(call->request);
    const char *listen = call->api->s3_listen;
    const char *port = listen == NULL ? NULL : strrchr(listen, ':');
    if (host.len == 0 || port == NULL)
        return false;
    struct td_text name = host;
    const struct td_text last = td_text_take_last(&name, ':');
    if (last.len < host.len && (last.len == 0 || last.p[last.len - 1] != ']')) /* "[::1]" has no port */
        host = name;
    td_buffer_printf(out, "%s://%.*s%s", td_request_scheme(call->request), (int)host.len, host.p, port);
    return true;
}

void td_command_vary(struct td_response *response)
{
    td_response_add_header_text(response, "Vary", TD_TEXT("X-Forwarded-Proto"));
}

bool td_command_takes_hub_id(struct td_text id)
{
    enum { MOST_BYTES = 96 };
    static const char git[] = ".git";
    struct td_text rest = id;
    size_t segments = 0;
    bool ends_in_git = id.len >= strlen(git) && memcmp(id.p + id.len - strlen(git), git, strlen(git)) == 0;
    if (id.len == 0 || id.len > MOST_BYTES || ends_in_git || !consists_of(id, "-_./"))
        return false;
    for (size_t i = 1; i < id.len; i++)
        if (id.p[i] == id.p[i - 1] && strchr("-./", id.p[i]) != NULL)
            return false;
    do {
        const struct td_text segment = td_text_take_until(&rest, '/');
        segments++;
        if (segment.len == 0 || strchr("-.", segment.p[0]) != NULL || strchr("-.", segment.p[segment.len - 1]) != NULL)
            return false;
    } while (rest.len > 0);
    return segments <= 2 && id.p[id.len - 1] != '/';
}

bool td_command_takes_bucket(struct td_text name)
{
    return name.len > 0 && name.len <= 255 && consists_of(name, "-_.");
}
