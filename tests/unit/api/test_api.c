/* The rest of the native interface, without a socket: HEAD, the system routes, files that change. The tests of lists
 * are in test_api_lists.c, of errors in test_api_errors.c, of byte answers in test_api_bytes.c. */
#include "tests/unit/api/api_place.h"

#include "api/native/native.h"
#include "api/s3/s3.h"
#include "core/clock.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- HEAD ---------------------------------------------------------------------------------------------- */

static const char *const header_names[] = {
    "Content-Type",   "ETag",           "Cache-Control",          "Accept-Ranges", "Last-Modified", "Content-Range",
    "X-Tensor-Dtype", "X-Tensor-Shape", "X-Content-Type-Options", "Allow",         "Retry-After"};

/* RFC 9110 section 9.3.2: HEAD has the same header fields as GET, the length included. */
static void head_equals_get(void **state)
{
    static const char *const targets[] = {"/models",
                                          "/models?page_size=2",
                                          "/models/qwen3",
                                          "/models/qwen3/tensors",
                                          "/models/qwen3/tensors?page_size=1",
                                          "/models/qwen3/tensors/a/b",
                                          "/models/qwen3/tensors/none",
                                          "/models/qwen3/files/README.md",
                                          "/healthz",
                                          "/readyz",
                                          "/version",
                                          "/openapi.json",
                                          "/nothing",
                                          "/models/nothing",
                                          "/models?x=1",
                                          "/models/qwen3/tensors/absent"};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct answer get;
        struct answer head;
        loopback_get(&place->loop, targets[i], &get);
        loopback_ask(&place->loop, "HEAD", targets[i], "Range: bytes=0-1", &head); /* Range applies to GET alone */
        CHECK(get.response.status == head.response.status, "%s", targets[i]);
        CHECK(get.len == head.len && memcmp(get.body, head.body, get.len) == 0, "%s", targets[i]);
        for (size_t h = 0; h < COUNT_OF(header_names); h++) {
            char a[128];
            char b[128];
            const char *of_get = answer_header(&get, header_names[h], a);
            const char *of_head = answer_header(&head, header_names[h], b);
            CHECK((of_get == NULL) == (of_head == NULL) && (of_get == NULL || strcmp(of_get, of_head) == 0), "%s: %s",
                  targets[i], header_names[h]);
        }
        answer_fini(&get);
        answer_fini(&head);
    }
}

/* ---- system routes ------------------------------------------------------------------------------------- */

static void system_routes(void **state)
{
    struct place *place = *state;
    struct answer answer;
    loopback_get(&place->loop, "/healthz", &answer);
    assert_int_equal(answer.response.status, 200);
    assert_string_equal(answer.body, "ok\n");
    assert_string_equal(answer.response.cache_control, "no-store");
    answer_fini(&answer);
    cJSON *json = get_json(place, "/readyz");
    assert_true(cJSON_IsTrue(member(json, "ready")));
    assert_string_equal(string_at(json, "state"), "ready");
    assert_true(number_at(json, "models") == 7 && number_at(json, "unreadable") >= 1);
    assert_true(number_at(member(json, "scan"), "completed") == 1);
    cJSON_Delete(json);
    json = get_json(place, "/version");
    assert_string_equal(string_at(json, "name"), "tensord");
    assert_string_equal(string_at(json, "version"), TD_VERSION);
    cJSON_Delete(json);
    json = get_json(place, "/openapi.json");
    assert_int_equal(strncmp(string_at(json, "openapi"), "3.", 2), 0);
    static const char *const paths[] = {"/models", "/healthz", "/readyz", "/metrics", "/version", "/openapi.json"};
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        (void)member(member(json, "paths"), paths[i]);
    cJSON_Delete(json);
    loopback_get(&place->loop, "/metrics", &answer);
    assert_int_equal(answer.response.status, 200);
    assert_string_equal(answer.response.content_type, "text/plain; version=0.0.4; charset=utf-8");
    assert_non_null(strstr(answer.body, "\ntensord_models 7\n"));
    answer_fini(&answer);
}

