/* The Hub facade without a socket: what its clients ask for and what they read of the answers. Shapes and codes are those
 * of huggingface_hub (hf_api.py, file_download.py, utils/_http.py) and @huggingface/hub; oids were computed with git. */
#include "api/hub_call.h"
#include "core/clock.h"
#include "tests/unit/api_place.h"

#include <unistd.h>

#define C0 "0000000000000000000000000000000000000000"
#define C1 "1111111111111111111111111111111111111111"
/* sha256sum of "abc" and of nothing, and git hash-object of the LFS pointers to these */
#define ABC_SHA256 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define ABC_OID "80d7d501c2b256023dc42e46d958b9ac2ec283ee"
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define EMPTY_OID "fc8e42b32efb9a9bf3ae0234a18a948e499490f8"

static void copy_pickle(const struct tree *tree, const char *name)
{
    char bytes[65536];
    FILE *file = fopen(TD_TEST_DATA "/torch/checkpoint.pt", "rb");
    assert_non_null(file);
    size_t len = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    assert_true(len > 0 && len < sizeof bytes);
    tree_write(tree, name, bytes, len);
}

static void fill_hub(const struct tree *tree)
{
    tree_simple(tree, "ns/plain/model.safetensors", "a b");
    tree_text(tree, "ns/plain/a-b", "abc");
    tree_text(tree, "ns/plain/a.b", "abc");
    tree_text(tree, "ns/plain/a/x", "abc");
    tree_text(tree, "ns/plain/a/y/z", "");
    tree_text(tree, "ns/plain/a0", "abc");
    tree_text(tree, "ns/plain/sub dir/\xc3\xa9+%2F\"&.txt", "abc");
    copy_pickle(tree, "ns/torch/pytorch_model.bin");
    tree_simple(tree, "solo/model.safetensors", "s");
    tree_text(tree, "org/README.md", "a folder of one segment, beside ids that begin with it");
    tree_text(tree, "rows/train.jsonl", "{}");
    tree_text(tree, "datasets/ns/rows/README.md", "");
    tree_text(tree, "datasets/ns/rows/data/train.csv", "a,b");
    tree_simple(tree, "deep/er/est/model.safetensors", "d");
    tree_simple(tree, "models--other--hub/snapshots/" C1 "/model.safetensors", "a");
    tree_text(tree, "models--other--hub/snapshots/" C1 "/new.txt", "");
    tree_text(tree, "models--other--hub/snapshots/" C0 "/old.txt", "abc");
    tree_text(tree, "models--too--many--parts/snapshots/" C1 "/x.txt", "an id that no client takes");
    tree_text(tree, "models--other--hub/refs/main", C1);
    tree_text(tree, "models--other--hub/refs/v1.0", C0);
    tree_text(tree, "models--other--hub/refs/refs/pr/1", C0);
    tree_simple(tree, "at@sign/n@me/model.safetensors", "a");
}

/* Hashes every file, as the hasher would, and scans. */
static void hash_files(struct place *place)
{
    struct td_snapshot *snapshot = td_catalog_acquire(place->loop.catalog);
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        struct td_file *file = snapshot->entries[i].file;
        char path[2 * TREE_PATH_BYTES];
        char bytes[65536];
        uint8_t sum[TD_SHA256_BYTES];
        (void)snprintf(path, sizeof path, "%s/%s", place->tree.path, file->source.path);
        FILE *stream = fopen(path, "rb");
        assert_non_null(stream);
        size_t len = fread(bytes, 1, sizeof bytes, stream);
        (void)fclose(stream);
        struct td_digest *digest = td_digest_create();
        td_digest_add_content(digest, bytes, len);
        assert_true(td_digest_finish_binary(digest, sum));
        (void)td_file_set_sha256(file, sum);
    }
    td_snapshot_unref(snapshot);
    loopback_rescan(&place->loop);
}

static void open_hub(struct place *place)
{
    tree_open(&place->tree);
    fill_hub(&place->tree);
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
}

static const char *commit_header(const struct answer *answer)
{
    static char buffer[128];
    return answer_header(answer, "X-Repo-Commit", buffer);
}

static const char *commit_of(struct place *place, const char *target, char out[TD_COMMIT_BYTES])
{
    cJSON *json = get_json(place, target);
    CHECK(strlen(string_at(json, "sha")) == 40, "%s", target);
    memcpy(out, string_at(json, "sha"), TD_COMMIT_BYTES);
    cJSON_Delete(json);
    return out;
}

static void post(struct place *place, const char *target, const char *body, struct answer *out)
{
    struct loopback_request request;
    struct td_body_cursor cursor = {0};
    loopback_request_init(&request, "POST", target, NULL);
    request.request.body = (struct td_text){.p = body, .len = strlen(body)};
    td_api_handle(&place->loop.api, &request.request, &out->response);
    out->len = (size_t)out->response.body.total_bytes;
    out->body = malloc(out->len + 1);
    assert_non_null(out->body);
    assert_true(td_body_read(&out->response.body, &cursor, out->body, out->len, NULL));
    out->body[out->len] = '\0';
}

/* ---- files --------------------------------------------------------------------------------------------- */

static void files_by_every_spelling(void **state)
{
    (void)state;
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
        {"/rows/resolve/main/train.jsonl", "{}"} /* without checkpoints it is either */,
        {"/org/resolve/main/README.md", "a folder of one segment, beside ids that begin with it"},
    };
    struct place place;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        loopback_get(&place.loop, cases[i][0], &answer);
        CHECK(answer.response.status == 200, "%s: %d %s", cases[i][0], answer.response.status, answer.body);
        CHECK(strcmp(answer.body, cases[i][1]) == 0, "%s: %s", cases[i][0], answer.body);
        CHECK(commit_header(&answer) != NULL && strlen(commit_header(&answer)) == 40, "%s", cases[i][0]);
        CHECK(answer_header(&answer, "Location", buffer) == NULL, "%s", cases[i][0]);
        CHECK(answer_header(&answer, "Accept-Ranges", buffer) != NULL, "%s", cases[i][0]);
        CHECK(answer.response.route == TD_ROUTE_HUB_FILE, "%s", cases[i][0]);
        answer_fini(&answer);
    }
    close_place(&place);
}

static void models_of_one_segment(void **state)
{
    (void)state;
    static const char *const ids[] = {"solo", "local/solo"};
    struct place place;
    char commits[2][TD_COMMIT_BYTES];
    open_hub(&place);
    for (size_t i = 0; i < 2; i++) {
        char target[128];
        struct answer answer;
        (void)snprintf(target, sizeof target, "/api/models/%s/revision/main", ids[i]);
        cJSON *json = get_json(&place, target);
        assert_string_equal(string_at(json, "id"), ids[i]);
        assert_string_equal(string_at(json, "author"), "local");
        cJSON_Delete(json);
        (void)commit_of(&place, target, commits[i]);
        (void)snprintf(target, sizeof target, "/%s/resolve/%s/model.safetensors", ids[i], commits[i]);
        loopback_get(&place.loop, target, &answer);
        assert_int_equal(answer.response.status, 200);
        answer_fini(&answer);
    }
    assert_string_equal(commits[0], commits[1]);
    close_place(&place);
}

