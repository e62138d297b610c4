/* Shared by the tests of the interface: a served tree of models, requests without a socket, and helpers for JSON. */
#ifndef TD_TESTS_UNIT_API_API_PLACE_H
#define TD_TESTS_UNIT_API_API_PLACE_H

#include "api/api.h"
#include "api/native/native.h"
#include "core/log.h"
#include "tests/unit/api/json_member.h"
#include "tests/unit/api/served_place.h"

static inline void fill_place(const struct tree *tree)
{
    static const struct tree_tensor qwen[] = {
        {"model.embed_tokens.weight", "BF16", "[4,2]", 16},
        {"a/b", "F32", "[2]", 8},
        {"\\u00e9 \\\"x\\\" %2F", "U8", "[3]", 3},
        {"scalar", "I64", "[]", 8},
        {"none", "F16", "[0,5]", 0},
    };
    (void)tree_tensors(tree, "qwen3/model.safetensors", qwen, COUNT_OF(qwen), "{\"format\":\"pt\"}", 0);
    tree_text(tree, "qwen3/config.json",
              "{\n \"hidden_size\": 1024,\n \"big\": 12345678901234567890, \"tiny\": 1e-400, \"s\": \"\\u00e9\"\n}\n");
    tree_text(tree, "qwen3/README.md", "# Qwen\n");
    tree_text(tree, "qwen3/sub/tokenizer.json", "{}");
    tree_simple(tree, "Qwen/Qwen3-0.6B/model.safetensors", "x y");
    tree_simple(tree, "variants/fp16.safetensors", "t");
    tree_simple(tree, "variants/fp32.safetensors", "t u");
    tree_text(tree, "variants/config.json", "{not json");
    tree_text(tree, "broken/bad.safetensors", "rubbish!");
    tree_simple(tree, "bert.safetensors", "w");
    tree_simple(tree, "shards/x.safetensors", "w"); /* cannot be published */
    tree_simple(tree, "models--org--hub/snapshots/0123456789/model.safetensors", "w");
    tree_simple(tree, "with space/\xc3\xa9/model.safetensors", "w");
}

static inline void open_place(struct place *place)
{
    tree_open(&place->tree);
    fill_place(&place->tree);
    loopback_open(&place->loop, &place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

static inline cJSON *get_json(struct place *place, const char *target)
{
    struct answer answer;
    loopback_get(&place->loop, target, &answer);
    CHECK(answer.response.status == 200, "%s: %d %s", target, answer.response.status, answer.body);
    CHECK(strcmp(answer.response.content_type, "application/json") == 0, "%s", target);
    cJSON *json = cJSON_Parse(answer.body);
    CHECK(json != NULL, "%s: %s", target, answer.body);
    answer_fini(&answer);
    return json;
}

/* Joins the members `name` of an array's objects, strings, with blanks between them. */
static inline void join(const cJSON *array, const char *name, char out[1024])
{
    const cJSON *item;
    size_t used = 0;
    out[0] = '\0';
    cJSON_ArrayForEach(item, array)
    {
        used += (size_t)snprintf(out + used, 1024 - used, "%s%s", used > 0 ? " " : "", string_at(item, name));
    }
}

/* Checks an error against the schema in api/openapi.yaml. The message must contain `part`, and must not contain the
 * path of the served directory. */
static inline void check_error_answer(const struct place *place, const struct answer *answer, const char *what,
                                      int status, const char *part)
{
    CHECK(answer->response.status == status, "%s: %d, wanted %d: %s", what, answer->response.status, status,
          answer->body);
    CHECK(strcmp(answer->response.content_type, "application/json") == 0, "%s", what);
    CHECK(strstr(answer->body, place->tree.path) == NULL, "%s: %s", what, answer->body);
    char buffer[128];
    CHECK(strcmp(answer_header(answer, "Cache-Control", buffer), "no-store") == 0, "%s", what);
    CHECK((answer_header(answer, "Retry-After", buffer) != NULL) == (status == 503), "%s", what);
    CHECK(answer_header(answer, "ETag", buffer) == NULL, "%s", what);
    CHECK(td_utf8_valid(answer->body, answer->len), "%s: not UTF-8", what);
    cJSON *json = cJSON_Parse(answer->body);
    CHECK(json != NULL, "%s: %s", what, answer->body);
    const cJSON *error = member(json, "error");
    CHECK(number_at(error, "code") == status, "%s", what);
    CHECK(strcmp(string_at(error, "status"), td_status_word(status)) == 0, "%s", what);
    CHECK(cJSON_IsObject(member(error, "details")), "%s", what);
    CHECK(strstr(string_at(error, "message"), part) != NULL, "%s: %s", what, string_at(error, "message"));
    cJSON_Delete(json);
}

static inline void expect_error(struct place *place, const char *method, const char *target, int status,
                                const char *part)
{
    struct answer answer;
    loopback_ask(&place->loop, method, target, NULL, &answer);
    check_error_answer(place, &answer, target, status, part);
    answer_fini(&answer);
}

#endif
