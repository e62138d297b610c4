/* Trees and paths-info: the files of a repository. */
#include "api/hub/hub_item.h"
#include "core/clock.h"
#include "tests/unit/api/hub_place.h"
#include "tests/unit/api/virtual_place.h"

#include <unistd.h>

/* ---- trees --------------------------------------------------------------------------------------------- */

/* Writes the items, separated by blanks: "path" for a file, "path/" for a directory. */
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
        used += (size_t)snprintf(out + used, 2048 - used, "%s%s%s", used > 0 ? " " : "", string_at(item, "path"),
                                 is_file ? "" : "/");
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
    struct place *place = *state;
    char commit[TD_COMMIT_BYTES];
    char target[256];
    static const char all[] = "a-b a.b a/ a/x a/y/ a/y/z a0 model.safetensors sub dir/ "
                              "sub dir/\xc3\xa9+%2F\"&.txt";
    expect_tree(place, "/api/models/ns/plain/tree/main?recursive=true&expand=false", all);
    expect_tree(place, "/api/models/ns/plain/tree/main?recursive=True", all);
    expect_tree(place, "/api/models/ns/plain/tree/main?recursive=1", all);
    expect_tree(place, "/api/models/ns/plain/tree/main", "a-b a.b a/ a0 model.safetensors sub dir/");
    expect_tree(place, "/api/models/ns/plain/tree/main?recursive=False", "a-b a.b a/ a0 model.safetensors sub dir/");
    expect_tree(place, "/api/models/ns/plain/tree/main/a", "a/x a/y/");
    expect_tree(place, "/api/models/ns/plain/tree/main/a/?recursive=true", "a/x a/y/ a/y/z");
    expect_tree(place, "/api/models/ns/plain/tree/main/a%2F?recursive=true", "a/x a/y/ a/y/z");
    expect_tree(place, "/api/models/ns/plain/tree/main/a/y", "a/y/z");
    expect_tree(place, "/api/models/ns/plain/tree/main/a%2Fy", "a/y/z");
    expect_tree(place, "/api/models/ns/plain/tree/main/sub%20dir", "sub dir/\xc3\xa9+%2F\"&.txt");
    expect_tree(place, "/api/models/ns/plain/tree/main/a-b", "a-b"); /* the path of a file gives a list of that file */
    expect_tree(place, "/api/models/ns/plain/tree/main/a/x", "a/x");
    expect_tree(place, "/api/models/ns/torch/tree/safetensors?recursive=true", "model.safetensors");
    expect_tree(place, "/api/models/other/hub/tree/refs%2Fpr%2F1", "old.txt");
    expect_tree(place, "/api/models/other/hub/tree/refs/pr/1", "old.txt");
    expect_tree(place, "/api/models/solo/tree/main", "model.safetensors");
    expect_tree(place, "/api/datasets/ns/rows/tree/main/data?recursive=false", "data/train.csv");
    (void)commit_of(place, "/api/models/ns/plain", commit);
    (void)snprintf(target, sizeof target, "/api/models/ns/plain/tree/%s?recursive=true&expand=false", commit);
    expect_tree(place, target, all);
    cJSON *json = get_json(place, "/api/models/ns/plain/tree/main?expand=true");
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
}

/* Clients check every sha256 that they get, so a tree has none before it is known. */
static void trees_before_files_are_hashed(void **state)
{
    struct place *place = *state;
    char commits[2][TD_COMMIT_BYTES];
    fill_hub(&place->tree);
    loopback_open(&place->loop, &place->tree);
    (void)commit_of(place, "/api/models/ns/plain", commits[0]);
    cJSON *json = get_json(place, "/api/models/ns/plain/tree/main/a");
    const cJSON *file = cJSON_GetArrayItem(json, 0);
    assert_null(cJSON_GetObjectItem(file, "lfs"));
    assert_int_equal(strlen(string_at(file, "oid")), 40);
    cJSON_Delete(json);
    hash_files(place);
    (void)commit_of(place, "/api/models/ns/plain", commits[1]);
    assert_string_not_equal(commits[0], commits[1]);
    char target[128];
    for (size_t i = 0; i < 2; i++) { /* both commits lead to the file, each under its own name */
        struct answer answer;
        (void)snprintf(target, sizeof target, "/api/models/ns/plain/tree/%s/a", commits[i]);
        loopback_get(&place->loop, target, &answer);
        assert_int_equal(answer.response.status, 200);
        assert_string_equal(commit_header(&answer), commits[i]);
        assert_non_null(strstr(answer.body, "\"lfs\""));
        answer_fini(&answer);
    }
    tree_text(&place->tree, "ns/plain/a-b", "other");
    loopback_rescan(&place->loop);
    for (size_t i = 0; i < 2; i++) {
        struct answer answer;
        char buffer[128];
        (void)snprintf(target, sizeof target, "/ns/plain/resolve/%s/a.b", commits[i]);
        loopback_get(&place->loop, target, &answer);
        assert_int_equal(answer.response.status, 404);
        assert_string_equal(answer_header(&answer, "X-Error-Code", buffer), "RevisionNotFound");
        answer_fini(&answer);
    }
}

