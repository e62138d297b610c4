#include "http/metrics.h"

#include <inttypes.h>

static const int statuses[TD_STATUS_SLOTS - 1] = {200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 409, 411,
                                                  412, 413, 415, 416, 417, 422, 429, 431, 500, 501, 503, 507};
static const uint64_t bucket_us[TD_LATENCY_BUCKETS] = {50,     100,    250,     1000,     5000,     25000,
                                                       100000, 500000, 2500000, 10000000, 60000000, 600000000};

const char *td_cut_name(enum td_cut cut)
{
    static const char *const names[TD_CUT_COUNT] = {"none",    "client", "changed",  "damaged", "busy",
                                                    "stalled", "slow",   "deadline", "idle",    "shutdown"};
    return names[cut];
}

void td_metrics_request(struct td_metrics *metrics, enum td_route route, int status, uint64_t sent_bytes,
                        uint64_t took_ns)
{
    size_t slot = 0;
    while (slot < TD_STATUS_SLOTS - 1 && statuses[slot] != status)
        slot++;
    size_t bucket = 0;
    while (bucket < TD_LATENCY_BUCKETS && took_ns > bucket_us[bucket] * 1000)
        bucket++;
    atomic_fetch_add_explicit(&metrics->requests[route][slot], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metrics->sent_bytes, sent_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&metrics->latency[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metrics->latency_sum_ns, took_ns, memory_order_relaxed);
}

void td_metrics_cut(struct td_metrics *metrics, enum td_cut cut)
{
    if (cut != TD_CUT_NONE)
        atomic_fetch_add_explicit(&metrics->cuts[cut], 1, memory_order_relaxed);
}

void td_metrics_way(struct td_metrics *metrics, enum td_way way)
{
    if (way != TD_WAY_NONE)
        atomic_fetch_add_explicit(&metrics->ways[way], 1, memory_order_relaxed);
}

void td_metrics_head(struct td_buffer *out, const char *name, const char *type, const char *help)
{
    td_buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void td_metrics_gauge(struct td_buffer *out, const char *name, const char *help, double value)
{
    td_metrics_head(out, name, "gauge", help);
    td_buffer_printf(out, "%s %.17g\n", name, value);
}

void td_metrics_count(struct td_buffer *out, const char *name, const char *help, uint64_t value)
{
    td_metrics_head(out, name, "counter", help);
    td_buffer_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void write_requests(const struct td_metrics *metrics, struct td_buffer *out)
{
    td_metrics_head(out, "tensord_http_requests_total", "counter", "Requests answered, by route and status.");
    for (int route = 0; route < TD_ROUTE_COUNT; route++) {
        for (int slot = 0; slot < TD_STATUS_SLOTS; slot++) {
            uint64_t value = atomic_load(&metrics->requests[route][slot]);
            if (value == 0)
                continue;
            td_buffer_printf(out, "tensord_http_requests_total{route=\"%s\",code=\"",
                             td_route_name((enum td_route)route));
            if (slot < TD_STATUS_SLOTS - 1)
                td_buffer_printf(out, "%d\"} %" PRIu64 "\n", statuses[slot], value);
            else
                td_buffer_printf(out, "other\"} %" PRIu64 "\n", value);
        }
    }
}

static void write_latency(const struct td_metrics *metrics, struct td_buffer *out)
{
    static const char name[] = "tensord_http_request_duration_seconds";
    uint64_t below = 0;
    td_metrics_head(out, name, "histogram", "From the request line to the last byte handed to the kernel.");
    for (int i = 0; i < TD_LATENCY_BUCKETS; i++) {
        below += atomic_load(&metrics->latency[i]);
        td_buffer_printf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)bucket_us[i] / 1e6, below);
    }
    below += atomic_load(&metrics->latency[TD_LATENCY_BUCKETS]);
    td_buffer_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n", name, below, name,
                     (double)atomic_load(&metrics->latency_sum_ns) / 1e9, name, below);
}