static void draining_is_not_ready(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char buffer[128];
    atomic_store(&place->loop.api.draining, true);
    loopback_get(&place->loop, "/readyz", &answer);
    assert_int_equal(answer.response.status, 503);
    assert_non_null(strstr(answer.body, "\"ready\":false"));
    assert_non_null(strstr(answer.body, "\"draining\""));
    assert_non_null(answer_header(&answer, "Retry-After", buffer));
    answer_fini(&answer);
    static const char *const others[] = {"/healthz", "/models", "/models/qwen3/tensors/a/b"};
    for (size_t i = 0; i < COUNT_OF(others); i++) { /* the server is alive and still serves */
        expect_status(place, others[i], 200);
    }
}

/* Asks for the description of a model with ?wait= and answers whether the request is to wait. since_ns as in
 * td_request.
 */
static bool waits(struct place *place, const char *tag, uint64_t since_ns, int *status)
{
    struct loopback_request request;
    struct td_response response;
    char target[256];
    (void)snprintf(target, sizeof target, "/models/qwen3?timeout=5&wait=%s", tag);
    loopback_request_init(&request, "GET", target, NULL);
    request.request.since_ns = since_ns;
    td_api_handle(&place->loop.api, &request.request, &response);
    bool is_wait = response.wait_until_ns != 0;
    CHECK(!is_wait || response.wait_until_ns == since_ns + UINT64_C(5000000000), "%s", tag);
    *status = response.status;
    td_response_fini(&response);
    return is_wait;
}

/* Returns the tag of qwen3's description without its quotes. */
static void read_tag(struct place *place, char tag[TD_ETAG_BYTES])
{
    struct answer answer;
    loopback_get(&place->loop, "/models/qwen3", &answer);
    assert_int_equal(answer.response.status, 200);
    size_t len = strlen(answer.response.etag) - 2;
    memcpy(tag, answer.response.etag + 1, len);
    tag[len] = '\0';
    answer_fini(&answer);
}

/* A request with the tag of the model as it is waits until its time is over; a digest that became known is no change,
 * another file is. Nothing waits when the server drains. */
static void descriptions_wait_for_changes(void **state)
{
    struct place *place = *state;
    char tag[TD_ETAG_BYTES], hashed[TD_ETAG_BYTES];
    int status;
    uint64_t now_ns = td_clock_ns();
    read_tag(place, tag);
    assert_true(waits(place, tag, now_ns, &status));
    assert_false(waits(place, tag, now_ns - UINT64_C(5000000000), &status));
    assert_int_equal(status, 304);
    assert_false(waits(place, tag, 0, &status));
    assert_int_equal(status, 304);
    assert_false(waits(place, "x", now_ns, &status));
    assert_int_equal(status, 200);

    struct td_snapshot *snapshot = td_catalog_acquire(place->loop.catalog);
    const struct td_entry *entry = td_snapshot_find_entry(snapshot, TD_TEXT("qwen3/README.md"));
    const uint8_t sum[TD_SHA256_BYTES] = {1};
    assert_true(td_file_set_sha256(entry->file, sum));
    td_snapshot_unref(snapshot);
    read_tag(place, hashed);
    assert_string_not_equal(hashed, tag);
    assert_true(waits(place, tag, now_ns, &status) && waits(place, hashed, now_ns, &status));
    loopback_rescan(&place->loop);
    assert_true(waits(place, tag, now_ns, &status));

    atomic_store(&place->loop.api.draining, true);
    assert_false(waits(place, tag, now_ns, &status));
    assert_int_equal(status, 304);
    atomic_store(&place->loop.api.draining, false);

    tree_text(&place->tree, "qwen3/new.txt", "");
    loopback_rescan(&place->loop);
    assert_false(waits(place, tag, now_ns, &status) || waits(place, hashed, now_ns, &status));
    assert_int_equal(status, 200);
}