/* ETags are what the blob is called in the client's cache; by commit the answer may be kept. */
static void headers_of_files(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    char buffer[128];
    char commit[TD_COMMIT_BYTES];
    char target[128];
    open_hub(&place);
    loopback_get(&place.loop, "/ns/plain/resolve/main/a-b", &answer);
    assert_string_equal(answer_header(&answer, "ETag", buffer), "\"" ABC_SHA256 "\"");
    assert_string_equal(answer_header(&answer, "Cache-Control", buffer), "no-cache");
    assert_string_equal(answer_header(&answer, "X-Content-Type-Options", buffer), "nosniff");
    assert_null(answer_header(&answer, "X-Error-Code", buffer));
    answer_fini(&answer);
    (void)commit_of(&place, "/api/models/ns/plain", commit);
    (void)snprintf(target, sizeof target, "/ns/plain/resolve/%s/a-b", commit);
    loopback_get(&place.loop, target, &answer);
    assert_string_equal(answer_header(&answer, "Cache-Control", buffer),
                        "public, max-age=31536000, immutable");
    assert_string_equal(commit_header(&answer), commit);
    answer_fini(&answer);
    loopback_ask(&place.loop, "GET", target, "Range: bytes=1-9\nIf-Match: \"" ABC_SHA256 "\"", &answer);
    assert_int_equal(answer.response.status, 206);
    assert_string_equal(answer.body, "bc");
    assert_string_equal(answer_header(&answer, "Content-Range", buffer), "bytes 1-2/3");
    assert_string_equal(commit_header(&answer), commit);
    answer_fini(&answer);
    loopback_ask(&place.loop, "GET", target, "Range: bytes=3-", &answer); /* read as the end of the file */
    assert_int_equal(answer.response.status, 416);
    answer_fini(&answer);
    loopback_ask(&place.loop, "HEAD", target, "If-None-Match: \"" ABC_SHA256 "\"", &answer);
    assert_int_equal(answer.response.status, 304);
    assert_string_equal(commit_header(&answer), commit);
    answer_fini(&answer);
    close_place(&place);
}

/* RFC 9110 section 9.3.2, for every sort of answer. */
static void head_is_get(void **state)
{
    (void)state;
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
    static const char *const names[] = {
        "Content-Type",  "ETag",         "Cache-Control",   "Accept-Ranges",         "Last-Modified",
        "X-Repo-Commit", "X-Error-Code", "X-Error-Message", "X-Content-Type-Options"};
    struct place place;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct answer get;
        struct answer head;
        loopback_get(&place.loop, targets[i], &get);
        loopback_ask(&place.loop, "HEAD", targets[i], "Range: bytes=0-0", &head);
        CHECK(get.response.status == head.response.status, "%s", targets[i]);
        CHECK(get.len == head.len && memcmp(get.body, head.body, get.len) == 0, "%s", targets[i]);
        for (size_t h = 0; h < COUNT_OF(names); h++) {
            char a[128];
            char b[128];
            const char *of_get = answer_header(&get, names[h], a);
            const char *of_head = answer_header(&head, names[h], b);
            CHECK((of_get == NULL) == (of_head == NULL) && (of_get == NULL || strcmp(of_get, of_head) == 0),
                  "%s: %s", targets[i], names[h]);
        }
        answer_fini(&get);
        answer_fini(&head);
    }
    close_place(&place);
}

/* ---- errors -------------------------------------------------------------------------------------------- */

/* The order is repository, revision, entry. X-Repo-Commit goes with EntryNotFound: clients note by it that a file is not
 * there. */
static void errors_say_what_is_missing(void **state)
{
    (void)state;
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
    struct place place;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *what = cases[i].target;
        struct answer answer;
        char buffer[128];
        loopback_get(&place.loop, what, &answer);
        CHECK(answer.response.status == cases[i].status, "%s: %d %s", what, answer.response.status,
              answer.body);
        const char *code = answer_header(&answer, "X-Error-Code", buffer);
        CHECK((code == NULL) == (cases[i].code == NULL) && (code == NULL || strcmp(code, cases[i].code) == 0),
              "%s: %s", what, code == NULL ? "no code" : code);
        CHECK((answer_header(&answer, "X-Error-Message", buffer) == NULL) == (code == NULL), "%s", what);
        bool has_commit = code != NULL && strcmp(code, "EntryNotFound") == 0;
        CHECK(code == NULL || (commit_header(&answer) != NULL) == has_commit, "%s", what);
        CHECK(strcmp(answer.response.content_type, "application/json") == 0, "%s", what);
        CHECK(strcmp(answer_header(&answer, "Cache-Control", buffer), "no-store") == 0, "%s", what);
        CHECK(strstr(answer.body, place.tree.path) == NULL, "%s: %s", what, answer.body);
        cJSON *json = cJSON_Parse(answer.body);
        CHECK(json != NULL, "%s: %s", what, answer.body);
        CHECK(strlen(string_at(json, "error")) > 5, "%s", what);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
    close_place(&place);
}

static void paths_without_an_end(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    char buffer[128];
    char target[4096] = "/ns/plain/resolve/main/a";
    open_hub(&place);
    for (size_t used = strlen(target); used + 3 < sizeof target; used += 2)
        memcpy(target + used, "/a", 3);
    loopback_get(&place.loop, target, &answer);
    assert_int_equal(answer.response.status, 404);
    assert_string_equal(answer_header(&answer, "X-Error-Code", buffer), "EntryNotFound");
    answer_fini(&answer);
    memcpy(target, "/api/models/", 12);
    loopback_get(&place.loop, target, &answer);
    assert_int_equal(answer.response.status, 404);
    assert_string_equal(answer_header(&answer, "X-Error-Code", buffer), "RepoNotFound");
    answer_fini(&answer);
    close_place(&place);
}

