#include "storage/fetch/fetch_stream.h"

#include "storage/fetch/fetch_answer.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

/* One request. */
struct reading {
    const struct td_fetch_stream *stream;
    CURL *easy;
    struct td_fetch_guard guard;
    struct curl_slist fields[2]; /* in front of the client's */
    char accept[TD_FETCH_STREAM_VALUE_BYTES + 16], last_id[TD_FETCH_STREAM_VALUE_BYTES + 16];
    struct td_fetch_answer answer;
    bool has_endless_header;
    bool is_open, is_other, has_ended; /* the answer is the stream; it is something else; the caller wants no more */
};

/* Returns whether the answer is the stream that was asked for. */
static bool is_wanted(const struct reading *reading)
{
    const char *type = NULL;
    (void)curl_easy_getinfo(reading->easy, CURLINFO_CONTENT_TYPE, &type);
    return reading->answer.status == 200 && type != NULL &&
           td_text_begins_ignore_case(td_text_of(type), reading->stream->type);
}

static size_t take_header(char *bytes, size_t size, size_t count, void *context)
{
    struct reading *reading = context;
    (void)size;
    reading->has_endless_header = !td_fetch_answer_take_line(&reading->answer, td_text_n(bytes, count));
    return reading->has_endless_header ? 0 : count;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct reading *reading = context;
    const struct td_fetch_stream *stream = reading->stream;
    (void)size;
    if (!reading->is_open) {
        reading->is_other = !is_wanted(reading);
        if (reading->is_other)
            return 0;
        reading->is_open = true;
        stream->on_open(stream->context);
    }
    reading->has_ended = !stream->take(stream->context, td_text_n(bytes, count));
    return reading->has_ended ? 0 : count;
}

static int watch_transfer(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct reading *reading = context;
    (void)a, (void)b, (void)c, (void)d;
    return td_cancel_is_asked(reading->stream->cancel) ? 1 : 0;
}

/* Returns whether the text can stand in a header field. */
static bool is_printable(const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if (text[i] < '!' || text[i] > '~')
            return false;
    return len > 0 && len < TD_FETCH_STREAM_VALUE_BYTES;
}

/* Returns the fields of the request: Accept, Last-Event-ID and the client's. */
static struct curl_slist *join_fields(struct reading *reading, void *others)
{
    const struct td_fetch_stream *stream = reading->stream;
    (void)snprintf(reading->accept, sizeof reading->accept, "Accept: %.200s", stream->type);
    reading->fields[0] = (struct curl_slist){.data = reading->accept, .next = others};
    if (stream->last_id == NULL || !is_printable(stream->last_id))
        return &reading->fields[0];
    (void)snprintf(reading->last_id, sizeof reading->last_id, "Last-Event-ID: %s", stream->last_id);
    reading->fields[1] = (struct curl_slist){.data = reading->last_id, .next = &reading->fields[0]};
    return &reading->fields[1];
}

static bool prepare(struct reading *reading, const struct td_fetch_client *client, size_t server, char *text)
{
    const struct td_fetch_stream *stream = reading->stream;
    reading->easy = td_fetch_client_handle(client, server, stream->path, &reading->guard);
    CURL *easy = reading->easy;
    if (easy == NULL)
        return false;
    td_fetch_guard_begin(&reading->guard, false);
    td_fetch_answer_init(&reading->answer);
    return curl_easy_setopt(easy, CURLOPT_HTTPHEADER, join_fields(reading, td_fetch_client_fields(client))) ==
               CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)stream->silence_s) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERDATA, reading) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, reading) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, watch_transfer) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_XFERINFODATA, reading) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, text) == CURLE_OK;
}

bool td_fetch_stream_read(const struct td_fetch_client *client, size_t server, const struct td_fetch_stream *stream,
                          unsigned *status, bool *is_stream, struct td_error *err)
{
    const char *url = td_fetch_client_url(client, server);
    char text[CURL_ERROR_SIZE] = "";
    struct reading reading = {.stream = stream};
    *status = 0;
    *is_stream = false;
    if (!prepare(&reading, client, server, text)) {
        curl_easy_cleanup(reading.easy);
        return td_error_no_memory(err);
    }
    CURLcode result = curl_easy_perform(reading.easy);
    *status = reading.answer.status;
    *is_stream = reading.is_open;
    bool ok = true;
    if (result == CURLE_ABORTED_BY_CALLBACK)
        ok = td_error_set(err, TD_CONFLICT, "stopped while %s was asked", url);
    else if (reading.has_endless_header)
        ok = td_error_set(err, TD_FAILED_PRECONDITION, "%s: the header of the answer has more than %d bytes", url,
                          TD_FETCH_MAX_HEADER_BYTES);
    else if (result != CURLE_OK && !reading.is_other && !reading.has_ended)
        ok = !td_fetch_guard_blame(&reading.guard, url, err) &&
             td_fetch_fault_of_code(reading.easy, (int)result, text, url, err);
    curl_easy_cleanup(reading.easy);
    return ok;
}
