/* The Hub's errors, and which facade a path belongs to. */
#include "tests/unit/api/hub_place.h"

#include "api/hub/hub.h"
#include "api/native/native.h"
#include "api/s3/s3.h"

/* The server looks for the repository, then the revision, then the entry. EntryNotFound comes with X-Repo-Commit:
 * clients then record that the file is missing. */
static void errors_say_what_is_missing(void **state)
{
    static const struct {
        const char *target;
        int status;
        const char *code; /* NULL: none */
    } cases[] = {
        {"/ns/none/resolve/none/none", 404, "RepoNotFound"},
        {"/none/resolve/none/none", 404, "RepoNotFound"},
        {"/ns/resolve/main/f", 404, "RepoNotFound"},
        {"/org/none/resolve/main/f", 404, "RepoNotFound"},
        {"/NS/plain/resolve/main/a-b", 404, "RepoNotFound"},
        {"/datasets/ns/plain/resolve/main/a-b", 404, "RepoNotFound"},
        {"/datasets/ns/none/resolve/main/a-b", 404, "RepoNotFound"},
        {"/ns/rows/resolve/main/data/train.csv", 404, "RepoNotFound"},
        {"/ns/plain/resolve/none/none", 404, "RevisionNotFound"},
        {"/ns/plain/resolve/none/a-b", 404, "RevisionNotFound"},
        {"/ns/plain/resolve/refs/pr/1/a-b", 404, "RevisionNotFound"},
        {"/ns/plain/resolve/refs%2Fpr%2F1/a-b", 404, "RevisionNotFound"},
        {"/ns/plain/resolve/" C1 "/a-b", 404, "RevisionNotFound"},
        {"/other/hub/resolve/v1.0/new.txt", 404, "EntryNotFound"},
        {"/ns/plain/resolve/main/none", 404, "EntryNotFound"},
        {"/ns/plain/resolve/main/a", 404, "EntryNotFound"},
        {"/ns/plain/resolve/main/../../ns/torch/pytorch_model.bin", 404, "EntryNotFound"},
        {"/ns/plain/resolve/main/%2E%2E/a-b", 404, "EntryNotFound"},
        {"/ns/plain/resolve/main/\xc2\x85%0D%0AX-Evil:%201", 404, "EntryNotFound"},
        {"/ns/torch/resolve/safetensors/pytorch_model.bin", 404, "EntryNotFound"},
        {"/api/models/none", 404, "RepoNotFound"},
        {"/api/models/ns/none", 404, "RepoNotFound"},
        {"/api/models/org/none", 404, "RepoNotFound"},
        {"/api/models/org/none/revision/main", 404, "RepoNotFound"},
        {"/api/models/ns/none/tree/none", 404, "RepoNotFound"},
        {"/api/models/ns/rows", 404, "RepoNotFound"},
        {"/api/datasets/ns/plain", 404, "RepoNotFound"},
        {"/api/models/ns/plain/revision/none", 404, "RevisionNotFound"},
        {"/api/models/ns/plain/tree/none/none", 404, "RevisionNotFound"},
        {"/api/models/ns/plain/commits/none", 404, "RevisionNotFound"},
        {"/api/models/ns/plain/tree/main/none", 404, "EntryNotFound"},
        {"/api/models/ns/plain/tree/main/a%2Fnone", 404, "EntryNotFound"},
        {"/api/models/ns/plain/tree/main/sub", 404, "EntryNotFound"},
        {"/api/models/ns/plain/discussions?p=0", 404, NULL},
        {"/api/models/ns/plain/revision/main/x", 404, NULL},
        {"/api/models/ns/plain/auth-check/write", 403, NULL},
        {"/api/agent-harnesses", 404, NULL},
        {"/api/telemetry/x", 404, NULL},
        {"/api/spaces/ns/plain", 404, NULL},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *what = cases[i].target;
        struct answer answer;
        char buffer[128];
        loopback_get(&place->loop, what, &answer);
        CHECK(answer.response.status == cases[i].status, "%s: %d %s", what, answer.response.status, answer.body);
        const char *code = answer_header(&answer, "X-Error-Code", buffer);
        CHECK((code == NULL) == (cases[i].code == NULL) && (code == NULL || strcmp(code, cases[i].code) == 0), "%s: %s",
              what, code == NULL ? "no code" : code);
        const char *message = answer_header(&answer, "X-Error-Message", buffer);
        CHECK(message != NULL, "%s", what);
        bool has_commit = code != NULL && strcmp(code, "EntryNotFound") == 0;
        CHECK(code == NULL || (commit_header(&answer) != NULL) == has_commit, "%s", what);
        CHECK(strcmp(answer.response.content_type, "application/json") == 0, "%s", what);
        CHECK(strcmp(answer_header(&answer, "Cache-Control", buffer), "no-store") == 0, "%s", what);
        CHECK(strstr(answer.body, place->tree.path) == NULL, "%s: %s", what, answer.body);
        cJSON *json = cJSON_Parse(answer.body);
        CHECK(json != NULL, "%s: %s", what, answer.body);
        CHECK(strlen(string_at(json, "error")) > 5, "%s", what);
        for (const char *c = message; *c != '\0'; c++) /* RFC 9110 5.5: VCHAR and spaces */
            CHECK(*c >= ' ' && *c <= '~', "%s: %s", what, message);
        CHECK(strncmp(message, string_at(json, "error"), 5) == 0, "%s: %s", what, message);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
}

/* shows: security.md hub-large-repositories */
static void paths_without_an_end(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char buffer[128];
    char target[4096] = "/ns/plain/resolve/main/a";
    for (size_t used = strlen(target); used + 3 < sizeof target; used += 2)
        memcpy(target + used, "/a", 3);
    loopback_get(&place->loop, target, &answer);
    assert_int_equal(answer.response.status, 404);
    assert_string_equal(answer_header(&answer, "X-Error-Code", buffer), "EntryNotFound");
    answer_fini(&answer);
    memcpy(target, "/api/models/", 12);
    loopback_get(&place->loop, target, &answer);
    assert_int_equal(answer.response.status, 404);
    assert_string_equal(answer_header(&answer, "X-Error-Code", buffer), "RepoNotFound");
    answer_fini(&answer);
}

static void methods_that_have_no_place(void **state)
{
    static const char *const cases[][3] = {
        {"POST", "/ns/plain/resolve/main/a-b", "GET, HEAD"},
        {"PUT", "/ns/plain/resolve/main/a-b", "GET, HEAD"},
        {"DELETE", "/api/models/ns/plain", "GET, HEAD"},
        {"POST", "/api/models/ns/plain/tree/main", "GET, HEAD"},
        {"POST", "/api/repos/create", "GET, HEAD"},
        {"POST", "/api/models/ns/plain/commit/main", "GET, HEAD"},
        {"POST", "/api/models/ns/paths-info", "GET, HEAD"} /* a repository called ns/paths-info */,
        {"GET", "/api/models/ns/plain/paths-info/main", "POST"},
        {"HEAD", "/api/models/solo/paths-info/main", "POST"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        loopback_ask(&place->loop, cases[i][0], cases[i][1], NULL, &answer);
        CHECK(answer.response.status == 405, "%s %s: %d", cases[i][0], cases[i][1], answer.response.status);
        CHECK(strcmp(answer_header(&answer, "Allow", buffer), cases[i][2]) == 0, "%s", cases[i][1]);
        answer_fini(&answer);
    }
}

/* All errors on the Hub's paths, of any part of the server, are {"error": "text"}, which clients show as it is
 * (createApiError of @huggingface/hub, _format of huggingface_hub). They have no code and no commit, because no
 * repository, revision or entry is missing. */
static void every_error_is_the_hubs(void **state)
{
    static const struct {
        const char *method, *target, *lines;
        int status;
        const char *part;
    } cases[] = {
        {"POST", "/ns/plain/resolve/main/a-b", NULL, 405, "POST is not allowed"},
        {"GET", "/api/models/ns/plain/paths-info/main", NULL, 405, "POST is"},
        {"HEAD", "/api/models/ns/plain/paths-info/main", NULL, 405, "POST is"},
        {"POST", "/api/repos/create", NULL, 405, "GET and HEAD are"},
        {"GET", "/ns/plain/resolve/main/a-b", "Range: bytes=3-", 416, "bytes=3-"},
        {"GET", "/ns/plain/raw/main/a-b", "If-Match: \"x\"", 412, "If-Match"},
        {"HEAD", "/ns/plain/resolve/main/a-b", "If-Match: \"x\"", 412, "If-Match"},
        {"GET", "/api/models/ns/plain", "If-Match: \"x\"", 412, "If-Match"},
        {"GET", "/ns/plain/resolve/main/a-b", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT", 412,
         "If-Unmodified-Since"},
        {"GET", "/ns/plain/resolve/main/%zz", NULL, 400, "hexadecimal"},
        {"HEAD", "/datasets/ns/rows/resolve/main/%00", NULL, 400, "NUL"},
        {"GET", "/api/models/%ff", NULL, 400, "UTF-8"},
        {"GET", "/api/models?search=%zz", NULL, 400, "hexadecimal"},
        {"GET", "http://h/api/models?search=%zz", NULL, 400, "hexadecimal"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *what = cases[i].target;
        struct answer answer;
        char buffer[128];
        loopback_ask(&place->loop, cases[i].method, what, cases[i].lines, &answer);
        CHECK(answer.response.status == cases[i].status, "%s: %d %s", what, answer.response.status, answer.body);
        CHECK(strcmp(answer.response.content_type, "application/json") == 0, "%s", what);
        CHECK(answer_header(&answer, "X-Error-Code", buffer) == NULL, "%s", what);
        CHECK((answer_header(&answer, "Content-Range", buffer) != NULL) == (cases[i].status == 416), "%s", what);
        cJSON *json = cJSON_Parse(answer.body);
        CHECK(json != NULL && cJSON_GetArraySize(json) == 1, "%s: %s", what, answer.body);
        CHECK(strstr(string_at(json, "error"), cases[i].part) != NULL, "%s: %s", what, answer.body);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
}

/* td_api_facade decides by the target alone, without a snapshot. */
static void whose_path_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        const struct td_facade *facade;
    } cases[] = {
        {"/api/models", &td_hub_facade},
        {"/api/x", &td_hub_facade},
        {"//api//x", &td_hub_facade},
        {"http://h:1/api/models?x", &td_hub_facade},
        {"/a/resolve/main/f", &td_hub_facade},
        {"/a/b/raw/main/f?x=/models/", &td_hub_facade},
        {"/datasets/a/b/resolve/main/f", &td_hub_facade},
        {"/api", &td_native_facade},
        {"/", &td_native_facade},
        {"", &td_native_facade},
        {"*", &td_native_facade},
        {"/models", &td_native_facade},
        {"/models/a/resolve/main/f", &td_native_facade},
        {"/models?/api/models", &td_native_facade},
        {"/modelsx/a/resolve/main/f", &td_hub_facade},
        {"/healthz", &td_native_facade},
        {"/a/b/c/resolve/main/f", &td_native_facade},
        {"/%61pi/models", &td_native_facade},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_text target = {.p = cases[i].target, .len = strlen(cases[i].target)};
        CHECK(td_api_facade(&td_native_facade, target) == cases[i].facade, "%s", cases[i].target);
        CHECK(td_api_facade(&td_s3_facade, target) == &td_s3_facade, "%s", cases[i].target);
    }
}

/* The message names the valid values of the part that is wrong. */
static void a_wrong_revision_is_explained(void **state)
{
    static const char *const cases[][3] = {
        {"ns/plain", "none", "it has main, safetensors, tp{n}-rank{r}-{engine}"},
        {"ns/plain", "tp", "it has main, safetensors"},
        {"ns/plain", "tpx-rank0-none", "it has main, safetensors"},
        {"other/hub", "none", "it has main, "},
        {"other/hub", "none", ", v1.0, "},
        {"other/hub", "none", ", refs/pr/1, "},
        {"other/hub", "none", ", safetensors, tp{n}-rank{r}-{engine}\"}"},
        {"other/hub", "2222222222222222222222222222222222222222", "it has main (" C1 "), "},
        {"org", "none", "it has main\"}"},
        {"org", "safetensors", "no checkpoint"},
        {"org", "tp2-rank0-none", "no checkpoint"},
        {"ns/plain", "tp0-rank0-none", "\\\"tp0\\\" is not a number of ranks; use tp1 to tp4096"},
        {"ns/plain", "tp4097-rank0-none", "tp1 to tp4096"},
        {"ns/plain", "tp02-rank0-none", "tp1 to tp4096"},
        {"ns/plain", "tp2-rank2-none", "\\\"rank2\\\" is not a rank of 2; use rank0 to rank1"},
        {"ns/plain", "tp2-rank-none", "use rank0 to rank1"},
        {"ns/plain", "tp2", "use rank0 to rank1"},
        {"ns/plain", "tp2-1-none", "use rank0 to rank1"},
        {"ns/plain", "tp2-rank0", "no engine \\\"\\\"; the engines are "},
        {"ns/plain", "tp2-rank0-sglang", "no engine \\\"sglang\\\"; the engines are "},
        {"ns/plain", "tp2-rank0-none-x", "no engine \\\"none-x\\\""},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        char target[256];
        (void)snprintf(target, sizeof target, "/%s/resolve/%s/x", cases[i][0], cases[i][1]);
        loopback_get(&place->loop, target, &answer);
        CHECK(answer.response.status == 404, "%s: %d", target, answer.response.status);
        CHECK(strcmp(answer_header(&answer, "X-Error-Code", buffer), "RevisionNotFound") == 0, "%s", target);
        CHECK(strstr(answer.body, cases[i][2]) != NULL, "%s: %s", target, answer.body);
        CHECK(strncmp(answer.body + strlen("{\"error\":\""), cases[i][0], strlen(cases[i][0])) == 0, "%s", answer.body);
        answer_fini(&answer);
    }
}

/* A message names only some of very many refs. */
static void a_message_is_short(void **state)
{
    struct place *place = *state;
    struct answer answer;
    tree_simple(&place->tree, "models--o--n/snapshots/" C1 "/model.safetensors", "a");
    tree_text(&place->tree, "models--o--n/refs/main", C1);
    for (int i = 0; i < 300; i++) {
        char name[256];
        (void)snprintf(name, sizeof name, "models--o--n/refs/%03d%0180d", i, 0);
        tree_text(&place->tree, name, C1);
    }
    loopback_open(&place->loop, &place->tree);
    loopback_get(&place->loop, "/api/models/o/n/tree/none", &answer);
    assert_int_equal(answer.response.status, 404);
    assert_non_null(strstr(answer.body, "it has main, "));
    assert_non_null(strstr(answer.body, ", ..., safetensors, tp{n}-rank{r}-{engine}\"}"));
    assert_true(answer.len < 1000);
    answer_fini(&answer);
}

static void which_paths_take_a_body(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        bool takes;
    } cases[] = {
        {"/api/models/ns/plain/paths-info/main", true},
        {"/api/models/ns/plain/paths-info/refs%2Fpr%2F1?x=1", true},
        {"/api/datasets/solo/paths-info/main", true},
        {"/api/models/ns/plain/paths-info", false},
        {"/api/models/ns/plain", false},
        {"/api/models/ns/plain/tree/main/paths-info/x", false},
        {"/ns/plain/resolve/main/paths-info", false},
        {"/ns/plain/paths-info/main", false},
        {"/api/models/ns/plain/%70aths-info/main", false},
        {"/models/ns/plain/tensors:read", true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct loopback_request request;
        loopback_request_init(&request, "POST", cases[i].target, NULL);
        CHECK(td_api_takes_body(&request.request) == cases[i].takes, "%s", cases[i].target);
    }
}

/* Paths below /models never belong to the Hub's facade. Words of the Hub's paths may be names of repositories. */
static void names_that_mean_something(void **state)
{
    static const char *const names[] = {"resolve/resolve", "raw/raw",       "api/api", "datasets2/x", "x/datasets",
                                        "main/main",       "tree/revision", "x/api",   "x/models"};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s/model.safetensors", names[i]);
        tree_simple(&place->tree, name, "a");
    }
    tree_text(&place->tree, "n/m/resolve/main/raw", "abc");
    loopback_open(&place->loop, &place->tree);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char target[256];
        (void)snprintf(target, sizeof target, "/%s/resolve/main/model.safetensors", names[i]);
        expect_status(place, target, 200);
        (void)snprintf(target, sizeof target, "/api/models/%s/revision/main", names[i]);
        cJSON *json = get_json(place, target);
        CHECK(strcmp(string_at(json, "id"), names[i]) == 0, "%s", target);
        cJSON_Delete(json);
    }
    struct answer answer;
    loopback_get(&place->loop, "/n/m/resolve/main/raw", &answer); /* the repository is n/m/resolve/main, not n/m */
    assert_int_equal(answer.response.status, 404);
    answer_fini(&answer);
    /* native paths stay native, with strict parameters */
    expect_error(place, "GET", "/models/resolve/resolve?page_size=1&page_size=1", 400, "twice");
    expect_error(place, "GET", "/models/x/resolve/main/f?a=1&a=2", 400, "twice");
}