static void methods_that_have_no_place(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"POST", "/ns/plain/resolve/main/a-b", "GET, HEAD"},
        {"PUT", "/ns/plain/resolve/main/a-b", "GET, HEAD"},
        {"DELETE", "/api/models/ns/plain", "GET, HEAD"},
        {"POST", "/api/models/ns/plain/tree/main", "GET, HEAD"},
        {"POST", "/api/repos/create", "GET, HEAD"},
        {"POST", "/api/models/ns/plain/commit/main", "GET, HEAD"},
        {"POST", "/api/models/ns/paths-info", "GET, HEAD"} /* a repository of that name */,
        {"GET", "/api/models/ns/plain/paths-info/main", "POST"},
        {"HEAD", "/api/models/solo/paths-info/main", "POST"},
    };
    struct place place;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        loopback_ask(&place.loop, cases[i][0], cases[i][1], NULL, &answer);
        CHECK(answer.response.status == 405, "%s %s: %d", cases[i][0], cases[i][1], answer.response.status);
        CHECK(strcmp(answer_header(&answer, "Allow", buffer), cases[i][2]) == 0, "%s", cases[i][1]);
        answer_fini(&answer);
    }
    close_place(&place);
}

/* {"error": "text"}, which clients show as it is (createApiError of @huggingface/hub, _format of huggingface_hub), whatever
 * part of the server it comes from; no code and no commit, as they are not of what is missing. */
static void every_error_is_the_hubs(void **state)
{
    (void)state;
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
    struct place place;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *what = cases[i].target;
        struct answer answer;
        char buffer[128];
        loopback_ask(&place.loop, cases[i].method, what, cases[i].lines, &answer);
        CHECK(answer.response.status == cases[i].status, "%s: %d %s", what, answer.response.status,
              answer.body);
        CHECK(strcmp(answer.response.content_type, "application/json") == 0, "%s", what);
        CHECK(answer_header(&answer, "X-Error-Code", buffer) == NULL, "%s", what);
        CHECK((answer_header(&answer, "Content-Range", buffer) != NULL) == (cases[i].status == 416), "%s",
              what);
        cJSON *json = cJSON_Parse(answer.body);
        CHECK(json != NULL && cJSON_GetArraySize(json) == 1, "%s: %s", what, answer.body);
        CHECK(strstr(string_at(json, "error"), cases[i].part) != NULL, "%s: %s", what, answer.body);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
    close_place(&place);
}

/* Before there is a snapshot there is nobody's repository to look for. */
static void whose_path_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        enum td_facade facade;
    } cases[] = {
        {"/api/models", TD_FACADE_HUB},
        {"/api/x", TD_FACADE_HUB},
        {"//api//x", TD_FACADE_HUB},
        {"http://h:1/api/models?x", TD_FACADE_HUB},
        {"/a/resolve/main/f", TD_FACADE_HUB},
        {"/a/b/raw/main/f?x=/models/", TD_FACADE_HUB},
        {"/datasets/a/b/resolve/main/f", TD_FACADE_HUB},
        {"/api", TD_FACADE_API},
        {"/", TD_FACADE_API},
        {"", TD_FACADE_API},
        {"*", TD_FACADE_API},
        {"/models", TD_FACADE_API},
        {"/models/a/resolve/main/f", TD_FACADE_API},
        {"/models?/api/models", TD_FACADE_API},
        {"/modelsx/a/resolve/main/f", TD_FACADE_HUB},
        {"/healthz", TD_FACADE_API},
        {"/a/b/c/resolve/main/f", TD_FACADE_API},
        {"/%61pi/models", TD_FACADE_API},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_text target = {.p = cases[i].target, .len = strlen(cases[i].target)};
        CHECK(td_api_facade(TD_FACADE_API, target) == cases[i].facade, "%s", cases[i].target);
        CHECK(td_api_facade(TD_FACADE_S3, target) == TD_FACADE_S3, "%s", cases[i].target);
    }
}

/* The message names what would be right, whichever part of the name is wrong. */
static void a_wrong_revision_is_explained(void **state)
{
    (void)state;
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
        {"ns/plain", "tp0-rank0-none", "\\\"tp0\\\" is no number of ranks; tp1 to tp4096"},
        {"ns/plain", "tp4097-rank0-none", "tp1 to tp4096"},
        {"ns/plain", "tp02-rank0-none", "tp1 to tp4096"},
        {"ns/plain", "tp2-rank2-none", "\\\"rank2\\\" is no rank of 2; there are rank0 to rank1"},
        {"ns/plain", "tp2-rank-none", "there are rank0 to rank1"},
        {"ns/plain", "tp2", "there are rank0 to rank1"},
        {"ns/plain", "tp2-1-none", "there are rank0 to rank1"},
        {"ns/plain", "tp2-rank0", "no engine \\\"\\\"; there are fsdp, nano-vllm, none, vllm"},
        {"ns/plain", "tp2-rank0-sglang", "no engine \\\"sglang\\\"; there are fsdp, nano-vllm, none, vllm"},
        {"ns/plain", "tp2-rank0-none-x", "no engine \\\"none-x\\\""},
    };
    struct place place;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        char target[256];
        (void)snprintf(target, sizeof target, "/%s/resolve/%s/x", cases[i][0], cases[i][1]);
        loopback_get(&place.loop, target, &answer);
        CHECK(answer.response.status == 404, "%s: %d", target, answer.response.status);
        CHECK(strcmp(answer_header(&answer, "X-Error-Code", buffer), "RevisionNotFound") == 0, "%s", target);
        CHECK(strstr(answer.body, cases[i][2]) != NULL, "%s: %s", target, answer.body);
        CHECK(strncmp(answer.body + strlen("{\"error\":\""), cases[i][0], strlen(cases[i][0])) == 0, "%s",
              answer.body);
        answer_fini(&answer);
    }
    close_place(&place);
}

/* Of very many refs a message names some. */
static void a_message_is_short(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    tree_open(&place.tree);
    tree_simple(&place.tree, "models--o--n/snapshots/" C1 "/model.safetensors", "a");
    tree_text(&place.tree, "models--o--n/refs/main", C1);
    for (int i = 0; i < 300; i++) {
        char name[256];
        (void)snprintf(name, sizeof name, "models--o--n/refs/%03d%0180d", i, 0);
        tree_text(&place.tree, name, C1);
    }
    loopback_open(&place.loop, &place.tree);
    loopback_get(&place.loop, "/api/models/o/n/tree/none", &answer);
    assert_int_equal(answer.response.status, 404);
    assert_non_null(strstr(answer.body, "it has main, "));
    assert_non_null(strstr(answer.body, ", ..., safetensors, tp{n}-rank{r}-{engine}\"}"));
    assert_true(answer.len < 1000);
    answer_fini(&answer);
    close_place(&place);
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

/* Whose path is it: what follows /models is never the facade's; names that mean something to it are names as well. */
static void names_that_mean_something(void **state)
{
    (void)state;
    static const char *const names[] = {"resolve/resolve", "raw/raw",     "resolve",    "raw",
                                        "api/api",         "datasets2/x", "x/datasets", "main/main",
                                        "tree/revision",   "x/api",       "x/models"};
    struct place place;
    tree_open(&place.tree);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s/model.safetensors", names[i]);
        if (strchr(names[i], '/') != NULL)
            tree_simple(&place.tree, name, "a");
    }
    tree_text(&place.tree, "n/m/resolve/main/raw", "abc");
    loopback_open(&place.loop, &place.tree);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char target[256];
        struct answer answer;
        if (strchr(names[i], '/') == NULL)
            continue;
        (void)snprintf(target, sizeof target, "/%s/resolve/main/model.safetensors", names[i]);
        loopback_get(&place.loop, target, &answer);
        CHECK(answer.response.status == 200, "%s: %s", target, answer.body);
        answer_fini(&answer);
        (void)snprintf(target, sizeof target, "/api/models/%s/revision/main", names[i]);
        cJSON *json = get_json(&place, target);
        CHECK(strcmp(string_at(json, "id"), names[i]) == 0, "%s", target);
        cJSON_Delete(json);
    }
    struct answer answer;
    loopback_get(&place.loop, "/n/m/resolve/main/raw",
                 &answer); /* no such repository n/m: it is n/m/resolve/main */
    assert_int_equal(answer.response.status, 404);
    answer_fini(&answer);
    /* ours stays ours, and as strict about parameters */
    expect_error(&place, "GET", "/models/resolve/resolve?page_size=1&page_size=1", 400, "twice");
    expect_error(&place, "GET", "/models/x/resolve/main/f?a=1&a=2", 400, "twice");
    close_place(&place);
}

