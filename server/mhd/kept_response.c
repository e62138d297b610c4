#include "server/mhd/kept_response.h"

#include "core/digits.h"
#include "http/cors.h"
#include "http/http_date.h"
#include "server/mhd/sender.h"

#include <stdlib.h>
#include <string.h>

/* ---- headers ------------------------------------------------------------------------------------------- */

enum { DATE_BYTES = 30, /* with the NUL */ MOST_FIELDS = TD_RESPONSE_HEADERS + TD_TRAILERS + 8 };

static const char any_date[] = "Sun, 06 Nov 1994 08:49:37 GMT"; /* an IMF-fixdate has 29 bytes */

struct field {
    const char *name, *value;
};

/* Lists the fields of the response in the order in which they are sent, and returns their number. They borrow from the
 * response and from `date`. date NULL: only the lengths are wanted, and the value of Last-Modified is any date, since
 * all have the same length. */
static size_t list_fields(const struct td_response *response, char *date, struct field fields[MOST_FIELDS])
{
    size_t count = 0;
    if (response->content_type != NULL)
        fields[count++] = (struct field){"Content-Type", response->content_type};
    if (response->etag[0] != '\0')
        fields[count++] = (struct field){"ETag", response->etag};
    if (response->accept_ranges)
        fields[count++] = (struct field){"Accept-Ranges", "bytes"};
    if (response->cache_control != NULL)
        fields[count++] = (struct field){"Cache-Control", response->cache_control};
    if (response->last_modified_s >= 0) {
        if (date != NULL)
            td_http_date_format(response->last_modified_s, date);
        fields[count++] = (struct field){"Last-Modified", date != NULL ? date : any_date};
    }
    for (size_t i = 0; i < response->header_count; i++)
        fields[count++] = (struct field){response->headers[i].name, response->headers[i].value};
    if (response->allow_origin != NULL) {
        fields[count++] = (struct field){"Access-Control-Allow-Origin", response->allow_origin};
        fields[count++] = (struct field){"Access-Control-Expose-Headers", td_cors_exposed};
    }
    for (size_t i = 0; i < response->trailers.count && response->body.total_bytes == 0; i++)
        fields[count++] = (struct field){response->trailers.fields[i].name, response->trailers.fields[i].value};
    if (response->close)
        fields[count++] = (struct field){"Connection", "close"};
    return count;
}

bool td_answer_header_add(struct MHD_Response *mhd_response, const struct td_response *response)
{
    char date[DATE_BYTES];
    struct field fields[MOST_FIELDS];
    size_t count = list_fields(response, date, fields);
    for (size_t i = 0; i < count; i++)
        if (MHD_add_response_header(mhd_response, fields[i].name, fields[i].value) != MHD_YES)
            return false;
    return true;
}

bool td_answer_trailers_add(struct MHD_Response *mhd_response, const struct td_trailers *trailers)
{
    for (size_t i = 0; i < trailers->count; i++)
        if (MHD_add_response_footer(mhd_response, trailers->fields[i].name, trailers->fields[i].value) != MHD_YES)
            return false;
    return true;
}

uint64_t td_answer_header_bytes(const struct td_response *response, uint64_t content_bytes)
{
    char length[TD_NUMBER_BYTES];
    struct field fields[MOST_FIELDS];
    size_t count = list_fields(response, NULL, fields);
    uint64_t bytes = strlen("HTTP/1.1 200 ") + strlen(MHD_get_reason_phrase_for((unsigned int)response->status)) + 2;
    bytes += strlen("Date: \r\n") + strlen(any_date);
    bytes += content_bytes == TD_BODY_LENGTH_UNKNOWN
                 ? strlen("Transfer-Encoding: chunked\r\n")
                 : strlen("Content-Length: \r\n") + td_number_write(content_bytes, length);
    for (size_t i = 0; i < count; i++)
        bytes += strlen(fields[i].name) + strlen(fields[i].value) + strlen(": \r\n");
    return bytes + 2;
}

/* ---- responses that are used again --------------------------------------------------------------------- */

