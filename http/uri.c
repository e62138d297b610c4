#include "http/uri.h"

#include "core/digits.h"
#include "core/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool td_uri_decode(struct td_text in, bool plus_is_blank, const char *what, char *out, size_t *out_len,
                   struct td_error *err)
{
    size_t used = 0;
    for (size_t i = 0; i < in.len; i++) {
        char c = in.p[i];
        if (c == '+' && plus_is_blank) {
            c = ' ';
        } else if (c == '%') {
            int high = in.len - i > 2 ? td_hex_digit(in.p[i + 1]) : -1;
            int low = high < 0 ? -1 : td_hex_digit(in.p[i + 2]);
            if (low < 0)
                return td_error_set(err, TD_INVALID_ARGUMENT, "%s has a '%%' without two hexadecimal digits", what);
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0')
            return td_error_set(err, TD_INVALID_ARGUMENT, "%s holds a NUL (%%00)", what);
        out[used++] = c;
    }
    if (!td_utf8_valid(out, used))
        return td_error_set(err, TD_INVALID_ARGUMENT, "%s is not UTF-8 after decoding", what);
    *out_len = used;
    return true;
}

struct td_text td_uri_authority(struct td_text target)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < 2; i++) {
        size_t begin = strlen(schemes[i]);
        if (target.len < begin || strncasecmp(target.p, schemes[i], begin) != 0)
            continue;
        struct td_text rest = td_text_skip(target, begin);
        size_t len = 0;
        while (len < rest.len && rest.p[len] != '/' && rest.p[len] != '?')
            len++;
        return td_text_n(rest.p, len);
    }
    return td_text_n(NULL, 0);
}

/* Returns the target without "http://authority" in front of the path (absolute-form). */
static struct td_text without_authority(struct td_text target)
{
    struct td_text authority = td_uri_authority(target);
    return authority.p == NULL ? target : td_text_skip(target, (size_t)(authority.p + authority.len - target.p));
}

struct td_text td_uri_raw_path(struct td_text target)
{
    struct td_text rest = without_authority(target);
    return td_text_take_until(&rest, '?');
}

struct td_text td_uri_raw_query(struct td_text target)
{
    struct td_text rest = without_authority(target);
    (void)td_text_take_until(&rest, '?');
    return rest;
}

static bool parse_parameter(struct td_uri *uri, struct td_text item, enum td_uri_query query, char **memory,
                            struct td_error *err)
{
    if (item.len == 0)
        return true;
    struct td_text value = item;
    struct td_text name = td_text_take_until(&value, '=');
    if (uri->parameter_count == TD_URI_MAX_PARAMETERS)
        return query == TD_URI_REPEATS ||
               td_error_set(err, TD_INVALID_ARGUMENT, "more than %d query parameters", TD_URI_MAX_PARAMETERS);
    struct td_parameter *parameter = &uri->parameters[uri->parameter_count];
    parameter->name.p = *memory;
    if (!td_uri_decode(name, true, TD_URI_TARGET, *memory, &parameter->name.len, err))
        return false;
    *memory += parameter->name.len;
    parameter->value.p = *memory;
    if (!td_uri_decode(value, true, TD_URI_TARGET, *memory, &parameter->value.len, err))
        return false;
    *memory += parameter->value.len;
    for (size_t i = 0; i < uri->parameter_count; i++) {
        const struct td_text *other = &uri->parameters[i].name;
        if (td_text_compare(*other, parameter->name) == 0)
            return query == TD_URI_REPEATS ||
                   td_error_set(err, TD_INVALID_ARGUMENT, "query parameter \"%.*s\" is given twice",
                                TD_SHOW(*other, 64));
    }
    uri->parameter_count++;
    return true;
}

bool td_uri_parse(struct td_uri *uri, struct td_text target, enum td_uri_query query, struct td_error *err)
{
    uri->memory = NULL;
    uri->parameter_count = 0;
    struct td_text path = td_uri_raw_path(target);
    struct td_text items = td_uri_raw_query(target);
    uri->raw_path = path;
    if (path.len == 0)
        path = TD_TEXT("/");
    if (path.p[0] != '/')
        return td_error_set(err, TD_INVALID_ARGUMENT, "the request target must begin with '/'");
    uri->memory = malloc(target.len + 2); /* decoding never lengthens */
    if (uri->memory == NULL)
        return td_error_no_memory(err);
    char *memory = uri->memory;
    uri->path.p = memory;
    if (!td_uri_decode(path, false, TD_URI_TARGET, memory, &uri->path.len, err))
        return false;
    memory += uri->path.len;
    while (items.len > 0)
        if (!parse_parameter(uri, td_text_take_until(&items, '&'), query, &memory, err))
            return false;
    return true;
}

void td_uri_fini(struct td_uri *uri)
{
    free(uri->memory);
    uri->memory = NULL;
}

const struct td_text *td_uri_parameter(const struct td_uri *uri, const char *name)
{
    for (size_t i = 0; i < uri->parameter_count; i++)
        if (td_text_equals(uri->parameters[i].name, name))
            return &uri->parameters[i].value;
    return NULL;
}

static bool is_unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

void td_uri_encode(struct td_buffer *out, struct td_text text, bool keep_slash)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t plain = 0; /* start of the run not yet written */
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (is_unreserved(c) || (c == '/' && keep_slash))
            continue;
        char escape[3] = {'%', hex[c >> 4], hex[c & 15]};
        td_buffer_append(out, text.p + plain, i - plain);
        td_buffer_append(out, escape, 3);
        plain = i + 1;
    }
    td_buffer_append(out, text.p + plain, text.len - plain);
}