static void write_connections(const struct td_metrics *metrics, struct td_buffer *out)
{
    td_metrics_gauge(out, "tensord_http_requests_in_flight",
                     "Requests being answered, including this one, without those of tensord_waiters.",
                     (double)atomic_load(&metrics->in_flight));
    td_metrics_gauge(out, "tensord_http_connections", "Open connections.", (double)atomic_load(&metrics->connections));
    td_metrics_gauge(out, "tensord_http_connections_limit", "The value of --max-connections.",
                     (double)atomic_load(&metrics->connections_limit));
    td_metrics_count(out, "tensord_http_connections_accepted_total", "Connections accepted.",
                     atomic_load(&metrics->accepted));
    td_metrics_gauge(out, "tensord_grpc_streams", "Streams of HTTP/2 on the port of --grpc-listen that are open.",
                     (double)atomic_load(&metrics->grpc_streams));
    td_metrics_count(out, "tensord_grpc_resets_total", "Calls on the port of --grpc-listen that clients have reset.",
                     atomic_load(&metrics->grpc_resets));
    td_metrics_count(out, "tensord_grpc_floods_total",
                     "Connections of HTTP/2 that were ended because of floods of frames, resets or header fields.",
                     atomic_load(&metrics->grpc_floods));
    td_metrics_gauge(out, "tensord_waiters", "Requests that wait for a change, at most --max-waiters.",
                     (double)atomic_load(&metrics->waiters));
    td_metrics_count(out, "tensord_http_jobs_total",
                     "Requests that a thread of --workers handed to another thread, which may wait.",
                     atomic_load(&metrics->jobs));
    td_metrics_head(out, "tensord_http_connections_refused_total", "counter",
                    "Connections refused, by the limit they exceeded.");
    td_buffer_printf(out, "tensord_http_connections_refused_total{limit=\"total\"} %" PRIu64 "\n",
                     atomic_load(&metrics->refused_total));
    td_buffer_printf(out, "tensord_http_connections_refused_total{limit=\"address\"} %" PRIu64 "\n",
                     atomic_load(&metrics->refused_address));
    td_buffer_printf(out, "tensord_http_connections_refused_total{limit=\"threads\"} %" PRIu64 "\n",
                     atomic_load(&metrics->refused_threads));
    td_metrics_count(out, "tensord_http_malformed_requests_total",
                     "Requests refused by the request guard, and connections without TLS on a port that has it.",
                     atomic_load(&metrics->malformed));
    td_metrics_count(out, "tensord_http_sent_bytes_total", "Body bytes handed to the kernel.",
                     atomic_load(&metrics->sent_bytes));
    td_metrics_head(out, "tensord_http_cut_transfers_total", "counter",
                    "Answers and connections that ended early, by reason.");
    for (int i = 1; i < TD_CUT_COUNT; i++)
        td_buffer_printf(out, "tensord_http_cut_transfers_total{reason=\"%s\"} %" PRIu64 "\n",
                         td_cut_name((enum td_cut)i), atomic_load(&metrics->cuts[i]));
    td_metrics_gauge(out, "tensord_tokens", "Tokens of the file, also expired ones; 0 without --tokens.",
                     (double)atomic_load(&metrics->tokens));
    td_metrics_gauge(out, "tensord_tokens_file_failed",
                     "1 while the changed tokens file cannot be read, so that the previous tokens stay.",
                     atomic_load(&metrics->tokens_failed) ? 1 : 0);
    td_metrics_count(out, "tensord_access_log_dropped_lines_total",
                     "Lines of the access log that were dropped because its reader was too slow.",
                     atomic_load(&metrics->access_log_dropped));
}

