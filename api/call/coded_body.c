#include "api/call/coded_body.h"

#include "http/facade.h"
#include "http/gzip.h"

#include <stdlib.h>

enum coding { IDENTITY, GZIP, UNKNOWN };

/* Returns the coding of the request's body. A body that was coded twice has an unknown one. */
static enum coding coding_of(const struct td_request *request)
{
    enum coding coding = IDENTITY;
    const struct td_header *header;
    for (size_t at = 0; (header = td_request_next_header(request, "Content-Encoding", &at)) != NULL;) {
        struct td_text list = header->value;
        while (list.len > 0) {
            struct td_text name = td_text_trim(td_text_take_until(&list, ','), " \t");
            bool is_gzip = td_text_equals_ignore_case(name, "gzip") || td_text_equals_ignore_case(name, "x-gzip");
            if (name.len == 0 || td_text_equals_ignore_case(name, "identity"))
                continue;
            coding = is_gzip && coding == IDENTITY ? GZIP : UNKNOWN;
        }
    }
    return coding;
}

/* Answers a request whose body has an unknown coding, as its facade does or with 415 (RFC 9110 section 15.5.16). */
static void refuse_coding(const struct td_call *call)
{
    if (call->request->facade->refuse_coding != NULL) {
        call->request->facade->refuse_coding(call);
        return;
    }
    td_response_fail(call->response, 415, NULL, "the Content-Encoding is not known; known are " TD_BODY_CODINGS);
    td_response_add_header(call->response, "Accept-Encoding", TD_BODY_CODINGS);
}

bool td_coded_body_unpack(const struct td_call *call, struct td_text packed, char **out, size_t *len)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_gunzip_whole(packed, call->request->room, out, len, &err))
        return true;
    if (err.code == TD_FAILED_PRECONDITION)
        td_response_fail(call->response, 413, NULL, "%s", err.message);
    else
        td_response_fail_error(call->response, &err);
    return false;
}

bool td_coded_body_open(const struct td_call *call, struct td_request *request, char **unpacked)
{
    size_t len;
    enum coding coding = request->body.len == 0 ? IDENTITY : coding_of(request);
    *unpacked = NULL;
    if (coding == IDENTITY)
        return true;
    if (coding == UNKNOWN || request->room == NULL) {
        refuse_coding(call);
        return false;
    }
    if (!td_coded_body_unpack(call, request->body, unpacked, &len))
        return false;
    request->body = td_text_n(*unpacked == NULL ? "" : *unpacked, len);
    return true;
}

/* ---- sinks ---------------------------------------------------------------------------------------------- */

struct unpacking_sink {
    struct td_body_sink sink; /* first: on the way back a sink is one of these */
    struct td_body_sink *inner;
    struct td_gunzip *gunzip;
    struct td_budget *budget; /* TD_GUNZIP_BYTES are taken from it */
    bool inner_failed;        /* the handler's sink did not take all, and has the reason */
    struct td_error err;      /* why the bytes cannot be unpacked */
};

static bool take_unpacked(void *context, const void *bytes, size_t len, struct td_error *err)
{
    struct unpacking_sink *self = context;
    (void)err;
    self->inner_failed = !self->inner->ops->write(self->inner, bytes, len);
    return !self->inner_failed;
}

static struct unpacking_sink *of(struct td_body_sink *sink)
{
    return (struct unpacking_sink *)(void *)sink;
}

static bool write_packed(struct td_body_sink *sink, const void *bytes, size_t len)
{
    struct unpacking_sink *self = of(sink);
    return td_gunzip_add(self->gunzip, bytes, len, &self->err);
}

static void release_unpacking(struct td_body_sink *sink)
{
    struct unpacking_sink *self = of(sink);
    self->inner->ops->release(self->inner);
    td_gunzip_destroy(self->gunzip);
    td_budget_give(self->budget, TD_GUNZIP_BYTES);
    free(self);
}

static const struct td_body_sink_ops unpacking_ops = {.write = write_packed, .release = release_unpacking};

struct td_body_sink *td_coded_body_begin(const struct td_call *call, struct td_body_sink *sink)
{
    struct td_error err = TD_ERROR_INIT;
    enum coding coding = sink != NULL && sink->is_document ? coding_of(call->request) : IDENTITY;
    if (coding == IDENTITY)
        return sink;
    if (coding == UNKNOWN) {
        refuse_coding(call);
        sink->ops->release(sink);
        return NULL;
    }
    struct td_budget *budget = td_shared_budget_of(&call->api->commits, call->request->client);
    struct unpacking_sink *self = NULL;
    bool has_room = td_budget_take(budget, TD_GUNZIP_BYTES) || td_budget_refuse(budget, TD_GUNZIP_BYTES, &err);
    if (has_room) {
        self = calloc(1, sizeof *self);
        if (self != NULL)
            self->gunzip = td_gunzip_create(take_unpacked, self, &err);
        if (self != NULL && self->gunzip != NULL) {
            self->sink.ops = &unpacking_ops;
            self->inner = sink;
            self->budget = budget;
            td_error_init(&self->err);
            return &self->sink;
        }
        td_budget_give(budget, TD_GUNZIP_BYTES);
        (void)td_error_no_memory(&err);
        free(self);
    }
    td_response_fail_error(call->response, &err);
    sink->ops->release(sink);
    return NULL;
}

bool td_coded_body_end(const struct td_call *call, struct td_request *request)
{
    if (request->sink == NULL || request->sink->ops != &unpacking_ops)
        return true;
    struct unpacking_sink *self = of(request->sink);
    bool is_sound = self->inner_failed ||
                    (self->err.code == TD_OK && (!request->is_whole || td_gunzip_end(self->gunzip, &self->err)));
    if (!is_sound)
        td_response_fail_error(call->response, &self->err);
    request->sink = self->inner;
    return is_sound;
}
