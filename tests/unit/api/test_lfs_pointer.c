/* Git LFS pointers and files that do not parse, as every interface shows them. The pointer is the example of git-lfs's
 * docs/spec.md. */
#include "tests/unit/api/hub_place.h"

#define POINTER                                                                     \
    "version https://git-lfs.github.com/spec/v1\n"                                  \
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n" \
    "size 12345\n"
#define REASON "a Git LFS pointer, not the file itself; run git lfs pull"

static void open_cloned(struct place *place)
{
    char longer[1200];
    memset(longer, 'x', sizeof longer);
    memcpy(longer, POINTER, sizeof POINTER - 1);
    tree_open(&place->tree);
    tree_text(&place->tree, "ns/cloned/model.safetensors", POINTER);
    tree_text(&place->tree, "ns/cloned/tokenizer.json", POINTER);
    tree_text(&place->tree, "ns/cloned/sub/any.bin", POINTER);
    tree_text(&place->tree, "ns/cloned/vocab.txt", "plain");
    tree_write(&place->tree, "ns/cloned/longer.txt", longer, 1024); /* pointers have fewer than 1,024 bytes */
    tree_write(&place->tree, "ns/cloned/almost.txt", longer, 1023);
    tree_text(&place->tree, "ns/cloned/begins.txt", "version https://git");
    tree_text(&place->tree, "ns/bad/model.safetensors", "rubbish!");
    tree_text(&place->tree, "ns/bad/README.md", "a text");
    tree_simple(&place->tree, "ns/good/model.safetensors", "w");
    tree_simple(&place->tree, "ns/part/model-00001-of-00002.safetensors", "a");
    tree_index(&place->tree, "ns/part/model.safetensors.index.json",
               "a model-00001-of-00002.safetensors b model-00002-of-00002.safetensors");
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
}

FIXTURE(cloned, struct place, open_cloned, close_place)

/* Pointers are answered 409: huggingface_hub repeats requests after 429 and 5xx, and remembers 404. */
/* shows: security.md content-lfs-pointers */
static void pointers_are_refused(void **state)
{
    static const char *const paths[] = {"model.safetensors", "tokenizer.json", "sub/any.bin", "almost.txt"};
    static const char *const methods[] = {"GET", "HEAD"};
    struct place *place = *state;
    for (size_t i = 0; i < 2 * COUNT_OF(paths); i++) {
        char target[256];
        char buffer[128];
        struct answer answer;
        (void)snprintf(target, sizeof target, "/ns/cloned/resolve/main/%s", paths[i / 2]);
        loopback_ask(&place->loop, methods[i % 2], target, "Range: bytes=0-9", &answer);
        CHECK(answer.response.status == 409, "%s: %d", target, answer.response.status);
        CHECK(strstr(answer_header(&answer, "X-Error-Message", buffer), "Git LFS pointer") != NULL, "%s", target);
        assert_null(answer_header(&answer, "X-Error-Code", buffer));
        assert_null(answer_header(&answer, "ETag", buffer));
        CHECK(strstr(answer.body, "git lfs pull") != NULL, "%s", answer.body);
        answer_fini(&answer);
        (void)snprintf(target, sizeof target, "/models/ns/cloned/files/%s", paths[i / 2]);
        expect_error(place, methods[i % 2], target, 409, "git lfs pull");
        (void)snprintf(target, sizeof target, "/ns/cloned/%s", paths[i / 2]);
        loopback_ask_s3(&place->loop, methods[i % 2], target, NULL, &answer);
        CHECK(answer.response.status == 409, "%s: %d", target, answer.response.status);
        CHECK(strstr(answer.body, "<Code>GitLfsPointer</Code>") != NULL, "%s", answer.body);
        CHECK(strstr(answer.body, "git lfs pull") != NULL, "%s", answer.body);
        answer_fini(&answer);
    }
}

/* A checkpoint that does not parse is served as a plain file, and so is a text that only resembles a pointer. */
static void other_files_are_sent(void **state)
{
    static const struct {
        const char *hub, *s3;
        size_t len;
    } cases[] = {
        {"/ns/bad/resolve/main/model.safetensors", "/ns/bad/model.safetensors", 8},
        {"/ns/cloned/resolve/main/vocab.txt", "/ns/cloned/vocab.txt", 5},
        {"/ns/cloned/resolve/main/longer.txt", "/ns/cloned/longer.txt", 1024},
        {"/ns/cloned/resolve/main/begins.txt", "/ns/cloned/begins.txt", 19},
    };
    struct place *place = *state;
    struct answer answer;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        loopback_get(&place->loop, cases[i].hub, &answer);
        CHECK(answer.response.status == 200 && answer.len == cases[i].len, "%s", cases[i].hub);
        answer_fini(&answer);
        loopback_ask_s3(&place->loop, "GET", cases[i].s3, NULL, &answer);
        CHECK(answer.response.status == 200 && answer.len == cases[i].len, "%s", cases[i].s3);
        answer_fini(&answer);
    }
}

