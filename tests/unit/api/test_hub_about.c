/* Descriptions of repositories: members as huggingface_hub reads them (hf_api.py, ModelInfo), tags and their prefixes
 * as the Hub writes them. */
#include "tests/unit/api/hub_place.h"

static const char card[] =
    "---\nlicense: apache-2.0\nlanguage:\n- en\n- de\npipeline_tag: summarization\nlibrary_name: setfit\n"
    "tags: [merge, en, \"a,b\"]\ndatasets: ns/rows\nbase_model: org/base\nreleased: 2024-01-31\n---\n# Text";

static void fill_about(const struct tree *tree)
{
    static const struct tree_tensor first[] = {{"a", "F32", "[2,3]", 24}, {"b", "BF16", "[5]", 10}};
    static const struct tree_tensor second[] = {{"c", "F32", "[]", 4}};
    (void)tree_tensors(tree, "ns/llama/model-00001-of-00002.safetensors", first, COUNT_OF(first), NULL, 0);
    (void)tree_tensors(tree, "ns/llama/model-00002-of-00002.safetensors", second, COUNT_OF(second), NULL, 0);
    tree_index(
        tree, "ns/llama/model.safetensors.index.json",
        "a model-00001-of-00002.safetensors b model-00001-of-00002.safetensors c model-00002-of-00002.safetensors");
    tree_text(tree, "ns/llama/config.json",
              "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 8, \"model_type\": \"llama\",\n"
              " \"quantization_config\": {\"bits\": 4}}");
    tree_text(tree, "ns/llama/tokenizer_config.json",
              "{\"added_tokens_decoder\": {}, \"chat_template\": \"{{ x }}\", \"eos_token\": \"</s>\"}");
    tree_simple(tree, "ns/carded/model.safetensors", "w");
    tree_text(tree, "ns/carded/README.md", card);
    tree_text(tree, "ns/carded/config.json", "{\"model_type\": \"bert\", \"time\": [0.0, Infinity]}");
    tree_simple(tree, "ns/diff/unet/model.safetensors", "w");
    tree_text(tree, "ns/diff/model_index.json", "{\"_class_name\": \"StableDiffusionPipeline\", \"unet\": [1]}");
    tree_simple(tree, "ns/lora/adapter_model.safetensors", "w");
    tree_text(tree, "ns/lora/adapter_config.json",
              "{\"base_model_name_or_path\": \"org/base\", \"r\": 8, \"task_type\": \"CAUSAL_LM\"}");
    tree_simple(tree, "ns/plain/model.safetensors", "w");
    tree_text(tree, "ns/plain/README.md", "---\na: *bomb\n---\n");
    tree_text(tree, "ns/plain/config.json", "{not json");
    copy_pickle(tree, "ns/torch/pytorch_model.bin");
    tree_text(tree, "datasets/ns/rows/README.md",
              "---\nlicense: mit\nlanguage: en\ntask_categories: [text-generation]\ntags: [code]\n---\n");
    tree_text(tree, "datasets/ns/rows/rows.jsonl", "{}");
}

static void open_about(struct place *place)
{
    tree_open(&place->tree);
    fill_about(&place->tree);
    loopback_open(&place->loop, &place->tree);
}

FIXTURE(about, struct place, open_about, close_place)

static void expect_tags(const cJSON *json, const char *wanted)
{
    char got[512] = "";
    const cJSON *tag;
    cJSON_ArrayForEach(tag, member(json, "tags"))
    {
        size_t used = strlen(got);
        (void)snprintf(got + used, sizeof got - used, "%s%s", used > 0 ? " " : "", tag->valuestring);
    }
    CHECK(strcmp(got, wanted) == 0, "%s, wanted %s", got, wanted);
}

static void expect_member(const cJSON *json, const char *name, const char *wanted)
{
    char *got = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(json, name));
    CHECK(wanted == NULL ? got == NULL : (got != NULL && strcmp(got, wanted) == 0), "%s: %s, wanted %s", name,
          got == NULL ? "nothing" : got, wanted == NULL ? "nothing" : wanted);
    free(got);
}

static void a_model_of_transformers(void **state)
{
    struct place *place = *state;
    cJSON *json = get_json(place, "/api/models/ns/llama");
    expect_member(json, "pipeline_tag", "\"text-generation\"");
    expect_member(json, "library_name", "\"transformers\"");
    expect_tags(json, "transformers safetensors llama text-generation conversational");
    expect_member(
        json, "config",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"quantization_config\":{\"bits\":4},"
        "\"tokenizer_config\":{\"chat_template\":\"{{ x }}\",\"eos_token\":\"</s>\"}}");
    expect_member(json, "safetensors", "{\"parameters\":{\"F32\":7,\"BF16\":5},\"total\":12}");
    expect_member(json, "cardData", NULL);
    cJSON_Delete(json);
}

