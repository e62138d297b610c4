/* The lists of models, one model, and its manifest, without a socket; and that hrefs lead to the bytes. */
#include "tests/unit/api/api_place.h"

/* ---- /models ------------------------------------------------------------------------------------------- */

static void the_list_of_models(void **state)
{
    struct place *place = *state;
    char ids[1024];
    cJSON *json = get_json(place, "/models");
    join(member(json, "models"), "id", ids);
    assert_string_equal(ids, "Qwen/Qwen3-0.6B bert.safetensors broken org/hub qwen3 variants with space/\xc3\xa9");
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
    assert_int_equal(sscanf(updated, "%4d-%2d-%2dT%2d:%2d:%lfZ%n", &year, &month, &day, &hour, &minute, &seconds, &end),
                     6);
    assert_true(end == 0 || updated[end] == '\0');
    assert_int_equal(updated[strlen(updated) - 1], 'Z');
    join(member(cJSON_GetArrayItem(member(json, "models"), 5), "checkpoints"), "id", ids);
    assert_string_equal(ids, "fp16.safetensors fp32.safetensors");
    assert_int_equal(cJSON_GetArraySize(member(cJSON_GetArrayItem(member(json, "models"), 2), "checkpoints")), 0);
    assert_string_equal(string_at(cJSON_GetArrayItem(member(json, "models"), 3), "revision"), "0123456789");
    /* files that cannot be published are reported */
    join(member(json, "errors"), "file", ids);
    assert_string_equal(ids, "shards");
    cJSON_Delete(json);
    json = get_json(place, "/models/");
    assert_int_equal(cJSON_GetArraySize(member(json, "models")), 7);
    cJSON_Delete(json);
}

static void the_list_in_pages(void **state)
{
    struct place *place = *state;
    for (int size = 1; size <= 8; size++) {
        char joined[2048] = "";
        char token[256] = "";
        int pages = 0;
        do {
            char target[512];
            char ids[1024];
            (void)snprintf(target, sizeof target, "/models?page_size=%d&page_token=%s", size, token);
            cJSON *json = get_json(place, target);
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
        assert_string_equal(joined,
                            "Qwen/Qwen3-0.6B bert.safetensors broken org/hub qwen3 variants with space/\xc3\xa9");
        assert_int_equal(pages, (7 + size - 1) / size);
    }
}

static void the_list_filtered(void **state)
{
    static const char *const cases[][2] = {
        {"/models?match=*", "Qwen/Qwen3-0.6B bert.safetensors broken org/hub qwen3 variants with space/\xc3\xa9"},
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
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char ids[1024];
        cJSON *json = get_json(place, cases[i][0]);
        join(member(json, "models"), "id", ids);
        CHECK(strcmp(ids, cases[i][1]) == 0, "%s: %s", cases[i][0], ids);
        cJSON_Delete(json);
    }
    cJSON *json = get_json(place, "/models?match=b*&page_size=1");
    char target[512];
    (void)snprintf(target, sizeof target, "/models?match=b*&page_token=%s", string_at(json, "next_page_token"));
    cJSON_Delete(json);
    json = get_json(place, target); /* a token is valid with another page_size */
    char ids[1024];
    join(member(json, "models"), "id", ids);
    assert_string_equal(ids, "broken");
    cJSON_Delete(json);
}

/* ---- /models/{id} -------------------------------------------------------------------------------------- */

static void one_model(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char text[1024];
    loopback_get(&place->loop, "/models/qwen3", &answer);
    /* numbers keep every digit that they have in the file */
    assert_non_null(
        strstr(answer.body, "\"config\":{\"hidden_size\":1024,\"big\":12345678901234567890,\"tiny\":1e-400,"));
    answer_fini(&answer);
    cJSON *json = get_json(place, "/models/qwen3");
    assert_string_equal(string_at(json, "id"), "qwen3");
    join(member(json, "files"), "path", text);
    assert_string_equal(text, "README.md config.json model.safetensors sub/tokenizer.json");
    const cJSON *file = cJSON_GetArrayItem(member(json, "files"), 0);
    assert_true(number_at(file, "size") == 7 && cJSON_GetObjectItemCaseSensitive(file, "format") == NULL);
    assert_string_equal(string_at(cJSON_GetArrayItem(member(json, "files"), 2), "format"), "safetensors");
    assert_int_equal(cJSON_GetArraySize(member(json, "errors")), 0);
    cJSON_Delete(json);
    json = get_json(place, "/models/broken");
    assert_true(cJSON_IsNull(member(json, "config")));
    assert_int_equal(cJSON_GetArraySize(member(json, "checkpoints")), 0);
    const cJSON *error = cJSON_GetArrayItem(member(json, "errors"), 0);
    assert_string_equal(string_at(error, "file"), "bad.safetensors");
    assert_true(strlen(string_at(error, "message")) > 10);
    cJSON_Delete(json);
    json = get_json(place, "/models/variants"); /* its config.json is not valid */
    assert_true(cJSON_IsNull(member(json, "config")));
    cJSON_Delete(json);
}

static void ids_may_be_encoded_or_not(void **state)
{
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
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cJSON *json = get_json(place, cases[i][0]);
        CHECK(strcmp(string_at(json, "id"), cases[i][1]) == 0, "%s: %s", cases[i][0], string_at(json, "id"));
        cJSON_Delete(json);
    }
}

