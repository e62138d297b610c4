/* The input is a stream of server-sent events, in pieces: the first byte says how long these are. The events are the
 * same as those that a second reader finds, which splits the whole stream into lines first. */
#include "catalog/remote/event_reader.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* A digest of the events: their number, and a sum over types and data with their lengths. */
struct seen {
    size_t events;
    uint64_t sum;
};

static void add_text(struct seen *seen, const char *p, size_t len)
{
    seen->sum = (seen->sum ^ len) * UINT64_C(1099511628211);
    for (size_t i = 0; i < len; i++)
        seen->sum = (seen->sum ^ (uint8_t)p[i]) * UINT64_C(1099511628211);
}

static void on_event(void *context, const struct td_read_event *event)
{
    struct seen *seen = context;
    FUZZ_CHECK(event->type.len > 0 && event->type.len <= TD_EVENT_LINE_BYTES);
    FUZZ_CHECK(event->data.len <= TD_EVENT_DATA_BYTES);
    seen->events++;
    add_text(seen, event->type.p, event->type.len);
    add_text(seen, event->data.p, event->data.len);
}

/* Reads the stream in pieces of `step` bytes. Returns false when it was refused. */
static bool read_stream(struct td_text stream, size_t step, struct seen *seen)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_event_reader reader;
    bool ok = true;
    td_event_reader_init(&reader);
    for (size_t at = 0; ok && at < stream.len; at += step) {
        size_t len = stream.len - at < step ? stream.len - at : step;
        ok = td_event_reader_take(&reader, td_text_n(stream.p + at, len), on_event, seen, &err);
    }
    FUZZ_CHECK(ok || (err.code == TD_FAILED_PRECONDITION && strlen(err.message) > 0));
    td_event_reader_fini(&reader);
    return ok;
}

/* The text of an event that is arriving, and the number of its lines of data. */
struct slow {
    char *data;
    size_t len, lines;
    const char *type;
    size_t type_len;
};

static bool is_field(const char *line, size_t len, const char *name)
{
    size_t n = strlen(name);
    return len >= n && memcmp(line, name, n) == 0 && (len == n || line[n] == ':');
}

static void slow_line(struct slow *slow, const char *line, size_t len, struct seen *seen)
{
    if (len == 0) {
        if (slow->lines > 0) {
            struct td_read_event event = {.type = td_text_n(slow->type_len > 0 ? slow->type : "message",
                                                            slow->type_len > 0 ? slow->type_len : strlen("message")),
                                          .data = td_text_n(slow->data, slow->len)};
            on_event(seen, &event);
        }
        slow->len = slow->lines = slow->type_len = 0;
        return;
    }
    size_t skip = is_field(line, len, "data") ? 4 : is_field(line, len, "event") ? 5 : 0;
    size_t from = skip;
    if (from < len) /* the colon */
        from++;
    if (from < len && line[from] == ' ')
        from++;
    if (skip == 4) {
        if (slow->lines++ > 0)
            slow->data[slow->len++] = '\n';
        memcpy(slow->data + slow->len, line + from, len - from);
        slow->len += len - from;
    } else if (skip == 5) {
        slow->type = line + from;
        slow->type_len = len - from;
    }
}

/* Finds the lines of the whole stream, and their events. */
static void read_slowly(struct td_text stream, struct seen *seen)
{
    struct slow slow = {.data = malloc(stream.len + 1)};
    FUZZ_CHECK(slow.data != NULL);
    size_t at = stream.len >= 3 && memcmp(stream.p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (size_t begin = at; at < stream.len; at++) {
        if (stream.p[at] != '\n' && stream.p[at] != '\r')
            continue;
        slow_line(&slow, stream.p + begin, at - begin, seen);
        if (stream.p[at] == '\r' && at + 1 < stream.len && stream.p[at + 1] == '\n')
            at++;
        begin = at + 1;
    }
    free(slow.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const struct td_text stream = td_text_n((const char *)data + 1, size - 1);
    struct seen pieces = {0}, whole = {0}, slow = {0};
    bool ok = read_stream(stream, (size_t)data[0] + 1, &pieces);
    FUZZ_CHECK(read_stream(stream, stream.len + 1, &whole) == ok);
    if (!ok)
        return 0;
    read_slowly(stream, &slow);
    FUZZ_CHECK(pieces.events == whole.events && pieces.sum == whole.sum);
    FUZZ_CHECK(pieces.events == slow.events && pieces.sum == slow.sum);
    return 0;
}
