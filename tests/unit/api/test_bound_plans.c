/* Plans and reads that are bound to a manifest by its tag: which changes of the checkpoint they outlive. */
#include "tests/unit/api/api_place.h"

static const char shard[] = "m/model-00001-of-00002.safetensors";
static const char twin[] = "m/model-00002-of-00002.safetensors";

static void open_bound(struct place *place)
{
    tree_open(&place->tree);
    tree_simple(&place->tree, shard, "b d");
    tree_simple(&place->tree, twin, "a c");
    tree_index(&place->tree, "m/model.safetensors.index.json",
               "b model-00001-of-00002.safetensors d model-00001-of-00002.safetensors "
               "a model-00002-of-00002.safetensors c model-00002-of-00002.safetensors");
    loopback_open(&place->loop, &place->tree);
}

FIXTURE(bound, struct place, open_bound, close_place)

static void manifest_tag(struct place *place, char tag[TD_TAG_BYTES])
{
    cJSON *manifest = get_json(place, "/models/m/tensors");
    (void)snprintf(tag, TD_TAG_BYTES, "%s", string_at(manifest, "etag"));
    cJSON_Delete(manifest);
}

static void post(struct place *place, const char *target, const char *body, struct answer *answer)
{
    struct loopback_request request;
    struct td_body_cursor cursor = {0};
    loopback_request_init(&request, "POST", target, NULL);
    request.request.body = td_text_of(body);
    td_api_handle(&place->loop.api, &request.request, &answer->response);
    answer->len = (size_t)answer->response.body.total_bytes;
    answer->body = calloc(1, answer->len + 1);
    assert_non_null(answer->body);
    assert_true(td_body_read(&answer->response.body, &cursor, answer->body, answer->len, NULL));
}

static int post_status(struct place *place, const char *target, const char *body)
{
    struct answer answer;
    post(place, target, body, &answer);
    int status = answer.response.status;
    if (status == 412)
        check_error_answer(place, &answer, body, 412, "read the manifest again, GET /models/m/tensors");
    answer_fini(&answer);
    return status;
}

static int get_status(struct place *place, const char *target)
{
    struct answer answer;
    loopback_get(&place->loop, target, &answer);
    int status = answer.response.status;
    if (status == 412)
        check_error_answer(place, &answer, target, 412, "read the manifest again, GET /models/m/tensors");
    answer_fini(&answer);
    return status;
}

static void write_body(const char *form, const char *tag, char out[512])
{
    (void)snprintf(out, 512, "{%s%s%s%s}", form, tag == NULL ? "" : ",\"manifest\":\"", tag == NULL ? "" : tag,
                   tag == NULL ? "" : "\"");
}

/* The forms of a plan, each with files that it has. */
static const struct form {
    const char *text;
    const char *files[3];
} forms[] = {
    {"\"boxes\":[{\"name\":\"a\"},{\"name\":\"d\",\"slice\":\"1\"}]", {"", "/boxes.bin"}},
    {"\"tp_size\":2,\"rules\":[{\"match\":\"**\"}]", {"", "/rank-1.safetensors", "/rank-0.json"}},
    {"\"engine\":\"fsdp\",\"tp_size\":2", {"", "/rank-1.safetensors", "/rank-0.json"}},
    {"\"ranks\":[{\"tensors\":[{\"name\":\"a\"}]}]", {"", "/rank-0.safetensors", "/rank-0.json"}},
};

enum { FORMS = COUNT_OF(forms) };

/* The plans of each form for one tag, by their paths. */
struct bound {
    char tag[TD_TAG_BYTES];
    char paths[FORMS][64];
};

/* Registers the plans. tag NULL: they are not bound. */
static void register_plans(struct place *place, const char *tag, struct bound *out)
{
    (void)snprintf(out->tag, sizeof out->tag, "%s", tag == NULL ? "" : tag);
    for (size_t i = 0; i < FORMS; i++) {
        char body[512];
        struct answer answer;
        write_body(forms[i].text, tag, body);
        post(place, "/models/m/plans", body, &answer);
        CHECK(answer.response.status == 201, "%s: %d %s", body, answer.response.status, answer.body);
        cJSON *plan = cJSON_Parse(answer.body);
        (void)snprintf(out->paths[i], sizeof out->paths[i], "/models/m/plans/%s", string_at(plan, "id"));
        cJSON_Delete(plan);
        answer_fini(&answer);
    }
}

