/* Every route, parameter and error of the interface, without a socket. Byte answers are in test_api_bytes.c. */
#include "api/api.h"

#include "core/log.h"
#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

#include <cjson/cJSON.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct place {
    struct tree tree;
    struct loopback loop;
};

static const struct tree_tensor qwen[] = {
    {"model.embed_tokens.weight", "BF16", "[4,2]", 16},
    {"a/b", "F32", "[2]", 8},
    {"\\u00e9 \\\"x\\\" %2F", "U8", "[3]", 3},
    {"scalar", "I64", "[]", 8},
    {"none", "F16", "[0,5]", 0},
};

static void fill(const struct tree *tree)
{
    (void)tree_tensors(tree, "qwen3/model.safetensors", qwen, COUNT_OF(qwen), "{\"format\":\"pt\"}", 0);
    tree_text(
        tree, "qwen3/config.json",
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

static void open_place(struct place *place)
{
    tree_open(&place->tree);
    fill(&place->tree);
    loopback_open(&place->loop, &place->tree);
}

static void close_place(struct place *place)
{
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

static cJSON *get_json(struct place *place, const char *target)
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

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    CHECK(item != NULL, "no member %s", name);
    return item;
}

static const char *string_at(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);
    CHECK(cJSON_IsString(item), "%s is no string", name);
    return item->valuestring;
}

static double number_at(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);
    CHECK(cJSON_IsNumber(item), "%s is no number", name);
    return item->valuedouble;
}

/* The strings `name` of an array's objects, parted by blanks. */
static void join(const cJSON *array, const char *name, char out[1024])
{
    const cJSON *item;
    size_t used = 0;
    out[0] = '\0';
    cJSON_ArrayForEach(item, array)
    {
        used += (size_t)snprintf(out + used, 1024 - used, "%s%s", used > 0 ? " " : "", string_at(item, name));
    }
}