/* Before the first scan ends, no models are known: the answer is a 503 that asks clients to retry. */
static void before_the_first_scan(void **state)
{
    (void)state;
    struct place place;
    char name[64];
    size_t waited = 0;
    tree_open(&place.tree);
    for (int i = 0; i < 4000; i++) {
        (void)snprintf(name, sizeof name, "%d/%d.txt", i % 40, i);
        tree_text(&place.tree, name, "");
    }
    tree_simple(&place.tree, "m/x.safetensors", "a");
    struct td_catalog_config config = {.root = place.tree.path, .max_maps = 16, .scan = td_scan_config_default()};
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_catalog_create(&config, &place.loop.catalog, &err));
    assert_true(td_api_init(&place.loop.api, place.loop.catalog, &err));
    for (bool there = false; !there;) {
        struct answer answer;
        struct answer probe;
        loopback_get(&place.loop, "/readyz", &probe);
        loopback_get(&place.loop, "/models/m", &answer);
        there = answer.response.status == 200;
        if (!there) {
            check_error_answer(&place, &answer, "/models/m", 503, "scan");
            assert_int_equal(probe.response.status, 503);
            assert_non_null(strstr(probe.body, "\"scanning\""));
            waited++;
        }
        answer_fini(&answer);
        answer_fini(&probe);
        loopback_get(&place.loop, "/healthz", &probe);
        assert_int_equal(probe.response.status, 200);
        answer_fini(&probe);
    }
    print_message("%zu answers before the first scan was done\n", waited);
    loopback_close(&place.loop);
    tree_close(&place.tree);
}

static void probes_are_known(void **state)
{
    (void)state;
    static const char *const probes[] = {"/healthz", "/readyz", "/metrics"};
    static const char *const others[] = {"/models", "/version", "/openapi.json", "/healthz/", "/healthz?x", "/", ""};
    struct td_request request = {0};
    for (size_t i = 0; i < COUNT_OF(probes); i++) {
        request.facade = &td_native_facade;
        request.target = td_text_of(probes[i]);
        assert_true(td_api_is_probe(&request));
        request.facade = &td_s3_facade;
        assert_false(td_api_is_probe(&request));
    }
    request.facade = &td_native_facade;
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        request.target = td_text_of(others[i]);
        assert_false(td_api_is_probe(&request));
    }
}

/* ---- files that change --------------------------------------------------------------------------------- */

/* A changed file is answered 503 with Retry-After, and a scan starts without a request. Then the new state is
 * served. */
static void a_changed_file_is_503_then_new(void **state)
{
    static const char *const targets[] = {"/models/Qwen/Qwen3-0.6B/tensors/x",
                                          "/models/Qwen/Qwen3-0.6B/files/model.safetensors"};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct td_catalog_status status;
        struct answer answer;
        expect_status(place, targets[i], 200);
        td_catalog_get_status(place->loop.catalog, &status);
        uint64_t scans = status.scan_count;
        tree_simple(&place->tree, "new", i == 0 ? "x y z" : "x");
        tree_rename(&place->tree, "new", "Qwen/Qwen3-0.6B/model.safetensors");
        loopback_get(&place->loop, targets[i], &answer);
        check_error_answer(place, &answer, targets[i], 503, "changed");
        assert_true(answer.response.changed);
        answer_fini(&answer);
        loopback_wait_scans(place->loop.catalog, scans + 1);
        expect_status(place, targets[i], 200);
        loopback_get(&place->loop, "/models/qwen3/tensors/a/b", &answer); /* other tensors are not affected */
        assert_int_equal(answer.response.status, 200);
        answer_fini(&answer);
    }
    tree_remove(&place->tree, "Qwen");
    struct answer answer;
    loopback_get(&place->loop, targets[0], &answer);
    check_error_answer(place, &answer, "unlinked", 503, "changed");
    answer_fini(&answer);
    loopback_rescan(&place->loop);
    expect_error(place, "GET", targets[0], 404, "Qwen");
}

