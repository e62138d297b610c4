/* The exposition format: Prometheus documentation, "Exposition formats", text format 0.0.4; names: "Metric and label
 * naming". */
#include "api/native/metrics_page.h"

#include "http/build_commit.h"
#include "tests/unit/unit.h"

#include <assert.h>
#include <ctype.h>

struct text {
    struct td_metrics metrics;
    struct td_catalog_status status;
    struct td_buffer out;
};

static char *write_text(struct text *text)
{
    td_buffer_clear(&text->out);
    td_native_write_metrics(&text->metrics, &text->status, 12345, 6789, false, &text->out);
    char *written = td_buffer_terminate(&text->out);
    assert_non_null(written);
    return written;
}

static void has_line(const char *text, const char *line)
{
    size_t len = strlen(line);
    for (const char *at = text; (at = strstr(at, line)) != NULL; at++)
        if ((at == text || at[-1] == '\n') && at[len] == '\n')
            return;
    fail_msg("no line \"%s\"", line);
}

static void requests_are_counted_by_route_and_code(void **state)
{
    (void)state;
    static struct text text;
    td_metrics_request(&text.metrics, TD_ROUTE_TENSOR, 206, 1000, 40000);
    td_metrics_request(&text.metrics, TD_ROUTE_TENSOR, 206, 24, 60000);
    td_metrics_request(&text.metrics, TD_ROUTE_TENSOR, 200, 0, 700000000);
    td_metrics_request(&text.metrics, TD_ROUTE_NONE, 404, 1, 1);
    const char *out = write_text(&text);
    has_line(out, "tensord_http_requests_total{route=\"tensor\",code=\"206\"} 2");
    has_line(out, "tensord_http_requests_total{route=\"tensor\",code=\"200\"} 1");
    has_line(out, "tensord_http_requests_total{route=\"none\",code=\"404\"} 1");
    has_line(out, "tensord_http_sent_bytes_total 1025");
    has_line(out, "tensord_http_request_duration_seconds_bucket{le=\"5e-05\"} 2");
    has_line(out, "tensord_http_request_duration_seconds_bucket{le=\"0.0001\"} 3");
    has_line(out, "tensord_http_request_duration_seconds_bucket{le=\"0.5\"} 3");
    has_line(out, "tensord_http_request_duration_seconds_bucket{le=\"2.5\"} 4");
    has_line(out, "tensord_http_request_duration_seconds_bucket{le=\"+Inf\"} 4");
    has_line(out, "tensord_http_request_duration_seconds_count 4");
    td_buffer_fini(&text.out);
}

/* Each status that the server uses has its own series. */
static void every_status_of_ours_has_a_series(void **state)
{
    (void)state;
    static const int statuses[] = {200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 409, 411,
                                   412, 413, 415, 416, 417, 422, 429, 431, 500, 501, 503, 507};
    static struct text text;
    char line[96];
    for (size_t i = 0; i < COUNT_OF(statuses); i++)
        for (size_t n = 0; n <= i; n++)
            td_metrics_request(&text.metrics, TD_ROUTE_FILE, statuses[i], 0, 0);
    td_metrics_request(&text.metrics, TD_ROUTE_FILE, 299, 0, 0);
    const char *out = write_text(&text);
    for (size_t i = 0; i < COUNT_OF(statuses); i++) {
        (void)snprintf(line, sizeof line, "tensord_http_requests_total{route=\"file\",code=\"%d\"} %zu", statuses[i],
                       i + 1);
        has_line(out, line);
    }
    has_line(out, "tensord_http_requests_total{route=\"file\",code=\"other\"} 1");
    td_buffer_fini(&text.out);
}