static void what_the_card_says_goes_first(void **state)
{
    struct place *place = *state;
    cJSON *json = get_json(place, "/api/models/ns/carded");
    expect_member(json, "pipeline_tag", "\"summarization\"");
    expect_member(json, "library_name", "\"setfit\"");
    expect_tags(json, "setfit safetensors bert summarization license:apache-2.0 en de merge a,b dataset:ns/rows "
                      "base_model:org/base");
    expect_member(member(json, "cardData"), "language", "[\"en\",\"de\"]");
    expect_member(member(json, "cardData"), "released", "\"2024-01-31\"");
    cJSON_Delete(json);
}

static void other_libraries(void **state)
{
    struct place *place = *state;
    cJSON *json = get_json(place, "/api/models/ns/diff");
    expect_member(json, "library_name", "\"diffusers\"");
    expect_member(json, "config", "{\"diffusers\":{\"_class_name\":\"StableDiffusionPipeline\"}}");
    expect_member(json, "safetensors", NULL);
    cJSON_Delete(json);
    json = get_json(place, "/api/models/ns/lora");
    expect_member(json, "library_name", "\"peft\"");
    expect_member(json, "config", "{\"peft\":{\"base_model_name_or_path\":\"org/base\",\"task_type\":\"CAUSAL_LM\"}}");
    cJSON_Delete(json);
    json = get_json(place, "/api/models/ns/torch");
    expect_tags(json, "pytorch");
    expect_member(json, "library_name", NULL);
    expect_member(json, "pipeline_tag", NULL);
    expect_member(json, "config", NULL);
    cJSON_Delete(json);
    json = get_json(place, "/api/datasets/ns/rows");
    expect_tags(json, "license:mit language:en task_categories:text-generation code");
    expect_member(json, "pipeline_tag", NULL);
    cJSON_Delete(json);
}

/* Files that cannot be parsed add no members to the description; the repository gets the tag unreadable-files. */
/* shows: security.md content-front-matter */
static void hostile_files_say_nothing(void **state)
{
    struct place *place = *state;
    cJSON *json = get_json(place, "/api/models/ns/plain");
    expect_member(json, "cardData", NULL);
    expect_member(json, "config", NULL);
    expect_member(json, "pipeline_tag", NULL);
    expect_tags(json, "unreadable-files safetensors");
    cJSON_Delete(json);
}

static void lists_are_filtered(void **state)
{
    struct place *place = *state;
    expect_list(place, "/api/models?filter=transformers", "ns/llama");
    expect_list(place, "/api/models?filter=safetensors&filter=llama", "ns/llama");
    expect_list(place, "/api/models?filter=safetensors,llama", "ns/llama");
    expect_list(place, "/api/models?filter=safetensors&filter=none", "");
    expect_list(place, "/api/models?filter=license%3Aapache-2.0", "ns/carded");
    expect_list(place, "/api/models?filter=de", "ns/carded");
    expect_list(place, "/api/models?library=peft", "ns/lora");
    expect_list(place, "/api/models?pipeline_tag=text-generation", "ns/llama");
    expect_list(place, "/api/models?pipeline_tag=text", "");
    expect_list(place, "/api/models?search=LL&search=ns", "ns/llama");
    expect_list(place, "/api/models?search=ll&search=none", "");
    expect_list(place, "/api/models?gated=true", "");
    expect_list(place, "/api/models?gated=False&search=llama", "ns/llama");
    expect_list(place, "/api/models?inference=warm", "");
    expect_list(place, "/api/models?inference_provider=all", "");
    expect_list(place, "/api/models?sort=downloads&direction=-1&search=llama&full=true", "ns/llama");
    expect_list(place, "/api/datasets?filter=task_categories:text-generation", "ns/rows");
    expect_list(place, "/api/datasets?filter=text-generation", "");
}

static void what_is_not_known_is_refused(void **state)
{
    static const char *const targets[] = {
        "/api/models?apps=vllm",
        "/api/models?num_parameters=min:6B",
        "/api/models?sort=mainSize",
        "/api/models?direction=2",
        "/api/models?other=x",

        "/api/datasets?benchmark=x",
        "/api/models?tags=x",
        "/api/models?filter=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct answer answer;
        char buffer[128];
        loopback_get(&place->loop, targets[i], &answer);
        CHECK(answer.response.status == 400, "%s: %d", targets[i], answer.response.status);
        CHECK(answer_header(&answer, "X-Error-Message", buffer) != NULL, "%s", targets[i]);
        answer_fini(&answer);
    }
}

/* A list has the members that the query selects. */
static void parts_of_lists(void **state)
{
    static const struct {
        const char *query;
        bool config, card, safetensors;
    } cases[] = {
        {"", false, false, false},
        {"&full=true", false, false, false},
        {"&config=True", true, false, false},
        {"&cardData=true", false, true, false},
        {"&expand=safetensors&expand=config&expand=downloads", true, false, true},
    };
    struct place *place = *state;
    tree_text(&place->tree, "ns/llama/README.md", card);
    loopback_rescan(&place->loop);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char target[256];
        (void)snprintf(target, sizeof target, "/api/models?search=llama%s", cases[i].query);
        cJSON *json = get_json(place, target);
        const cJSON *item = cJSON_GetArrayItem(json, 0);
        assert_string_equal(string_at(item, "library_name"), "setfit");
        CHECK((cJSON_GetObjectItem(item, "config") != NULL) == cases[i].config, "%s", target);
        CHECK((cJSON_GetObjectItem(item, "cardData") != NULL) == cases[i].card, "%s", target);
        CHECK((cJSON_GetObjectItem(item, "safetensors") != NULL) == cases[i].safetensors, "%s", target);
        cJSON_Delete(json);
    }
}

