#include "http/conditional.h"

#include "core/clock.h"
#include "http/http_date.h"

#include <string.h>

struct entity_tag {
    bool weak;
    struct td_text opaque; /* with its quotes */
};

/* RFC 9110 section 8.8.3: etagc = %x21 / %x23-7E / obs-text */
static bool is_etagc(unsigned char c)
{
    return c == 0x21 || (c >= 0x23 && c <= 0x7E) || c >= 0x80;
}

/* Takes the next member off an entity-tag list: members like W/"opaque", separated by commas. Returns false at the end
 * and at the first malformed member. */
static bool take_tag(struct td_text *list, struct entity_tag *tag)
{
    while (td_text_take_char(list, ' ') || td_text_take_char(list, '\t') || td_text_take_char(list, ','))
        ;
    tag->weak = td_text_begins(*list, TD_TEXT("W/"));
    *list = td_text_skip(*list, tag->weak ? 2 : 0);
    const char *start = list->p;
    if (!td_text_take_char(list, '"'))
        return false;
    while (list->len > 0 && is_etagc((unsigned char)list->p[0]))
        *list = td_text_skip(*list, 1);
    if (!td_text_take_char(list, '"'))
        return false;
    tag->opaque = td_text_n(start, (size_t)(list->p - start));
    return true;
}

/* Returns whether any line of the field lists this tag. Our tags are strong, so a weak tag in the list matches by weak
 * comparison only. */
static bool lists_tag(const struct td_request *request, const char *field, const char *etag, bool strong)
{
    size_t at = 0;
    const struct td_header *header;
    while ((header = td_request_next_header(request, field, &at)) != NULL) {
        struct td_text list = header->value;
        struct entity_tag tag;
        while (take_tag(&list, &tag))
            if (etag[0] != '\0' && !(strong && tag.weak) && td_text_equals(tag.opaque, etag))
                return true;
    }
    return false;
}

/* Returns whether any line of the field names the current representation. */
static bool any_tag_matches(const struct td_request *request, const char *field, const char *etag, bool strong)
{
    size_t at = 0;
    const struct td_header *header;
    while ((header = td_request_next_header(request, field, &at)) != NULL)
        if (td_text_equals(header->value, "*"))
            return true;
    return lists_tag(request, field, etag, strong);
}

/* Reads the field as a date. Returns false when it is absent or malformed, or the representation has no date. */
static bool date_field(const struct td_request *request, const struct td_response *response, const char *field,
                       int64_t *seconds)
{
    const struct td_header *header = td_request_single_header(request, field);
    return header != NULL && response->last_modified_s >= 0 && td_http_date_parse(header->value, seconds);
}

/* Answers with the former tag when the client names the bytes by it. A cache that asks whether its copy of a range is
 * current gets the new tag: it joins ranges of one tag alone, and those that it has to fetch come with the new one. */
static void take_former_tag(const struct td_request *request, struct td_response *response)
{
    const struct td_header *range = td_request_single_header(request, "If-Range");
    const char *former = response->former_etag;
    if (former[0] != '\0' &&
        (lists_tag(request, "If-Match", former, true) ||
         (lists_tag(request, "If-None-Match", former, false) && !td_request_has_header(request, "Range")) ||
         (range != NULL && td_text_equals(range->value, former))))
        memcpy(response->etag, former, sizeof response->etag);
}

void td_conditional_not_modified(struct td_response *response)
{
    response->announced_bytes = response->body.total_bytes;
    td_body_fini(&response->body);
    td_body_init(&response->body);
    td_stream_destroy(response->stream);
    response->stream = NULL;
    response->status = 304;
    response->content_type = NULL;
}

bool td_conditional_apply(const struct td_request *request, struct td_response *response)
{
    int64_t seconds;
    if (response->status != 200)
        return true;
    take_former_tag(request, response);
    if (td_request_has_header(request, "If-Match")) {
        if (!any_tag_matches(request, "If-Match", response->etag, true)) {
            char current[TD_ETAG_BYTES]; /* td_response_fail clears response->etag */
            memcpy(current, response->etag, sizeof current);
            td_response_fail(response, 412, NULL, "If-Match does not name the current version, %s", current);
            return false;
        }
    } else if (date_field(request, response, "If-Unmodified-Since", &seconds) && response->last_modified_s > seconds) {
        td_response_fail(response, 412, NULL, "the resource was modified after the date in If-Unmodified-Since");
        return false;
    }
    if (td_request_has_header(request, "If-None-Match")) {
        if (any_tag_matches(request, "If-None-Match", response->etag, false)) {
            td_conditional_not_modified(response);
            return false;
        }
    } else if (date_field(request, response, "If-Modified-Since", &seconds) && response->last_modified_s <= seconds) {
        td_conditional_not_modified(response);
        return false;
    }
    return true;
}

bool td_conditional_allow_write(const struct td_request *request, const char *etag, struct td_response *response)
{
    if (td_request_has_header(request, "If-Match") &&
        (etag == NULL || !any_tag_matches(request, "If-Match", etag, true))) {
        td_response_fail(response, 412, NULL, "If-Match does not name the current version, %s",
                         etag == NULL ? "as there is none" : etag);
        return false;
    }
    if (etag != NULL && td_request_has_header(request, "If-None-Match") &&
        any_tag_matches(request, "If-None-Match", etag, false)) {
        td_response_fail(response, 412, NULL, "If-None-Match names the current version, %s", etag);
        return false;
    }
    return true;
}

bool td_conditional_range_allowed(const struct td_request *request, const struct td_response *response)
{
    if (!td_request_has_header(request, "If-Range"))
        return true;
    const struct td_header *header = td_request_single_header(request, "If-Range");
    if (header == NULL)
        return false;
    if (td_text_equals(header->value, response->etag))
        return response->etag[0] != '\0';
    /* A date is a strong validator only when it is old enough that a second change within its second would have moved
     * it (RFC 9110 section 8.8.2.2). */
    int64_t seconds;
    return date_field(request, response, "If-Range", &seconds) && seconds == response->last_modified_s &&
           td_wall_now().seconds - seconds >= 2;
}
