/* A server of uploads for tests/http/test_uploads.py: the program's sockets, and a facade whose sinks hash bodies and
 * keep nothing. The arguments are those of `tensord serve`. Prints its URL, and ends as tensord does at SIGTERM.
 *
 *   /sink /discard  take a body; with ?fail_at=N they fail after N bytes, with ?sleep_us=N each piece takes so long
 *   /refuse         answers 403 before the body, /here 200
 *   /memory         takes a body into memory
 *   /state          the numbers of sinks that were made and released, and how many of them were handled
 *   /bytes          64 KiB; /metrics: the metrics */
#include "api/api.h"
#include "api/call/call.h"
#include "core/clock.h"
#include "core/digest.h"
#include "http/body_sink.h"
#include "server/config/config.h"
#include "server/mhd/http_server.h"
#include "server/serving/tls.h"
#include "storage/fault_guard.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Atomic uint64_t made, released, handled; /* sinks */

struct hashing_sink {
    struct td_body_sink sink; /* first: on the way back a sink is one of these */
    struct td_digest *sha256; /* NULL: the body is only counted */
    uint64_t bytes, pieces, fail_at, sleep_us;
    bool was_handled;
};

static struct hashing_sink *hashing_sink_of(struct td_body_sink *sink)
{
    return (struct hashing_sink *)(void *)sink;
}

static bool write_sink(struct td_body_sink *sink, const void *bytes, size_t len)
{
    struct hashing_sink *self = hashing_sink_of(sink);
    if (len > self->fail_at - self->bytes)
        return false;
    if (self->sleep_us > 0) {
        struct timespec pause = {.tv_sec = (time_t)(self->sleep_us / 1000000),
                                 .tv_nsec = (long)(self->sleep_us % 1000000) * 1000};
        (void)nanosleep(&pause, NULL);
    }
    self->bytes += len;
    self->pieces++;
    td_digest_add_content(self->sha256, bytes, len);
    return true;
}

static void release_sink(struct td_body_sink *sink)
{
    char unused[TD_SHA256_TEXT_BYTES];
    struct hashing_sink *self = hashing_sink_of(sink);
    if (self->was_handled)
        atomic_fetch_add(&handled, 1);
    (void)td_digest_finish_text(self->sha256, unused, sizeof unused);
    free(self);
    atomic_fetch_add(&released, 1);
}

static const struct td_body_sink_ops ops = {.write = write_sink, .release = release_sink};

static bool takes_upload(const struct td_request *request)
{
    struct td_text path = td_uri_raw_path(request->target);
    bool is_upload = td_text_equals(path, "/sink") || td_text_equals(path, "/discard") ||
                     td_text_equals(path, "/refuse") || td_text_equals(path, "/here");
    return is_upload && !td_text_equals(request->method, "GET") && !td_text_equals(request->method, "HEAD");
}

static bool takes_body(const struct td_request *request)
{
    return td_text_equals(td_uri_raw_path(request->target), "/memory");
}

static struct td_body_sink *begin_upload(struct td_call *call)
{
    struct td_text path = call->uri->path;
    if (td_text_equals(path, "/refuse")) {
        td_response_fail(call->response, 403, NULL, "this upload is refused");
        return NULL;
    }
    if (td_text_equals(path, "/here")) {
        struct td_buffer text;
        td_buffer_init(&text);
        td_buffer_puts(&text, "already here\n");
        td_response_set_text(call->response, "text/plain", NULL, &text);
        return NULL;
    }
    struct hashing_sink *self = calloc(1, sizeof *self);
    if (self == NULL)
        abort();
    self->sink.ops = &ops;
    self->fail_at = UINT64_MAX;
    if (!td_call_read_number(call, "fail_at", UINT64_MAX, &self->fail_at) ||
        !td_call_read_number(call, "sleep_us", UINT64_MAX, &self->sleep_us)) {
        free(self);
        return NULL;
    }
    if (td_text_equals(path, "/sink") && (self->sha256 = td_digest_create()) == NULL)
        abort();
    atomic_fetch_add(&made, 1);
    return &self->sink;
}

static void answer_sink(struct td_call *call, struct td_buffer *text)
{
    struct hashing_sink *self = hashing_sink_of(call->request->sink);
    self->was_handled = true;
    if (!call->request->is_whole) {
        td_response_fail(call->response, 507, NULL, "the sink failed after %" PRIu64 " bytes", self->bytes);
        return;
    }
    td_buffer_printf(text, "%" PRIu64 " bytes in %" PRIu64 " pieces, declared %" PRIu64 "\n", self->bytes, self->pieces,
                     call->request->body_bytes);
    if (self->sha256 != NULL) {
        char hex[TD_SHA256_TEXT_BYTES];
        (void)td_digest_finish_text(self->sha256, hex, sizeof hex);
        self->sha256 = NULL;
        td_buffer_puts(text, hex);
    }
}

