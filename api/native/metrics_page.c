#include "api/native/metrics_page.h"

#include "http/build_commit.h"

static void write_catalog(const struct td_catalog_status *status, struct td_buffer *out)
{
    td_metrics_gauge(out, "tensord_models", "Models published.", (double)status->counts.models);
    td_metrics_gauge(out, "tensord_tensors", "Tensors published.", (double)status->counts.tensors);
    td_metrics_gauge(out, "tensord_files", "Files listed.", (double)status->counts.files);
    td_metrics_gauge(out, "tensord_unreadable_files",
                     "Refused files and sets of files, and damaged config.json and model cards.",
                     (double)status->counts.refused);
    td_metrics_gauge(out, "tensord_unpublished_paths",
                     "Paths that belong to no model and could not be published: errors of GET /models.",
                     (double)status->counts.problems);
    td_metrics_gauge(out, "tensord_unsettled_files",
                     "Files, and directories of cache commits, that changed less than --settle ago.",
                     (double)status->counts.unsettled);
    td_metrics_gauge(out, "tensord_snapshot_generation", "Number of the published state; every change increases it.",
                     (double)status->generation);
    td_metrics_gauge(out, "tensord_root_missing", "1 while the served directory is missing or suddenly empty.",
                     status->root_missing ? 1 : 0);
    td_metrics_gauge(out, "tensord_mapped_files", "Files mapped now.", (double)status->maps.mapped);
    td_metrics_gauge(out, "tensord_leased_files",
                     "Mapped files held under a read lease, whose answers are sent without another check.",
                     (double)status->maps.leased);
    td_metrics_gauge(out, "tensord_watched_files",
                     "Mapped files without a lease that are watched for writes and were not written to.",
                     (double)status->maps.watched);
    td_metrics_gauge(out, "tensord_watched_directories",
                     "Directories that were watched for changes at the end of the last scan.",
                     (double)status->watch.watched);
    td_metrics_gauge(out, "tensord_unwatched_directories",
                     "Directories that should be watched and are not; 0 with --watch off.",
                     (double)status->watch.unwatched);
    td_metrics_count(out, "tensord_watch_events_total", "Changes that the kernel reported.", status->watch.events);
    td_metrics_count(out, "tensord_watch_overflows_total",
                     "Times that the kernel dropped such reports; a scan of everything followed.",
                     status->watch.overflows);
    td_metrics_count(out, "tensord_scans_total", "Scans of the served directory.", status->scan_count);
    td_metrics_count(out, "tensord_failed_scans_total", "Scans that failed; the last good state was kept.",
                     status->failed_scan_count);
    td_metrics_gauge(out, "tensord_scan_failed", "1 while the last scan failed; /readyz says why.",
                     status->scan_failed ? 1 : 0);
    td_metrics_gauge(out, "tensord_last_scan_duration_seconds", "How long the last scan took.",
                     (double)status->last_scan_ns / 1e9);
    td_metrics_gauge(out, "tensord_last_scan_age_seconds", "Time since the end of the last scan.",
                     (double)status->last_scan_age_ns / 1e9);
}

static void write_decoding(const struct td_decode_counts *counts, struct td_buffer *out)
{
    td_metrics_gauge(out, "tensord_decode_cache_bytes",
                     "Memory of --decode-memory in use, for parts of tensors that are or were unpacked.",
                     (double)counts->used_bytes);
    td_metrics_count(out, "tensord_decode_cache_hits_total",
                     "Parts of tensors that were in memory, unpacked, when needed.", counts->hits);
    td_metrics_count(out, "tensord_decode_cache_misses_total", "Parts of tensors that had to be unpacked.",
                     counts->misses);
    td_metrics_count(out, "tensord_decode_cache_evictions_total", "Unpacked parts of tensors that were evicted.",
                     counts->evictions);
}

static void write_digests(const struct td_hasher_status *status, struct td_buffer *out)
{
    td_metrics_gauge(out, "tensord_hashed_files", "Listed files whose SHA-256 is known.", (double)status->known_count);
    td_metrics_gauge(out, "tensord_hashed_file_bytes", "Bytes of the listed files whose SHA-256 is known.",
                     (double)status->known_bytes);
    td_metrics_gauge(out, "tensord_file_bytes", "Bytes of all listed files.", (double)status->file_bytes);
    td_metrics_count(out, "tensord_hash_read_bytes_total", "Bytes read for hashing.", status->hashed_bytes);
    td_metrics_count(out, "tensord_hash_failures_total",
                     "Files that could not be read, or changed while they were hashed.", status->failed_count);
    td_metrics_count(out, "tensord_hash_mismatches_total",
                     "Blobs of a Hugging Face cache that do not hash to their names.", status->mismatch_count);
    td_metrics_gauge(out, "tensord_digest_store", "1 while digests reach --state-dir.", status->stored ? 1 : 0);
}