bool td_kept_response_suits(const struct td_response *response)
{
    if (response->close || response->is_timed || response->owned_type != NULL)
        return false;
    for (size_t i = 0; i < response->header_count; i++)
        if (strlen(response->headers[i].value) >= TD_KEPT_VALUE_BYTES)
            return false;
    return true;
}

/* Returns whether the kept response differs from this one only in bytes and in values of fields. */
static bool is_like(const struct td_kept_response *kept, const struct td_response *response, size_t len, bool by_sender)
{
    if (kept->mhd_response == NULL || kept->len != len || (kept->bytes == NULL) != by_sender ||
        kept->status != response->status || kept->content_type != response->content_type ||
        kept->cache_control != response->cache_control || kept->allow_origin != response->allow_origin ||
        kept->last_modified_s != response->last_modified_s || kept->accept_ranges != response->accept_ranges ||
        kept->header_count != response->header_count || strcmp(kept->etag, response->etag) != 0)
        return false;
    for (size_t i = 0; i < kept->header_count; i++)
        if (kept->headers[i].name != response->headers[i].name)
            return false;
    return true;
}

/* Replaces the values that differ. Returns false without memory; the kept response is then incomplete. */
static bool replace_values(struct td_kept_response *kept, const struct td_response *response)
{
    for (size_t i = 0; i < kept->header_count; i++) {
        const char *name = kept->headers[i].name;
        char *value = kept->headers[i].value;
        const char *wanted = response->headers[i].value;
        if (strcmp(value, wanted) == 0)
            continue;
        if (MHD_del_response_header(kept->mhd_response, name, value) != MHD_YES ||
            MHD_add_response_header(kept->mhd_response, name, wanted) != MHD_YES)
            return false;
        size_t wanted_len = strlen(wanted);
        kept->header_bytes += wanted_len;
        kept->header_bytes -= strlen(value);
        memcpy(value, wanted, wanted_len + 1);
    }
    return true;
}

static void free_response(struct td_kept_response *kept)
{
    if (kept->mhd_response != NULL)
        MHD_destroy_response(kept->mhd_response);
    free(kept->bytes);
    memset(kept, 0, sizeof *kept);
}

/* Makes a new response with room for len bytes, or with td_sender_memory in their place. Returns false when memory is
 * short. */
static bool make_response(struct td_kept_response *kept, const struct td_response *response, size_t len, bool by_sender)
{
    void *bytes = by_sender ? td_sender_memory(len) : malloc(len);
    if (bytes == NULL)
        return false;
    kept->bytes = by_sender ? NULL : bytes;
    kept->mhd_response = MHD_create_response_from_buffer(len, bytes, MHD_RESPMEM_PERSISTENT);
    if (kept->mhd_response == NULL || !td_answer_header_add(kept->mhd_response, response))
        return false;
    kept->len = len;
    kept->header_bytes = td_answer_header_bytes(response, len);
    kept->status = response->status;
    kept->content_type = response->content_type;
    kept->cache_control = response->cache_control;
    kept->allow_origin = response->allow_origin;
    memcpy(kept->etag, response->etag, sizeof kept->etag);
    kept->last_modified_s = response->last_modified_s;
    kept->accept_ranges = response->accept_ranges;
    kept->header_count = response->header_count;
    for (size_t i = 0; i < kept->header_count; i++) {
        kept->headers[i].name = response->headers[i].name;
        memcpy(kept->headers[i].value, response->headers[i].value, strlen(response->headers[i].value) + 1);
    }
    return true;
}

bool td_kept_response_prepare(struct td_kept_response *kept, const struct td_response *response, size_t len,
                              bool by_sender)
{
    if (is_like(kept, response, len, by_sender) && replace_values(kept, response))
        return true;
    free_response(kept);
    if (make_response(kept, response, len, by_sender))
        return true;
    free_response(kept);
    return false;
}

void td_kept_response_destroy(struct td_kept_response *kept)
{
    if (kept == NULL)
        return;
    free_response(kept);
    free(kept);
}
