/* The lane that the first bytes of a connection choose. */
#include "server/net/acceptor.h"

#include "api/api.h"
#include "tests/unit/unit.h"

static enum td_lane lane_of(const struct td_facade *port, const char *bytes)
{
    return td_lane_of(port, td_text_of(bytes));
}

#define REST " HTTP/1.1\r\nHost: h\r\n"

static void ranges_decide_by_their_length(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        enum td_lane lane;
    } cases[] = {
        {"Range: bytes=0-4095", TD_LANE_SHARED},
        {"range:bytes=0-4095", TD_LANE_SHARED},
        {"RANGE: \t bytes=8000000000-8000262143", TD_LANE_SHARED},
        {"Range: bytes=0-262143", TD_LANE_SHARED},
        {"Range: bytes=0-262144", TD_LANE_OWN},
        {"Range: bytes=-8", TD_LANE_SHARED},
        {"Range: bytes=-262145", TD_LANE_OWN},
        {"Range: bytes=100-", TD_LANE_OWN},
        {"Range: bytes=0-99999,200000-299999", TD_LANE_SHARED},
        {"Range: bytes=0-199999,200000-399999", TD_LANE_OWN},
        {"Range: bytes=0-18446744073709551615", TD_LANE_OWN},
        {"Range: bytes=9-1", TD_LANE_OWN},
        {"Range: rows=0-1", TD_LANE_OWN},
        {"Range: bytes=", TD_LANE_OWN},
        {"Range:", TD_LANE_OWN},
        {"X-Range: bytes=0-1", TD_LANE_OWN},
        {"If-Range: bytes=0-1", TD_LANE_OWN},
        {"Accept: x", TD_LANE_OWN},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char bytes[512];
        (void)snprintf(bytes, sizeof bytes, "GET /models/m/files/f" REST "%s\r\nA: b\r\n\r\n", cases[i].field);
        CHECK(lane_of(td_main_port, bytes) == cases[i].lane, "%s", cases[i].field);
    }
}

static void long_bodies_are_uploads(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        enum td_lane lane;
    } cases[] = {
        {"PUT /x" REST "Content-Length: 65536\r\n\r\n", TD_LANE_UPLOAD},
        {"PUT /x" REST "content-length:\t 18446744073709551615\r\n\r\n", TD_LANE_UPLOAD},
        {"PUT /x" REST "Content-Length: 65535\r\n\r\n", TD_LANE_OWN},
        {"PATCH /x" REST "Transfer-Encoding: Chunked\r\n\r\n", TD_LANE_UPLOAD},
        {"POST /x" REST "Transfer-Encoding: chunked\r\nA: b\r\n\r\n", TD_LANE_UPLOAD},
        {"POST /x" REST "Content-Length: 99999999999999999999999\r\n\r\n", TD_LANE_OWN},
        {"POST /x" REST "Content-Length: -99999\r\n\r\n", TD_LANE_OWN},
        {"POST /x" REST "X-Content-Length: 99999\r\n\r\n", TD_LANE_OWN},
        {"DELETE /x" REST "Content-Length: 99999\r\n\r\n", TD_LANE_OWN},
        {"PUT /x" REST "Content-Length: 99999\r\n", TD_LANE_OWN}, /* the header is not complete */
        {"GET /healthz" REST "Content-Length: 99999\r\n\r\n", TD_LANE_SHARED},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(lane_of(td_main_port, cases[i].bytes) == cases[i].lane, "%s", cases[i].bytes);
}