static void write_uploads(const struct td_metrics *metrics, struct td_buffer *out)
{
    static const char *const names[TD_UPLOAD_REFUSALS] = {"total", "address", "handler", "sink"};
    td_metrics_gauge(out, "tensord_uploads", "Uploads whose bodies are arriving or being handled.",
                     (double)atomic_load(&metrics->uploads));
    td_metrics_count(out, "tensord_upload_received_bytes_total", "Body bytes of uploads that were received and taken.",
                     atomic_load(&metrics->upload_bytes));
    td_metrics_head(out, "tensord_uploads_refused_total", "counter", "Uploads refused, by cause.");
    for (int i = 0; i < TD_UPLOAD_REFUSALS; i++)
        td_buffer_printf(out, "tensord_uploads_refused_total{cause=\"%s\"} %" PRIu64 "\n", names[i],
                         atomic_load(&metrics->uploads_refused[i]));
}

static void write_certificate(const struct td_metrics *metrics, struct td_buffer *out)
{
    int64_t expiry_s = atomic_load(&metrics->certificate_expiry_s);
    if (expiry_s != 0)
        td_metrics_gauge(out, "tensord_tls_certificate_expiry_timestamp_seconds",
                         "When the certificate of new connections expires, in seconds since 1970.", (double)expiry_s);
}

static void write_ways(const struct td_metrics *metrics, struct td_buffer *out)
{
    static const char *const names[TD_WAY_COUNT] = {NULL, "copy", "memory", "file", "checked"};
    td_metrics_head(out, "tensord_http_answers_total", "counter", "Answers with a body, by the way it was sent.");
    for (int i = 1; i < TD_WAY_COUNT; i++)
        td_buffer_printf(out, "tensord_http_answers_total{way=\"%s\"} %" PRIu64 "\n", names[i],
                         atomic_load(&metrics->ways[i]));
}

uint64_t td_metrics_request_count(const struct td_metrics *metrics)
{
    uint64_t count = 0;
    for (size_t route = 0; route < TD_ROUTE_COUNT; route++)
        for (size_t status = 0; status < TD_STATUS_SLOTS; status++)
            count += atomic_load(&metrics->requests[route][status]);
    return count;
}

void td_metrics_sample(struct td_metrics *metrics)
{
    const uint64_t number = atomic_load(&metrics->sample_count);
    _Atomic uint64_t *sample = metrics->samples[number % TD_METRICS_SAMPLES];
    atomic_store(&sample[TD_SAMPLED_REQUESTS], td_metrics_request_count(metrics));
    atomic_store(&sample[TD_SAMPLED_SENT_BYTES], atomic_load(&metrics->sent_bytes));
    atomic_store(&sample[TD_SAMPLED_UPLOAD_BYTES], atomic_load(&metrics->upload_bytes));
    atomic_store(&metrics->sample_count, number + 1);
}

size_t td_metrics_last_seconds(const struct td_metrics *metrics, uint64_t out[TD_METRICS_SAMPLES][TD_SAMPLED_COUNT])
{
    const uint64_t taken = atomic_load(&metrics->sample_count);
    const uint64_t most = TD_METRICS_SAMPLES - 1; /* the oldest may be replaced while it is read */
    const size_t kept = (size_t)(taken < most ? taken : most);
    for (size_t i = 1; i < kept; i++)
        for (size_t what = 0; what < TD_SAMPLED_COUNT; what++) {
            const uint64_t number = taken - kept + i;
            uint64_t before = atomic_load(&metrics->samples[(number - 1) % TD_METRICS_SAMPLES][what]);
            uint64_t after = atomic_load(&metrics->samples[number % TD_METRICS_SAMPLES][what]);
            out[i - 1][what] = after > before ? after - before : 0;
        }
    return kept < 2 ? 0 : kept - 1;
}

void td_metrics_write(const struct td_metrics *metrics, struct td_buffer *out)
{
    write_requests(metrics, out);
    write_latency(metrics, out);
    write_ways(metrics, out);
    write_connections(metrics, out);
    write_uploads(metrics, out);
    write_certificate(metrics, out);
}