/* Models in the served directory itself are the Hub's local/NAME, and have words of the Hub's paths as names, too. */
static void names_of_one_segment_that_mean_something(void **state)
{
    static const char *const names[] = {"resolve", "raw", "tree", "main", "revision"};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s/model.safetensors", names[i]);
        tree_simple(&place->tree, name, "a");
    }
    loopback_open(&place->loop, &place->tree);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char target[256];
        char id[64];
        (void)snprintf(id, sizeof id, "local/%s", names[i]);
        (void)snprintf(target, sizeof target, "/%s/resolve/main/model.safetensors", id);
        expect_status(place, target, 200);
        (void)snprintf(target, sizeof target, "/api/models/%s/revision/main", id);
        cJSON *json = get_json(place, target);
        CHECK(strcmp(string_at(json, "id"), id) == 0, "%s", target);
        cJSON_Delete(json);
        (void)snprintf(target, sizeof target, "/models/%s", names[i]);
        json = get_json(place, target);
        CHECK(strcmp(string_at(json, "id"), names[i]) == 0, "%s", target);
        cJSON_Delete(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(hub, errors_say_what_is_missing),     TEST_IN(hub, paths_without_an_end),
        TEST_IN(hub, methods_that_have_no_place),     TEST_IN(hub, every_error_is_the_hubs),
        cmocka_unit_test(whose_path_it_is),           TEST_IN(hub, a_wrong_revision_is_explained),
        TEST_IN(unserved, a_message_is_short),        cmocka_unit_test(which_paths_take_a_body),
        TEST_IN(unserved, names_that_mean_something), TEST_IN(unserved, names_of_one_segment_that_mean_something),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