static void name_file(char out[128], size_t i)
{
    (void)snprintf(out, 128, "ns/many/d%zu/f%05zu", i / 1000, i);
}

/* A tree that is too large for one answer comes in pages, which together are the tree. The description then has no
 * siblings. */
/* shows: security.md hub-large-repositories */
static void very_large_trees_have_pages(void **state)
{
    enum { FILES = TD_HUB_MOST_SIBLINGS + 1500 };
    struct place *place = *state;
    struct answer answer;
    char name[128];
    char first[TREE_PATH_BYTES];
    char target[512] = "/api/models/ns/many/tree/main?recursive=true";
    tree_text(&place->tree, "ns/many/readme", "");
    for (size_t i = 0; i < FILES; i++) {
        char path[TREE_PATH_BYTES];
        name_file(name, i);
        tree_at(&place->tree, name, path);
        if (i % 1000 == 0) {
            tree_text(&place->tree, name, "");
            memcpy(first, path, sizeof first);
        } else {
            assert_int_equal(link(first, path), 0);
        }
    }
    loopback_open(&place->loop, &place->tree);
    size_t pages = 0;
    size_t items = 0;
    char last[128] = "";
    for (bool more = true; more; pages++) {
        loopback_ask(&place->loop, "GET", target, "Host: h", &answer);
        CHECK(answer.response.status == 200, "%s: %s", target, answer.body);
        assert_true(answer.len < 1024 * 1024 + 64 * 1024);
        const char *at = answer.body;
        while ((at = memchr(at, '{', answer.len - (size_t)(at - answer.body))) != NULL) {
            char item[200] = ""; /* a copy, because strstr and sscanf would read the whole body for each item */
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
        CHECK(!more || strstr(target, "/tree/main") == NULL, "%s", target); /* pages link by commit */
        answer_fini(&answer);
    }
    assert_int_equal(pages, FILES / TD_HUB_PAGE_ITEMS + 1);
    assert_int_equal(items, FILES + (FILES + 999) / 1000 + 1);
    /* without Host there is no link: the answer is the whole tree, because a part would look like the whole */
    loopback_get(&place->loop, "/api/models/ns/many/tree/main?recursive=true", &answer);
    assert_false(next_page(&answer, target));
    assert_non_null(strstr(answer.body, "\"readme\""));
    answer_fini(&answer);
    cJSON *json = get_json(place, "/api/models/ns/many");
    assert_null(cJSON_GetObjectItem(json, "siblings"));
    assert_string_equal(string_at(json, "id"), "ns/many");
    cJSON_Delete(json);
}

/* Large answers share a budget; beyond it they are answered 503. Small answers are still sent, and so are rank files,
 * which have their own budget. */
/* shows: security.md hub-large-answers */
static void memory_of_large_answers_is_bounded(void **state)
{
    struct place *place = *state;
    struct answer answer;
    struct answer held;
    char buffer[128];
    char name[TREE_PATH_BYTES];
    for (int i = 0; i < 900; i++) {
        (void)snprintf(name, sizeof name, "ns/wide/%0150d", i);
        tree_text(&place->tree, name, "");
    }
    tree_simple(&place->tree, "ns/wide/model.safetensors", "a");
    loopback_open(&place->loop, &place->tree);
    struct td_budget *live = &place->loop.api.lists.whole;
    static const char *const targets[] = {"/api/models/ns/wide/tree/main", "/api/models/ns/wide",
                                          "/api/models?full=true"};
    size_t before = atomic_load(&live->used_bytes);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        loopback_get(&place->loop, targets[i], &held);
        assert_int_equal(held.response.status, 200);
        assert_true(atomic_load(&live->used_bytes) >= before + held.len);
        answer_fini(&held);
        assert_int_equal(atomic_load(&live->used_bytes), before);
        size_t rest = live->max_bytes - before;
        assert_true(td_budget_take(live, rest));
        loopback_get(&place->loop, targets[i], &answer);
        CHECK(answer.response.status == 503, "%s: %d", targets[i], answer.response.status);
        assert_string_equal(answer_header(&answer, "Retry-After", buffer), "1");
        answer_fini(&answer);
        expect_status(place, "/api/models/ns/wide/refs", 200);
        expect_status(place, "/models/ns/wide/shards/none/tp2/rank-1.safetensors", 200);
        td_budget_give(live, rest);
    }
}