/* The link to the next page keeps the filters. */
static void pages_keep_the_filters(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char target[512] =
        "/api/models?limit=1&filter=safetensors&search=n&search=s&direction=1&sort=created_at&cardData=1";
    char ids[256] = "";
    for (bool more = true; more;) {
        loopback_ask(&place->loop, "GET", target, "Host: h", &answer);
        CHECK(answer.response.status == 200, "%s: %s", target, answer.body);
        cJSON *json = cJSON_Parse(answer.body);
        size_t used = strlen(ids);
        (void)snprintf(ids + used, sizeof ids - used, "%s ", string_at(cJSON_GetArrayItem(json, 0), "id"));
        cJSON_Delete(json);
        more = next_page(&answer, target);
        answer_fini(&answer);
    }
    static const char *const all[] = {"ns/llama", "ns/carded", "ns/diff", "ns/lora", "ns/plain"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        CHECK(strstr(ids, all[i]) != NULL, "%s", ids);
    assert_null(strstr(ids, "torch"));
    char query[1024] = "/api/models?limit=1";
    for (size_t i = 0; i < 15; i++)
        (void)snprintf(query + strlen(query), sizeof query - strlen(query), "&search=ns%%2F&filter=safetensors");
    loopback_ask(&place->loop, "GET", query, "Host: h", &answer);
    assert_int_equal(answer.response.status, 400); /* a page without a link would look like the whole list */
    answer_fini(&answer);
}

/* Each format of GET /models is a tag, so that clients can filter by it. */
static void formats_are_tags(void **state)
{
    static const struct {
        const char *data, *name, *format;
    } all[] = {
        {"onnx/types_raw.onnx", "model.onnx", "onnx"}, {"hdf5/attributes.h5", "x.h5", "hdf5"},
        {"npz/compressed.npz", "x.npz", "npz"},        {"pt2/current.pt2", "x.pt2", "pt2"},
        {"torch/checkpoint.pt", "x.pt", "pytorch"},
    };
    struct place *place = *state;
    char text[128];
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        (void)snprintf(text, sizeof text, "ns/%s/%s", all[i].format, all[i].name);
        copy_data(&place->tree, all[i].data, text);
    }
    loopback_open(&place->loop, &place->tree);
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        (void)snprintf(text, sizeof text, "/api/models/ns/%s", all[i].format);
        cJSON *json = get_json(place, text);
        expect_tags(json, all[i].format);
        cJSON_Delete(json);
        (void)snprintf(text, sizeof text, "/api/models?filter=%s", all[i].format);
        char id[64];
        (void)snprintf(id, sizeof id, "ns/%s", all[i].format);
        expect_list(place, text, id);
    }
}

/* A client that fetches an incomplete checkpoint gets the files that are there and no error: only the tag shows it. */
static void a_set_that_is_not_whole_is_marked(void **state)
{
    static const char index[] = "a model-00001-of-00002.safetensors b model-00002-of-00002.safetensors";
    static const char *const folders[] = {"ns/lacking", "ns/deep/unet", "one"};
    struct place *place = *state;
    char text[128];
    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        (void)snprintf(text, sizeof text, "%s/model-00001-of-00002.safetensors", folders[i]);
        tree_simple(&place->tree, text, "a");
        (void)snprintf(text, sizeof text, "%s/model.safetensors.index.json", folders[i]);
        tree_index(&place->tree, text, index);
    }
    tree_simple(&place->tree, "ns/deep/vae/model.safetensors", "a");
    tree_simple(&place->tree, "ns/whole/model.safetensors", "a");
    tree_simple(&place->tree, "loose-00001-of-00002.safetensors", "a"); /* a model directly in the served directory */
    tree_simple(&place->tree, "whole.safetensors", "a");
    loopback_open(&place->loop, &place->tree);
    expect_list(place, "/api/models?filter=unreadable-files", "local/loose ns/deep ns/lacking local/one");
    cJSON *json = get_json(place, "/api/models?search=lacking");
    const cJSON *listed = cJSON_GetArrayItem(json, 0);
    const cJSON *error = cJSON_GetArrayItem(member(listed, "errors"), 0);
    assert_string_equal(string_at(error, "file"), "model.safetensors.index.json");
    expect_tags(listed, "unreadable-files");
    cJSON_Delete(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(about, a_model_of_transformers), TEST_IN(about, what_the_card_says_goes_first),
        TEST_IN(about, other_libraries),         TEST_IN(about, hostile_files_say_nothing),
        TEST_IN(about, lists_are_filtered),      TEST_IN(about, what_is_not_known_is_refused),
        TEST_IN(about, parts_of_lists),          TEST_IN(about, pages_keep_the_filters),
        TEST_IN(unserved, formats_are_tags),     TEST_IN(unserved, a_set_that_is_not_whole_is_marked),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