/* ---- descriptions -------------------------------------------------------------------------------------- */

/* All names of an array's objects, sorted as they come. */
static void expect_joined(const cJSON *array, const char *name, const char *wanted)
{
    char got[1024];
    join(array, name, got);
    CHECK(strcmp(got, wanted) == 0, "%s, wanted %s", got, wanted);
}

static void descriptions(void **state)
{
    (void)state;
    static const char *const targets[] = {
        "/api/models/ns/plain",
        "/api/models/ns/plain/revision/main",
        "/api/models/ns/plain/revision/HEAD?expand=pipeline_tag&expand=private&expand=sha",
        "/api/models/ns/plain?expand[]=likes&expand[]=likes",
        "/api/models/ns/plain?securityStatus=True",
    };
    struct place place;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        cJSON *json = get_json(&place, targets[i]);
        struct answer answer;
        assert_string_equal(string_at(json, "id"), "ns/plain");
        assert_string_equal(string_at(json, "_id"), "ns/plain");
        assert_string_equal(string_at(json, "modelId"), "ns/plain");
        assert_string_equal(string_at(json, "author"), "ns");
        assert_int_equal(strlen(string_at(json, "lastModified")), strlen("2026-01-01T00:00:00.000Z"));
        assert_true(cJSON_IsFalse(member(json, "private")) && cJSON_IsFalse(member(json, "gated")) &&
                    cJSON_IsFalse(member(json, "disabled")) && cJSON_IsArray(member(json, "tags")));
        assert_true(number_at(json, "downloads") == 0 && number_at(json, "likes") == 0);
        expect_joined(member(json, "siblings"), "rfilename",
                      "a-b a.b a/x a/y/z a0 model.safetensors sub dir/\xc3\xa9+%2F\"&.txt");
        assert_null(cJSON_GetObjectItem(cJSON_GetArrayItem(member(json, "siblings"), 0), "size"));
        loopback_get(&place.loop, targets[i], &answer);
        assert_string_equal(commit_header(&answer), string_at(json, "sha"));
        answer_fini(&answer);
        cJSON_Delete(json);
    }
    cJSON *json = get_json(&place, "/api/datasets/ns/rows");
    assert_string_equal(string_at(json, "id"), "ns/rows");
    assert_null(cJSON_GetObjectItem(json, "modelId"));
    cJSON_Delete(json);
    json = get_json(&place, "/api/models/at@sign/n@me");
    assert_string_equal(string_at(json, "id"), "at@sign/n@me");
    cJSON_Delete(json);
    close_place(&place);
}

static void blobs_are_git_lfs(void **state)
{
    (void)state;
    struct place place;
    open_hub(&place);
    cJSON *json = get_json(&place, "/api/models/ns/plain?blobs=true");
    const cJSON *abc = cJSON_GetArrayItem(member(json, "siblings"), 0);
    assert_int_equal(whole_at(abc, "size"), 3);
    assert_string_equal(string_at(abc, "blobId"), ABC_OID);
    const cJSON *lfs = member(abc, "lfs");
    assert_string_equal(string_at(lfs, "sha256"), ABC_SHA256);
    assert_int_equal(whole_at(lfs, "size"), 3);
    assert_int_equal(whole_at(lfs, "pointerSize"), 126);
    const cJSON *empty = cJSON_GetArrayItem(member(json, "siblings"), 3);
    assert_string_equal(string_at(empty, "rfilename"), "a/y/z");
    assert_string_equal(string_at(empty, "blobId"), EMPTY_OID);
    assert_string_equal(string_at(member(empty, "lfs"), "sha256"), EMPTY_SHA256);
    cJSON_Delete(json);
    close_place(&place);
}

static void refs_and_commits(void **state)
{
    (void)state;
    struct place place;
    char commit[TD_COMMIT_BYTES];
    open_hub(&place);
    cJSON *json = get_json(&place, "/api/models/other/hub/refs?include_prs=1");
    expect_joined(member(json, "branches"), "name", "main v1.0 safetensors");
    expect_joined(member(json, "branches"), "ref", "refs/heads/main refs/heads/v1.0 refs/heads/safetensors");
    expect_joined(member(json, "pullRequests"), "name", "refs/pr/1");
    expect_joined(member(json, "pullRequests"), "ref", "refs/pr/1");
    expect_joined(member(json, "pullRequests"), "targetCommit", C0);
    assert_true(cJSON_IsArray(member(json, "converts")) && cJSON_IsArray(member(json, "tags")));
    const cJSON *made = cJSON_GetArrayItem(member(json, "branches"), 2);
    assert_string_equal(string_at(made, "targetCommit"),
                        commit_of(&place, "/api/models/other/hub/revision/safetensors", commit));
    cJSON_Delete(json);
    json = get_json(&place, "/api/datasets/ns/rows/refs");
    expect_joined(member(json, "branches"), "name", "main");
    cJSON_Delete(json);
    json = get_json(&place, "/api/models/other/hub/commits/refs%2Fpr%2F1");
    const cJSON *first = cJSON_GetArrayItem(json, 0);
    assert_string_equal(string_at(first, "id"), C0);
    assert_true(cJSON_IsString(member(first, "title")) && cJSON_IsString(member(first, "message")) &&
                cJSON_IsArray(member(first, "authors")) && cJSON_IsString(member(first, "date")));
    cJSON_Delete(json);
    cJSON_Delete(get_json(&place, "/api/models/other/hub/auth-check"));
    json = get_json(&place, "/api/whoami-v2");
    assert_true(cJSON_IsString(member(json, "name")) && cJSON_IsArray(member(json, "orgs")));
    cJSON_Delete(json);
    close_place(&place);
}

