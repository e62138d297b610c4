#include "api/call/publish_sink.h"

#include "api/call/publishing.h"

#include <stdlib.h>

static struct td_publish_sink *of(struct td_body_sink *sink)
{
    return (struct td_publish_sink *)(void *)sink;
}

/* Adds bytes to the text, if the limit and the budget allow it. */
static bool add_text(struct td_publish_sink *self, const void *bytes, size_t len)
{
    if (len > self->most_bytes - self->text.len)
        return td_error_set(&self->err, TD_FAILED_PRECONDITION, "the body has more than %zu bytes", self->most_bytes);
    size_t more = len * TD_PUBLISH_TEXT_FACTOR;
    if (!td_budget_take(self->budget, more))
        return td_budget_refuse(self->budget, more, &self->err);
    self->taken_bytes += more;
    td_buffer_append(&self->text, bytes, len);
    return !self->text.failed || td_buffer_refuse(&self->text, &self->err);
}

static bool write_sink(struct td_body_sink *sink, const void *bytes, size_t len)
{
    struct td_publish_sink *self = of(sink);
    if (self->part != NULL)
        return td_publish_part_write(self->part, bytes, len, &self->err);
    return self->stream != NULL ? td_publish_stream_write(self->stream, bytes, len, &self->err)
                                : add_text(self, bytes, len);
}

static void release_sink(struct td_body_sink *sink)
{
    struct td_publish_sink *self = of(sink);
    if (self->part != NULL)
        td_publish_part_abandon(self->part);
    td_publish_stream_abandon(self->stream);
    td_buffer_fini(&self->text);
    td_budget_give(self->budget, self->taken_bytes);
    free(self);
}

static const struct td_body_sink_ops ops = {.write = write_sink, .release = release_sink};

/* Returns a sink without a member, or NULL after it answered 503. */
static struct td_publish_sink *make_sink(const struct td_call *call)
{
    struct td_publish_sink *self = calloc(1, sizeof *self);
    if (self == NULL) {
        (void)td_call_no_memory(call);
        return NULL;
    }
    self->sink.ops = &ops;
    td_error_init(&self->err);
    td_buffer_init(&self->text);
    return self;
}

struct td_body_sink *td_publish_sink_part(const struct td_call *call, struct td_publish_part *part)
{
    struct td_publish_sink *self = make_sink(call);
    if (self == NULL) {
        td_publish_part_abandon(part);
        return NULL;
    }
    self->part = part;
    return &self->sink;
}

struct td_body_sink *td_publish_sink_stream(const struct td_call *call, struct td_publish_stream *stream)
{
    struct td_publish_sink *self = make_sink(call);
    if (self == NULL) {
        td_publish_stream_abandon(stream);
        return NULL;
    }
    self->stream = stream;
    return &self->sink;
}

struct td_body_sink *td_publish_sink_text(const struct td_call *call, size_t most_bytes)
{
    struct td_publish_sink *self = make_sink(call);
    if (self == NULL)
        return NULL;
    self->sink.is_document = true;
    self->most_bytes = most_bytes;
    self->budget = td_shared_budget_of(&call->api->commits, td_call_client(call));
    return &self->sink;
}

struct td_body_sink *td_publish_sink_whole(const struct td_call *call, const struct td_publish_name *name)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_stream *stream;
    uint64_t bytes = call->request->body_bytes;
    if (bytes == TD_BODY_LENGTH_UNKNOWN)
        bytes = TD_FETCH_SIZE_UNKNOWN;
    if (td_publish_stream_begin(call->api->publish, name, bytes, &stream, &err))
        return td_publish_sink_stream(call, stream);
    td_publishing_fail(call, &err, 500);
    return NULL;
}

bool td_publish_sink_end_whole(const struct td_call *call, const uint8_t *expected, struct td_publish_sum *sum)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_sink *sink = td_publish_sink_of(call);
    if (!call->request->is_whole) {
        td_publishing_fail(call, &sink->err, 422);
        return false;
    }
    struct td_publish_stream *stream = sink->stream;
    sink->stream = NULL;
    if (td_publish_stream_end(stream, expected, sum, &err))
        return true;
    td_publishing_fail(call, &err, 422);
    return false;
}

struct td_publish_sink *td_publish_sink_of(const struct td_call *call)
{
    return of(call->request->sink);
}
