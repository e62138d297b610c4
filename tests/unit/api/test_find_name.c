/* One model by each of its names and through each facade: native paths, the Hub's, S3's, and a browser's. The expected
 * answers of the Hub for ids of one segment and for pages at /org/name: huggingface.co (gpt2, openai-community/gpt2);
 * RFC 9110 section 12.5.1 (Accept). */
#include "api/call/find_name.h"

#include "tests/unit/api/api_place.h"

static void ask(struct place *place, const char *target, const char *line, int status, const char *part)
{
    struct answer answer;
    loopback_ask(&place->loop, "GET", target, line, &answer);
    CHECK(answer.response.status == status, "%s: %d: %s", target, answer.response.status, answer.body);
    CHECK(strstr(answer.body, part) != NULL, "%s: %s, wanted %s", target, answer.body, part);
    answer_fini(&answer);
}

static void ask_s3(struct place *place, const char *target, int status, const char *part)
{
    struct answer answer;
    loopback_ask_s3(&place->loop, "GET", target, NULL, &answer);
    CHECK(answer.response.status == status, "%s: %d: %s", target, answer.response.status, answer.body);
    CHECK(memmem(answer.body, answer.len, part, strlen(part)) != NULL, "%s: wanted %s", target, part);
    answer_fini(&answer);
}

static void open_names(struct place *place)
{
    tree_open(&place->tree);
    tree_simple(&place->tree, "demo/model.safetensors", "w");
    tree_text(&place->tree, "demo/config.json", "{\"of\":\"demo\"}");
    tree_simple(&place->tree, "demo/unet/model.safetensors", "u");
    tree_simple(&place->tree, "bert.safetensors", "b");
    tree_simple(&place->tree, "both/model.safetensors", "f");
    tree_text(&place->tree, "both/only.txt", "flat");
    tree_simple(&place->tree, "local/both/model.safetensors", "n");
    tree_simple(&place->tree, "local/own/model.safetensors", "n");
    tree_text(&place->tree, "tiny/ddpm/model_index.json", "{}");
    tree_simple(&place->tree, "tiny/ddpm/unet/model.safetensors", "u");
    tree_text(&place->tree, "tiny/ddpm/unet/config.json", "{}");
    tree_simple(&place->tree, "tiny/ddpm/vae/model.safetensors", "v");
    tree_text(&place->tree, "unknown/w/config.json", "{}");
    tree_text(&place->tree, "unknown/w/model.tensors", "no format that is known");
    tree_text(&place->tree, "datasets/me/qa/train.jsonl", "{}");
    tree_text(&place->tree, "org/notes/README.md", "");
    tree_simple(&place->tree, "sp ace/\xc3\xa9%41/model.safetensors", "w");
    tree_simple(&place->tree, "metrics/model.safetensors", "w");
    tree_simple(&place->tree, "api/models/model.safetensors", "w");
    loopback_open(&place->loop, &place->tree);
}

FIXTURE(names, struct place, open_names, close_place)

static void both_names_work_natively(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {"demo", "local/demo"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char target[128];
        (void)snprintf(target, sizeof target, "/models/%s", names[i]);
        cJSON *json = get_json(place, target);
        assert_string_equal(string_at(json, "id"), "demo");
        cJSON_Delete(json);
        (void)snprintf(target, sizeof target, "/models/%s/tensors", names[i]);
        json = get_json(place, target);
        assert_string_equal(string_at(json, "model"), "demo");
        const cJSON *tensor = cJSON_GetArrayItem(member(json, "tensors"), 0);
        assert_string_equal(string_at(tensor, "href"), "/models/demo/tensors/w");
        cJSON_Delete(json);
        (void)snprintf(target, sizeof target, "/models/%s/files/config.json", names[i]);
        ask(place, target, NULL, 200, "{\"of\":\"demo\"}");
        (void)snprintf(target, sizeof target, "/models/%s/unet/tensors/u", names[i]);
        ask(place, target, NULL, 200, "");
        (void)snprintf(target, sizeof target, "/models/%s/shards/none/tp1/rank-0.safetensors", names[i]);
        ask(place, target, NULL, 200, "");
    }
    ask(place, "/models/local/bert.safetensors/tensors/b", NULL, 200, "");
    ask(place, "/models/local/none", NULL, 404, "not found");
    ask(place, "/models/local/tiny/ddpm/unet", NULL, 404, "not found");
    ask(place, "/models/local/local/demo", NULL, 404, "not found");
}