static void names_are_the_same_everywhere(void **state)
{
    (void)state;
    static const char *const routes[] = {"none",
                                         "models",
                                         "model",
                                         "versions",
                                         "changes",
                                         "manifest",
                                         "tensor",
                                         "file",
                                         "read",
                                         "plans",
                                         "plan",
                                         "shard",
                                         "model_file",
                                         "blob",
                                         "commits",
                                         "datasets",
                                         "dataset",
                                         "rows",
                                         "row",
                                         "rows_batch",
                                         "row_index",
                                         "hub_file",
                                         "hub_api",
                                         "oci_manifest",
                                         "oci_blob",
                                         "oci_upload",
                                         "oci_api",
                                         "healthz",
                                         "readyz",
                                         "metrics",
                                         "openapi",
                                         "schema",
                                         "version",
                                         "start",
                                         "rescan",
                                         "sign",
                                         "events",
                                         "asset",
                                         "view",
                                         "compare",
                                         "status",
                                         "s3_bucket",
                                         "s3_list",
                                         "s3_object",
                                         "rpc",
                                         "rpc_health_check",
                                         "rpc_health_list",
                                         "rpc_health_watch",
                                         "rpc_reflect",
                                         "rpc_list_models",
                                         "rpc_get_model",
                                         "rpc_list_versions",
                                         "rpc_get_manifest",
                                         "rpc_get_rank_file",
                                         "rpc_watch_model",
                                         "rpc_read_tensors",
                                         "rpc_batch_get_rows",
                                         "rpc_stream_rows",
                                         "rpc_register_plan",
                                         "rpc_get_plan",
                                         "rpc_list_datasets",
                                         "rpc_get_dataset",
                                         "rpc_get_version",
                                         "rpc_get_readiness",
                                         "rpc_rescan"};
    static_assert(COUNT_OF(routes) == TD_ROUTE_COUNT, "the label of each route of TD_ROUTES stands here");
    for (int i = 0; i < TD_ROUTE_COUNT; i++)
        assert_string_equal(td_route_name((enum td_route)i), routes[i]);
    for (int i = 0; i < TD_CUT_COUNT; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(td_cut_name((enum td_cut)i), td_cut_name((enum td_cut)k));
}

static void cuts_and_gauges(void **state)
{
    (void)state;
    static struct text text;
    td_metrics_cut(&text.metrics, TD_CUT_NONE);
    td_metrics_cut(&text.metrics, TD_CUT_CHANGED);
    td_metrics_cut(&text.metrics, TD_CUT_DAMAGED);
    td_metrics_cut(&text.metrics, TD_CUT_SLOW);
    td_metrics_cut(&text.metrics, TD_CUT_SLOW);
    atomic_store(&text.metrics.in_flight, 3);
    atomic_store(&text.metrics.connections, 4);
    text.status = (struct td_catalog_status){.ready = true,
                                             .counts = {.models = 5, .tensors = UINT64_C(1) << 40},
                                             .scan_count = 6,
                                             .last_scan_ns = 1500000000,
                                             .decoding = {.used_bytes = 7, .hits = 8, .misses = 9, .evictions = 10}};
    char *out = write_text(&text);
    has_line(out, "tensord_http_cut_transfers_total{reason=\"changed\"} 1");
    has_line(out, "tensord_http_cut_transfers_total{reason=\"damaged\"} 1");
    has_line(out, "tensord_decode_cache_bytes 7");
    has_line(out, "tensord_decode_cache_hits_total 8");
    has_line(out, "tensord_decode_cache_misses_total 9");
    has_line(out, "tensord_decode_cache_evictions_total 10");
    has_line(out, "tensord_http_cut_transfers_total{reason=\"slow\"} 2");
    has_line(out, "tensord_http_cut_transfers_total{reason=\"client\"} 0");
    has_line(out, "tensord_http_requests_in_flight 3");
    has_line(out, "tensord_http_connections 4");
    has_line(out, "tensord_models 5");
    has_line(out, "tensord_tensors 1099511627776");
    has_line(out, "tensord_scans_total 6");
    has_line(out, "tensord_last_scan_duration_seconds 1.5");
    has_line(out, "tensord_ready 1");
    char build[256];
    (void)snprintf(build, sizeof build, "tensord_build_info{version=\"" TD_VERSION "\",commit=\"%s\"} 1",
                   td_build_commit());
    has_line(out, build);
    td_buffer_clear(&text.out);
    td_native_write_metrics(&text.metrics, &text.status, 0, 0, true, &text.out);
    has_line(td_buffer_terminate(&text.out), "tensord_ready 0"); /* draining */
    td_buffer_fini(&text.out);
}

static void the_upstream_is_counted(void **state)
{
    (void)state;
    struct td_buffer out;
    const struct td_upstream_status status = {.fetching = 1,
                                              .waiting = 2,
                                              .begun = 3,
                                              .published = 4,
                                              .absent = 5,
                                              .fetched_bytes = UINT64_C(1) << 50,
                                              .early_requests = 7,
                                              .evicted = 8,
                                              .failures = {9, 10, 11, 12},
                                              .kept_bytes = 13,
                                              .kept_count = 14,
                                              .unverified = 15};
    td_buffer_init(&out);
    td_native_write_upstream_metrics(&status, &out);
    const char *text = td_buffer_terminate(&out);
    has_line(text, "tensord_upstream_fetching_models 1");
    has_line(text, "tensord_upstream_waiting_models 2");
    has_line(text, "tensord_upstream_begun_total 3");
    has_line(text, "tensord_upstream_published_total 4");
    has_line(text, "tensord_upstream_absent_total 5");
    has_line(text, "tensord_upstream_fetched_bytes_total 1125899906842624");
    has_line(text, "tensord_upstream_early_requests_total 7");
    has_line(text, "tensord_upstream_evicted_total 8");
    has_line(text, "tensord_upstream_failures_total{reason=\"space\"} 9");
    has_line(text, "tensord_upstream_failures_total{reason=\"content\"} 10");
    has_line(text, "tensord_upstream_failures_total{reason=\"unreachable\"} 11");
    has_line(text, "tensord_upstream_failures_total{reason=\"other\"} 12");
    has_line(text, "tensord_upstream_kept_bytes 13");
    has_line(text, "tensord_upstream_kept_models 14");
    has_line(text, "tensord_upstream_unverified_models 15");
    td_buffer_fini(&out);
}

static void publishing_is_counted(void **state)
{
    (void)state;
    struct td_buffer out;
    const struct td_publish_status status = {.used_bytes = UINT64_C(1) << 50,
                                             .upload_count = 1,
                                             .blob_count = 2,
                                             .received_bytes = 3,
                                             .commit_count = 4,
                                             .refused_digest_count = 5,
                                             .refused_quota_count = 6,
                                             .max_bytes = UINT64_C(1) << 51,
                                             .failures = {7, 8, 9},
                                             .oldest_upload_ns = UINT64_C(2500000000),
                                             .free_bytes = 10,
                                             .disk_bytes = 11};
    td_buffer_init(&out);
    td_native_write_publish_metrics(&status, &out);
    const char *text = td_buffer_terminate(&out);
    has_line(text, "tensord_publish_used_bytes 1125899906842624");
    has_line(text, "tensord_publish_open_blobs 1");
    has_line(text, "tensord_publish_blobs_total 2");
    has_line(text, "tensord_publish_received_bytes_total 3");
    has_line(text, "tensord_publish_commits_total 4");
    has_line(text, "tensord_publish_refused_total{cause=\"digest\"} 5");
    has_line(text, "tensord_publish_refused_total{cause=\"room\"} 6");
    has_line(text, "tensord_publish_max_bytes 2251799813685248");
    has_line(text, "tensord_publish_failures_total{reason=\"room\"} 7");
    has_line(text, "tensord_publish_failures_total{reason=\"late\"} 8");
    has_line(text, "tensord_publish_failures_total{reason=\"other\"} 9");
    has_line(text, "tensord_publish_oldest_upload_seconds 2.5");
    has_line(text, "tensord_publish_disk_free_bytes 10");
    has_line(text, "tensord_publish_disk_bytes 11");
    td_buffer_fini(&out);
}

static size_t name_len(const char *p)
{
    size_t n = 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == ':')
        n++;
    return n;
}