/* The error model of api.md; the message must hold `part`, and never where the served directory lies. */
static void check_error_answer(const struct place *place, const struct answer *answer, const char *what,
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

static void expect_error(struct place *place, const char *method, const char *target, int status,
                         const char *part)
{
    struct answer answer;
    loopback_ask(&place->loop, method, target, NULL, &answer);
    check_error_answer(place, &answer, target, status, part);
    answer_fini(&answer);
}

/* ---- /models ------------------------------------------------------------------------------------------- */

static void the_list_of_models(void **state)
{
    (void)state;
    struct place place;
    char ids[1024];
    open_place(&place);
    cJSON *json = get_json(&place, "/models");
    join(member(json, "models"), "id", ids);
    assert_string_equal(ids,
                        "Qwen/Qwen3-0.6B bert.safetensors broken org/hub qwen3 variants with space/\xc3\xa9");
    assert_string_equal(string_at(json, "next_page_token"), "");
    const cJSON *model = cJSON_GetArrayItem(member(json, "models"), 4);
    const cJSON *checkpoint = cJSON_GetArrayItem(member(model, "checkpoints"), 0);
    assert_int_equal(cJSON_GetArraySize(member(model, "checkpoints")), 1);
    assert_string_equal(string_at(checkpoint, "id"), "safetensors");
    assert_string_equal(string_at(checkpoint, "format"), "safetensors");
    assert_true(number_at(checkpoint, "tensor_count") == 5 && number_at(checkpoint, "total_bytes") == 35);
    assert_true(number_at(model, "file_count") == 4 && number_at(model, "total_bytes") == 35);
    assert_true(number_at(model, "file_bytes") > 35);
    assert_null(cJSON_GetObjectItemCaseSensitive(model, "revision"));
    const char *updated = string_at(model, "updated"); /* RFC 3339, UTC */
    int year, month, day, hour, minute, end = 0;
    double seconds;
    assert_int_equal(
        sscanf(updated, "%4d-%2d-%2dT%2d:%2d:%lfZ%n", &year, &month, &day, &hour, &minute, &seconds, &end),
        6);
    assert_true(end == 0 || updated[end] == '\0');
    assert_int_equal(updated[strlen(updated) - 1], 'Z');
    join(member(cJSON_GetArrayItem(member(json, "models"), 5), "checkpoints"), "id", ids);
    assert_string_equal(ids, "fp16.safetensors fp32.safetensors");
    assert_int_equal(cJSON_GetArraySize(member(cJSON_GetArrayItem(member(json, "models"), 2), "checkpoints")),
                     0);
    assert_string_equal(string_at(cJSON_GetArrayItem(member(json, "models"), 3), "revision"), "0123456789");
    /* what could not be published is reported, not silent */
    join(member(json, "errors"), "file", ids);
    assert_string_equal(ids, "shards");
    cJSON_Delete(json);
    json = get_json(&place, "/models/");
    assert_int_equal(cJSON_GetArraySize(member(json, "models")), 7);
    cJSON_Delete(json);
    close_place(&place);
}

static void the_list_in_pages(void **state)
{
    (void)state;
    struct place place;
    open_place(&place);
    for (int size = 1; size <= 8; size++) {
        char joined[2048] = "";
        char token[256] = "";
        int pages = 0;
        do {
            char target[512];
            char ids[1024];
            (void)snprintf(target, sizeof target, "/models?page_size=%d&page_token=%s", size, token);
            cJSON *json = get_json(&place, target);
            join(member(json, "models"), "id", ids);
            if (joined[0] != '\0')
                (void)strcat(joined, " ");
            (void)strcat(joined, ids);
            (void)snprintf(token, sizeof token, "%s", string_at(json, "next_page_token"));
            int count = cJSON_GetArraySize(member(json, "models"));
            CHECK(token[0] == '\0' ? count >= 1 && count <= size : count == size, "page of %d", count);
            cJSON_Delete(json);
            pages++;
        } while (token[0] != '\0');
        assert_string_equal(
            joined, "Qwen/Qwen3-0.6B bert.safetensors broken org/hub qwen3 variants with space/\xc3\xa9");
        assert_int_equal(pages, (7 + size - 1) / size);
    }
    close_place(&place);
}

static void the_list_filtered(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/models?match=*",
         "Qwen/Qwen3-0.6B bert.safetensors broken org/hub qwen3 variants with space/\xc3\xa9"},
        {"/models?match=*wen*", "Qwen/Qwen3-0.6B qwen3"},
        {"/models?match=b*", "bert.safetensors broken"},
        {"/models?match=%5Bqv%5D*", "qwen3 variants"},
        {"/models?match=[qv]*", "qwen3 variants"},
        {"/models?match=org/hub", "org/hub"},
        {"/models?match=with+space/?", "with space/\xc3\xa9"},
        {"/models?match=", ""},
        {"/models?match=nothing", ""},
        {"/models?match=b*&page_size=1", "bert.safetensors"},
    };
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char ids[1024];
        cJSON *json = get_json(&place, cases[i][0]);
        join(member(json, "models"), "id", ids);
        CHECK(strcmp(ids, cases[i][1]) == 0, "%s: %s", cases[i][0], ids);
        cJSON_Delete(json);
    }
    cJSON *json = get_json(&place, "/models?match=b*&page_size=1");
    char target[512];
    (void)snprintf(target, sizeof target, "/models?match=b*&page_token=%s",
                   string_at(json, "next_page_token"));
    cJSON_Delete(json);
    json = get_json(&place, target); /* another page_size is fine */
    char ids[1024];
    join(member(json, "models"), "id", ids);
    assert_string_equal(ids, "broken");
    cJSON_Delete(json);
    close_place(&place);
}

/* ---- /models/{id} -------------------------------------------------------------------------------------- */