/* ---- lists --------------------------------------------------------------------------------------------- */

static void expect_list(struct place *place, const char *target, const char *wanted)
{
    char got[1024];
    cJSON *json = get_json(place, target);
    join(json, "id", got);
    CHECK(strcmp(got, wanted) == 0, "%s: %s, wanted %s", target, got, wanted);
    cJSON_Delete(json);
}

/* Ids that clients can ask for: of two segments, once each. */
static void lists(void **state)
{
    (void)state;
    static const char all[] = "at@sign/n@me deep/er ns/plain ns/torch local/org other/hub local/solo";
    struct place place;
    open_hub(&place);
    expect_list(&place, "/api/models", all);
    expect_list(&place, "/api/models?limit=500&expand=private&expand=likes", all);
    expect_list(&place, "/api/models?limit=0", all);
    expect_list(&place, "/api/models?limit=x", all);
    expect_list(&place, "/api/models?author=ns", "ns/plain ns/torch");
    expect_list(&place, "/api/models?author=local", "local/org local/solo");
    expect_list(&place, "/api/models?author=n", "");
    expect_list(&place, "/api/models?search=TORCH", "ns/torch");
    expect_list(&place, "/api/models?search=", all);
    expect_list(&place, "/api/models?search=o&author=ns", "ns/torch");
    expect_list(&place, "/api/models?search=none", "");
    expect_list(&place, "/api/models?cursor=999999999", "");
    expect_list(&place, "/api/datasets", "local/rows ns/rows");
    tree_set_age(&place.tree, "solo/model.safetensors", 1000000000);
    loopback_rescan(&place.loop);
    cJSON *json = get_json(&place, "/api/models?sort=lastModified&direction=-1&full=true&limit=1");
    expect_joined(json, "id", "local/solo");
    expect_joined(member(cJSON_GetArrayItem(json, 0), "siblings"), "rfilename", "model.safetensors");
    cJSON_Delete(json);
    close_place(&place);
}

/* The address of the next page: absolute, and what is asked there is the rest. */
static bool next_page(const struct answer *answer, char out[512])
{
    char buffer[128];
    const char *link = answer_header(answer, "Link", buffer);
    if (link == NULL)
        return false;
    size_t len = strcspn(link, ">");
    assert_true(link[0] == '<' && strcmp(link + len, ">; rel=\"next\"") == 0 && len < 512);
    memcpy(out, link + 1, len - 1);
    out[len - 1] = '\0';
    return true;
}

static void pages_of_lists(void **state)
{
    (void)state;
    struct place place;
    char target[512] = "/api/models?limit=1&author=ns&search=%6F%20%22%3E%0D&sort=lastModified&full=true";
    struct answer answer;
    open_hub(&place);
    loopback_ask(&place.loop, "GET", target, "Host: h:1", &answer); /* finds nothing */
    assert_false(next_page(&answer, target));
    answer_fini(&answer);
    (void)snprintf(target, sizeof target, "/api/models?limit=1&author=ns&search=%%6E");
    size_t pages = 0;
    char ids[64] = "";
    for (bool more = true; more; pages++) {
        loopback_ask(&place.loop, "GET", target, "Host: h:1", &answer);
        cJSON *json = cJSON_Parse(answer.body);
        assert_int_equal(cJSON_GetArraySize(json), 1);
        (void)snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s ",
                       string_at(cJSON_GetArrayItem(json, 0), "id"));
        cJSON_Delete(json);
        more = next_page(&answer, target);
        CHECK(!more || strncmp(target, "http://h:1/api/models?", 22) == 0, "%s", target);
        answer_fini(&answer);
    }
    assert_int_equal(pages, 2);
    assert_string_equal(ids, "ns/plain ns/torch ");
    close_place(&place);
}

/* Nothing of the request gets out of its place in the field. */
static void hosts_in_links(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *begins; /* NULL: there is no link */
    } cases[] = {
        {"Host: h", "<http://h/api/models?"},
        {"Host: [::1]:8080", "<http://[::1]:8080/api/models?"},
        {"Host: a-b.c_d~:80\nX-Forwarded-Proto: https", "<https://a-b.c_d~:80/api/models?"},
        {"Host: h\nX-Forwarded-Proto: HTTPS", "<https://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto: javascript", "<http://h/api/models?"},
        {NULL, NULL},
        {"Host:", NULL},
        {"Host: a\nHost: b", NULL},
        {"Host: h>; rel=\"next\", <http://evil", NULL},
        {"Host: h/evil", NULL},
        {"Host: h\rX-Evil: 1", NULL},
        {"Host: \xc3\xa9", NULL},
    };
    struct place place;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        loopback_ask(&place.loop, "GET", "/api/models?limit=1", cases[i].lines, &answer);
        const char *link = answer_header(&answer, "Link", buffer);
        CHECK((link == NULL) == (cases[i].begins == NULL), "%s: %s", cases[i].lines, link);
        CHECK(link == NULL || strncmp(link, cases[i].begins, strlen(cases[i].begins)) == 0, "%s", link);
        answer_fini(&answer);
    }
    char host[600] = "Host: ";
    struct answer answer;
    char next[512];
    memset(host + 6, 'x', sizeof host - 7);
    host[sizeof host - 1] = '\0';
    loopback_ask(&place.loop, "GET", "/api/models?limit=1", host, &answer);
    assert_false(next_page(&answer, next)); /* half a link is none */
    answer_fini(&answer);
    close_place(&place);
}

/* ---- trees --------------------------------------------------------------------------------------------- */

/* "path" of a file, "path/" of a directory, parted by blanks. */
static void describe_tree(const cJSON *array, char out[2048])
{
    const cJSON *item;
    size_t used = 0;
    out[0] = '\0';
    cJSON_ArrayForEach(item, array)
    {
        bool is_file = strcmp(string_at(item, "type"), "file") == 0;
        CHECK(is_file || strcmp(string_at(item, "type"), "directory") == 0, "%s", string_at(item, "type"));
        CHECK(strspn(string_at(item, "oid"), "0123456789abcdef") == 40, "%s", string_at(item, "oid"));
        (void)number_at(item, "size");
        used += (size_t)snprintf(out + used, 2048 - used, "%s%s%s", used > 0 ? " " : "",
                                 string_at(item, "path"), is_file ? "" : "/");
    }
}

static void expect_tree(struct place *place, const char *target, const char *wanted)
{
    char got[2048];
    cJSON *json = get_json(place, target);
    describe_tree(json, got);
    CHECK(strcmp(got, wanted) == 0, "%s: %s, wanted %s", target, got, wanted);
    cJSON_Delete(json);
}

