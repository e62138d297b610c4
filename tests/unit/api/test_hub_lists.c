/* Descriptions of repositories and lists of them. */
#include "tests/unit/api/hub_place.h"

/* ---- descriptions -------------------------------------------------------------------------------------- */

/* Checks the members `name` of an array's objects, in their order. */
static void expect_joined(const cJSON *array, const char *name, const char *wanted)
{
    char got[1024];
    join(array, name, got);
    CHECK(strcmp(got, wanted) == 0, "%s, wanted %s", got, wanted);
}

static void descriptions(void **state)
{
    static const char *const targets[] = {
        "/api/models/ns/plain",
        "/api/models/ns/plain/revision/main",
        "/api/models/ns/plain/revision/HEAD?expand=pipeline_tag&expand=private&expand=sha",
        "/api/models/ns/plain?expand[]=likes&expand[]=likes",
        "/api/models/ns/plain?securityStatus=True",
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        cJSON *json = get_json(place, targets[i]);
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
        loopback_get(&place->loop, targets[i], &answer);
        assert_string_equal(commit_header(&answer), string_at(json, "sha"));
        answer_fini(&answer);
        cJSON_Delete(json);
    }
    cJSON *json = get_json(place, "/api/datasets/ns/rows");
    assert_string_equal(string_at(json, "id"), "ns/rows");
    assert_null(cJSON_GetObjectItem(json, "modelId"));
    cJSON_Delete(json);
    json = get_json(place, "/api/models/at@sign/n@me");
    assert_string_equal(string_at(json, "id"), "at@sign/n@me");
    cJSON_Delete(json);
}

static void blobs_are_git_lfs(void **state)
{
    struct place *place = *state;
    cJSON *json = get_json(place, "/api/models/ns/plain?blobs=true");
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
}

static void refs_and_commits(void **state)
{
    struct place *place = *state;
    char commit[TD_COMMIT_BYTES];
    cJSON *json = get_json(place, "/api/models/other/hub/refs?include_prs=1");
    expect_joined(member(json, "branches"), "name", "main v1.0 safetensors");
    expect_joined(member(json, "branches"), "ref", "refs/heads/main refs/heads/v1.0 refs/heads/safetensors");
    expect_joined(member(json, "pullRequests"), "name", "refs/pr/1");
    expect_joined(member(json, "pullRequests"), "ref", "refs/pr/1");
    expect_joined(member(json, "pullRequests"), "targetCommit", C0);
    assert_true(cJSON_IsArray(member(json, "converts")) && cJSON_IsArray(member(json, "tags")));
    const cJSON *made = cJSON_GetArrayItem(member(json, "branches"), 2);
    assert_string_equal(string_at(made, "targetCommit"),
                        commit_of(place, "/api/models/other/hub/revision/safetensors", commit));
    cJSON_Delete(json);
    json = get_json(place, "/api/datasets/ns/rows/refs");
    expect_joined(member(json, "branches"), "name", "main");
    cJSON_Delete(json);
    json = get_json(place, "/api/models/other/hub/commits/refs%2Fpr%2F1");
    const cJSON *first = cJSON_GetArrayItem(json, 0);
    assert_string_equal(string_at(first, "id"), C0);
    assert_true(cJSON_IsString(member(first, "title")) && cJSON_IsString(member(first, "message")) &&
                cJSON_IsArray(member(first, "authors")) && cJSON_IsString(member(first, "date")));
    cJSON_Delete(json);
    cJSON_Delete(get_json(place, "/api/models/other/hub/auth-check"));
    json = get_json(place, "/api/whoami-v2");
    assert_true(cJSON_IsString(member(json, "name")) && cJSON_IsArray(member(json, "orgs")));
    cJSON_Delete(json);
}

/* ---- lists --------------------------------------------------------------------------------------------- */

/* Lists hold ids that clients can request: two segments, each id once. */
static void lists(void **state)
{
    static const char all[] = "at@sign/n@me deep/er ns/plain ns/torch local/org other/hub local/solo";
    struct place *place = *state;
    expect_list(place, "/api/models", all);
    expect_list(place, "/api/models?limit=500&expand=private&expand=likes", all);
    expect_list(place, "/api/models?limit=0", all);
    expect_list(place, "/api/models?limit=x", all);
    expect_list(place, "/api/models?author=ns", "ns/plain ns/torch");
    expect_list(place, "/api/models?author=local", "local/org local/solo");
    expect_list(place, "/api/models?author=n", "");
    expect_list(place, "/api/models?search=TORCH", "ns/torch");
    expect_list(place, "/api/models?search=", all);
    expect_list(place, "/api/models?search=o&author=ns", "ns/torch");
    expect_list(place, "/api/models?search=none", "");
    expect_list(place, "/api/models?cursor=999999999", "");
    expect_list(place, "/api/datasets", "local/rows ns/rows");
    tree_set_age(&place->tree, "solo/model.safetensors", 1000000000);
    loopback_rescan(&place->loop);
    struct answer answer;
    loopback_ask(&place->loop, "GET", "/api/models?sort=lastModified&direction=-1&full=true&limit=1", "Host: h",
                 &answer);
    cJSON *json = cJSON_Parse(answer.body);
    answer_fini(&answer);
    expect_joined(json, "id", "local/solo");
    expect_joined(member(cJSON_GetArrayItem(json, 0), "siblings"), "rfilename", "model.safetensors");
    cJSON_Delete(json);
}

