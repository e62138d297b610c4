/* Files by the Hub's paths: files on disk and files of virtual revisions. */
#include "tests/unit/api/hub_place.h"

/* ---- files --------------------------------------------------------------------------------------------- */

static void files_by_every_spelling(void **state)
{
    static const char *const cases[][2] = {
        {"/ns/plain/resolve/main/a-b", "abc"},
        {"/ns/plain/resolve/HEAD/a-b", "abc"},
        {"/ns/plain/raw/main/a-b", "abc"},
        {"/ns/plain/resolve/main/a/x", "abc"},
        {"/ns/plain/resolve/main/a%2Fx", "abc"},
        {"/ns%2Fplain/resolve/main/a/x", "abc"},
        {"/ns/plain/resolve/main//a//x", "abc"},
        {"/ns/plain/resolve/main/a/y/z", ""},
        {"/ns/plain/resolve/main/sub%20dir/%C3%A9+%252F%22&.txt", "abc"},
        {"/ns/plain/resolve/main/sub%20dir/%c3%a9%2B%252F%22%26.txt", "abc"},
        {"/ns/plain/resolve/main/a-b?download=true&download=true", "abc"},
        {"http://host:80/ns/plain/resolve/main/a-b", "abc"},
        {"/ns/plain/resolve/safetensors/a-b", "abc"},
        {"/ns/plain/resolve/tp2-rank1-none/a-b", "abc"},
        {"/other/hub/resolve/main/new.txt", ""},
        {"/other/hub/resolve/v1.0/old.txt", "abc"},
        {"/other/hub/resolve/refs%2Fpr%2F1/old.txt", "abc"},
        {"/other/hub/resolve/refs/pr/1/old.txt", "abc"},
        {"/other/hub/resolve/" C0 "/old.txt", "abc"},
        {"/datasets/ns/rows/resolve/main/data/train.csv", "a,b"},
        {"/datasets/rows/resolve/main/train.jsonl", "{}"},
        {"/datasets/local/rows/resolve/main/train.jsonl", "{}"},
        {"/rows/resolve/main/train.jsonl", "{}"} /* a folder without checkpoints is a model and a dataset */,
        {"/org/resolve/main/README.md", "a folder of one segment, beside ids that begin with it"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        loopback_get(&place->loop, cases[i][0], &answer);
        CHECK(answer.response.status == 200, "%s: %d %s", cases[i][0], answer.response.status, answer.body);
        CHECK(strcmp(answer.body, cases[i][1]) == 0, "%s: %s", cases[i][0], answer.body);
        CHECK(commit_header(&answer) != NULL && strlen(commit_header(&answer)) == 40, "%s", cases[i][0]);
        CHECK(answer_header(&answer, "Location", buffer) == NULL, "%s", cases[i][0]);
        CHECK(answer_header(&answer, "Accept-Ranges", buffer) != NULL, "%s", cases[i][0]);
        CHECK(answer.response.route == TD_ROUTE_HUB_FILE, "%s", cases[i][0]);
        answer_fini(&answer);
    }
}

static void models_of_one_segment(void **state)
{
    static const char *const ids[] = {"solo", "local/solo"};
    struct place *place = *state;
    char commits[2][TD_COMMIT_BYTES];
    for (size_t i = 0; i < 2; i++) {
        char target[128];
        (void)snprintf(target, sizeof target, "/api/models/%s/revision/main", ids[i]);
        cJSON *json = get_json(place, target);
        assert_string_equal(string_at(json, "id"), "local/solo"); /* both names give the id that lists have */
        assert_string_equal(string_at(json, "author"), "local");
        cJSON_Delete(json);
        (void)commit_of(place, target, commits[i]);
        (void)snprintf(target, sizeof target, "/%s/resolve/%s/model.safetensors", ids[i], commits[i]);
        expect_status(place, target, 200);
    }
    assert_string_equal(commits[0], commits[1]);
}

/* The ETag is the blob's name in the client's cache. An answer for a commit may be cached. */
static void headers_of_files(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char buffer[128];
    char commit[TD_COMMIT_BYTES];
    char target[128];
    loopback_get(&place->loop, "/ns/plain/resolve/main/a-b", &answer);
    assert_string_equal(answer_header(&answer, "ETag", buffer), "\"" ABC_SHA256 "\"");
    assert_string_equal(answer_header(&answer, "Cache-Control", buffer), "no-cache");
    assert_string_equal(answer_header(&answer, "X-Content-Type-Options", buffer), "nosniff");
    assert_null(answer_header(&answer, "X-Error-Code", buffer));
    answer_fini(&answer);
    (void)commit_of(place, "/api/models/ns/plain", commit);
    (void)snprintf(target, sizeof target, "/ns/plain/resolve/%s/a-b", commit);
    loopback_get(&place->loop, target, &answer);
    assert_string_equal(answer_header(&answer, "Cache-Control", buffer), "public, max-age=31536000, immutable");
    assert_string_equal(commit_header(&answer), commit);
    answer_fini(&answer);
    loopback_ask(&place->loop, "GET", target, "Range: bytes=1-9\nIf-Match: \"" ABC_SHA256 "\"", &answer);
    assert_int_equal(answer.response.status, 206);
    assert_string_equal(answer.body, "bc");
    assert_string_equal(answer_header(&answer, "Content-Range", buffer), "bytes 1-2/3");
    assert_string_equal(commit_header(&answer), commit);
    answer_fini(&answer);
    loopback_ask(&place->loop, "GET", target, "Range: bytes=3-",
                 &answer); /* clients take 416 for the end of the file */
    assert_int_equal(answer.response.status, 416);
    answer_fini(&answer);
    loopback_ask(&place->loop, "HEAD", target, "If-None-Match: \"" ABC_SHA256 "\"", &answer);
    assert_int_equal(answer.response.status, 304);
    assert_string_equal(commit_header(&answer), commit);
    answer_fini(&answer);
}

/* RFC 9110 section 9.3.2: HEAD equals GET, for every kind of answer. */
static void head_is_get(void **state)
{
    static const char *const targets[] = {"/ns/plain/resolve/main/a-b",
                                          "/ns/torch/resolve/safetensors/model.safetensors",
                                          "/ns/plain/resolve/main/none",
                                          "/ns/none/resolve/main/none",
                                          "/ns/plain/resolve/none/none",
                                          "/api/models",
                                          "/api/models/ns/plain",
                                          "/api/models/ns/plain/tree/main",
                                          "/api/models/ns/plain/refs",
                                          "/api/whoami-v2",
                                          "/api/none"};
    static const char *const names[] = {"Content-Type",          "ETag",          "Cache-Control", "Accept-Ranges",
                                        "Last-Modified",         "X-Repo-Commit", "X-Error-Code",  "X-Error-Message",
                                        "X-Content-Type-Options"};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct answer get;
        struct answer head;
        loopback_get(&place->loop, targets[i], &get);
        loopback_ask(&place->loop, "HEAD", targets[i], "Range: bytes=0-0", &head);
        CHECK(get.response.status == head.response.status, "%s", targets[i]);
        CHECK(get.len == head.len && memcmp(get.body, head.body, get.len) == 0, "%s", targets[i]);
        for (size_t h = 0; h < COUNT_OF(names); h++) {
            char a[128];
            char b[128];
            const char *of_get = answer_header(&get, names[h], a);
            const char *of_head = answer_header(&head, names[h], b);
            CHECK((of_get == NULL) == (of_head == NULL) && (of_get == NULL || strcmp(of_get, of_head) == 0), "%s: %s",
                  targets[i], names[h]);
        }
        answer_fini(&get);
        answer_fini(&head);
    }
}