static void trees(void **state)
{
    (void)state;
    struct place place;
    char commit[TD_COMMIT_BYTES];
    char target[256];
    open_hub(&place);
    static const char all[] = "a-b a.b a/ a/x a/y/ a/y/z a0 model.safetensors sub dir/ "
                              "sub dir/\xc3\xa9+%2F\"&.txt";
    expect_tree(&place, "/api/models/ns/plain/tree/main?recursive=true&expand=false", all);
    expect_tree(&place, "/api/models/ns/plain/tree/main?recursive=True", all);
    expect_tree(&place, "/api/models/ns/plain/tree/main?recursive=1", all);
    expect_tree(&place, "/api/models/ns/plain/tree/main", "a-b a.b a/ a0 model.safetensors sub dir/");
    expect_tree(&place, "/api/models/ns/plain/tree/main?recursive=False",
                "a-b a.b a/ a0 model.safetensors sub dir/");
    expect_tree(&place, "/api/models/ns/plain/tree/main/a", "a/x a/y/");
    expect_tree(&place, "/api/models/ns/plain/tree/main/a/?recursive=true", "a/x a/y/ a/y/z");
    expect_tree(&place, "/api/models/ns/plain/tree/main/a%2F?recursive=true", "a/x a/y/ a/y/z");
    expect_tree(&place, "/api/models/ns/plain/tree/main/a/y", "a/y/z");
    expect_tree(&place, "/api/models/ns/plain/tree/main/a%2Fy", "a/y/z");
    expect_tree(&place, "/api/models/ns/plain/tree/main/sub%20dir", "sub dir/\xc3\xa9+%2F\"&.txt");
    expect_tree(&place, "/api/models/ns/plain/tree/main/a-b", "a-b"); /* a file: the list of it */
    expect_tree(&place, "/api/models/ns/plain/tree/main/a/x", "a/x");
    expect_tree(&place, "/api/models/ns/torch/tree/safetensors?recursive=true", "model.safetensors");
    expect_tree(&place, "/api/models/other/hub/tree/refs%2Fpr%2F1", "old.txt");
    expect_tree(&place, "/api/models/other/hub/tree/refs/pr/1", "old.txt");
    expect_tree(&place, "/api/models/solo/tree/main", "model.safetensors");
    expect_tree(&place, "/api/datasets/ns/rows/tree/main/data?recursive=false", "data/train.csv");
    (void)commit_of(&place, "/api/models/ns/plain", commit);
    (void)snprintf(target, sizeof target, "/api/models/ns/plain/tree/%s?recursive=true&expand=false", commit);
    expect_tree(&place, target, all);
    cJSON *json = get_json(&place, "/api/models/ns/plain/tree/main?expand=true");
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        const cJSON *last = member(item, "lastCommit");
        assert_string_equal(string_at(last, "id"), commit);
        assert_true(cJSON_IsString(member(last, "title")) && strlen(string_at(last, "date")) == 24);
    }
    item = cJSON_GetArrayItem(json, 0);
    assert_string_equal(string_at(item, "oid"), ABC_OID);
    assert_int_equal(whole_at(item, "size"), 3);
    assert_string_equal(string_at(member(item, "lfs"), "oid"), ABC_SHA256);
    assert_int_equal(whole_at(member(item, "lfs"), "size"), 3);
    assert_int_equal(whole_at(member(item, "lfs"), "pointerSize"), 126);
    cJSON_Delete(json);
    close_place(&place);
}

/* A client would check a sha256 that is there: so there is none before it is known. */
static void trees_before_files_are_hashed(void **state)
{
    (void)state;
    struct place place;
    char commits[2][TD_COMMIT_BYTES];
    tree_open(&place.tree);
    fill_hub(&place.tree);
    loopback_open(&place.loop, &place.tree);
    (void)commit_of(&place, "/api/models/ns/plain", commits[0]);
    cJSON *json = get_json(&place, "/api/models/ns/plain/tree/main/a");
    const cJSON *file = cJSON_GetArrayItem(json, 0);
    assert_null(cJSON_GetObjectItem(file, "lfs"));
    assert_int_equal(strlen(string_at(file, "oid")), 40);
    cJSON_Delete(json);
    hash_files(&place);
    (void)commit_of(&place, "/api/models/ns/plain", commits[1]);
    assert_string_not_equal(commits[0], commits[1]);
    char target[128];
    for (size_t i = 0; i < 2; i++) { /* both lead to it, each under its own name */
        struct answer answer;
        (void)snprintf(target, sizeof target, "/api/models/ns/plain/tree/%s/a", commits[i]);
        loopback_get(&place.loop, target, &answer);
        assert_int_equal(answer.response.status, 200);
        assert_string_equal(commit_header(&answer), commits[i]);
        assert_non_null(strstr(answer.body, "\"lfs\""));
        answer_fini(&answer);
    }
    tree_text(&place.tree, "ns/plain/a-b", "other");
    loopback_rescan(&place.loop);
    for (size_t i = 0; i < 2; i++) {
        struct answer answer;
        char buffer[128];
        (void)snprintf(target, sizeof target, "/ns/plain/resolve/%s/a.b", commits[i]);
        loopback_get(&place.loop, target, &answer);
        assert_int_equal(answer.response.status, 404);
        assert_string_equal(answer_header(&answer, "X-Error-Code", buffer), "RevisionNotFound");
        answer_fini(&answer);
    }
    close_place(&place);
}

static void name_file(char out[128], size_t i)
{
    (void)snprintf(out, 128, "ns/many/d%zu/f%05zu", i / 1000, i);
}