static void write_rows(const struct td_row_indexer_status *status, struct td_buffer *out)
{
    td_metrics_gauge(out, "tensord_row_index_files",
                     "Files of datasets that have an index of their rows, or will have one.",
                     (double)status->file_count);
    td_metrics_gauge(out, "tensord_row_index_ready_files", "Files of datasets whose index is complete.",
                     (double)status->ready_count);
    td_metrics_gauge(out, "tensord_row_index_failed_files",
                     "Files of datasets that cannot be indexed; GET /datasets/{id} says why.",
                     (double)status->failed_count);
    td_metrics_gauge(out, "tensord_row_index_rows", "Rows of the files whose index is complete.",
                     (double)status->row_count);
    td_metrics_gauge(out, "tensord_row_index_bytes", "Memory of indexes of rows, which counts for --max-memory.",
                     (double)status->memory_bytes);
    td_metrics_count(out, "tensord_row_index_read_bytes_total", "Bytes of files read for indexes of rows.",
                     status->read_bytes);
}

static void write_layer(const char *name, bool holds, struct td_buffer *out)
{
    td_buffer_printf(out, "tensord_sandbox_layer{layer=\"%s\"} %d\n", name, holds ? 1 : 0);
}

static void write_parsing(const struct td_parse_pool_status *status, struct td_buffer *out)
{
    td_metrics_head(out, "tensord_sandbox_layer", "gauge",
                    "1 if this layer of the sandbox holds in the processes that parse files.");
    write_layer("seccomp", status->layers.seccomp, out);
    write_layer("landlock", status->layers.landlock, out);
    write_layer("rlimits", status->layers.rlimits, out);
    td_metrics_gauge(out, "tensord_parse_workers", "Processes that parse files; 0 if the server itself parses them.",
                     (double)status->worker_count);
    td_metrics_count(out, "tensord_parse_worker_files_total",
                     "Files that were given to the processes that parse files.", status->file_count);
    td_metrics_head(out, "tensord_parse_workers_restarted_total", "counter",
                    "Processes that parse files and were replaced, by reason.");
    for (int end = 0; end < TD_PARSE_ENDS; end++)
        td_buffer_printf(out, "tensord_parse_workers_restarted_total{reason=\"%s\"} %llu\n",
                         td_parse_end_name((enum td_parse_end)end), (unsigned long long)status->ends[end]);
}

void td_native_write_metrics(const struct td_metrics *metrics, const struct td_catalog_status *status,
                             uint64_t rank_file_bytes, uint64_t list_bytes, bool draining, struct td_buffer *out)
{
    td_metrics_head(out, "tensord_build_info", "gauge", "Constant 1, labelled with the version and the commit.");
    td_buffer_printf(out, "tensord_build_info{version=\"" TD_VERSION "\",commit=\"%s\"} 1\n", td_build_commit());
    td_metrics_gauge(out, "tensord_ready", "1 when /readyz answers 200.", status->ready && !draining ? 1 : 0);
    td_metrics_write(metrics, out);
    write_catalog(status, out);
    write_decoding(&status->decoding, out);
    write_digests(&status->hasher, out);
    write_rows(&status->indexer, out);
    write_parsing(&status->parsing, out);
    td_metrics_gauge(out, "tensord_shard_files_bytes",
                     "Memory of rank files, slices and their descriptions, planned, cached or being sent.",
                     (double)rank_file_bytes);
    td_metrics_gauge(out, "tensord_lists_bytes",
                     "Memory of lists of the Hub and of descriptions of models that are being sent.",
                     (double)list_bytes);
}

void td_native_write_upstream_metrics(const struct td_upstream_status *status, struct td_buffer *out)
{
    static const char *const reasons[TD_UPSTREAM_FAILURES] = {[TD_UPSTREAM_FAILED_SPACE] = "space",
                                                              [TD_UPSTREAM_FAILED_CONTENT] = "content",
                                                              [TD_UPSTREAM_FAILED_UNREACHABLE] = "unreachable",
                                                              [TD_UPSTREAM_FAILED_OTHER] = "other"};
    td_metrics_gauge(out, "tensord_upstream_fetching_models", "Models that are being fetched from --upstream.",
                     (double)status->fetching);
    td_metrics_gauge(out, "tensord_upstream_waiting_models", "Models that wait to be fetched from --upstream.",
                     (double)status->waiting);
    td_metrics_count(out, "tensord_upstream_begun_total", "Fetches of models that were started or resumed.",
                     status->begun);
    td_metrics_count(out, "tensord_upstream_published_total",
                     "Models that were fetched from the upstream and published.", status->published);
    td_metrics_count(out, "tensord_upstream_absent_total", "Times that the upstream had no such model.",
                     status->absent);
    td_metrics_count(out, "tensord_upstream_fetched_bytes_total", "Bytes that were received from the upstream.",
                     status->fetched_bytes);
    td_metrics_count(out, "tensord_upstream_early_requests_total",
                     "Requests that were answered from a model that was still being fetched.", status->early_requests);
    td_metrics_count(out, "tensord_upstream_evicted_total", "Models that were removed to make room for others.",
                     status->evicted);
    td_metrics_count(out, "tensord_upstream_renewed_total",
                     "Fetched models that were removed because the upstream has other files in their place.",
                     status->renewed);
    td_metrics_gauge(out, "tensord_upstream_following", "1 while the events of the upstream are followed.",
                     status->is_following ? 1 : 0);
    td_metrics_head(out, "tensord_upstream_failures_total", "counter", "Fetches of models that failed, by reason.");
    for (int i = 0; i < TD_UPSTREAM_FAILURES; i++)
        td_buffer_printf(out, "tensord_upstream_failures_total{reason=\"%s\"} %llu\n", reasons[i],
                         (unsigned long long)status->failures[i]);
    td_metrics_gauge(out, "tensord_upstream_kept_models", "Published models that came from the upstream.",
                     (double)status->kept_count);
    td_metrics_gauge(out, "tensord_upstream_unverified_models",
                     "Published models for some of whose files the upstream had no digest.",
                     (double)status->unverified);
    td_metrics_gauge(out, "tensord_upstream_kept_bytes",
                     "Bytes of models from the upstream, also of those that are being fetched.",
                     (double)status->kept_bytes);
}