static void pages_of_lists(void **state)
{
    struct place *place = *state;
    char target[512] = "/api/models?limit=1&author=ns&search=%6F%20%22%3E%0D&sort=lastModified&full=true";
    struct answer answer;
    loopback_ask(&place->loop, "GET", target, "Host: h:1", &answer); /* the search finds nothing */
    assert_false(next_page(&answer, target));
    answer_fini(&answer);
    (void)snprintf(target, sizeof target, "/api/models?limit=1&author=ns&search=%%6E");
    size_t pages = 0;
    char ids[64] = "";
    for (bool more = true; more; pages++) {
        loopback_ask(&place->loop, "GET", target, "Host: h:1", &answer);
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
}

/* No value of the request can break out of its place in the Link field. */
/* shows: security.md client-host client-forwarded */
static void hosts_in_links(void **state)
{
    static const struct {
        const char *lines, *begins; /* begins NULL: no link and no page, which would look like the whole list */
    } cases[] = {
        {"Host: h", "<http://h/api/models?"},
        {"Host: [::1]:8080", "<http://[::1]:8080/api/models?"},
        {"Host: a-b.c_d~:80\nX-Forwarded-Proto: https", "<https://a-b.c_d~:80/api/models?"},
        {"Host: h\nX-Forwarded-Proto: HTTPS", "<https://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto: javascript", "<http://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto:", "<http://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto: httpss", "<http://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto: https://evil", "<http://h/api/models?"},
        /* with several proxies the first value is the client's */
        {"Host: h\nX-Forwarded-Proto: https, http", "<https://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto: https,http", "<https://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto: http, https", "<http://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto: , https", "<http://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto: https\nX-Forwarded-Proto: http", "<https://h/api/models?"},
        {"Host: h\nX-Forwarded-Proto: http\nX-Forwarded-Proto: https", "<http://h/api/models?"},
        /* ignored, because caches do not distinguish answers by these fields */
        {"Host: h\nX-Forwarded-Host: evil\nX-Forwarded-Port: 1", "<http://h/api/models?"},
        {"Host: h\nForwarded: host=evil;proto=https", "<http://h/api/models?"},
        {NULL, NULL},
        {"Host:", NULL},
        {"Host: a\nHost: b", NULL},
        {"Host: h>; rel=\"next\", <http://evil", NULL},
        {"Host: h/evil", NULL},
        {"Host: h\rX-Evil: 1", NULL},
        {"Host: \xc3\xa9", NULL},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        loopback_ask(&place->loop, "GET", "/api/models?limit=1", cases[i].lines, &answer);
        const char *link = answer_header(&answer, "Link", buffer);
        CHECK((link == NULL) == (cases[i].begins == NULL), "%s: %s", cases[i].lines, link);
        CHECK(answer.response.status == (cases[i].begins == NULL ? 400 : 200), "%s: %s", cases[i].lines, answer.body);
        CHECK(link == NULL || strncmp(link, cases[i].begins, strlen(cases[i].begins)) == 0, "%s", link);
        const char *vary = answer_header(&answer, "Vary", buffer);
        CHECK((vary == NULL) == (cases[i].begins == NULL), "%s: %s", cases[i].lines, vary);
        CHECK(vary == NULL || strcmp(vary, "X-Forwarded-Proto") == 0, "%s", vary);
        answer_fini(&answer);
    }
    char host[600] = "Host: ";
    struct answer answer;
    char next[512];
    memset(host + 6, 'x', sizeof host - 7);
    host[sizeof host - 1] = '\0';
    loopback_ask(&place->loop, "GET", "/api/models?limit=1", host, &answer);
    assert_false(next_page(&answer, next)); /* a link that would be cut is left out */
    assert_int_equal(answer.response.status, 400);
    answer_fini(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(hub, descriptions), TEST_IN(hub, blobs_are_git_lfs), TEST_IN(hub, refs_and_commits),
        TEST_IN(hub, lists),        TEST_IN(hub, pages_of_lists),    TEST_IN(hub, hosts_in_links),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
