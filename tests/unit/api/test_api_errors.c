/* Every error of the native interface, without a socket: its message, and that the answer stays well-formed. */
#include "tests/unit/api/api_place.h"

/* ---- errors -------------------------------------------------------------------------------------------- */

static void nothing_there_is_404(void **state)
{
    static const char *const cases[][2] = {
        {"/nothing", "nothing"},
        {"/model", "model"},
        {"/modelsx", "modelsx"},
        {"/Models", "Models"},
        {"//models", "models"},
        {"/healthz/", "healthz"},
        {"/healthz/x", "healthz"},
        {"/models/nothing", "\"nothing\""},
        {"/models/nothing/tensors", "\"nothing\""},
        {"/models/nothing/tensors/x", "\"nothing\""},
        {"/models/nothing/files/x", "\"nothing\""},
        {"/models/Qwen", "\"Qwen\""},
        {"/models/QWEN3", "\"QWEN3\""},
        {"/models//qwen3", "\"/qwen3\""},
        {"/models/../qwen3", "not found"},
        {"/models/qwen3/nothing", "nothing at \"nothing\" of model \"qwen3\"; a model has tensors, "},
        {"/models/qwen3/nothing",
         "tensors, tensors/{name}, tensors:read, versions, changes, files, files/{path}, plans, plans/{plan}, "
         "shards/{engine}/tp{size}/rank-{rank}.safetensors, view/{page} and model.safetensors"},
        {"/models/qwen3/tensor/a", "nothing at \"tensor/a\" of model \"qwen3\""},
        {"/models/qwen3/files/absent/", "absent"},
        {"/models/qwen3/tensorsx", "tensorsx"},
        {"/models/qwen3/plans/0123456789abcdef0123456789abcdef", "register it again"},
        {"/models/qwen3/plans/x/rank-0.safetensors", "register it again"},
        {"/models/qwen3/shards", "shards"},
        {"/models/qwen3/shards/other/tp1/rank-0.safetensors", "the engines are "},
        {"/models/qwen3/shards/none/tp1/rank-1.safetensors", "0 to 0"},
        {"/models/qwen3/shards/none/tp1/rank-0.bin", "rank-{r}.safetensors"},
        {"/models/qwen3/model.safetensors/x", "model.safetensors"},
        {"/models/qwen3/model.safetensors?checkpoint=absent", "\"absent\""},
        {"/models/qwen3/tensors:write", "tensors:write"},
        {"/models/qwen3/tensors/absent", "\"absent\""},
        {"/models/qwen3/tensors/a", "\"a\""},
        {"/models/qwen3/tensors/a/b/", "\"a/b/\""},
        {"/models/qwen3/tensors/A/B", "\"A/B\""},
        {"/models/qwen3/files/absent", "\"absent\""},
        {"/models/qwen3/files/../variants/fp16.safetensors", "no file"},
        {"/models/qwen3/files//etc/passwd", "no file"},
        {"/models/shards", "\"shards\""},
        {"/models/shards/tensors/w", "\"shards\""},
        {"/models/models--org--hub", "models--org--hub"},
        {"/models/broken/tensors", "broken"},
        {"/models/broken/tensors/x", "broken"},
        {"/models/qwen3/tensors?checkpoint=absent", "\"absent\""},
        {"/models/qwen3/tensors?checkpoint=", "checkpoint"},
        {"/models/qwen3/tensors/a/b?checkpoint=absent", "\"absent\""},
        {"/models/variants/tensors?checkpoint=safetensors", "\"safetensors\""},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_error(place, "GET", cases[i][0], 404, cases[i][1]);
}

static void wrong_arguments_are_400(void **state)
{
    static const char *const cases[][2] = {
        {"/models?page_size=0", "1 to 10000"},
        {"/models?page_size=10001", "10000"},
        {"/models?page_size=99999999999999999999", "10000"},
        {"/models?page_size=-1", "page_size"},
        {"/models?page_size=+1", "page_size"},
        {"/models?page_size=1.0", "page_size"},
        {"/models?page_size=", "page_size"},
        {"/models?page_size=x", "page_size"},
        {"/models?page_size=1&page_size=2", "page_size"},
        {"/models?page_token=x", "page_token"},
        {"/models?page_token=AAAAAAAAAAAAAAAAAAAAAAAA", "page_token"},
        {"/models?limit=5", "\"limit\""},
        {"/models?dtype=F32", "match"} /* the message lists the known parameters */,
        {"/models?=1", "\"\""},
        {"/models?PAGE_SIZE=1", "\"PAGE_SIZE\""},
        {"/models/qwen3?page_size=1", "\"page_size\""},
        {"/models/qwen3/tensors?dtype=FLOAT", "\"FLOAT\""},
        {"/models/qwen3/tensors?dtype=bf16", "\"bf16\""},
        {"/models/qwen3/tensors?dtype=", "dtype"},
        {"/models/qwen3/tensors?page_size=0", "page_size"},
        {"/models/qwen3/tensors?slice=0:1", "\"slice\""},
        {"/models/qwen3/tensors/a/b?slice=::2", "step"},
        {"/models/qwen3/tensors/a/b?slice=", "slice"},
        {"/models/qwen3/tensors/a/b?format=pickle", "raw, npy, safetensors and stats"},
        {"/models/qwen3/tensors/a/b?shard=x", "shard"},
        {"/models/qwen3/tensors/a/b?shard=0:0/1&slice=0", "exclude each other"},
        {"/models/qwen3/shards/none/tp0/rank-0.safetensors", "tp1 to tp4096"},
        {"/models/qwen3/shards/none/8/rank-0.safetensors", "tp1 to tp4096"},
        {"/models/qwen3/shards/none/tp12345678901234567890123456789012345678901234567890123456789012345/x",
         "\"tp12345678901234567890123456789012345678901234567890123456789012\" is not a valid number of ranks; tp1"},
        {"/models/qwen3/shards/none/tp123456789012345678901234567890123456789012345678901234567890x%C3%A9/x",
         "x\" is not a valid number of ranks; tp1"},
        {"/models/qwen3/shards/none/tp1/rank-0.safetensors?x=1", "\"x\""},
        {"/models/qwen3/model.safetensors?x=1", "\"x\""},
        {"/models/qwen3/files/README.md?slice=1", "\"slice\""},
        {"/?x=1", "\"x\""},
        {"/healthz?verbose=1", "\"verbose\""},
        {"/readyz?x", "\"x\""},
        {"/metrics?x", "\"x\""},
        {"/version?x", "\"x\""},
        {"/openapi.json?x", "\"x\""},
        {"/models/%zz", "hexadecimal"},
        {"/models/%00", "NUL"},
        {"/models/%ff", "UTF-8"},
        {"/models?match=%ff", "UTF-8"},
        {"/models?a=1&b=2&c=3&d=4&e=5&f=6&g=7&h=8&i=9&j=1&k=2&l=3&m=4&n=5&o=6&p=7&q=8", "16"},
        {"models", "'/'"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_error(place, "GET", cases[i][0], 400, cases[i][1]);
}

/* A page token is valid for its listing and its filters alone. */
static void foreign_tokens_are_400(void **state)
{
    static const char *const cases[][2] = {
        {"/models?page_size=1", "/models?match=*&page_token=%s"},
        {"/models?page_size=1&match=*", "/models?page_token=%s"},
        {"/models?page_size=1", "/models/qwen3/tensors?page_token=%s"},
        {"/models/qwen3/tensors?page_size=1", "/models/variants/tensors?page_token=%s"},
        {"/models/qwen3/tensors?page_size=1", "/models/qwen3/tensors?dtype=F32&page_token=%s"},
        {"/models/qwen3/tensors?page_size=1&match=*", "/models/qwen3/tensors?match=**&page_token=%s"},
        {"/models/variants/tensors?checkpoint=fp32.safetensors&page_size=1", "/models/variants/tensors?page_token=%s"},
        {"/models/qwen3/tensors?page_size=1", "/models?page_token=%s"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char target[512];
        cJSON *json = get_json(place, cases[i][0]);
        const char *token = string_at(json, "next_page_token");
        assert_true(*token != '\0');
        const char *format = cases[i][1];
        (void)snprintf(target, sizeof target, "%.*s%s", (int)(strlen(format) - 2), format, token);
        expect_error(place, "GET", target, 400, "page_token");
        cJSON_Delete(json);
    }
}

static void details_list_what_is_known(void **state)
{
    static const struct {
        const char *target, *member, *wanted;
    } cases[] = {
        {"/models?x=1", "known", "[\"page_size\",\"page_token\",\"match\",\"wait\",\"timeout\"]"},
        {"/models/qwen3/tensors?x=1", "known",
         "[\"checkpoint\",\"partial\",\"match\",\"dtype\",\"page_size\",\"page_token\",\"digests\",\"version\"]"},
        {"/models/qwen3/tensors/a/b?x=1", "known",
         "[\"checkpoint\",\"partial\",\"slice\",\"shard\",\"format\",\"bins\",\"version\"]"},
        {"/models/qwen3/model.safetensors?x=1", "known", "[\"checkpoint\",\"version\"]"},
        {"/healthz?x=1", "known", "[]"},
        {"/models/variants/tensors?checkpoint=x", "checkpoints", "[\"fp16.safetensors\",\"fp32.safetensors\"]"},
        {"/models/broken/tensors", "checkpoints", "[]"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        loopback_get(&place->loop, cases[i].target, &answer);
        cJSON *json = cJSON_Parse(answer.body);
        char *text = cJSON_PrintUnformatted(member(member(member(json, "error"), "details"), cases[i].member));
        CHECK(strcmp(text, cases[i].wanted) == 0, "%s: %s", cases[i].target, text);
        free(text);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
    struct answer answer;
    loopback_get(&place->loop, "/models/qwen3/tensors?dtype=x", &answer);
    assert_non_null(strstr(answer.body, "\"BF16\""));
    assert_non_null(strstr(answer.body, "\"F8_E4M3\""));
    answer_fini(&answer);
}

/* Long and hostile names are cut in a message, and the answer stays JSON. */
static void messages_stay_well_formed(void **state)
{
    struct place *place = *state;
    static char target[7000];
    static const char *const fillers[] = {
        "a", "%C3%A9", "a%C3%A9", "ab%F0%9F%98%80", "%0A", "%22", "%5C", "%1b[31m", "%F0%9F%98%80", "%7F", "/"};
    static const char *const bases[] = {"/",
                                        "/models/",
                                        "/models/qwen3/",
                                        "/models/qwen3/tensors/",
                                        "/models/qwen3/files/",
                                        "/models/qwen3/tensors?checkpoint=",
                                        "/models/qwen3/tensors?dtype=",
                                        "/models?"};
    for (size_t b = 0; b < COUNT_OF(bases); b++) {
        for (size_t f = 0; f < COUNT_OF(fillers); f++) {
            struct answer answer;
            (void)snprintf(target, sizeof target, "%s", bases[b]);
            for (size_t used = strlen(target); used + 20 < sizeof target; used += strlen(fillers[f]))
                (void)snprintf(target + used, 20, "%s", fillers[f]);
            loopback_get(&place->loop, target, &answer);
            int status = answer.response.status;
            CHECK(status == 404 || status == 400 || status == 200, "%s %s: %d", bases[b], fillers[f], status);
            if (status != 200)
                check_error_answer(place, &answer, bases[b], status, "");
            CHECK(answer.len < 4000 || status == 200, "%s: %zu bytes", bases[b], answer.len);
            answer_fini(&answer);
        }
    }
}

static void other_methods_are_405(void **state)
{
    static const char *const methods[] = {"POST",    "PUT", "DELETE", "PATCH",    "OPTIONS", "TRACE",
                                          "CONNECT", "get", "Get",    "PROPFIND", "G",       "HEADS"};
    static const char *const targets[] = {"/models",
                                          "/models/qwen3",
                                          "/models/qwen3/tensors",
                                          "/models/qwen3/tensors/a/b",
                                          "/models/qwen3/files/README.md",
                                          "/healthz",
                                          "/readyz",
                                          "/metrics",
                                          "/version",
                                          "/openapi.json",
                                          "/models?x=1"};
    struct place *place = *state;
    char buffer[128];
    for (size_t t = 0; t < COUNT_OF(targets); t++) {
        for (size_t m = 0; m < COUNT_OF(methods); m++) {
            struct answer answer;
            loopback_ask(&place->loop, methods[m], targets[t], NULL, &answer);
            check_error_answer(place, &answer, targets[t], 405, methods[m]);
            assert_string_equal(answer_header(&answer, "Allow", buffer), "GET, HEAD");
            answer_fini(&answer);
        }
        expect_error(place, "POST", "/nothing", 404, "nothing");
    }
}

static void what_is_for_post_is_for_post_alone(void **state)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE", "post"};
    static const char *const targets[] = {"/models/qwen3/plans", "/models/qwen3/tensors:read"};
    struct place *place = *state;
    char buffer[128];
    for (size_t t = 0; t < COUNT_OF(targets); t++) {
        for (size_t m = 0; m < COUNT_OF(methods); m++) {
            struct answer answer;
            loopback_ask(&place->loop, methods[m], targets[t], NULL, &answer);
            check_error_answer(place, &answer, targets[t], 405, methods[m]);
            assert_string_equal(answer_header(&answer, "Allow", buffer), "POST");
            answer_fini(&answer);
        }
        expect_error(place, "POST", targets[t], 400, ""); /* the request has no body */
    }
}

/* ---- bodies ----------------------------------------------------------------------------------------------- */

/* Posts a text in which the item stands `count` times, and checks the error. */
static void expect_post_error(struct place *place, const char *target, const char *before, const char *item,
                              size_t count, const char *after, int status, const char *part)
{
    struct loopback_request request;
    struct td_body_cursor cursor = {0};
    struct td_buffer body;
    struct answer answer;
    td_buffer_init(&body);
    td_buffer_puts(&body, before);
    for (size_t i = 0; i < count; i++)
        td_buffer_printf(&body, "%s%s", i > 0 ? "," : "", item);
    td_buffer_puts(&body, after);
    loopback_request_init(&request, "POST", target, NULL);
    request.request.body = td_buffer_text(&body);
    td_api_handle(&place->loop.api, &request.request, &answer.response);
    answer.len = (size_t)answer.response.body.total_bytes;
    answer.body = calloc(1, answer.len + 1);
    assert_true(answer.body != NULL && td_body_read(&answer.response.body, &cursor, answer.body, answer.len, NULL));
    check_error_answer(place, &answer, before, status, part);
    answer_fini(&answer);
    td_buffer_fini(&body);
}

static void long_bodies_with_a_fault_are_400(void **state)
{
    static const char read[] = "/models/qwen3/tensors:read";
    static const char plans[] = "/models/qwen3/plans";
    static const size_t counts[] = {1, 1567, 70143, 500000};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        expect_post_error(place, read, "[", "0", counts[i], "]", 400, "at byte 0: ");
        expect_post_error(place, read, "{\"tensors\":[", "0", counts[i], "]}", 400, "at byte 12: ");
        expect_post_error(place, read, "{\"tensors\":[", "{}", counts[i], "]}", 400, "at byte 13: ");
        expect_post_error(place, read, "{\"tensors\":[", "\"\"", counts[i], "]}", 400, "at byte 12: ");
        expect_post_error(place, read, "{\"tensors\":[{\"name\":\"a/b\"}],\"x\":[", "0", counts[i], "]}", 400,
                          "unknown key \"x\"");
        expect_post_error(place, plans, "{\"ranks\":[{\"tensors\":[", "0", counts[i], "]}]}", 400, "at byte 22: ");
        expect_post_error(place, plans, "{\"ranks\":[{\"tensors\":[", "{}", counts[i], "]}]}", 400, "at byte 23: ");
        expect_post_error(place, plans, "{\"ranks\":[{\"tensors\":[", "\"\"", counts[i], "]}]}", 400, "at byte 22: ");
    }
}

static void bodies_take_memory_of_the_budget(void **state)
{
    static const char item[] = "{\"name\":\"nothing\"}";
    struct place *place = *state;
    struct td_budget *live = &place->loop.api.ranks.live;
    for (size_t left = 1024; left <= 1024 * 1024; left *= 1024) {
        assert_true(td_budget_take(live, live->max_bytes - left));
        expect_post_error(place, "/models/qwen3/tensors:read", "{\"tensors\":[", item, 100000, "]}", 503, "share");
        expect_post_error(place, "/models/qwen3/plans", "{\"ranks\":[{\"tensors\":[", item, 100000, "]}]}", 503,
                          "share");
        td_budget_give(live, live->max_bytes - left);
        assert_int_equal(td_budget_used(live), 0);
    }
    expect_post_error(place, "/models/qwen3/tensors:read", "{\"tensors\":[", item, 100000, "]}", 404, "nothing");
    expect_post_error(place, "/models/qwen3/plans", "{\"ranks\":[{\"tensors\":[", item, 100000, "]}]}", 404, "nothing");
    assert_int_equal(td_budget_used(live), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, nothing_there_is_404),
        TEST_IN(place, wrong_arguments_are_400),
        TEST_IN(place, foreign_tokens_are_400),
        TEST_IN(place, details_list_what_is_known),
        TEST_IN(place, messages_stay_well_formed),
        TEST_IN(place, other_methods_are_405),
        TEST_IN(place, what_is_for_post_is_for_post_alone),
        TEST_IN(place, long_bodies_with_a_fault_are_400),
        TEST_IN(place, bodies_take_memory_of_the_budget),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
