#include "storage/fetch/fetch_upload.h"

#include "core/clock.h"
#include "core/file_io.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { SEND_BYTES = 512 * 1024 }; /* what libcurl asks for at once */

_Static_assert(sizeof(struct curl_slist) == sizeof(void *[2]), "a field's node does not fit");

uint64_t td_fetch_request_bytes(const struct td_fetch_request *request)
{
    return request->fd >= 0 ? request->len : request->text.len;
}

/* Copies up to `room` bytes of the body. Returns their number; CURL_READFUNC_ABORT after a failure. */
static size_t give_bytes(char *out, size_t size, size_t count, void *context)
{
    struct td_fetch_upload *upload = context;
    const struct td_fetch_request *request = upload->request;
    size_t room = size * count;
    uint64_t left = td_fetch_request_bytes(request) - upload->at;
    size_t len = left < room ? (size_t)left : room;
    if (request->fd < 0) {
        if (len > 0)
            memcpy(out, request->text.p + upload->at, len);
    } else {
        ssize_t n = td_read_at(request->fd, out, len, request->off + upload->at);
        if (n < 0 || (size_t)n < len) {
            (void)(n < 0 ? td_error_sys(&upload->fault, TD_IO, errno, "cannot read the file")
                         : td_error_set(&upload->fault, TD_FAILED_PRECONDITION, "the file became shorter"));
            return CURL_READFUNC_ABORT;
        }
    }
    upload->at += len;
    for (size_t i = 0; i < TD_FETCH_COUNTS; i++)
        if (request->sent[i] != NULL)
            atomic_fetch_add(request->sent[i], len);
    return len;
}

/* Goes back to a byte of the body, as when a kept connection turns out to be closed and the request is sent again. */
static int seek_byte(void *context, curl_off_t offset, int origin)
{
    struct td_fetch_upload *upload = context;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > upload->at)
        return CURL_SEEKFUNC_FAIL;
    upload->at = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* Puts the request's fields in front of the client's, which stay as they are. */
static struct curl_slist *join_fields(struct td_fetch_upload *upload, struct curl_slist *last)
{
    for (size_t i = 0; i < TD_FETCH_FIELDS; i++) {
        if (upload->request->fields[i] == NULL)
            continue;
        struct curl_slist *node = (struct curl_slist *)(void *)upload->fields[i];
        node->data = (char *)(uintptr_t)upload->request->fields[i]; /* libcurl only reads it */
        node->next = last;
        last = node;
    }
    return last;
}

bool td_fetch_upload_begin(struct td_fetch_upload *upload, const struct td_fetch_client *client, void *easy,
                           const struct td_fetch_request *request)
{
    *upload = (struct td_fetch_upload){.request = request,
                                       .mark_ns = td_clock_ns(),
                                       .stall_s = td_fetch_client_stall_s(client),
                                       .fault = TD_ERROR_INIT};
    return curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, join_fields(upload, td_fetch_client_fields(client))) ==
               CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)td_fetch_request_bytes(request)) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_bytes) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_READDATA, upload) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, seek_byte) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_SEEKDATA, upload) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)SEND_BYTES) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, 0L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, 0L) == CURLE_OK; /* it would end long waits for answers */
}

bool td_fetch_upload_end(const struct td_fetch_client *client, void *easy)
{
    return curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, NULL) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, td_fetch_client_fields(client)) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_READFUNCTION, NULL) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_READDATA, NULL) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, NULL) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_SEEKDATA, NULL) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)td_fetch_client_stall_s(client)) == CURLE_OK;
}

bool td_fetch_upload_stalls(struct td_fetch_upload *upload, uint64_t sent, uint64_t now_ns)
{
    bool is_whole = sent >= td_fetch_request_bytes(upload->request);
    uint64_t limit_s = is_whole && upload->stall_s < TD_FETCH_SEND_ANSWER_S ? TD_FETCH_SEND_ANSWER_S : upload->stall_s;
    uint64_t taken = sent > upload->mark_sent ? sent - upload->mark_sent : 0;
    if (taken >= (uint64_t)upload->stall_s * TD_FETCH_STALL_BYTES || (is_whole && taken > 0)) {
        upload->mark_ns = now_ns;
        upload->mark_sent = sent;
        return false;
    }
    if (now_ns < upload->mark_ns || now_ns - upload->mark_ns < limit_s * TD_NS_PER_S)
        return false;
    (void)td_error_set(&upload->fault, TD_UNAVAILABLE,
                       is_whole ? "no answer came within %" PRIu64 " s after the whole body was sent"
                                : "it took too few bytes for %" PRIu64 " s",
                       limit_s);
    return true;
}