/* ---- virtual revisions --------------------------------------------------------------------------------- */

/* huggingface_hub and transformers resolve the name to a commit and use the commit for all later requests. */
static void a_made_revision_from_its_name_to_its_bytes(void **state)
{
    static const char *const names[] = {"safetensors", "tp1-rank0-none"};
    struct place *place = *state;
    char main_commit[TD_COMMIT_BYTES];
    (void)commit_of(place, "/api/models/ns/torch", main_commit);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char target[256];
        char commit[TD_COMMIT_BYTES];
        char again[TD_COMMIT_BYTES];
        struct answer answer;
        (void)snprintf(target, sizeof target, "/api/models/ns/torch/revision/%s", names[i]);
        (void)commit_of(place, target, commit);
        assert_string_not_equal(commit, main_commit);
        (void)snprintf(target, sizeof target, "/api/models/ns/torch/revision/%s", commit);
        assert_string_equal(commit_of(place, target, again), commit);
        (void)snprintf(target, sizeof target, "/api/models/ns/torch/tree/%s?recursive=true", commit);
        cJSON *json = get_json(place, target);
        assert_int_equal(cJSON_GetArraySize(json), 1);
        const cJSON *file = cJSON_GetArrayItem(json, 0);
        assert_string_equal(string_at(file, "path"), "model.safetensors");
        assert_null(cJSON_GetObjectItem(file, "lfs")); /* its digest is not known */
        (void)snprintf(target, sizeof target, "/ns/torch/resolve/%s/model.safetensors", commit);
        loopback_get(&place->loop, target, &answer);
        assert_int_equal(answer.response.status, 200);
        assert_int_equal(answer.len, whole_at(file, "size"));
        assert_string_equal(commit_header(&answer), commit);
        assert_non_null(strstr(answer.body + 8, "\"format\":\"pt\""));
        cJSON_Delete(json);
        answer_fini(&answer);
        (void)snprintf(target, sizeof target, "/ns/torch/resolve/%s/pytorch_model.bin", commit);
        loopback_get(&place->loop, target, &answer);
        assert_int_equal(answer.response.status, 404);
        assert_string_equal(commit_header(&answer), commit); /* the virtual revision's commit, not main's */
        answer_fini(&answer);
    }
}