static void one_model(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    char text[1024];
    open_place(&place);
    loopback_get(&place.loop, "/models/qwen3", &answer);
    /* every digit of a number as it stands in the file */
    assert_non_null(strstr(answer.body,
                           "\"config\":{\"hidden_size\":1024,\"big\":12345678901234567890,\"tiny\":1e-400,"));
    answer_fini(&answer);
    cJSON *json = get_json(&place, "/models/qwen3");
    assert_string_equal(string_at(json, "id"), "qwen3");
    join(member(json, "files"), "path", text);
    assert_string_equal(text, "README.md config.json model.safetensors sub/tokenizer.json");
    const cJSON *file = cJSON_GetArrayItem(member(json, "files"), 0);
    assert_true(number_at(file, "size") == 7 && cJSON_GetObjectItemCaseSensitive(file, "format") == NULL);
    assert_string_equal(string_at(cJSON_GetArrayItem(member(json, "files"), 2), "format"), "safetensors");
    assert_int_equal(cJSON_GetArraySize(member(json, "errors")), 0);
    cJSON_Delete(json);
    json = get_json(&place, "/models/broken");
    assert_true(cJSON_IsNull(member(json, "config")));
    assert_int_equal(cJSON_GetArraySize(member(json, "checkpoints")), 0);
    const cJSON *error = cJSON_GetArrayItem(member(json, "errors"), 0);
    assert_string_equal(string_at(error, "file"), "bad.safetensors");
    assert_true(strlen(string_at(error, "message")) > 10);
    cJSON_Delete(json);
    json = get_json(&place, "/models/variants"); /* its config.json is none */
    assert_true(cJSON_IsNull(member(json, "config")));
    cJSON_Delete(json);
    close_place(&place);
}

static void ids_may_be_encoded_or_not(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/models/Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"},
        {"/models/Qwen%2FQwen3-0.6B", "Qwen/Qwen3-0.6B"},
        {"/models/Qwen%2fQwen3%2D0.6B/", "Qwen/Qwen3-0.6B"},
        {"/models/%71wen3", "qwen3"},
        {"/%6Dodels/qwen3", "qwen3"},
        {"/models/with%20space/%C3%A9", "with space/\xc3\xa9"},
        {"/models/bert.safetensors", "bert.safetensors"},
        {"http://host/models/org/hub", "org/hub"},
    };
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cJSON *json = get_json(&place, cases[i][0]);
        CHECK(strcmp(string_at(json, "id"), cases[i][1]) == 0, "%s: %s", cases[i][0], string_at(json, "id"));
        cJSON_Delete(json);
    }
    close_place(&place);
}

/* ---- the manifest -------------------------------------------------------------------------------------- */

static void manifests(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/models/qwen3/tensors", "a/b model.embed_tokens.weight none scalar \xc3\xa9 \"x\" %2F"},
        {"/models/qwen3/tensors/", "a/b model.embed_tokens.weight none scalar \xc3\xa9 \"x\" %2F"},
        {"/models/qwen3/tensors?checkpoint=safetensors",
         "a/b model.embed_tokens.weight none scalar \xc3\xa9 \"x\" %2F"},
        {"/models/qwen3/tensors?match=*a*", "a/b scalar"},
        {"/models/qwen3/tensors?dtype=BF16", "model.embed_tokens.weight"},
        {"/models/qwen3/tensors?dtype=F64", ""},
        {"/models/qwen3/tensors?match=*e*&dtype=F16", "none"},
        {"/models/qwen3/tensors?page_size=2", "a/b model.embed_tokens.weight"},
        {"/models/qwen3/tensors?page_size=10000",
         "a/b model.embed_tokens.weight none scalar \xc3\xa9 \"x\" %2F"},
        {"/models/qwen3/tensors?page_token=", "a/b model.embed_tokens.weight none scalar \xc3\xa9 \"x\" %2F"},
        {"/models/variants/tensors", "t"} /* no default by name: the first */,
        {"/models/variants/tensors?checkpoint=fp32.safetensors", "t u"},
        {"/models/bert.safetensors/tensors", "w"},
        {"/models/org/hub/tensors", "w"},
        {"/models/org%2Fhub%2Ftensors", "w"},
    };
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char names[1024];
        cJSON *json = get_json(&place, cases[i][0]);
        join(member(json, "tensors"), "name", names);
        CHECK(strcmp(names, cases[i][1]) == 0, "%s: %s", cases[i][0], names);
        cJSON_Delete(json);
    }
    cJSON *json = get_json(&place, "/models/qwen3/tensors?match=*a*&page_size=1");
    assert_true(number_at(json, "matched_count") == 2 && number_at(json, "tensor_count") == 5);
    char target[512];
    char names[1024];
    (void)snprintf(target, sizeof target, "/models/qwen3/tensors?page_token=%s&match=*a*",
                   string_at(json, "next_page_token"));
    cJSON_Delete(json);
    json = get_json(&place, target);
    join(member(json, "tensors"), "name", names);
    assert_string_equal(names, "scalar");
    cJSON_Delete(json);
    close_place(&place);
}