static void answer(struct td_call *call)
{
    struct td_buffer text;
    struct td_text path = call->uri->path;
    td_buffer_init(&text);
    if (call->request->sink != NULL)
        answer_sink(call, &text);
    else if (td_text_equals(path, "/memory"))
        td_buffer_printf(&text, "%zu bytes in memory\n", call->request->body.len);
    else if (td_text_equals(path, "/state"))
        td_buffer_printf(&text, "{\"made\": %" PRIu64 ", \"released\": %" PRIu64 ", \"handled\": %" PRIu64 "}",
                         atomic_load(&made), atomic_load(&released), atomic_load(&handled));
    else if (td_text_equals(path, "/bytes"))
        for (int i = 0; i < 1024; i++)
            td_buffer_append(&text, "0123456789012345678901234567890123456789012345678901234567890123", 64);
    else if (td_text_equals(path, "/metrics"))
        td_metrics_write(&call->api->metrics, &text);
    else
        td_response_fail(call->response, 405, NULL, "nothing here takes this");
    if (text.len > 0)
        td_response_set_text(call->response, "text/plain", NULL, &text);
    td_buffer_fini(&text);
}

static void write_error(struct td_failure *failure, struct td_buffer *out)
{
    td_buffer_printf(out, "%d %s\n", failure->status, failure->message);
}

static bool is_text(struct td_text raw_path)
{
    (void)raw_path;
    return true; /* GETs begin in the shared lane */
}

static const struct td_facade facade = {.takes_body = takes_body,
                                        .takes_upload = takes_upload,
                                        .begin_upload = begin_upload,
                                        .is_text = is_text,
                                        .answer = answer,
                                        .write_error = write_error,
                                        .error_type = "text/plain",
                                        .query = TD_URI_STRICT,
                                        .etag_end = "",
                                        .busy = "busy\n",
                                        .not_tls = "not tls\n",
                                        .is_tls = "is tls\n"};

static _Noreturn void fail(const struct td_error *err)
{
    (void)fprintf(stderr, "upload_server: %s\n", err->message);
    exit(1);
}

/* The parts that run, in the order in which they start. */
struct parts {
    struct td_config config;
    struct td_api api;
    struct td_catalog *catalog;
    struct td_access_log *log;
    struct td_tls *tls;
    struct td_registry registry;
    struct td_serving serving;
    struct td_http_server *server;
    struct td_acceptor *acceptor;
};

static void start(struct parts *parts, struct td_error *err)
{
    const struct td_config *config = &parts->config;
    const struct td_acceptor_config port = {"--listen", config->listen, &facade, config->tls_cert[0] != '\0', NULL};
    const struct td_catalog_config catalog = {
        .root = config->directory, .max_maps = 64, .scan = td_scan_config_default()};
    const struct td_tls_files files = {config->tls_cert, config->tls_key, ""};
    const struct td_registry_limits limits = {.deadlines = {config->header_timeout_ns, config->body_timeout_ns,
                                                            config->idle_timeout_ns, config->send_timeout_ns,
                                                            config->min_rate},
                                              .max_connections = (size_t)config->max_connections,
                                              .max_per_address = (size_t)config->max_connections_per_address};
    char url[128];
    if (!td_catalog_create(&catalog, &parts->catalog, err) || !td_api_init(&parts->api, parts->catalog, err) ||
        !td_access_log_create(config->access_log, &parts->api.metrics.access_log_dropped, &parts->log, err) ||
        (port.has_tls && !td_tls_create(&files, &parts->tls, err)) ||
        !td_registry_init(&parts->registry, &limits, &parts->api.metrics, err))
        fail(err);
    parts->api.takes_uploads = true;
    parts->serving = (struct td_serving){
        .config = config, .api = &parts->api, .registry = &parts->registry, .log = parts->log, .tls = parts->tls};
    if (!td_serving_begin(&parts->serving, err) || !td_http_server_create(&parts->serving, &parts->server, err) ||
        !td_acceptor_create(&port, url, sizeof url, &parts->acceptor, err) ||
        !td_acceptor_start(parts->acceptor, td_http_server_taker(parts->server), &parts->registry, &parts->api.metrics,
                           err))
        fail(err);
    (void)printf("%s\n", url);
    (void)fflush(stdout);
}

/* Does what `tensord serve` does at SIGTERM. */
static void drain(struct parts *parts)
{
    uint64_t until_ns = td_clock_ns() + parts->config.drain_timeout_ns;
    atomic_store(&parts->api.draining, true);
    td_acceptor_stop(parts->acceptor);
    atomic_store(&parts->registry.draining, true);
    while (td_registry_count(&parts->registry) > 0 && td_clock_ns() < until_ns) {
        struct timespec pause = {.tv_nsec = 20000000};
        (void)nanosleep(&pause, NULL);
    }
    td_registry_cut_all(&parts->registry);
}

static void stop(struct parts *parts)
{
    td_acceptor_destroy(parts->acceptor);
    td_serving_close(&parts->serving);
    td_http_server_destroy(parts->server);
    td_serving_fini(&parts->serving);
    td_registry_fini(&parts->registry);
    td_api_fini(&parts->api);
    td_catalog_destroy(parts->catalog);
    td_access_log_destroy(parts->log);
    td_tls_destroy(parts->tls);
    td_config_fini(&parts->config);
}

int main(int argc, char **argv)
{
    static struct parts parts;
    struct td_error err = TD_ERROR_INIT;
    sigset_t signals;
    int number;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)td_fault_guard_install();
    if (!td_config_parse(&parts.config, argc - 1, argv + 1, &err))
        fail(&err);
    if (parts.config.workers == TD_CONFIG_AUTO)
        parts.config.workers = 2;
    start(&parts, &err);
    (void)sigwait(&signals, &number);
    drain(&parts);
    stop(&parts);
    (void)printf("made %" PRIu64 " released %" PRIu64 " handled %" PRIu64 "\n", atomic_load(&made),
                 atomic_load(&released), atomic_load(&handled));
    return 0;
}