/* More than one answer has: pages, which together are the tree; a description has no siblings then. */
static void very_large_trees_have_pages(void **state)
{
    (void)state;
    enum { FILES = TD_HUB_MOST_SIBLINGS + 1500 };
    struct place place;
    struct answer answer;
    char name[128];
    char first[TREE_PATH_BYTES];
    char target[512] = "/api/models/ns/many/tree/main?recursive=true";
    tree_open(&place.tree);
    tree_text(&place.tree, "ns/many/readme", "");
    for (size_t i = 0; i < FILES; i++) {
        char path[TREE_PATH_BYTES];
        name_file(name, i);
        tree_at(&place.tree, name, path);
        if (i % 1000 == 0) {
            tree_text(&place.tree, name, "");
            memcpy(first, path, sizeof first);
        } else {
            assert_int_equal(link(first, path), 0);
        }
    }
    loopback_open(&place.loop, &place.tree);
    size_t pages = 0;
    size_t items = 0;
    char last[128] = "";
    for (bool more = true; more; pages++) {
        loopback_ask(&place.loop, "GET", target, "Host: h", &answer);
        CHECK(answer.response.status == 200, "%s: %s", target, answer.body);
        assert_true(answer.len < 1024 * 1024 + 64 * 1024);
        const char *at = answer.body;
        while ((at = memchr(at, '{', answer.len - (size_t)(at - answer.body))) != NULL) {
            char item[200] = ""; /* libc looks for the end of all that it searches */
            char path[128];
            size_t left = answer.len - (size_t)(at - answer.body);
            memcpy(item, at, left < sizeof item ? left : sizeof item - 1);
            const char *named = strstr(item, "\"path\":\"");
            assert_non_null(named);
            assert_int_equal(sscanf(named, "\"path\":\"%127[^\"]", path), 1);
            CHECK(strcmp(last, path) < 0, "%s, %s", last, path);
            memcpy(last, path, sizeof last);
            items++;
            at++;
        }
        more = next_page(&answer, target);
        CHECK(!more || strncmp(target, "http://h/api/models/ns/many/tree/", 33) == 0, "%s", target);
        CHECK(!more || strstr(target, "/tree/main") == NULL, "%s", target); /* by the commit */
        answer_fini(&answer);
    }
    assert_int_equal(pages, FILES / TD_HUB_PAGE_ITEMS + 1);
    assert_int_equal(items, FILES + (FILES + 999) / 1000 + 1);
    /* without a host there is no address: all of it then, as never a part without a word */
    loopback_get(&place.loop, "/api/models/ns/many/tree/main?recursive=true", &answer);
    assert_false(next_page(&answer, target));
    assert_non_null(strstr(answer.body, "\"readme\""));
    answer_fini(&answer);
    cJSON *json = get_json(&place, "/api/models/ns/many");
    assert_null(cJSON_GetObjectItem(json, "siblings"));
    assert_string_equal(string_at(json, "id"), "ns/many");
    cJSON_Delete(json);
    close_place(&place);
}

/* Large answers count as rank files do: beyond what there is for both there is a 503, and small answers still come. */
static void memory_of_large_answers_is_bounded(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    struct answer held;
    char buffer[128];
    char name[TREE_PATH_BYTES];
    tree_open(&place.tree);
    for (int i = 0; i < 900; i++) {
        (void)snprintf(name, sizeof name, "ns/wide/%0150d", i);
        tree_text(&place.tree, name, "");
    }
    loopback_open(&place.loop, &place.tree);
    struct td_budget *live = &place.loop.api.shards.live;
    static const char *const targets[] = {"/api/models/ns/wide/tree/main", "/api/models/ns/wide",
                                          "/api/models?full=true"};
    size_t before = atomic_load(&live->used_bytes);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        loopback_get(&place.loop, targets[i], &held);
        assert_int_equal(held.response.status, 200);
        assert_true(atomic_load(&live->used_bytes) >= before + held.len);
        answer_fini(&held);
        assert_int_equal(atomic_load(&live->used_bytes), before);
        size_t rest = live->max_bytes - before;
        assert_true(td_budget_take(live, rest));
        loopback_get(&place.loop, targets[i], &answer);
        CHECK(answer.response.status == 503, "%s: %d", targets[i], answer.response.status);
        assert_string_equal(answer_header(&answer, "Retry-After", buffer), "1");
        answer_fini(&answer);
        loopback_get(&place.loop, "/api/models/ns/wide/refs", &answer);
        assert_int_equal(answer.response.status, 200);
        answer_fini(&answer);
        td_budget_give(live, rest);
    }
    close_place(&place);
}