/* Every href of a manifest gives that tensor's bytes, at the offset in the file that the manifest tells. */
static void hrefs_lead_to_the_bytes(void **state)
{
    (void)state;
    static const char *const targets[] = {
        "/models/qwen3/tensors", "/models/variants/tensors?checkpoint=fp32.safetensors",
        "/models/with%20space/%C3%A9/tensors", "/models/bert.safetensors/tensors"};
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        cJSON *json = get_json(&place, targets[i]);
        const cJSON *entry;
        cJSON_ArrayForEach(entry, member(json, "tensors"))
        {
            struct answer tensor;
            struct answer file;
            char target[512];
            loopback_get(&place.loop, string_at(entry, "href"), &tensor);
            CHECK(tensor.response.status == 200, "%s: %d", string_at(entry, "href"), tensor.response.status);
            assert_true(number_at(entry, "nbytes") == (double)tensor.len);
            (void)snprintf(target, sizeof target, "%.*s/files/%s",
                           (int)(strstr(targets[i], "/tensors") - targets[i]), targets[i],
                           string_at(entry, "file"));
            loopback_get(&place.loop, target, &file);
            assert_int_equal(file.response.status, 200);
            size_t offset = (size_t)number_at(entry, "offset");
            assert_true(offset + tensor.len <= file.len);
            assert_memory_equal(file.body + offset, tensor.body, tensor.len);
            answer_fini(&tensor);
            answer_fini(&file);
        }
        cJSON_Delete(json);
    }
    close_place(&place);
}

/* ---- errors -------------------------------------------------------------------------------------------- */

static void nothing_there_is_404(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/", "/models"},
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
        {"/models/qwen3/nothing", "\"nothing\""},
        {"/models/qwen3/files", "files"},
        {"/models/qwen3/files/", "files"},
        {"/models/qwen3/tensorsx", "tensorsx"},
        {"/models/qwen3/plans", "plans"},
        {"/models/qwen3/shards/none/tp1/rank-0.safetensors", "shards"},
        {"/models/qwen3/model.safetensors", "model.safetensors"},
        {"/models/qwen3/tensors/absent", "\"absent\""},
        {"/models/qwen3/tensors/a", "\"a\""},
        {"/models/qwen3/tensors/a/b/", "\"a/b/\""},
        {"/models/qwen3/tensors/A/B", "\"A/B\""},
        {"/models/qwen3/files/absent", "\"absent\""},
        {"/models/qwen3/files/../variants/fp16.safetensors", "no file"},
        {"/models/qwen3/files/sub", "\"sub\""},
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
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_error(&place, "GET", cases[i][0], 404, cases[i][1]);
    close_place(&place);
}

static void wrong_arguments_are_400(void **state)
{
    (void)state;
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
        {"/models?dtype=F32", "match"} /* lists the known ones */,
        {"/models?=1", "\"\""},
        {"/models?PAGE_SIZE=1", "\"PAGE_SIZE\""},
        {"/models/qwen3?page_size=1", "\"page_size\""},
        {"/models/qwen3/tensors?dtype=FLOAT", "\"FLOAT\""},
        {"/models/qwen3/tensors?dtype=bf16", "\"bf16\""},
        {"/models/qwen3/tensors?dtype=", "dtype"},
        {"/models/qwen3/tensors?page_size=0", "page_size"},
        {"/models/qwen3/tensors?slice=0:1", "\"slice\""},
        {"/models/qwen3/tensors/a/b?slice=0:1", "\"slice\""},
        {"/models/qwen3/tensors/a/b?format=npy", "\"format\""},
        {"/models/qwen3/tensors/a/b?shard=0:0/2", "\"shard\""},
        {"/models/qwen3/files/README.md?download=1", "\"download\""},
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
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_error(&place, "GET", cases[i][0], 400, cases[i][1]);
    close_place(&place);
}

