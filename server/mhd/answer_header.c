/* To compute how much of the body a client has received, the server needs the length of the header. So
 * td_answer_header_bytes counts the same fields that libmicrohttpd writes. */
#include "server/mhd/answer_header.h"

#include "core/digits.h"
#include "http/http_date.h"

#include <string.h>

static bool add_header(struct MHD_Response *mhd_response, const char *name, const char *value)
{
    return MHD_add_response_header(mhd_response, name, value) == MHD_YES;
}

bool td_answer_header_add(struct MHD_Response *mhd_response, const struct td_response *response)
{
    bool ok = true;
    if (response->content_type != NULL)
        ok = add_header(mhd_response, "Content-Type", response->content_type);
    if (response->etag[0] != '\0')
        ok = ok && add_header(mhd_response, "ETag", response->etag);
    if (response->accept_ranges)
        ok = ok && add_header(mhd_response, "Accept-Ranges", "bytes");
    if (response->cache_control != NULL)
        ok = ok && add_header(mhd_response, "Cache-Control", response->cache_control);
    if (response->last_modified_s >= 0) {
        char date[30];
        td_http_date_format(response->last_modified_s, date);
        ok = ok && add_header(mhd_response, "Last-Modified", date);
    }
    for (size_t i = 0; i < response->header_count; i++)
        ok = ok && add_header(mhd_response, response->headers[i].name, response->headers[i].value);
    if (response->close)
        ok = ok && add_header(mhd_response, "Connection", "close");
    return ok;
}

uint64_t td_answer_header_bytes(const struct td_response *response, uint64_t content_bytes)
{
    char length[TD_NUMBER_BYTES];
    uint64_t bytes = strlen("HTTP/1.1 200 ") + strlen(MHD_get_reason_phrase_for((unsigned int)response->status)) + 2;
    bytes += strlen("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
    bytes += strlen("Content-Length: \r\n") + td_number_write(content_bytes, length);
    if (response->content_type != NULL)
        bytes += strlen("Content-Type: \r\n") + strlen(response->content_type);
    if (response->etag[0] != '\0')
        bytes += strlen("ETag: \r\n") + strlen(response->etag);
    if (response->accept_ranges)
        bytes += strlen("Accept-Ranges: bytes\r\n");
    if (response->cache_control != NULL)
        bytes += strlen("Cache-Control: \r\n") + strlen(response->cache_control);
    if (response->last_modified_s >= 0)
        bytes += strlen("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
    for (size_t i = 0; i < response->header_count; i++)
        bytes += strlen(response->headers[i].name) + strlen(response->headers[i].value) + 4;
    if (response->close)
        bytes += strlen("Connection: close\r\n");
    return bytes + 2;
}