/* The model in the directory local/both owns the name "local/both", in all facades. Each model is listed once. */
static void a_name_that_two_want(void **state)
{
    struct place *place = *state;
    ask(place, "/models/local/both/tensors/n", NULL, 200, "");
    ask(place, "/models/both/tensors/f", NULL, 200, "");
    ask(place, "/models/local/own/tensors/n", NULL, 200, "");
    ask(place, "/api/models/local/both", NULL, 200, "\"id\":\"local/both\"");
    ask(place, "/api/models/both", NULL, 200, "\"id\":\"both\"");
    ask(place, "/both/resolve/main/only.txt", NULL, 200, "flat");
    ask(place, "/local/both/resolve/main/only.txt", NULL, 404, "has no file");
    char got[1024];
    cJSON *json = get_json(place, "/api/models?author=local");
    join(json, "id", got);
    assert_string_equal(got, "local/bert.safetensors both local/demo local/both local/own local/metrics");
    cJSON_Delete(json);
    ask_s3(place, "/both/only.txt", 200, "flat");
    ask_s3(place, "/local/both/only.txt", 404, "NoSuchKey");
    ask_s3(place, "/local/own/model.safetensors", 200, "");
    ask_s3(place, "/local/both/shards/none/tp1/model-rank-0-part-0.safetensors", 200, "\"n\"");
    ask_s3(place, "/both/shards/none/tp1/model-rank-0-part-0.safetensors", 200, "\"f\"");
    ask_s3(place, "/local/own/shards/none/tp1/model-rank-0-part-0.safetensors", 200, "\"n\"");
    ask_s3(place, "/", 200, "<Name>both</Name>");
}

static void both_names_work_on_s3(void **state)
{
    struct place *place = *state;
    ask_s3(place, "/demo/config.json", 200, "{\"of\":\"demo\"}");
    ask_s3(place, "/local/demo/config.json", 200, "{\"of\":\"demo\"}");
    ask_s3(place, "/demo/shards/none/tp1/model-rank-0-part-0.safetensors", 200, "\"w\"");
    ask_s3(place, "/bert.safetensors/shards/none/tp1/model-rank-0-part-0.safetensors", 200, "\"b\"");
    ask_s3(place, "/demo/unet/shards/none/tp1/model-rank-0-part-0.safetensors", 200, "\"u\"");
    ask_s3(place, "/demo?list-type=2&delimiter=/", 200, "<Prefix>unet/</Prefix>");
    ask_s3(place, "/demo?list-type=2&prefix=shards/none/tp1/", 200,
           "<Key>shards/none/tp1/model-rank-0-part-0.safetensors</Key>");
    ask_s3(place, "/demo/demo/config.json", 404, "NoSuchKey");
    ask_s3(place, "/none/config.json", 404, "NoSuchBucket");
    struct answer answer;
    loopback_ask_s3(&place->loop, "GET", "/", NULL, &answer);
    assert_null(strstr(answer.body, "<Name>demo</Name>")); /* the model is listed once, in bucket `local` */
    assert_non_null(strstr(answer.body, "<Name>local</Name>"));
    answer_fini(&answer);
}

static void subfolders_are_found_from_both_sides(void **state)
{
    struct place *place = *state;
    ask(place, "/models/tiny/ddpm/unet/tensors/u", NULL, 200, "");
    ask(place, "/tiny/ddpm/resolve/main/unet/config.json", NULL, 200, "{}");
    ask_s3(place, "/tiny/ddpm/unet/config.json", 200, "{}");
    static const char natively[] = "below it are \\\"tiny/ddpm/unet\\\", \\\"tiny/ddpm/vae\\\"";
    ask(place, "/models/tiny/ddpm", NULL, 404, natively);
    ask(place, "/models/tiny/ddpm/", NULL, 404, natively);
    static const char hint[] =
        "it is the folder \\\"unet\\\" of \\\"tiny/ddpm\\\": ask for that with subfolder=\\\"unet\\\"";
    ask(place, "/api/models/tiny/ddpm/unet", NULL, 404, hint);
    ask(place, "/api/models/tiny/ddpm/unet/revision/main", NULL, 404, hint);
    ask(place, "/tiny/ddpm/unet/resolve/main/config.json", NULL, 404, hint);
    ask(place, "/demo/unet/resolve/main/config.json", NULL, 404, "of \\\"local/demo\\\"");
    ask(place, "/api/models/demo/unet", NULL, 404, "of \\\"local/demo\\\"");
    ask(place, "/models/me/qa", NULL, 404,
        "\"model \\\"me/qa\\\" not found; there is a repository \\\"me/qa\\\": /datasets/me/qa/resolve/main/; "
        "GET /api/datasets lists datasets; GET /models lists models\"");
    ask(place, "/models/org/notes", NULL, 404,
        "\"model \\\"org/notes\\\" not found; there is a repository \\\"org/notes\\\": /org/notes/resolve/main/; "
        "GET /api/models lists repositories; GET /models lists models\"");
    ask(place, "/models/none", NULL, 404, "\"model \\\"none\\\" not found; GET /models lists models\"");
}