/* A token belongs to its listing and its filters. */
static void foreign_tokens_are_400(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/models?page_size=1", "/models?match=*&page_token=%s"},
        {"/models?page_size=1&match=*", "/models?page_token=%s"},
        {"/models?page_size=1", "/models/qwen3/tensors?page_token=%s"},
        {"/models/qwen3/tensors?page_size=1", "/models/variants/tensors?page_token=%s"},
        {"/models/qwen3/tensors?page_size=1", "/models/qwen3/tensors?dtype=F32&page_token=%s"},
        {"/models/qwen3/tensors?page_size=1&match=*", "/models/qwen3/tensors?match=**&page_token=%s"},
        {"/models/variants/tensors?checkpoint=fp32.safetensors&page_size=1",
         "/models/variants/tensors?page_token=%s"},
        {"/models/qwen3/tensors?page_size=1", "/models?page_token=%s"},
    };
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char target[512];
        cJSON *json = get_json(&place, cases[i][0]);
        const char *token = string_at(json, "next_page_token");
        assert_true(*token != '\0');
        const char *format = cases[i][1];
        (void)snprintf(target, sizeof target, "%.*s%s", (int)(strlen(format) - 2), format, token);
        expect_error(&place, "GET", target, 400, "page_token");
        cJSON_Delete(json);
    }
    close_place(&place);
}

static void details_list_what_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *target, *member, *wanted;
    } cases[] = {
        {"/models?x=1", "known", "[\"page_size\",\"page_token\",\"match\"]"},
        {"/models/qwen3/tensors?x=1", "known",
         "[\"checkpoint\",\"match\",\"dtype\",\"page_size\",\"page_token\"]"},
        {"/models/qwen3/tensors/a/b?x=1", "known", "[\"checkpoint\"]"},
        {"/healthz?x=1", "known", "[]"},
        {"/models/variants/tensors?checkpoint=x", "checkpoints",
         "[\"fp16.safetensors\",\"fp32.safetensors\"]"},
        {"/models/broken/tensors", "checkpoints", "[]"},
    };
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        loopback_get(&place.loop, cases[i].target, &answer);
        cJSON *json = cJSON_Parse(answer.body);
        char *text =
            cJSON_PrintUnformatted(member(member(member(json, "error"), "details"), cases[i].member));
        CHECK(strcmp(text, cases[i].wanted) == 0, "%s: %s", cases[i].target, text);
        free(text);
        cJSON_Delete(json);
        answer_fini(&answer);
    }
    struct answer answer;
    loopback_get(&place.loop, "/models/qwen3/tensors?dtype=x", &answer);
    assert_non_null(strstr(answer.body, "\"BF16\""));
    assert_non_null(strstr(answer.body, "\"F8_E4M3\""));
    answer_fini(&answer);
    close_place(&place);
}

/* Long and hostile names in a message are cut and stay JSON. */
static void messages_stay_well_formed(void **state)
{
    (void)state;
    struct place place;
    static char target[7000];
    static const char *const fillers[] = {"a",   "%C3%A9", "a%C3%A9", "ab%F0%9F%98%80", "%0A",
                                          "%22", "%5C",    "%1b[31m", "%F0%9F%98%80",   "%7F",
                                          "/"};
    static const char *const bases[] = {"/",
                                        "/models/",
                                        "/models/qwen3/",
                                        "/models/qwen3/tensors/",
                                        "/models/qwen3/files/",
                                        "/models/qwen3/tensors?checkpoint=",
                                        "/models/qwen3/tensors?dtype=",
                                        "/models?"};
    open_place(&place);
    for (size_t b = 0; b < COUNT_OF(bases); b++) {
        for (size_t f = 0; f < COUNT_OF(fillers); f++) {
            struct answer answer;
            (void)snprintf(target, sizeof target, "%s", bases[b]);
            for (size_t used = strlen(target); used + 20 < sizeof target; used += strlen(fillers[f]))
                (void)snprintf(target + used, 20, "%s", fillers[f]);
            loopback_get(&place.loop, target, &answer);
            int status = answer.response.status;
            CHECK(status == 404 || status == 400 || status == 200, "%s %s: %d", bases[b], fillers[f], status);
            if (status != 200)
                check_error_answer(&place, &answer, bases[b], status, "");
            CHECK(answer.len < 4000 || status == 200, "%s: %zu bytes", bases[b], answer.len);
            answer_fini(&answer);
        }
    }
    close_place(&place);
}