/* ---- the manifest -------------------------------------------------------------------------------------- */

static void manifests(void **state)
{
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
        {"/models/qwen3/tensors?page_size=10000", "a/b model.embed_tokens.weight none scalar \xc3\xa9 \"x\" %2F"},
        {"/models/qwen3/tensors?page_token=", "a/b model.embed_tokens.weight none scalar \xc3\xa9 \"x\" %2F"},
        {"/models/variants/tensors", "t"} /* no checkpoint is the default by name, so the first is */,
        {"/models/variants/tensors?checkpoint=fp32.safetensors", "t u"},
        {"/models/bert.safetensors/tensors", "w"},
        {"/models/org/hub/tensors", "w"},
        {"/models/org%2Fhub%2Ftensors", "w"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char names[1024];
        cJSON *json = get_json(place, cases[i][0]);
        join(member(json, "tensors"), "name", names);
        CHECK(strcmp(names, cases[i][1]) == 0, "%s: %s", cases[i][0], names);
        cJSON_Delete(json);
    }
    cJSON *json = get_json(place, "/models/qwen3/tensors?match=*a*&page_size=1");
    assert_true(number_at(json, "matched_count") == 2 && number_at(json, "tensor_count") == 5);
    char target[512];
    char names[1024];
    (void)snprintf(target, sizeof target, "/models/qwen3/tensors?page_token=%s&match=*a*",
                   string_at(json, "next_page_token"));
    cJSON_Delete(json);
    json = get_json(place, target);
    join(member(json, "tensors"), "name", names);
    assert_string_equal(names, "scalar");
    cJSON_Delete(json);
}

/* Every href of a manifest leads to that tensor's bytes, at the file offset that the manifest states. */
static void hrefs_lead_to_the_bytes(void **state)
{
    static const char *const targets[] = {"/models/qwen3/tensors",
                                          "/models/variants/tensors?checkpoint=fp32.safetensors",
                                          "/models/with%20space/%C3%A9/tensors", "/models/bert.safetensors/tensors"};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        cJSON *json = get_json(place, targets[i]);
        const cJSON *entry;
        cJSON_ArrayForEach(entry, member(json, "tensors"))
        {
            struct answer tensor;
            struct answer file;
            char target[512];
            loopback_get(&place->loop, string_at(entry, "href"), &tensor);
            CHECK(tensor.response.status == 200, "%s: %d", string_at(entry, "href"), tensor.response.status);
            assert_true(number_at(entry, "nbytes") == (double)tensor.len);
            (void)snprintf(target, sizeof target, "%.*s/files/%s", (int)(strstr(targets[i], "/tensors") - targets[i]),
                           targets[i], string_at(entry, "file"));
            loopback_get(&place->loop, target, &file);
            assert_int_equal(file.response.status, 200);
            size_t offset = (size_t)number_at(entry, "offset");
            assert_true(offset + tensor.len <= file.len);
            assert_memory_equal(file.body + offset, tensor.body, tensor.len);
            answer_fini(&tensor);
            answer_fini(&file);
        }
        cJSON_Delete(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, the_list_of_models),        TEST_IN(place, the_list_in_pages),
        TEST_IN(place, the_list_filtered),         TEST_IN(place, one_model),
        TEST_IN(place, ids_may_be_encoded_or_not), TEST_IN(place, manifests),
        TEST_IN(place, hrefs_lead_to_the_bytes),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