static void a_folder_of_unknown_weights(void **state)
{
    struct place *place = *state;
    cJSON *json = get_json(place, "/models/unknown/w");
    assert_int_equal(cJSON_GetArraySize(member(json, "checkpoints")), 0);
    assert_int_equal(cJSON_GetArraySize(member(json, "errors")), 0);
    assert_int_equal(cJSON_GetArraySize(member(json, "files")), 2);
    cJSON_Delete(json);
    ask(place, "/models/unknown/w/files/model.tensors", NULL, 200, "no format");
    ask(place, "/models/unknown/w/tensors", NULL, 404, "lists its files, all in other formats");
    ask(place, "/api/models/unknown/w", NULL, 200, "\"id\":\"unknown/w\"");
    ask(place, "/api/models?search=unknown", NULL, 200, "\"id\":\"unknown/w\"");
    ask(place, "/api/datasets?search=unknown", NULL, 200, "[]");
    ask(place, "/unknown/w", "Accept: text/html", 200, "/models/unknown/w/files/");
}

/* The Accept field of a browser. */
#define BROWSER "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

static void names_are_pages_for_browsers(void **state)
{
    static const struct {
        const char *target, *part;
    } pages[] = {
        {"/demo", "/models/demo/files/"},
        {"/demo/", "/models/demo/files/"},
        {"/demo?utm_source=x", "/models/demo/files/"},
        {"/local/demo", "/models/demo/files/"},
        {"/local/both", "/models/local/both/files/"},
        {"/tiny/ddpm/unet", "/models/tiny/ddpm/unet/files/"},
        {"/tiny/ddpm", "/tiny/ddpm/resolve/main/unet/"},
        {"/datasets/me/qa", "/datasets/me/qa/resolve/main/"},
        {"/sp%20ace/%C3%A9%2541", "/models/sp%20ace/%C3%A9%2541/files/"},
        {"/bert.safetensors", "/models/bert.safetensors/files/"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(pages); i++) {
        struct answer answer;
        char buffer[128];
        loopback_ask(&place->loop, "GET", pages[i].target, BROWSER, &answer);
        CHECK(answer.response.status == 200, "%s: %s", pages[i].target, answer.body);
        CHECK(strcmp(answer.response.content_type, "text/html; charset=utf-8") == 0, "%s", pages[i].target);
        const char *vary = answer_header(&answer, "Vary", buffer);
        CHECK(strncmp(vary, "Accept", strlen("Accept")) == 0, "%s: %s", pages[i].target, vary);
        CHECK(strstr(answer.body, pages[i].part) != NULL, "%s: %s", pages[i].target, answer.body);
        answer_fini(&answer);
        if (strncmp(pages[i].target, "/datasets/", 10) == 0) /* the page of a description has its address */
            ask(place, pages[i].target, "Accept: */*", 200, "{\"id\":\"me/qa\",");
        else
            ask(place, pages[i].target, "Accept: */*", 404, "page for browsers (Accept: text/html), and GET ");
    }
    ask(place, "/me/none", BROWSER, 404, "begin with GET /models");
    ask(place, "/datasets/demo", BROWSER, 404, "begin with GET /models");
    ask(place, "/datasets/me/qa/none", BROWSER, 404, "a dataset has rows, rows/{number}, index and rows:batchGet");
    ask(place, "/demo", NULL, 404, "and GET /models/demo describes the same");
    expect_error(place, "POST", "/none", 404, "nothing at");
    struct answer answer;
    loopback_ask(&place->loop, "POST", "/demo", BROWSER, &answer);
    assert_int_equal(answer.response.status, 405);
    answer_fini(&answer);
}

/* No model hides a path of the server: a model may be called metrics, or api/models. */
static void names_shadow_nothing(void **state)
{
    struct place *place = *state;
    ask(place, "/metrics", BROWSER, 200, "tensord_ready");
    ask(place, "/models", BROWSER, 200, "{\"models\":[");
    ask(place, "/api/models", BROWSER, 200, "\"modelId\":");
    ask(place, "/openapi.json", BROWSER, 200, "\"openapi\"");
    ask(place, "/healthz", BROWSER, 200, "");
    ask(place, "/version", BROWSER, 200, "version");
    ask(place, "/models/metrics", NULL, 200, "\"id\":\"metrics\"");
    ask(place, "/models/api/models", NULL, 200, "\"id\":\"api/models\"");
}

int main(void)
{
    td_log_set_level(TD_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST_IN(names, both_names_work_natively),    TEST_IN(names, a_name_that_two_want),
        TEST_IN(names, both_names_work_on_s3),       TEST_IN(names, subfolders_are_found_from_both_sides),
        TEST_IN(names, a_folder_of_unknown_weights), TEST_IN(names, names_are_pages_for_browsers),
        TEST_IN(names, names_shadow_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