static void other_methods_are_405(void **state)
{
    (void)state;
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
    struct place place;
    char buffer[128];
    open_place(&place);
    for (size_t t = 0; t < COUNT_OF(targets); t++) {
        for (size_t m = 0; m < COUNT_OF(methods); m++) {
            struct answer answer;
            loopback_ask(&place.loop, methods[m], targets[t], NULL, &answer);
            check_error_answer(&place, &answer, targets[t], 405, methods[m]);
            assert_string_equal(answer_header(&answer, "Allow", buffer), "GET, HEAD");
            answer_fini(&answer);
        }
        expect_error(&place, "POST", "/nothing", 404, "nothing");
    }
    close_place(&place);
}

/* ---- HEAD ---------------------------------------------------------------------------------------------- */

static const char *const header_names[] = {"Content-Type",   "ETag",           "Cache-Control",
                                           "Accept-Ranges",  "Last-Modified",  "Content-Range",
                                           "X-Tensor-Dtype", "X-Tensor-Shape", "X-Content-Type-Options",
                                           "Allow",          "Retry-After"};

/* RFC 9110 section 9.3.2: the same header fields as GET, the length too. */
static void head_equals_get(void **state)
{
    (void)state;
    static const char *const targets[] = {"/models",
                                          "/models?page_size=2",
                                          "/models/qwen3",
                                          "/models/qwen3/tensors",
                                          "/models/qwen3/tensors?page_size=1",
                                          "/models/qwen3/tensors/a/b",
                                          "/models/qwen3/tensors/none",
                                          "/models/qwen3/files/README.md",
                                          "/healthz",
                                          "/readyz",
                                          "/version",
                                          "/openapi.json",
                                          "/nothing",
                                          "/models/nothing",
                                          "/models?x=1",
                                          "/models/qwen3/tensors/absent"};
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct answer get;
        struct answer head;
        loopback_get(&place.loop, targets[i], &get);
        loopback_ask(&place.loop, "HEAD", targets[i], "Range: bytes=0-1", &head); /* Range is for GET */
        CHECK(get.response.status == head.response.status, "%s", targets[i]);
        CHECK(get.len == head.len && memcmp(get.body, head.body, get.len) == 0, "%s", targets[i]);
        for (size_t h = 0; h < COUNT_OF(header_names); h++) {
            char a[128];
            char b[128];
            const char *of_get = answer_header(&get, header_names[h], a);
            const char *of_head = answer_header(&head, header_names[h], b);
            CHECK((of_get == NULL) == (of_head == NULL) && (of_get == NULL || strcmp(of_get, of_head) == 0),
                  "%s: %s", targets[i], header_names[h]);
        }
        answer_fini(&get);
        answer_fini(&head);
    }
    close_place(&place);
}

/* ---- system routes ------------------------------------------------------------------------------------- */

static void system_routes(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    open_place(&place);
    loopback_get(&place.loop, "/healthz", &answer);
    assert_int_equal(answer.response.status, 200);
    assert_string_equal(answer.body, "ok\n");
    assert_string_equal(answer.response.cache_control, "no-store");
    answer_fini(&answer);
    cJSON *json = get_json(&place, "/readyz");
    assert_true(cJSON_IsTrue(member(json, "ready")));
    assert_string_equal(string_at(json, "state"), "ready");
    assert_true(number_at(json, "models") == 7 && number_at(json, "unreadable") >= 1);
    assert_true(number_at(member(json, "scan"), "completed") == 1);
    cJSON_Delete(json);
    json = get_json(&place, "/version");
    assert_string_equal(string_at(json, "name"), "tensord");
    assert_string_equal(string_at(json, "version"), TD_VERSION);
    cJSON_Delete(json);
    json = get_json(&place, "/openapi.json");
    assert_int_equal(strncmp(string_at(json, "openapi"), "3.", 2), 0);
    static const char *const paths[] = {"/models",  "/healthz", "/readyz",
                                        "/metrics", "/version", "/openapi.json"};
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        (void)member(member(json, "paths"), paths[i]);
    cJSON_Delete(json);
    loopback_get(&place.loop, "/metrics", &answer);
    assert_int_equal(answer.response.status, 200);
    assert_string_equal(answer.response.content_type, "text/plain; version=0.0.4; charset=utf-8");
    assert_non_null(strstr(answer.body, "\ntensord_models 7\n"));
    answer_fini(&answer);
    close_place(&place);
}