static void texts_are_short(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "/",
        "/healthz",
        "/metrics",
        "/models",
        "/models/",
        "/models/a/b",
        "/models/a/b/tensors?x=/files/",
        "/api/models/a/b",
        "/api/models/a/b/tree/main/x",
        "/api/datasets",
        "/version",
        "/models/filesystem",
    };
    static const char *const bytes_of_files[] = {
        "/models/a/files/config.json",
        "/models/a/b/tensors/w",
        "/models/a/tensors/",
        "/models/a/model.safetensors",
        "/models/a/shards/vllm/tp2/rank-0.safetensors",
        "/models/a/plans/0",
        "/a/b/resolve/main/f?download=true",
        "/datasets/a/b/resolve/main/f",
    };
    char bytes[256];
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        (void)snprintf(bytes, sizeof bytes, "GET %s" REST "\r\n", texts[i]);
        CHECK(lane_of(td_main_port, bytes) == TD_LANE_SHARED, "%s", texts[i]);
    }
    for (size_t i = 0; i < COUNT_OF(bytes_of_files); i++) {
        (void)snprintf(bytes, sizeof bytes, "GET %s" REST "\r\n", bytes_of_files[i]);
        CHECK(lane_of(td_main_port, bytes) == TD_LANE_OWN, "%s", bytes_of_files[i]);
        (void)snprintf(bytes, sizeof bytes, "HEAD %s" REST "\r\n", bytes_of_files[i]);
        CHECK(lane_of(td_main_port, bytes) == TD_LANE_SHARED, "HEAD %s", bytes_of_files[i]);
    }
}

/* Calls are POSTs, and so is the call that watches a model. */
static void calls_share_threads_but_for_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        enum td_lane lane;
    } cases[] = {
        {"POST /tensord.v1.ModelService/WatchModel" REST "Content-Length: 9\r\n\r\n", TD_LANE_SHARED},
        {"POST /tensord.v1.ModelService/GetModel" REST "Transfer-Encoding: chunked\r\n\r\n", TD_LANE_SHARED},
        {"POST /tensord.v1.ModelService/ReadTensors" REST "Content-Length: 9\r\n\r\n", TD_LANE_OWN},
        {"POST /tensord.v1.DatasetService/StreamRows" REST "Content-Length: 9\r\n\r\n", TD_LANE_OWN},
        {"POST /tensord.v1.DatasetService/BatchGetRows" REST "Content-Length: 9\r\n\r\n", TD_LANE_OWN},
        {"GET /tensord.v1.ModelService/GetModel?x" REST "\r\n", TD_LANE_SHARED},
        {"POST /models/a/plans" REST "Content-Length: 9\r\n\r\n", TD_LANE_OWN},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(lane_of(td_main_port, cases[i].bytes) == cases[i].lane, "%s", cases[i].bytes);
}

static void keys_of_a_bucket_are_not_texts(void **state)
{
    (void)state;
    assert_int_equal(lane_of(td_s3_port, "GET /" REST "\r\n"), TD_LANE_SHARED);
    assert_int_equal(lane_of(td_s3_port, "GET /bucket?list-type=2&prefix=a/b" REST "\r\n"), TD_LANE_SHARED);
    assert_int_equal(lane_of(td_s3_port, "GET /bucket/" REST "\r\n"), TD_LANE_SHARED);
    assert_int_equal(lane_of(td_s3_port, "GET /bucket/key" REST "\r\n"), TD_LANE_OWN);
    assert_int_equal(lane_of(td_s3_port, "GET /bucket/key" REST "Range: bytes=0-1\r\n\r\n"), TD_LANE_SHARED);
}

/* These headers get a thread of their own, however libmicrohttpd reads them. */
static void what_is_not_understood_gets_a_thread(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "\n",
        "\r\n\r\n",
        "GET",
        "GET /models HTTP/1.1",
        "GET /models HTTP/1.1\r\n",
        "GET /models" REST,
        "GET /models" REST "Range: bytes=0-1",
        "GET /models" REST "Range: bytes=0-1\r\n",
        "POST /models" REST "\r\n",
        "get /models" REST "\r\n",
        "\r\nGET /models" REST "\r\n",
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(lane_of(td_main_port, cases[i]) == TD_LANE_OWN, "\"%s\"", cases[i]);
    assert_int_equal(lane_of(td_main_port, "GET /models HTTP/1.1\nHost: h\n\n"), TD_LANE_SHARED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_decide_by_their_length),
        cmocka_unit_test(long_bodies_are_uploads),
        cmocka_unit_test(texts_are_short),
        cmocka_unit_test(calls_share_threads_but_for_bytes),
        cmocka_unit_test(keys_of_a_bucket_are_not_texts),
        cmocka_unit_test(what_is_not_understood_gets_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