/* Checks the status of everything that the plans answer. */
static void expect_all(struct place *place, const struct bound *bound, int status)
{
    for (size_t i = 0; i < FORMS; i++)
        for (size_t f = 0; f < COUNT_OF(forms[i].files) && forms[i].files[f] != NULL; f++) {
            char target[128];
            (void)snprintf(target, sizeof target, "%s%s", bound->paths[i], forms[i].files[f]);
            int got = get_status(place, target);
            CHECK(got == status, "%s: %d", target, got);
        }
}

/* Checks the status of new requests that name the tag. */
static void expect_posts(struct place *place, const char *tag, int read_status, int plan_status)
{
    char body[512];
    write_body("\"tensors\":[{\"name\":\"a\"}]", tag, body);
    assert_int_equal(post_status(place, "/models/m/tensors:read", body), read_status);
    for (size_t i = 0; i < FORMS; i++) {
        write_body(forms[i].text, tag, body);
        assert_int_equal(post_status(place, "/models/m/plans", body), plan_status);
    }
}

/* Sets the digest of some files, as the hasher does, and scans. */
static void know(struct place *place, const char *part)
{
    static const uint8_t sum[TD_SHA256_BYTES] = {0xab};
    struct td_snapshot *snapshot = td_catalog_acquire(place->loop.catalog);
    for (size_t i = 0; i < snapshot->entry_count; i++)
        if (strstr(snapshot->entries[i].path, part) != NULL)
            (void)td_file_set_sha256(snapshot->entries[i].file, sum);
    td_snapshot_unref(snapshot);
    loopback_rescan(&place->loop);
}

static void digests_change_nothing(void **state)
{
    struct place *place = *state;
    struct bound before;
    struct bound after;
    char tag[TD_TAG_BYTES];
    manifest_tag(place, tag);
    register_plans(place, tag, &before);
    expect_all(place, &before, 200);
    know(place, "00001");
    manifest_tag(place, tag);
    assert_string_equal(tag, before.tag); /* the tag changes once, when all files are hashed */
    expect_all(place, &before, 200);
    know(place, "");
    manifest_tag(place, tag);
    assert_string_not_equal(tag, before.tag);
    register_plans(place, tag, &after);
    expect_all(place, &before, 200);
    expect_all(place, &after, 200);
    expect_posts(place, before.tag, 200, 200);
    expect_posts(place, tag, 200, 200);
}

static void another_file_is_412(void **state)
{
    struct place *place = *state;
    struct bound bound;
    struct bound free_plans;
    char tag[TD_TAG_BYTES];
    manifest_tag(place, tag);
    register_plans(place, tag, &bound);
    register_plans(place, NULL, &free_plans);
    for (size_t i = 0; i < FORMS; i++)
        assert_string_not_equal(bound.paths[i], free_plans.paths[i]);
    tree_simple(&place->tree, twin, "a c e");
    loopback_rescan(&place->loop);
    expect_all(place, &bound, 412);
    expect_posts(place, tag, 412, 412);
    expect_all(place, &free_plans, 200);
    manifest_tag(place, tag);
    expect_posts(place, tag, 200, 201);
}

/* A tag is one string, not a list or a prefix, and with neither quotes nor "W/". */
static void other_strings_are_412(void **state)
{
    struct place *place = *state;
    char tag[TD_TAG_BYTES];
    char text[256];
    manifest_tag(place, tag);
    expect_posts(place, "", 412, 412);
    expect_posts(place, "*", 412, 412);
    (void)snprintf(text, sizeof text, "\\\"%s\\\"", tag);
    expect_posts(place, text, 412, 412);
    (void)snprintf(text, sizeof text, "%s,%s", tag, tag);
    expect_posts(place, text, 412, 412);
    tag[strlen(tag) - 1] = '\0';
    expect_posts(place, tag, 412, 412);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(bound, digests_change_nothing),
        TEST_IN(bound, another_file_is_412),
        TEST_IN(bound, other_strings_are_412),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
