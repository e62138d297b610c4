/* Makes a request from bytes: a method, a line end, a target, a line end, and header lines. Everything points into the
 * input, so that the sanitizer sees a read past the end. */
#ifndef TD_TESTS_FUZZ_REQUEST_TEXT_H
#define TD_TESTS_FUZZ_REQUEST_TEXT_H

#include "http/request.h"

#include <stdint.h>
#include <string.h>

enum { REQUEST_TEXT_HEADERS = 64 };

struct request_text {
    struct td_header headers[REQUEST_TEXT_HEADERS];
    struct td_request request;
};

/* Takes the next line off *rest. */
static inline struct td_text request_text_line(struct td_text *rest)
{
    const char *newline = rest->len == 0 ? NULL : memchr(rest->p, '\n', rest->len);
    struct td_text line = {.p = rest->p, .len = newline == NULL ? rest->len : (size_t)(newline - rest->p)};
    size_t used = newline == NULL ? line.len : line.len + 1;
    rest->p += used;
    rest->len -= used;
    return line;
}

static inline struct td_text request_text_trim(struct td_text text)
{
    for (; text.len > 0 && (*text.p == ' ' || *text.p == '\t'); text.len--)
        text.p++;
    while (text.len > 0 && (text.p[text.len - 1] == ' ' || text.p[text.len - 1] == '\t'))
        text.len--;
    return text;
}

/* Takes the remaining header lines. Skips lines without a colon. */
static inline void request_text_headers(struct request_text *out, struct td_text rest)
{
    out->request.headers = out->headers;
    out->request.header_count = 0;
    while (rest.len > 0 && out->request.header_count < REQUEST_TEXT_HEADERS) {
        struct td_text line = request_text_line(&rest);
        const char *colon = line.len == 0 ? NULL : memchr(line.p, ':', line.len);
        if (colon == NULL)
            continue;
        struct td_header *header = &out->headers[out->request.header_count++];
        size_t name_len = (size_t)(colon - line.p);
        header->name = td_text_n(line.p, name_len);
        header->value = request_text_trim(td_text_n(colon + 1, line.len - name_len - 1));
    }
}

static inline void request_text_read(struct request_text *out, const uint8_t *data, size_t size)
{
    struct td_text rest = {.p = (const char *)data, .len = size};
    out->request = (struct td_request){.body = TD_TEXT("")};
    out->request.method = request_text_line(&rest);
    out->request.target = request_text_line(&rest);
    request_text_headers(out, rest);
}

#endif