static bool begins(const char *line, const char *prefix)
{
    return strncmp(line, prefix, strlen(prefix)) == 0;
}

/* Checks one sample: name, labels, a number. Samples follow the HELP and TYPE lines of their family. */
static void check_sample(const char *line, const char *family, const char *type)
{
    size_t n = name_len(line);
    char name[128];
    assert_true(n > 0 && n < sizeof name);
    memcpy(name, line, n);
    name[n] = '\0';
    CHECK(begins(name, "tensord_"), "%s", line);
    CHECK(begins(name, family), "%s is not of %s", line, family);
    const char *suffix = name + strlen(family);
    bool histogram = strcmp(type, "histogram") == 0;
    CHECK(histogram ? strcmp(suffix, "_bucket") == 0 || strcmp(suffix, "_sum") == 0 || strcmp(suffix, "_count") == 0
                    : *suffix == '\0',
          "%s", line);
    size_t family_len = strlen(family);
    bool total = family_len > 6 && strcmp(family + family_len - 6, "_total") == 0;
    CHECK((strcmp(type, "counter") == 0) == total, "%s is a %s", family, type);
    const char *at = line + n;
    if (*at == '{') {
        at++;
        while (*at != '}') { /* label="value"; no value of tensord holds a quote */
            size_t label = name_len(at);
            CHECK(label > 0 && at[label] == '=' && at[label + 1] == '"', "%s", line);
            at = strchr(at + label + 2, '"');
            assert_non_null(at);
            at++;
            at += *at == ',' ? 1 : 0;
        }
        at++;
    }
    char *end;
    assert_int_equal(*at, ' ');
    (void)strtod(at + 1, &end);
    CHECK(end != at + 1 && *end == '\0', "%s", line);
}