static void what_cannot_be_made_is_told(void **state)
{
    struct place *place = *state;
    struct answer answer;
    loopback_get(&place->loop, "/ns/plain/resolve/tp2-rank0-vllm/model.safetensors", &answer);
    assert_int_equal(answer.response.status, 422); /* without config.json the architecture is not known */
    cJSON *json = cJSON_Parse(answer.body);
    assert_non_null(strstr(string_at(json, "error"), "config.json"));
    cJSON_Delete(json);
    answer_fini(&answer);
    expect_status(place, "/api/models/ns/plain/tree/tp2-rank0-vllm", 422);
}

/* A file that changed after it was listed is answered 503, without any header of the file's answer. */
static void a_file_that_changed_is_not_sent(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char buffer[128];
    tree_text(&place->tree, "ns/plain/a-b", "changed");
    loopback_get(&place->loop, "/ns/plain/resolve/main/a-b", &answer);
    assert_int_equal(answer.response.status, 503);
    assert_non_null(answer_header(&answer, "Retry-After", buffer));
    assert_null(answer_header(&answer, "ETag", buffer));
    assert_null(answer_header(&answer, "Accept-Ranges", buffer));
    assert_null(answer_header(&answer, "X-Content-Type-Options", buffer));
    assert_null(answer_header(&answer, "X-Error-Code", buffer));
    assert_string_equal(answer_header(&answer, "Cache-Control", buffer), "no-store");
    answer_fini(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(hub, files_by_every_spelling),
        TEST_IN(hub, models_of_one_segment),
        TEST_IN(hub, headers_of_files),
        TEST_IN(hub, head_is_get),
        TEST_IN(hub, a_made_revision_from_its_name_to_its_bytes),
        TEST_IN(hub, what_cannot_be_made_is_told),
        TEST_IN(hub, a_file_that_changed_is_not_sent),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