static void draining_is_not_ready(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    char buffer[128];
    open_place(&place);
    atomic_store(&place.loop.api.draining, true);
    loopback_get(&place.loop, "/readyz", &answer);
    assert_int_equal(answer.response.status, 503);
    assert_non_null(strstr(answer.body, "\"ready\":false"));
    assert_non_null(strstr(answer.body, "\"draining\""));
    assert_non_null(answer_header(&answer, "Retry-After", buffer));
    answer_fini(&answer);
    static const char *const others[] = {"/healthz", "/models", "/models/qwen3/tensors/a/b"};
    for (size_t i = 0; i < COUNT_OF(others); i++) { /* alive, and still serving */
        loopback_get(&place.loop, others[i], &answer);
        assert_int_equal(answer.response.status, 200);
        answer_fini(&answer);
    }
    close_place(&place);
}

/* Before the first scan is done there is nothing to say about models yet: try again. */
static void before_the_first_scan(void **state)
{
    (void)state;
    struct place place;
    char name[64];
    size_t waited = 0;
    tree_open(&place.tree);
    for (int i = 0; i < 4000; i++) {
        (void)snprintf(name, sizeof name, "%d/%d.txt", i % 40, i);
        tree_text(&place.tree, name, "");
    }
    tree_simple(&place.tree, "m/x.safetensors", "a");
    struct td_catalog_config config = {
        .root = place.tree.path, .max_maps = 16, .scan = td_scan_config_default()};
    struct td_error err;
    td_error_init(&err);
    assert_true(td_catalog_create(&config, &place.loop.catalog, &err));
    assert_true(td_api_init(&place.loop.api, place.loop.catalog, &err));
    for (bool there = false; !there;) {
        struct answer answer;
        struct answer probe;
        loopback_get(&place.loop, "/readyz", &probe);
        loopback_get(&place.loop, "/models/m", &answer);
        there = answer.response.status == 200;
        if (!there) {
            check_error_answer(&place, &answer, "/models/m", 503, "scan");
            assert_int_equal(probe.response.status, 503);
            assert_non_null(strstr(probe.body, "\"scanning\""));
            waited++;
        }
        answer_fini(&answer);
        answer_fini(&probe);
        loopback_get(&place.loop, "/healthz", &probe);
        assert_int_equal(probe.response.status, 200);
        answer_fini(&probe);
    }
    print_message("%zu answers before the first scan was done\n", waited);
    loopback_close(&place.loop);
    tree_close(&place.tree);
}

static void probes_are_known(void **state)
{
    (void)state;
    static const char *const probes[] = {"/healthz", "/readyz", "/metrics"};
    static const char *const others[] = {"/models", "/version", "/openapi.json", "/healthz/", "/healthz?x",
                                         "/",       ""};
    for (size_t i = 0; i < COUNT_OF(probes); i++)
        assert_true(td_api_is_probe((struct td_text){.p = probes[i], .len = strlen(probes[i])}));
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_false(td_api_is_probe((struct td_text){.p = others[i], .len = strlen(others[i])}));
}

/* ---- files that change --------------------------------------------------------------------------------- */