static void every_line_is_well_formed(void **state)
{
    (void)state;
    static struct text text;
    for (int route = 0; route < TD_ROUTE_COUNT; route++)
        for (int status = 100; status < 600; status++)
            td_metrics_request(&text.metrics, (enum td_route)route, status, UINT64_C(1) << 50, UINT64_C(1) << 50);
    char *out = write_text(&text);
    char family[128] = "";
    char type[32] = "";
    size_t requests = 0;
    size_t others = 0;
    char *save = NULL;
    assert_int_equal(out[strlen(out) - 1], '\n');
    for (char *line = strtok_r(out, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        if (begins(line, "# HELP ")) {
            assert_int_equal(sscanf(line, "# HELP %127s", family), 1);
        } else if (begins(line, "# TYPE ")) {
            char typed[128];
            assert_int_equal(sscanf(line, "# TYPE %127s %31s", typed, type), 2);
            assert_string_equal(typed, family);
        } else {
            check_sample(line, family, type);
            if (strcmp(family, "tensord_http_requests_total") == 0)
                requests++;
            else
                others++;
        }
    }
    /* The number is bounded: no label is a model, path or client. 25 statuses, and all others together: */
    assert_int_equal(requests, TD_ROUTE_COUNT * 26);
    assert_true(others > 50 && others < 200);
    td_buffer_fini(&text.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_counted_by_route_and_code),
        cmocka_unit_test(every_status_of_ours_has_a_series),
        cmocka_unit_test(names_are_the_same_everywhere),
        cmocka_unit_test(cuts_and_gauges),
        cmocka_unit_test(the_upstream_is_counted),
        cmocka_unit_test(publishing_is_counted),
        cmocka_unit_test(every_line_is_well_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