/* A list stops planning files when its time is over. */
static void planning_for_a_list_ends(void **state)
{
    (void)state;
    struct place place;
    open_hub(&place);
    struct td_call call = {.api = &place.loop.api};
    struct td_hub_call hub = {.call = &call};
    struct td_view_item made = {.path = "model.safetensors"}; /* nothing to plan it of: it is not looked at */
    struct td_hub_blob blob;
    struct td_error err;
    td_error_init(&err);
    assert_false(td_hub_blob_of(&hub, &made, td_clock_ns() - TD_HUB_PLAN_NS - 1, &blob, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    close_place(&place);
}

/* ---- paths-info ---------------------------------------------------------------------------------------- */

static void paths_info(void **state)
{
    (void)state;
    static const struct {
        const char *body, *wanted;
        bool expands;
    } cases[] = {
        {"paths=a-b&paths=a.b&expand=False", "a-b a.b", false},
        {"paths=a.b&paths=a-b", "a.b a-b", false},
        {"paths=a&paths=a%2F&paths=none&paths=a%2Fx", "a/ a/x", false},
        {"paths=a.b&paths=none&paths=a&paths=a.b&paths=a-b&paths=a/&paths=none&paths=a.b", "a.b a/ a-b",
         false},
        {"{\"paths\":[\"a0\",\"a-b\",\"\\u0061-b\",\"a0\"]}", "a0 a-b", false},
        {"paths=sub+dir%2F%C3%A9%2B%252F%22%26.txt", "sub dir/\xc3\xa9+%2F\"&.txt", false},
        {"paths=a-b&expand=true", "a-b", true} /* as huggingface_hub has them, in this order */,
        {"paths=a-b&expand=True", "a-b", true},
        {"expand=True&paths=a-b", "a-b", true},
        {"", "", false},
        {"&&paths=&x=1&paths", "", false},
        {"{\"paths\":[\"a-b\",\"none\",\"a\"]}", "a-b a/", false},
        {" {\"paths\":[\"a-b\"],\"expand\":true}", "a-b", true},
        {"{\"expand\":true,\"paths\":[\"a-b\"]}", "a-b", true},
        {"{\"expand\":false,\"x\":[{}],\"paths\":[\"\\u0061-b\"]}", "a-b", false},
        {"{\"paths\":[]}", "", false},
        {"{}", "", false},
    };
    struct place place;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char got[2048];
        post(&place, "/api/models/ns/plain/paths-info/main", cases[i].body, &answer);
        CHECK(answer.response.status == 200, "%s: %s", cases[i].body, answer.body);
        CHECK(commit_header(&answer) != NULL, "%s", cases[i].body);
        cJSON *json = cJSON_Parse(answer.body);
        CHECK(json != NULL, "%s: %s", cases[i].body, answer.body);
        describe_tree(json, got);
        CHECK(strcmp(got, cases[i].wanted) == 0, "%s: %s", cases[i].body, got);
        CHECK((strstr(answer.body, "lastCommit") != NULL) == cases[i].expands, "%s", cases[i].body);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
    close_place(&place);
}

static void bad_paths_info(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"paths=%zz", "hexadecimal"},
        {"paths=%ff", "UTF-8"},
        {"paths=a%00", "NUL"},
        {"{\"paths\":[\"a-b\\u0000\"]}", "NUL"},
        {"{\"paths\":\"a\"}", "array of paths"},
        {"{\"paths\":[1]}", "strings"},
        {"{\"paths\":[\"a\"]", ""},
        {"{\"paths\":[\"a\"]}x", ""},
        {"{", ""},
        {"{\"paths\":[\"\\ud800\"]}", ""},
    };
    struct place place;
    struct answer answer;
    open_hub(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        post(&place, "/api/models/ns/plain/paths-info/main", cases[i][0], &answer);
        CHECK(answer.response.status == 400, "%s: %d %s", cases[i][0], answer.response.status, answer.body);
        cJSON *json = cJSON_Parse(answer.body);
        CHECK(strstr(string_at(json, "error"), cases[i][1]) != NULL, "%s: %s", cases[i][0], answer.body);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
    /* at most 10,000 paths */
    char *body = malloc(10001 * 10 + 1);
    assert_non_null(body);
    for (size_t i = 0; i < 10001; i++)
        memcpy(body + i * 10, "&paths=a-b", 11);
    post(&place, "/api/models/ns/plain/paths-info/main", body, &answer);
    assert_int_equal(answer.response.status, 400);
    answer_fini(&answer);
    post(&place, "/api/models/ns/plain/paths-info/main", body + 10, &answer);
    assert_int_equal(answer.response.status, 200);
    assert_non_null(strstr(answer.body, "\"path\":\"a-b\""));
    assert_true(answer.len < 512); /* one path, one answer */
    answer_fini(&answer);
    free(body);
    post(&place, "/api/models/ns/plain/paths-info/none", "paths=a", &answer);
    assert_int_equal(answer.response.status, 404);
    answer_fini(&answer);
    close_place(&place);
}

/* ---- revisions that lie nowhere ------------------------------------------------------------------------ */

/* huggingface_hub and transformers: the name becomes a commit, all else is asked by that. */
static void a_made_revision_from_its_name_to_its_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"safetensors", "tp1-rank0-none"};
    struct place place;
    char main_commit[TD_COMMIT_BYTES];
    open_hub(&place);
    (void)commit_of(&place, "/api/models/ns/torch", main_commit);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char target[256];
        char commit[TD_COMMIT_BYTES];
        char again[TD_COMMIT_BYTES];
        struct answer answer;
        (void)snprintf(target, sizeof target, "/api/models/ns/torch/revision/%s", names[i]);
        (void)commit_of(&place, target, commit);
        assert_string_not_equal(commit, main_commit);
        (void)snprintf(target, sizeof target, "/api/models/ns/torch/revision/%s", commit);
        assert_string_equal(commit_of(&place, target, again), commit);
        (void)snprintf(target, sizeof target, "/api/models/ns/torch/tree/%s?recursive=true", commit);
        cJSON *json = get_json(&place, target);
        assert_int_equal(cJSON_GetArraySize(json), 1);
        const cJSON *file = cJSON_GetArrayItem(json, 0);
        assert_string_equal(string_at(file, "path"), "model.safetensors");
        assert_null(cJSON_GetObjectItem(file, "lfs")); /* what it hashes to is not known */
        (void)snprintf(target, sizeof target, "/ns/torch/resolve/%s/model.safetensors", commit);
        loopback_get(&place.loop, target, &answer);
        assert_int_equal(answer.response.status, 200);
        assert_int_equal(answer.len, whole_at(file, "size"));
        assert_string_equal(commit_header(&answer), commit);
        assert_non_null(strstr(answer.body + 8, "\"format\":\"pt\""));
        cJSON_Delete(json);
        answer_fini(&answer);
        (void)snprintf(target, sizeof target, "/ns/torch/resolve/%s/pytorch_model.bin", commit);
        loopback_get(&place.loop, target, &answer);
        assert_int_equal(answer.response.status, 404);
        assert_string_equal(commit_header(&answer), commit); /* not of main: it is there */
        answer_fini(&answer);
    }
    close_place(&place);
}

static void what_cannot_be_made_is_told(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    open_hub(&place);
    loopback_get(&place.loop, "/ns/plain/resolve/tp2-rank0-vllm/model.safetensors", &answer);
    assert_int_equal(answer.response.status, 422); /* no config.json: no architecture */
    cJSON *json = cJSON_Parse(answer.body);
    assert_non_null(strstr(string_at(json, "error"), "config.json"));
    cJSON_Delete(json);
    answer_fini(&answer);
    loopback_get(&place.loop, "/api/models/ns/plain/tree/tp2-rank0-vllm", &answer);
    assert_int_equal(answer.response.status, 422);
    answer_fini(&answer);
    close_place(&place);
}

/* A file that changes after it was listed: 503, and no header of the answer that was begun. */
static void a_file_that_changed_is_not_sent(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    char buffer[128];
    open_hub(&place);
    tree_text(&place.tree, "ns/plain/a-b", "changed");
    loopback_get(&place.loop, "/ns/plain/resolve/main/a-b", &answer);
    assert_int_equal(answer.response.status, 503);
    assert_non_null(answer_header(&answer, "Retry-After", buffer));
    assert_null(answer_header(&answer, "ETag", buffer));
    assert_null(answer_header(&answer, "Accept-Ranges", buffer));
    assert_null(answer_header(&answer, "X-Content-Type-Options", buffer));
    assert_null(answer_header(&answer, "X-Error-Code", buffer));
    assert_string_equal(answer_header(&answer, "Cache-Control", buffer), "no-store");
    answer_fini(&answer);
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_by_every_spelling),
        cmocka_unit_test(models_of_one_segment),
        cmocka_unit_test(headers_of_files),
        cmocka_unit_test(head_is_get),
        cmocka_unit_test(errors_say_what_is_missing),
        cmocka_unit_test(paths_without_an_end),
        cmocka_unit_test(methods_that_have_no_place),
        cmocka_unit_test(every_error_is_the_hubs),
        cmocka_unit_test(whose_path_it_is),
        cmocka_unit_test(a_wrong_revision_is_explained),
        cmocka_unit_test(a_message_is_short),
        cmocka_unit_test(which_paths_take_a_body),
        cmocka_unit_test(names_that_mean_something),
        cmocka_unit_test(descriptions),
        cmocka_unit_test(blobs_are_git_lfs),
        cmocka_unit_test(refs_and_commits),
        cmocka_unit_test(lists),
        cmocka_unit_test(pages_of_lists),
        cmocka_unit_test(hosts_in_links),
        cmocka_unit_test(trees),
        cmocka_unit_test(trees_before_files_are_hashed),
        cmocka_unit_test(very_large_trees_have_pages),
        cmocka_unit_test(memory_of_large_answers_is_bounded),
        cmocka_unit_test(planning_for_a_list_ends),
        cmocka_unit_test(paths_info),
        cmocka_unit_test(bad_paths_info),
        cmocka_unit_test(a_made_revision_from_its_name_to_its_bytes),
        cmocka_unit_test(what_cannot_be_made_is_told),
        cmocka_unit_test(a_file_that_changed_is_not_sent),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
