#include "tests/kit/loopback.h"

#include "api/native/native.h"
#include "api/s3/s3.h"
#include "core/clock.h"
#include "http/http_date.h"
#include "tests/kit/kit.h"

#include <strings.h>
#include <time.h>

void loopback_wait_scans(struct td_catalog *catalog, uint64_t count)
{
    struct td_catalog_status status;
    uint64_t until_ns = td_clock_ns() + UINT64_C(120000000000);
    do {
        struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
        td_catalog_get_status(catalog, &status);
        KIT_CHECK(td_clock_ns() < until_ns);
    } while (status.scan_count < count || status.scanning);
}

void loopback_wait_indexed(struct td_catalog *catalog)
{
    struct td_catalog_status status;
    uint64_t until_ns = td_clock_ns() + UINT64_C(120000000000);
    do {
        struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
        td_catalog_get_status(catalog, &status);
        KIT_CHECK(td_clock_ns() < until_ns);
    } while (status.indexer.ready_count + status.indexer.failed_count < status.indexer.file_count);
}

void loopback_open(struct loopback *loop, const struct tree *tree)
{
    struct td_catalog_config config = {.root = tree->path, .max_maps = 64, .scan = td_scan_config_default()};
    struct td_error err = TD_ERROR_INIT;
    config.scan.settle_ns = 0;
    KIT_CHECK(td_catalog_create(&config, &loop->catalog, &err));
    KIT_CHECK(td_api_init(&loop->api, loop->catalog, &err));
    loopback_wait_scans(loop->catalog, 1);
}

void loopback_close(struct loopback *loop)
{
    td_api_fini(&loop->api);
    td_catalog_destroy(loop->catalog);
}

void loopback_rescan(struct loopback *loop)
{
    struct td_catalog_status before;
    td_catalog_get_status(loop->catalog, &before);
    td_catalog_request_scan(loop->catalog);
    loopback_wait_scans(loop->catalog, before.scan_count + (before.scanning ? 2 : 1));
}

static struct td_text text_of(const char *p, size_t len)
{
    return td_text_n(p, len);
}

void loopback_request_init(struct loopback_request *out, const char *method, const char *target, const char *lines)
{
    size_t count = 0;
    while (lines != NULL && *lines != '\0') {
        size_t len = strcspn(lines, "\n");
        const char *colon = memchr(lines, ':', len);
        KIT_CHECK(colon != NULL && count < LOOPBACK_HEADERS);
        size_t name_len = (size_t)(colon - lines);
        const char *value = colon + 1;
        while (value < lines + len && *value == ' ')
            value++;
        out->headers[count].name = text_of(lines, name_len);
        out->headers[count++].value = text_of(value, (size_t)(lines + len - value));
        lines += len + (lines[len] == '\n' ? 1 : 0);
    }
    struct td_text raw = text_of(target, strlen(target));
    out->request = (struct td_request){.facade = td_api_facade(&td_native_facade, raw),
                                       .method = text_of(method, strlen(method)),
                                       .target = raw,
                                       .headers = out->headers,
                                       .header_count = count};
}

static void read_body(struct answer *out)
{
    static const size_t pieces[] = {1, 7, 4096, 64, 100000, 3};
    struct td_body_cursor cursor = {0};
    struct td_error err = TD_ERROR_INIT;
    out->len = (size_t)out->response.body.total_bytes;
    out->body = malloc(out->len + 1);
    KIT_CHECK(out->body != NULL);
    for (size_t at = 0, i = 0; at < out->len; i++) {
        size_t n = pieces[i % (sizeof pieces / sizeof *pieces)];
        if (n > out->len - at)
            n = out->len - at;
        KIT_CHECK(td_body_read(&out->response.body, &cursor, out->body + at, n, &err));
        at += n;
    }
    out->body[out->len] = '\0';
}

static void ask(struct loopback *loop, const struct td_facade *port, const char *method, const char *target,
                const char *lines, struct answer *out)
{
    struct loopback_request request;
    loopback_request_init(&request, method, target, lines);
    request.request.facade = td_api_facade(port, request.request.target);
    td_api_handle(&loop->api, &request.request, &out->response);
    if (out->response.changed) /* as the server does */
        td_catalog_request_scan(loop->catalog);
    read_body(out);
}

void loopback_ask(struct loopback *loop, const char *method, const char *target, const char *lines, struct answer *out)
{
    ask(loop, &td_native_facade, method, target, lines, out);
}

void loopback_ask_s3(struct loopback *loop, const char *method, const char *target, const char *lines,
                     struct answer *out)
{
    ask(loop, &td_s3_facade, method, target, lines, out);
}

void loopback_get(struct loopback *loop, const char *target, struct answer *out)
{
    loopback_ask(loop, "GET", target, NULL, out);
}

void loopback_send(struct loopback *loop, const struct td_facade *port, const char *method, const char *target,
                   const char *lines, struct td_text body, struct answer *out)
{
    struct loopback_request request;
    loopback_request_init(&request, method, target, lines);
    request.request.facade = td_api_facade(port, request.request.target);
    request.request.body_bytes = body.len;
    KIT_CHECK(td_api_body_place(&loop->api, &request.request) == TD_BODY_SINK);
    struct td_body_sink *sink = td_api_begin_upload(&loop->api, &request.request, &out->response);
    if (sink != NULL) {
        td_response_fini(&out->response);
        request.request.sink = sink;
        request.request.is_whole = body.len == 0 || sink->ops->write(sink, body.p, body.len);
        td_api_handle(&loop->api, &request.request, &out->response);
        sink->ops->release(sink);
    }
    read_body(out);
}

void answer_fini(struct answer *answer)
{
    td_response_fini(&answer->response);
    free(answer->body);
    answer->body = NULL;
}

const char *answer_header(const struct answer *answer, const char *name, char buffer[128])
{
    const struct td_response *response = &answer->response;
    if (strcasecmp(name, "Content-Type") == 0)
        return response->content_type;
    if (strcasecmp(name, "Cache-Control") == 0)
        return response->cache_control;
    if (strcasecmp(name, "ETag") == 0)
        return response->etag[0] == '\0' ? NULL : response->etag;
    if (strcasecmp(name, "Accept-Ranges") == 0)
        return response->accept_ranges ? "bytes" : NULL;
    if (strcasecmp(name, "Last-Modified") == 0) {
        if (response->last_modified_s < 0)
            return NULL;
        td_http_date_format(response->last_modified_s, buffer);
        return buffer;
    }
    for (size_t i = 0; i < response->header_count; i++)
        if (strcasecmp(response->headers[i].name, name) == 0)
            return response->headers[i].value;
    return NULL;
}