/* A list stops planning rank files after TD_HUB_PLAN_NS. */
/* shows: security.md hub-large-answers */
static void planning_for_a_list_ends(void **state)
{
    struct place *place = *state;
    struct td_request request = {.cancel = NULL};
    struct td_call call = {.api = &place->loop.api, .request = &request};
    struct td_hub_call hub = {.call = &call};
    struct td_repo_item made = {.path = "model.safetensors"}; /* cannot be planned; is not looked at */
    struct td_hub_blob blob;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_hub_blob_of(&hub, &made, td_clock_ns() - TD_HUB_PLAN_NS - 1, &blob, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
}

/* ---- rank files ---------------------------------------------------------------------------------------- */

/* The parts of answers that describe a rank file: the entity tag of the list, the member lfs, the file's entity tag. */
struct told {
    char commit[TD_COMMIT_BYTES], list_etag[TD_ETAG_BYTES], file_etag[TD_ETAG_BYTES], oid[TD_COMMIT_BYTES];
    char sha256[TD_SHA256_TEXT_BYTES]; /* empty: there is no lfs */
    uint64_t size_bytes, lfs_bytes, pointer_bytes;
};

/* Reads the last item of a list. `digest`: the name of the digest in the member lfs. */
static void read_told(const char *list, const char *digest, struct told *out)
{
    cJSON *json = cJSON_Parse(list);
    assert_non_null(json);
    const cJSON *files = cJSON_IsArray(json) ? json : member(json, "siblings");
    const cJSON *item = cJSON_GetArrayItem(files, cJSON_GetArraySize(files) - 1);
    const cJSON *lfs = cJSON_GetObjectItem(item, "lfs");
    (void)snprintf(out->oid, sizeof out->oid, "%s",
                   string_at(item, cJSON_GetObjectItem(item, "oid") != NULL ? "oid" : "blobId"));
    out->size_bytes = whole_at(item, "size");
    if (lfs != NULL) {
        (void)snprintf(out->sha256, sizeof out->sha256, "%s", string_at(lfs, digest));
        out->lfs_bytes = whole_at(lfs, "size");
        out->pointer_bytes = whole_at(lfs, "pointerSize");
    }
    cJSON_Delete(json);
}

/* Asks for the lists of the revision tp1-rank0-none in every form, and for its file. */
static void ask_for_rank(struct place *place, struct told told[3])
{
    static const char *const digests[] = {"oid", "oid", "sha256"};
    for (size_t i = 0; i < 3; i++) {
        struct answer answer;
        told[i] = (struct told){.sha256 = ""};
        if (i == 0)
            loopback_get(&place->loop, "/api/models/solo/tree/tp1-rank0-none", &answer);
        else if (i == 1)
            post(place, "/api/models/solo/paths-info/tp1-rank0-none", "paths=model.safetensors", &answer);
        else
            loopback_get(&place->loop, "/api/models/solo/revision/tp1-rank0-none?blobs=true", &answer);
        CHECK(answer.response.status == 200, "%s", answer.body);
        read_told(answer.body, digests[i], &told[i]);
        memcpy(told[i].commit, commit_header(&answer), TD_COMMIT_BYTES);
        memcpy(told[i].list_etag, answer.response.etag, TD_ETAG_BYTES);
        answer_fini(&answer);
        loopback_get(&place->loop, "/solo/resolve/tp1-rank0-none/model.safetensors", &answer);
        assert_int_equal(answer.response.status, 200);
        assert_int_equal(told[i].size_bytes, answer.len);
        memcpy(told[i].file_etag, answer.response.etag, TD_ETAG_BYTES);
        answer_fini(&answer);
    }
}

/* The lists have the digest of a rank file once it is known. They do not compute it, because that would read the model.
 */
static void lists_tell_known_digests_of_rank_files(void **state)
{
    struct place *place = *state;
    struct told before[3];
    struct told after[3];
    uint8_t sum[TD_SHA256_BYTES];
    char wanted[TD_SHA256_TEXT_BYTES];
    ask_for_rank(place, before);
    assert_int_equal(td_virtual_digests_count(td_virtual_hasher_digests(place->loop.api.virtual_hasher)), 0);
    note_rank_file(&place->loop.api, "solo", "tp1-rank0-none");
    virtual_sum("tp1-rank0-none", sum, wanted);
    ask_for_rank(place, after);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(before[i].sha256, "");
        assert_string_equal(after[i].sha256, wanted);
        assert_int_equal(after[i].lfs_bytes, after[i].size_bytes);
        /* "version https://git-lfs.github.com/spec/v1\noid sha256:" and 64 digits, "\nsize ", the number, "\n" */
        assert_int_equal(after[i].pointer_bytes, 43 + 11 + 64 + 6 + (after[i].size_bytes < 100 ? 2 : 3) + 1);
        assert_string_not_equal(before[i].oid, after[i].oid);
        assert_string_equal(before[i].commit, after[i].commit);
        assert_string_equal(before[i].file_etag, after[i].file_etag);
        CHECK(strcmp(before[i].list_etag, after[i].list_etag) != 0, "list %zu", i);
    }
    struct told other[3];
    tree_simple(&place->tree, "solo/model.safetensors", "s t"); /* another model under the same name */
    loopback_rescan(&place->loop);
    ask_for_rank(place, other);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(other[i].sha256, "");
}