/* Checks the errors of an array's objects, as "path: error; path: error". Objects without an error are left out. */
static void expect_errors(const cJSON *array, const char *name, const char *wanted)
{
    char got[1024] = "";
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        size_t used = strlen(got);
        if (cJSON_GetObjectItem(item, "error") != NULL)
            (void)snprintf(got + used, sizeof got - used, "%s%s: %s", used > 0 ? "; " : "", string_at(item, name),
                           string_at(item, "error"));
    }
    CHECK(strcmp(got, wanted) == 0, "%s\nwanted %s", got, wanted);
}

#define CLONED_ERRORS \
    "almost.txt: " REASON "; model.safetensors: " REASON "; sub/any.bin: " REASON "; tokenizer.json: " REASON

/* shows: security.md content-lfs-pointers */
static void lists_mark_pointers(void **state)
{
    struct place *place = *state;
    struct answer answer;
    cJSON *json = get_json(place, "/api/models/ns/cloned/tree/main?recursive=true");
    expect_errors(json, "path", CLONED_ERRORS);
    cJSON_Delete(json);
    json = get_json(place, "/api/models/ns/cloned?blobs=true");
    expect_errors(member(json, "siblings"), "rfilename", CLONED_ERRORS);
    expect_errors(member(json, "errors"), "file", CLONED_ERRORS);
    assert_string_equal(cJSON_GetArrayItem(member(json, "tags"), 0)->valuestring, "unreadable-files");
    cJSON_Delete(json);
    post(place, "/api/models/ns/cloned/paths-info/main", "paths=tokenizer.json&paths=vocab.txt", &answer);
    json = cJSON_Parse(answer.body);
    expect_errors(json, "path", "tokenizer.json: " REASON);
    cJSON_Delete(json);
    answer_fini(&answer);
    json = get_json(place, "/models/ns/cloned");
    expect_errors(member(json, "files"), "path", CLONED_ERRORS);
    char files[1024];
    join(member(json, "errors"), "file", files);
    assert_string_equal(files, "model.safetensors almost.txt tokenizer.json");
    cJSON_Delete(json);
}

static void lists_mark_what_does_not_parse(void **state)
{
    struct place *place = *state;
    cJSON *json = get_json(place, "/api/models/ns/bad");
    const cJSON *error = cJSON_GetArrayItem(member(json, "errors"), 0);
    assert_string_equal(string_at(error, "file"), "model.safetensors");
    const char *reason = string_at(error, "error");
    assert_true(strlen(reason) > 10);
    char wanted[600];
    (void)snprintf(wanted, sizeof wanted, "model.safetensors: %s", reason);
    expect_errors(member(json, "siblings"), "rfilename", wanted);
    cJSON *tree = get_json(place, "/api/models/ns/bad/tree/main");
    expect_errors(tree, "path", wanted);
    cJSON_Delete(tree);
    cJSON_Delete(json);
    json = get_json(place, "/api/models");
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        const char *id = string_at(item, "id");
        bool marked = strcmp(id, "ns/bad") == 0 || strcmp(id, "ns/cloned") == 0 ||
                      strcmp(id, "ns/part") == 0; /* ns/part lacks a shard */
        bool tagged = false;
        const cJSON *tag;
        cJSON_ArrayForEach(tag, member(item, "tags"))
        {
            tagged = tagged || strcmp(tag->valuestring, "unreadable-files") == 0;
        }
        CHECK(tagged == marked, "%s", id);
        CHECK((cJSON_GetObjectItem(item, "errors") != NULL) == marked, "%s", id);
    }
    cJSON_Delete(json);
    json = get_json(place, "/api/models/ns/good");
    assert_null(cJSON_GetObjectItem(json, "errors"));
    cJSON_Delete(json);
    json = get_json(place, "/api/models/ns/part"); /* every file is readable, but the set is incomplete */
    assert_string_equal(string_at(cJSON_GetArrayItem(member(json, "errors"), 0), "file"),
                        "model.safetensors.index.json");
    cJSON_Delete(json);
}

/* `git lfs pull` replaces the pointers; the next scan publishes the files. */
static void a_pull_mends_it(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "ns/cloned/model.safetensors", "w");
    tree_text(&place->tree, "ns/cloned/tokenizer.json", "{}");
    loopback_rescan(&place->loop);
    expect_status(place, "/ns/cloned/resolve/main/tokenizer.json", 200);
    cJSON *json = get_json(place, "/models/ns/cloned/tensors");
    cJSON_Delete(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(cloned, pointers_are_refused), TEST_IN(cloned, other_files_are_sent),
        TEST_IN(cloned, lists_mark_pointers),  TEST_IN(cloned, lists_mark_what_does_not_parse),
        TEST_IN(cloned, a_pull_mends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