void td_native_write_publish_metrics(const struct td_publish_status *status, struct td_buffer *out)
{
    static const char *const failures[TD_PUBLISH_FAILURES] = {"room", "late", "other"};
    td_metrics_gauge(out, "tensord_publish_open_blobs",
                     "Blobs that are arriving, or were within the last minute, and are not complete.",
                     (double)status->upload_count);
    td_metrics_count(out, "tensord_publish_blobs_total", "Blobs that are complete since the start.",
                     status->blob_count);
    td_metrics_count(out, "tensord_publish_received_bytes_total", "Bytes of blobs that were written to the disk.",
                     status->received_bytes);
    td_metrics_gauge(out, "tensord_publish_used_bytes",
                     "Bytes of published blobs and of open uploads, which --publish-max-bytes limits.",
                     (double)status->used_bytes);
    td_metrics_gauge(out, "tensord_publish_max_bytes", "The value of --publish-max-bytes; 0: no bound.",
                     (double)status->max_bytes);
    td_metrics_gauge(out, "tensord_publish_disk_bytes", "Size of the disk that published models are on.",
                     (double)status->disk_bytes);
    td_metrics_gauge(out, "tensord_publish_disk_free_bytes", "Free bytes of that disk.", (double)status->free_bytes);
    td_metrics_gauge(out, "tensord_publish_oldest_upload_seconds",
                     "How long the oldest of tensord_publish_open_blobs has been open; 0: there is none.",
                     (double)status->oldest_upload_ns / 1e9);
    td_metrics_count(out, "tensord_publish_commits_total", "Commits that have moved a revision.", status->commit_count);
    td_metrics_head(out, "tensord_publish_refused_total", "counter", "Blobs that were refused, by cause.");
    td_buffer_printf(out, "tensord_publish_refused_total{cause=\"digest\"} %llu\n",
                     (unsigned long long)status->refused_digest_count);
    td_buffer_printf(out, "tensord_publish_refused_total{cause=\"room\"} %llu\n",
                     (unsigned long long)status->refused_quota_count);
    td_metrics_head(out, "tensord_publish_failures_total", "counter",
                    "Requests that publish and failed by the server's fault or for lack of room, by reason.");
    for (int i = 0; i < TD_PUBLISH_FAILURES; i++)
        td_buffer_printf(out, "tensord_publish_failures_total{reason=\"%s\"} %llu\n", failures[i],
                         (unsigned long long)status->failures[i]);
}

void td_native_write_event_metrics(struct td_event_streams *streams, struct td_event_ring *ring, struct td_buffer *out)
{
    const size_t open = (size_t)atomic_load(&streams->open);
    td_metrics_head(out, "tensord_events_total", "counter",
                    "Changes of models, datasets and revisions that GET /events reports, by event.");
    for (int i = 0; i < TD_EVENT_TYPES; i++)
        td_buffer_printf(out, "tensord_events_total{event=\"%s\"} %llu\n", td_event_type_name((enum td_event_type)i),
                         (unsigned long long)td_event_ring_count(ring, (enum td_event_type)i));
    td_metrics_gauge(out, "tensord_event_streams", "Streams of GET /events that are open; part of tensord_waiters.",
                     (double)open);
    td_metrics_count(out, "tensord_event_streams_total", "Streams of GET /events since the start.",
                     atomic_load(&streams->begun));
    td_metrics_count(out, "tensord_events_sent_total", "Events that clients were given, by streams and pages.",
                     atomic_load(&streams->sent));
    td_metrics_count(out, "tensord_event_resets_total",
                     "Events `reset`, on which a client of GET /events lists everything again.",
                     atomic_load(&streams->resets));
}