static void a_changed_config_is_503(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "qwen3/config.json", "{\"a\":2}");
    expect_error(place, "GET", "/models/qwen3", 503, "config.json");
    loopback_rescan(&place->loop);
    cJSON *json = get_json(place, "/models/qwen3");
    assert_true(number_at(member(json, "config"), "a") == 2);
    cJSON_Delete(json);
}

/* A file that the server may not read is answered 403; its model and the files beside it are served. */
static bool child_sees_403(const struct tree *tree)
{
    struct place place = {.tree = *tree};
    struct answer answer;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return false;
    loopback_open(&place.loop, tree);
    loopback_get(&place.loop, "/models/qwen3/files/README.md", &answer);
    bool ok = answer.response.status == 403 && strstr(answer.body, "PERMISSION_DENIED") != NULL &&
              strstr(answer.body, tree->path) == NULL;
    answer_fini(&answer);
    loopback_get(&place.loop, "/models/qwen3/tensors/a/b", &answer);
    ok = ok && answer.response.status == 200;
    answer_fini(&answer);
    loopback_close(&place.loop);
    return ok;
}

static void no_right_to_read_is_403(void **state)
{
    (void)state;
    struct tree tree;
    char path[TREE_PATH_BYTES];
    tree_open(&tree);
    fill_place(&tree);
    tree_at(&tree, "qwen3/README.md", path);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(tree.path, 0755), 0);
    pid_t child = fork(); /* root can read every file */
    assert_true(child >= 0);
    if (child == 0)
        _exit(child_sees_403(&tree) ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tree_close(&tree);
}

/* Returns the status of POST /rescan from a client on this machine or another, with a header line or NULL. */
static int rescan_status(struct place *place, enum td_rescan_from from, bool is_local, const char *name)
{
    struct td_header header = {.value = {.p = "x", .len = 1}};
    struct td_request request = {.facade = &td_native_facade,
                                 .is_local = is_local,
                                 .method = {.p = "POST", .len = 4},
                                 .target = {.p = "/rescan", .len = 7},
                                 .headers = &header,
                                 .header_count = name == NULL ? 0 : 1};
    struct td_response response;
    if (name != NULL)
        header.name = td_text_of(name);
    place->loop.api.rescan_from = from;
    td_api_handle(&place->loop.api, &request, &response);
    int status = response.status;
    td_response_fini(&response);
    return status;
}

/* shows: security.md host-rescan-from */
static void rescans_are_for_this_machine(void **state)
{
    static const char *const passed_on[] = {
        "Via", "via", "Forwarded", "X-Forwarded-For", "X-Real-IP", "X-Forwarded-Proto", "Origin"};
    struct place *place = *state;
    assert_int_equal(rescan_status(place, TD_RESCAN_FROM_LOCAL, true, NULL), 200);
    assert_int_equal(rescan_status(place, TD_RESCAN_FROM_LOCAL, true, "Accept"), 200);
    assert_int_equal(rescan_status(place, TD_RESCAN_FROM_LOCAL, false, NULL), 403);
    assert_int_equal(rescan_status(place, TD_RESCAN_FROM_ANY, false, NULL), 200);
    assert_int_equal(rescan_status(place, TD_RESCAN_FROM_NONE, true, NULL), 403);
    for (size_t i = 0; i < COUNT_OF(passed_on); i++)
        assert_int_equal(rescan_status(place, TD_RESCAN_FROM_LOCAL, true, passed_on[i]), 403);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, head_equals_get),
        TEST_IN(place, system_routes),
        TEST_IN(place, draining_is_not_ready),
        TEST_IN(place, descriptions_wait_for_changes),
        cmocka_unit_test(before_the_first_scan),
        cmocka_unit_test(probes_are_known),
        TEST_IN(place, a_changed_file_is_503_then_new),
        TEST_IN(place, a_changed_config_is_503),
        cmocka_unit_test(no_right_to_read_is_403),
        TEST_IN(place, rescans_are_for_this_machine),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
