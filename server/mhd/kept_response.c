#include "server/mhd/kept_response.h"

#include "core/digits.h"
#include "server/mhd/sender.h"

#include <stdlib.h>
#include <string.h>

/* ---- headers ------------------------------------------------------------------------------------------- */

static const char any_date[] = "Sun, 06 Nov 1994 08:49:37 GMT"; /* an IMF-fixdate has 29 bytes */

bool td_answer_header_add(struct MHD_Response *mhd_response, const struct td_response *response)
{
    char date[TD_RESPONSE_DATE_BYTES];
    struct td_response_field fields[TD_RESPONSE_FIELDS];
    size_t count = td_response_list_fields(response, date, fields);
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
    struct td_response_field fields[TD_RESPONSE_FIELDS];
    size_t count = td_response_list_fields(response, NULL, fields);
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
