#include "http/metrics.h"

#include <inttypes.h>

static const int statuses[TD_STATUS_SLOTS - 1] = {200, 201, 206, 304, 400, 401, 403, 404, 405, 409,
                                                  411, 412, 413, 416, 422, 429, 431, 500, 501, 503};
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

static void head(struct td_buffer *out, const char *name, const char *type, const char *help)
{
    td_buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void number(struct td_buffer *out, const char *name, const char *type, const char *help, double value)
{
    head(out, name, type, help);
    td_buffer_printf(out, "%s %.17g\n", name, value);
}

static void count(struct td_buffer *out, const char *name, const char *help, uint64_t value)
{
    head(out, name, "counter", help);
    td_buffer_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void write_requests(const struct td_metrics *metrics, struct td_buffer *out)
{
    head(out, "tensord_http_requests_total", "counter", "Requests answered, by route and status.");
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
    head(out, name, "histogram", "From the request's header to the last byte of its answer.");
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
    number(out, "tensord_http_requests_in_flight", "gauge", "Requests being answered now.",
           (double)atomic_load(&metrics->in_flight));
    number(out, "tensord_http_connections", "gauge", "Open connections.", (double)atomic_load(&metrics->connections));
    count(out, "tensord_http_connections_accepted_total", "Connections accepted.", atomic_load(&metrics->accepted));
    head(out, "tensord_http_connections_refused_total", "counter", "Connections refused, by the limit they exceeded.");
    td_buffer_printf(out, "tensord_http_connections_refused_total{limit=\"total\"} %" PRIu64 "\n",
                     atomic_load(&metrics->refused_total));
    td_buffer_printf(out, "tensord_http_connections_refused_total{limit=\"address\"} %" PRIu64 "\n",
                     atomic_load(&metrics->refused_address));
    td_buffer_printf(out, "tensord_http_connections_refused_total{limit=\"threads\"} %" PRIu64 "\n",
                     atomic_load(&metrics->refused_threads));
    count(out, "tensord_http_malformed_requests_total", "Requests refused by the request guard.",
          atomic_load(&metrics->malformed));
    count(out, "tensord_http_sent_bytes_total", "Body bytes handed to the kernel.", atomic_load(&metrics->sent_bytes));
    head(out, "tensord_http_cut_transfers_total", "counter", "Answers and connections that ended early, by reason.");
    for (int i = 1; i < TD_CUT_COUNT; i++)
        td_buffer_printf(out, "tensord_http_cut_transfers_total{reason=\"%s\"} %" PRIu64 "\n",
                         td_cut_name((enum td_cut)i), atomic_load(&metrics->cuts[i]));
    count(out, "tensord_access_log_dropped_lines_total", "Access log lines dropped because its reader was too slow.",
          atomic_load(&metrics->access_log_dropped));
}

static void write_catalog(const struct td_catalog_status *status, struct td_buffer *out)
{
    number(out, "tensord_models", "gauge", "Models published.", (double)status->model_count);
    number(out, "tensord_tensors", "gauge", "Tensors published.", (double)status->tensor_count);
    number(out, "tensord_files", "gauge", "Files listed.", (double)status->file_count);
    number(out, "tensord_unreadable_files", "gauge", "Files and sets refused, see the models' errors.",
           (double)status->refused_count);
    number(out, "tensord_unpublished_paths", "gauge", "Paths that could not be published at all.",
           (double)status->problem_count);
    number(out, "tensord_unsettled_files", "gauge", "Files changed too recently to be trusted.",
           (double)status->unsettled_count);
    number(out, "tensord_snapshot_generation", "gauge", "Counts up with every change that was published.",
           (double)status->generation);
    number(out, "tensord_root_missing", "gauge", "1 while the served directory is missing or suddenly empty.",
           status->root_missing ? 1 : 0);
    number(out, "tensord_mapped_files", "gauge", "Files mapped now.", (double)status->maps.mapped);
    number(out, "tensord_leased_files", "gauge", "Mapped files that are pinned by a read lease, the fast way.",
           (double)status->maps.leased);
    number(out, "tensord_watched_files", "gauge", "Mapped files without a lease that are watched for writes.",
           (double)status->maps.watched);
    count(out, "tensord_scans_total", "Scans of the served directory.", status->scan_count);
    count(out, "tensord_failed_scans_total", "Scans that failed; the last good state was kept.",
          status->failed_scan_count);
    number(out, "tensord_scan_failed", "gauge", "1 while the last scan failed; /readyz says why.",
           status->scan_failed ? 1 : 0);
    number(out, "tensord_last_scan_duration_seconds", "gauge", "How long the last scan took.",
           (double)status->last_scan_ns / 1e9);
    number(out, "tensord_last_scan_age_seconds", "gauge", "Since the end of the last scan.",
           (double)status->last_scan_age_ns / 1e9);
}

static void write_decoding(const struct td_decode_counts *counts, struct td_buffer *out)
{
    number(out, "tensord_decode_cache_bytes", "gauge",
           "Memory of parts of tensors that are being unpacked or were lately.", (double)counts->used_bytes);
    count(out, "tensord_decode_cache_hits_total", "Parts of tensors that were there, unpacked, when needed.",
          counts->hits);
    count(out, "tensord_decode_cache_misses_total", "Times that a part of a tensor, or all of it, was unpacked.",
          counts->misses);
    count(out, "tensord_decode_cache_evictions_total", "Parts that made room for others.", counts->evictions);
}

static void write_digests(const struct td_hasher_status *status, struct td_buffer *out)
{
    number(out, "tensord_hashed_files", "gauge", "Listed files whose SHA-256 is known.", (double)status->known_count);
    number(out, "tensord_hashed_file_bytes", "gauge", "Bytes of the listed files whose SHA-256 is known.",
           (double)status->known_bytes);
    number(out, "tensord_file_bytes", "gauge", "Bytes of all listed files.", (double)status->file_bytes);
    count(out, "tensord_hash_read_bytes_total", "Bytes read to be hashed.", status->hashed_bytes);
    count(out, "tensord_hash_failures_total", "Files that could not be read, or changed while they were hashed.",
          status->failed_count);
    count(out, "tensord_hash_mismatches_total", "Cache blobs that do not hash to their names.", status->mismatch_count);
    number(out, "tensord_digest_store", "gauge", "1 while digests are kept in --state-dir.", status->stored ? 1 : 0);
}

void td_metrics_write(const struct td_metrics *metrics, const struct td_catalog_status *status, uint64_t shard_bytes,
                      uint64_t list_bytes, bool draining, struct td_buffer *out)
{
    head(out, "tensord_build_info", "gauge", "Constant 1, labelled with the version.");
    td_buffer_puts(out, "tensord_build_info{version=\"" TD_VERSION "\"} 1\n");
    number(out, "tensord_ready", "gauge", "1 when /readyz answers 200.", status->ready && !draining ? 1 : 0);
    write_requests(metrics, out);
    write_latency(metrics, out);
    write_connections(metrics, out);
    write_catalog(status, out);
    write_decoding(&status->decoding, out);
    write_digests(&status->hasher, out);
    number(out, "tensord_shard_files_bytes", "gauge",
           "Memory of rank files, slices and their descriptions, kept or being sent.", (double)shard_bytes);
    number(out, "tensord_lists_bytes", "gauge", "Memory of lists and descriptions that are being sent.",
           (double)list_bytes);
}