/* 503 with Retry-After, and a scan starts by itself; afterwards the new state is served. */
static void a_changed_file_is_503_then_new(void **state)
{
    (void)state;
    static const char *const targets[] = {"/models/Qwen/Qwen3-0.6B/tensors/x",
                                          "/models/Qwen/Qwen3-0.6B/files/model.safetensors"};
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct td_catalog_status status;
        struct answer answer;
        loopback_get(&place.loop, targets[i], &answer);
        assert_int_equal(answer.response.status, 200);
        answer_fini(&answer);
        td_catalog_get_status(place.loop.catalog, &status);
        uint64_t scans = status.scan_count;
        tree_simple(&place.tree, "new", i == 0 ? "x y z" : "x");
        tree_rename(&place.tree, "new", "Qwen/Qwen3-0.6B/model.safetensors");
        loopback_get(&place.loop, targets[i], &answer);
        check_error_answer(&place, &answer, targets[i], 503, "changed");
        assert_true(answer.response.changed);
        answer_fini(&answer);
        loopback_wait_scans(place.loop.catalog, scans + 1);
        loopback_get(&place.loop, targets[i], &answer);
        assert_int_equal(answer.response.status, 200);
        answer_fini(&answer);
        loopback_get(&place.loop, "/models/qwen3/tensors/a/b", &answer); /* nobody else notices */
        assert_int_equal(answer.response.status, 200);
        answer_fini(&answer);
    }
    tree_remove(&place.tree, "Qwen");
    struct answer answer;
    loopback_get(&place.loop, targets[0], &answer);
    check_error_answer(&place, &answer, "unlinked", 503, "changed");
    answer_fini(&answer);
    loopback_rescan(&place.loop);
    expect_error(&place, "GET", targets[0], 404, "Qwen");
    close_place(&place);
}

static void a_changed_config_is_503(void **state)
{
    (void)state;
    struct place place;
    open_place(&place);
    tree_text(&place.tree, "qwen3/config.json", "{\"a\":2}");
    expect_error(&place, "GET", "/models/qwen3", 503, "config.json");
    loopback_rescan(&place.loop);
    cJSON *json = get_json(&place, "/models/qwen3");
    assert_true(number_at(member(json, "config"), "a") == 2);
    cJSON_Delete(json);
    close_place(&place);
}

/* A file that we may not read: 403, its model and neighbours are served. */
static bool child_sees_403(const struct tree *tree)
{
    struct place place = {.tree = *tree};
    struct answer answer;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return false;
    loopback_open(&place.loop, tree);
    loopback_get(&place.loop, "/models/qwen3/files/README.md", &answer);
    bool ok = answer.response.status == 403 && strstr(answer.body, "PERMISSION_DENIED") != NULL &&
              strstr(answer.body, tree->path) == NULL;
    answer_fini(&answer);
    loopback_get(&place.loop, "/models/qwen3/tensors/a/b", &answer);
    ok = ok && answer.response.status == 200;
    answer_fini(&answer);
    loopback_close(&place.loop);
    return ok;
}

static void no_right_to_read_is_403(void **state)
{
    (void)state;
    struct tree tree;
    char path[TREE_PATH_BYTES];
    tree_open(&tree);
    fill(&tree);
    tree_at(&tree, "qwen3/README.md", path);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(tree.path, 0755), 0);
    pid_t child = fork(); /* root reads everything */
    assert_true(child >= 0);
    if (child == 0)
        _exit(child_sees_403(&tree) ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tree_close(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_of_models),
        cmocka_unit_test(the_list_in_pages),
        cmocka_unit_test(the_list_filtered),
        cmocka_unit_test(one_model),
        cmocka_unit_test(ids_may_be_encoded_or_not),
        cmocka_unit_test(manifests),
        cmocka_unit_test(hrefs_lead_to_the_bytes),
        cmocka_unit_test(nothing_there_is_404),
        cmocka_unit_test(wrong_arguments_are_400),
        cmocka_unit_test(foreign_tokens_are_400),
        cmocka_unit_test(details_list_what_is_known),
        cmocka_unit_test(messages_stay_well_formed),
        cmocka_unit_test(other_methods_are_405),
        cmocka_unit_test(head_equals_get),
        cmocka_unit_test(system_routes),
        cmocka_unit_test(draining_is_not_ready),
        cmocka_unit_test(before_the_first_scan),
        cmocka_unit_test(probes_are_known),
        cmocka_unit_test(a_changed_file_is_503_then_new),
        cmocka_unit_test(a_changed_config_is_503),
        cmocka_unit_test(no_right_to_read_is_403),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