/* ---- paths-info ---------------------------------------------------------------------------------------- */

static void paths_info(void **state)
{
    static const struct {
        const char *body, *wanted;
        bool expands;
    } cases[] = {
        {"paths=a-b&paths=a.b&expand=False", "a-b a.b", false},
        {"paths=a.b&paths=a-b", "a.b a-b", false},
        {"paths=a&paths=a%2F&paths=none&paths=a%2Fx", "a/ a/x", false},
        {"paths=a.b&paths=none&paths=a&paths=a.b&paths=a-b&paths=a/&paths=none&paths=a.b", "a.b a/ a-b", false},
        {"{\"paths\":[\"a0\",\"a-b\",\"\\u0061-b\",\"a0\"]}", "a0 a-b", false},
        {"paths=sub+dir%2F%C3%A9%2B%252F%22%26.txt", "sub dir/\xc3\xa9+%2F\"&.txt", false},
        {"paths=a-b&expand=true", "a-b", true} /* the fields of huggingface_hub, in its order */,
        {"paths=a-b&expand=True", "a-b", true},
        {"expand=True&paths=a-b", "a-b", true},
        {"", "", false},
        {"&&paths=&x=1&paths", "", false},
        {"{\"paths\":[\"a-b\",\"none\",\"a\"]}", "a-b a/", false},
        {" {\"paths\":[\"a-b\"],\"expand\":true}", "a-b", true},
        {"{\"expand\":true,\"paths\":[\"a-b\"]}", "a-b", true},
        {"{\"expand\":false,\"x\":[{}],\"paths\":[\"\\u0061-b\"]}", "a-b", false},
        {"{\"paths\":[]}", "", false},
        {"expand=False", "", false}, /* huggingface_hub with an empty list of paths */
        {"", "", false},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char got[2048];
        post(place, "/api/models/ns/plain/paths-info/main", cases[i].body, &answer);
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
}

static void cursors_that_no_list_gave_out(void **state)
{
    static const char *const lists[] = {
        "/api/models?cursor=", "/api/datasets?limit=9&cursor=", "/api/models/ns/plain/tree/main?cursor=",
        "/api/models/ns/plain/tree/main/a?recursive=true&cursor="};
    static const char *const cursors[] = {"a", "-1", "%2B1", "1.0", "18446744073709551616", "1000000000", "0x1", "%20"};
    struct place *place = *state;
    struct answer answer;
    char target[128];
    for (size_t i = 0; i < COUNT_OF(lists) * COUNT_OF(cursors); i++) {
        int n = snprintf(target, sizeof target, "%s%s", lists[i / COUNT_OF(cursors)], cursors[i % COUNT_OF(cursors)]);
        assert_true(n > 0 && (size_t)n < sizeof target);
        loopback_get(&place->loop, target, &answer);
        CHECK(answer.response.status == 400, "%s: %d %s", target, answer.response.status, answer.body);
        cJSON *json = cJSON_Parse(answer.body);
        CHECK(strstr(string_at(json, "error"), "cursor \"") != NULL, "%s: %s", target, answer.body);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        (void)snprintf(target, sizeof target, "%s%s", lists[i], i % 2 == 0 ? "" : "0");
        expect_status(place, target, 200);
    }
}

/* shows: security.md hub-large-repositories */
static void bad_paths_info(void **state)
{
    static const char *const cases[][2] = {
        {"paths=%zz", "the request's body has a '%' without two hexadecimal"},
        {"paths=%ff", "the request's body is not UTF-8"},
        {"paths=a%00", "the request's body holds a NUL"},
        {"[", "neither a form nor JSON with \"paths\""},
        {"[\"a-b\"]", "neither a form"},
        {"null", "neither a form"},
        {"\"paths\"", "neither a form"},
        {"x=paths", "neither a form"},
        {"{}", "neither a form"},
        {" {\"expand\":true}", "neither a form"},
        {"{\"paths\":[\"a-b\\u0000\"]}", "NUL"},
        {"{\"paths\":\"a\"}", "array of paths"},
        {"{\"paths\":[1]}", "strings"},
        {"{\"paths\":[\"a\"]", ""},
        {"{\"paths\":[\"a\"]}x", ""},
        {"{", ""},
        {"{\"paths\":[\"\\ud800\"]}", ""},
    };
    struct place *place = *state;
    struct answer answer;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        post(place, "/api/models/ns/plain/paths-info/main", cases[i][0], &answer);
        CHECK(answer.response.status == 400, "%s: %d %s", cases[i][0], answer.response.status, answer.body);
        cJSON *json = cJSON_Parse(answer.body);
        CHECK(strstr(string_at(json, "error"), cases[i][1]) != NULL, "%s: %s", cases[i][0], answer.body);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
    /* a NUL is not a blank */
    static const char nul[] = "\0{\"paths\":[]}";
    struct loopback_request request;
    loopback_request_init(&request, "POST", "/api/models/ns/plain/paths-info/main", NULL);
    request.request.body = td_text_n(nul, sizeof nul - 1);
    td_api_handle(&place->loop.api, &request.request, &answer.response);
    assert_int_equal(answer.response.status, 400);
    td_response_fini(&answer.response);
    /* at most 10,000 paths */
    char *body = malloc(10001 * 10 + 1);
    assert_non_null(body);
    for (size_t i = 0; i < 10001; i++)
        memcpy(body + i * 10, "&paths=a-b", 11);
    post(place, "/api/models/ns/plain/paths-info/main", body, &answer);
    assert_int_equal(answer.response.status, 400);
    answer_fini(&answer);
    post(place, "/api/models/ns/plain/paths-info/main", body + 10, &answer);
    assert_int_equal(answer.response.status, 200);
    assert_non_null(strstr(answer.body, "\"path\":\"a-b\""));
    assert_true(answer.len < 512); /* a repeated path has one item */
    answer_fini(&answer);
    free(body);
    post(place, "/api/models/ns/plain/paths-info/none", "paths=a", &answer);
    assert_int_equal(answer.response.status, 404);
    answer_fini(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(hub, trees),
        TEST_IN(unserved, trees_before_files_are_hashed),
        TEST_IN(unserved, very_large_trees_have_pages),
        TEST_IN(unserved, memory_of_large_answers_is_bounded),
        TEST_IN(hub, planning_for_a_list_ends),
        TEST_IN(hub, lists_tell_known_digests_of_rank_files),
        TEST_IN(hub, paths_info),
        TEST_IN(hub, cursors_that_no_list_gave_out),
        TEST_IN(hub, bad_paths_info),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
