/* Answers to ?partial=1 for a checkpoint that lacks files: of an index, a group or a .metadata. */
#include "catalog/checkpoints/partial_checkpoint.h"

#include "tests/unit/api/api_place.h"

#define MODEL "/models/m/tensors"

static void open_partial(struct place *place)
{
    tree_open(&place->tree);
    tree_simple(&place->tree, "m/model-00001-of-00003.safetensors", "a b");
    tree_text(&place->tree, "m/model-00003-of-00003.safetensors", "rubbish!");
    tree_index(&place->tree, "m/model.safetensors.index.json",
               "a model-00001-of-00003.safetensors b model-00001-of-00003.safetensors "
               "c model-00002-of-00003.safetensors d model-00003-of-00003.safetensors");
    loopback_open(&place->loop, &place->tree);
}

FIXTURE(partial, struct place, open_partial, close_place)

static void get_tag(struct place *place, const char *target, char tag[128])
{
    struct answer answer;
    char buffer[128];
    loopback_get(&place->loop, target, &answer);
    CHECK(answer.response.status == 200, "%s: %s", target, answer.body);
    (void)snprintf(tag, 128, "%s", answer_header(&answer, "ETag", buffer));
    answer_fini(&answer);
}

static void what_is_there_can_be_asked_for(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char got[1024];
    cJSON *json = get_json(place, MODEL "?partial=1");
    assert_string_equal(string_at(json, "checkpoint"), "safetensors");
    assert_int_equal(number_at(json, "tensor_count"), 2);
    assert_int_equal(number_at(json, "total_bytes"), 16);
    join(member(json, "tensors"), "href", got);
    assert_string_equal(got, MODEL "/a?partial=1 " MODEL "/b?partial=1");
    const cJSON *lacks = member(json, "incomplete");
    assert_string_equal(string_at(lacks, "reason"), "2 files of the index are missing or refused");
    assert_int_equal(number_at(lacks, "missing_tensor_count"), 2);
    assert_int_equal(number_at(lacks, "missing_file_count"), 2);
    const cJSON *files = member(lacks, "missing_files");
    assert_int_equal(cJSON_GetArraySize(files), 2);
    assert_string_equal(cJSON_GetArrayItem(files, 0)->valuestring, "model-00002-of-00003.safetensors");
    assert_string_equal(cJSON_GetArrayItem(files, 1)->valuestring, "model-00003-of-00003.safetensors");
    cJSON_Delete(json);
    loopback_get(&place->loop, MODEL "/b?partial=1", &answer);
    assert_int_equal(answer.response.status, 200);
    assert_int_equal(answer.len, 8);
    answer_fini(&answer);
    loopback_get(&place->loop, MODEL "/b?partial=1&slice=1:2&checkpoint=safetensors", &answer);
    assert_int_equal(answer.len, 4);
    answer_fini(&answer);
    expect_error(place, "GET", MODEL "/c?partial=1", 404, "model-00002-of-00003.safetensors\", which is missing");
    expect_error(place, "GET", MODEL "/d?partial=1", 404, "model-00003-of-00003.safetensors\", which cannot be read");
    expect_error(place, "GET", MODEL "/x?partial=1", 404, "has no tensor");
}

/* All files of the index are there, but lack tensors that it names. */
static void files_that_lack_tensors(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "m/model-00001-of-00001.safetensors", "a b");
    tree_index(&place->tree, "m/model.safetensors.index.json",
               "a model-00001-of-00001.safetensors b model-00001-of-00001.safetensors "
               "c model-00001-of-00001.safetensors");
    tree_simple(&place->tree, "n/model-00001-of-00002.safetensors", "a");
    tree_index(&place->tree, "n/model.safetensors.index.json",
               "a model-00001-of-00002.safetensors b model-00002-of-00002.safetensors");
    loopback_open(&place->loop, &place->tree);
    cJSON *json = get_json(place, MODEL "?partial=1");
    const cJSON *lacks = member(json, "incomplete");
    assert_string_equal(string_at(lacks, "reason"), "the index names 1 tensor that is not there");
    assert_int_equal(number_at(lacks, "missing_tensor_count"), 1);
    assert_int_equal(cJSON_GetArraySize(member(lacks, "missing_files")), 0);
    cJSON_Delete(json);
    expect_error(place, "GET", MODEL "/c?partial=1", 404, "model-00001-of-00001.safetensors\", which does not have it");
    json = get_json(place, "/models/n/tensors?partial=1");
    assert_string_equal(string_at(member(json, "incomplete"), "reason"), "1 file of the index is missing or refused");
    cJSON_Delete(json);
}

/* An index may name any file beside it. Indexes that it names, itself included, hold no tensors and have no format. */
static void indexes_are_no_shards(void **state)
{
    struct place *place = *state;
    char got[1024];
    tree_simple(&place->tree, "m/x.safetensors", "b");
    tree_index(&place->tree, "m/a.safetensors.index.json", "b x.safetensors");
    tree_index(&place->tree, "m/model.safetensors.index.json",
               "a a.safetensors.index.json b x.safetensors c model.safetensors.index.json");
    tree_simple(&place->tree, "n/x.safetensors", "b");
    tree_copy(&place->tree, TD_TEST_DATA "/dcp/.metadata", "n/.metadata");
    tree_text(&place->tree, "n/__9_0.distcp", "rubbish!");
    tree_index(&place->tree, "n/model.safetensors.index.json", "a .metadata b x.safetensors");
    loopback_open(&place->loop, &place->tree);
    cJSON *json = get_json(place, MODEL "?partial=1&checkpoint=safetensors");
    assert_string_equal(string_at(json, "format"), "safetensors");
    assert_int_equal(number_at(json, "tensor_count"), 1);
    const cJSON *lacks = member(json, "incomplete");
    assert_string_equal(string_at(lacks, "reason"), "2 files of the index are missing or refused");
    cJSON_Delete(json);
    json = get_json(place, "/models/m");
    join(member(json, "errors"), "message", got);
    assert_non_null(strstr(got, "shard \"a.safetensors.index.json\" holds no tensors"));
    cJSON_Delete(json);
    json = get_json(place, "/models/n/tensors?partial=1&checkpoint=safetensors");
    assert_string_equal(string_at(json, "format"), "safetensors");
    cJSON_Delete(json);
}

/* All missing files are named, also between files that are there. */
static void every_missing_file_is_named(void **state)
{
    struct place *place = *state;
    char names[256] = "";
    tree_simple(&place->tree, "m/s2.safetensors", "b");
    tree_simple(&place->tree, "m/s4.safetensors", "d");
    tree_index(&place->tree, "m/model.safetensors.index.json",
               "a s1.safetensors b s2.safetensors c s3.safetensors d s4.safetensors e s5.safetensors");
    loopback_open(&place->loop, &place->tree);
    cJSON *json = get_json(place, MODEL "?partial=1");
    const cJSON *lacks = member(json, "incomplete");
    const cJSON *file;
    cJSON_ArrayForEach(file, member(lacks, "missing_files"))(void)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", file->valuestring);
    assert_string_equal(names, "s1.safetensors s3.safetensors s5.safetensors ");
    assert_int_equal(number_at(lacks, "missing_file_count"), 3);
    cJSON_Delete(json);
}

/* 19 sets: more than the first capacity of any list. */
static void many_incomplete_sets(void **state)
{
    enum { SETS = 19 };
    struct place *place = *state;
    char text[64];
    for (int i = 0; i < SETS; i++) {
        (void)snprintf(text, sizeof text, "m/s%02d-00001-of-00002.safetensors", i);
        char name[16];
        (void)snprintf(name, sizeof name, "t%02d", i);
        tree_simple(&place->tree, text, name);
    }
    loopback_open(&place->loop, &place->tree);
    for (int i = 1; i < SETS; i++) {
        (void)snprintf(text, sizeof text, MODEL "/t%02d?partial=1&checkpoint=s%02d.safetensors", i, i);
        struct answer answer;
        loopback_get(&place->loop, text, &answer);
        CHECK(answer.response.status == 200 && answer.len == 8, "%s: %s", text, answer.body);
        answer_fini(&answer);
    }
}

static void nothing_else_knows_it(void **state)
{
    struct place *place = *state;
    struct answer answer;
    expect_error(place, "GET", MODEL, 404, "add ?partial=1 to .../tensors or .../tensors/{name}");
    expect_error(place, "GET", MODEL "/a", 404, "?partial=1");
    expect_error(place, "GET", MODEL "?checkpoint=safetensors", 404, "?partial=1");
    expect_error(place, "GET", MODEL "?partial=0", 400, "partial must be 1");
    expect_error(place, "GET", MODEL "?partial=1&checkpoint=none", 404, "");
    expect_error(place, "GET", MODEL "?partial=1&checkpoint=", 404, "");
    expect_error(place, "GET", "/models/m/shards/none/tp1/rank-0.safetensors", 404, "no readable checkpoint");
    expect_error(place, "GET", "/models/m/shards/none/tp1/rank-0.safetensors?partial=1", 400, "unknown");
    expect_error(place, "GET", "/models/m/model.safetensors", 404, "no readable checkpoint");
    loopback_get(&place->loop, "/models/m/model.safetensors", &answer); /* this route takes no ?partial= */
    assert_null(strstr(answer.body, "partial"));
    answer_fini(&answer);
    cJSON *json = get_json(place, "/models/m");
    assert_int_equal(cJSON_GetArraySize(member(json, "checkpoints")), 0);
    assert_int_equal(cJSON_GetArraySize(member(json, "errors")), 3); /* the refused file, and two of the index */
    cJSON_Delete(json);
}

/* An incomplete set has the id of the complete set, so that a URL with ?partial=1 stays right. */
static void the_id_stays_when_the_set_is_complete(void **state)
{
    (void)state;
    static const struct {
        const char *id, *files, *index; /* files: the second is written last, the others first */
    } cases[] = {
        {"safetensors", "s1.safetensors s2.safetensors", "model.safetensors.index.json"},
        {"safetensors", "s1.safetensors s2.safetensors", "diffusion_pytorch_model.safetensors.index.json"},
        {"safetensors", "s1.safetensors s2.safetensors", "model.safetensors.index.fp16.json"},
        {"safetensors", "x-00001-of-00002.safetensors x-00002-of-00002.safetensors", NULL},
        {"safetensors", "model-00001-of-00002.safetensors model-00002-of-00002.safetensors", NULL},
        /* beside another set of its kind a set has its own name */
        {"x.safetensors", "x-00001-of-00002.safetensors x-00002-of-00002.safetensors model.safetensors", NULL},
        {"x.safetensors", "x-00001-of-00002.safetensors x-00002-of-00002.safetensors y.safetensors", NULL},
        {"a.safetensors.index.json", "s1.safetensors s2.safetensors y.safetensors", "a.safetensors.index.json"},
        {"model.safetensors.index.json", "s1.safetensors s2.safetensors model.safetensors",
         "model.safetensors.index.json"},
        {"safetensors", "s1.safetensors s2.safetensors y.safetensors", "model.safetensors.index.json"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct place place;
        char files[3][64] = {""};
        char path[96];
        char target[160];
        char index[160];
        tree_open(&place.tree);
        int count = sscanf(cases[i].files, "%63s %63s %63s", files[0], files[1], files[2]);
        for (int k = 0; k < count; k++) {
            (void)snprintf(path, sizeof path, "m/%s", files[k]);
            if (k != 1)
                tree_simple(&place.tree, path, k == 0 ? "a" : "other");
        }
        (void)snprintf(path, sizeof path, "m/%s", cases[i].index == NULL ? "" : cases[i].index);
        (void)snprintf(index, sizeof index, "a %s b %s", files[0], files[1]);
        if (cases[i].index != NULL)
            tree_index(&place.tree, path, index);
        loopback_open(&place.loop, &place.tree);
        (void)snprintf(target, sizeof target, MODEL "?partial=1&checkpoint=%s", cases[i].id);
        cJSON *json = get_json(&place, target);
        CHECK(cJSON_GetObjectItem(json, "incomplete") != NULL, "case %zu", i);
        CHECK(number_at(json, "tensor_count") == 1, "case %zu", i);
        cJSON_Delete(json);
        (void)snprintf(path, sizeof path, "m/%s", files[1]);
        tree_simple(&place.tree, path, "b");
        loopback_rescan(&place.loop);
        json = get_json(&place, target);
        CHECK(cJSON_GetObjectItem(json, "incomplete") == NULL, "case %zu", i);
        CHECK(strcmp(string_at(json, "checkpoint"), cases[i].id) == 0, "case %zu", i);
        CHECK(number_at(json, "tensor_count") == 2, "case %zu", i);
        cJSON_Delete(json);
        close_place(&place);
    }
}

/* The default of several incomplete sets is the one that would be the default if complete, else the first that has a
 * tensor. */
static void incomplete_sets_beside_each_other(void **state)
{
    struct place *place = *state;
    char got[1024] = "";
    tree_simple(&place->tree, "m/s1.safetensors", "a");
    tree_index(&place->tree, "m/a.safetensors.index.json", "a s1.safetensors b gone.safetensors");
    tree_index(&place->tree, "m/model.safetensors.index.json", "a s1.safetensors c gone.safetensors");
    tree_simple(&place->tree, "n/s1.safetensors", "a");
    tree_index(&place->tree, "n/a.safetensors.index.json", "b gone.safetensors");
    tree_index(&place->tree, "n/b.safetensors.index.json", "a s1.safetensors b gone.safetensors");
    tree_index(&place->tree, "n/c.safetensors.index.json", "a s1.safetensors c gone.safetensors");
    loopback_open(&place->loop, &place->tree);
    cJSON *json = get_json(place, MODEL "?partial=1");
    assert_string_equal(string_at(json, "checkpoint"), "safetensors");
    join(member(json, "tensors"), "href", got);
    assert_string_equal(got, MODEL "/a?partial=1");
    cJSON_Delete(json);
    expect_error(place, "GET", MODEL "/c?partial=1&checkpoint=safetensors", 404, "gone.safetensors");
    expect_error(place, "GET", MODEL "/b?partial=1&checkpoint=a.safetensors.index.json", 404, "gone.safetensors");
    json = get_json(place, "/models/n/tensors?partial=1");
    assert_string_equal(string_at(json, "checkpoint"), "safetensors");
    cJSON_Delete(json);
    expect_error(place, "GET", "/models/n/tensors/b?partial=1&checkpoint=safetensors", 404, "gone.safetensors");
    expect_error(place, "GET", "/models/n/tensors/c?partial=1&checkpoint=c.safetensors.index.json", 404,
                 "gone.safetensors");
}

static void the_tag_changes_when_a_shard_arrives(void **state)
{
    struct place *place = *state;
    char tags[3][128];
    get_tag(place, MODEL "?partial=1", tags[0]);
    tree_simple(&place->tree, "m/model-00002-of-00003.safetensors", "c");
    loopback_rescan(&place->loop);
    get_tag(place, MODEL "?partial=1", tags[1]);
    assert_string_not_equal(tags[0], tags[1]);
    tree_simple(&place->tree, "m/model-00003-of-00003.safetensors", "d");
    loopback_rescan(&place->loop);
    get_tag(place, MODEL "?partial=1", tags[2]); /* complete: ?partial=1 changes nothing */
    assert_string_not_equal(tags[1], tags[2]);
    cJSON *json = get_json(place, MODEL "?partial=1");
    assert_int_equal(number_at(json, "tensor_count"), 4);
    assert_null(cJSON_GetObjectItem(json, "incomplete"));
    cJSON_Delete(json);
}

/* Checks the manifest of an incomplete group: its id, its hrefs, why it is incomplete and the files that it names. */
static void check_group(struct place *place, const char *target, const char *id, const char *hrefs, const char *reason,
                        const char *missing)
{
    char got[1024] = "";
    cJSON *json = get_json(place, target);
    CHECK(strcmp(string_at(json, "checkpoint"), id) == 0, "%s: %s", target, string_at(json, "checkpoint"));
    join(member(json, "tensors"), "href", got);
    CHECK(strcmp(got, hrefs) == 0, "%s: %s", target, got);
    const cJSON *lacks = member(json, "incomplete");
    CHECK(strcmp(string_at(lacks, "reason"), reason) == 0, "%s: %s", target, string_at(lacks, "reason"));
    CHECK(cJSON_GetObjectItem(lacks, "missing_tensor_count") == NULL, "%s", target); /* the number is not known */
    const cJSON *file;
    struct td_buffer files;
    td_buffer_init(&files);
    cJSON_ArrayForEach(file, member(lacks, "missing_files"))
        td_buffer_printf(&files, "%s%s", files.len > 0 ? " " : "", file->valuestring);
    const char *text = td_buffer_terminate(&files);
    CHECK(text != NULL && strcmp(text, missing) == 0, "%s: %s", target, text);
    td_buffer_fini(&files);
    cJSON_Delete(json);
}

static void a_group_without_an_index(void **state)
{
    struct place *place = *state;
    struct answer answer;
    tree_simple(&place->tree, "m/model-00002-of-00004.safetensors", "a b");
    tree_text(&place->tree, "m/model-00003-of-00004.safetensors", "rubbish!");
    tree_simple(&place->tree, "m/model-00004-of-00004.safetensors", "c");
    tree_simple(&place->tree, "n/x-00001-of-00002.safetensors", "a");
    tree_simple(&place->tree, "n/x-00001-of-00003.safetensors", "a b");
    tree_simple(&place->tree, "n/x-00007-of-00003.safetensors", "c"); /* a shard number beyond the group's count */
    loopback_open(&place->loop, &place->tree);
    check_group(place, MODEL "?partial=1", "safetensors",
                MODEL "/a?partial=1 " MODEL "/b?partial=1 " MODEL "/c?partial=1",
                "2 files of the group are missing or refused",
                "model-00001-of-00004.safetensors model-00003-of-00004.safetensors");
    check_group(place, "/models/n/tensors?partial=1", "safetensors", "/models/n/tensors/a?partial=1",
                "1 file of the group is missing or refused", "x-00002-of-00002.safetensors");
    check_group(
        place, "/models/n/tensors?partial=1&checkpoint=x-00001-of-00003.safetensors", "x-00001-of-00003.safetensors",
        "/models/n/tensors/a?partial=1&checkpoint=x-00001-of-00003.safetensors "
        "/models/n/tensors/b?partial=1&checkpoint=x-00001-of-00003.safetensors",
        "2 files of the group are missing or refused", "x-00002-of-00003.safetensors x-00003-of-00003.safetensors");
    loopback_get(&place->loop, MODEL "/c?partial=1", &answer);
    assert_int_equal(answer.response.status, 200);
    assert_int_equal(answer.len, 8);
    answer_fini(&answer);
    expect_error(place, "GET", MODEL "/x?partial=1", 404,
                 "may be in \"model-00001-of-00004.safetensors\", which is missing, or in 1 other");
    expect_error(place, "GET", MODEL, 404, "add ?partial=1"); /* not published without ?partial=1 */
    expect_error(place, "GET", MODEL "/a", 404, "?partial=1");
    cJSON *json = get_json(place, "/models/m");
    assert_int_equal(cJSON_GetArraySize(member(json, "checkpoints")), 0);
    const cJSON *first = cJSON_GetArrayItem(member(json, "errors"), 1);
    assert_non_null(strstr(string_at(first, "message"), "shard 1 of 4 is not there"));
    cJSON_Delete(json);
}

/* A file name can claim 99,999 shards: the answer names 1,000 of the missing files and counts all. */
static void few_missing_files_are_named(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "m/x-00002-of-99999.safetensors", "a");
    loopback_open(&place->loop, &place->tree);
    cJSON *json = get_json(place, MODEL "?partial=1");
    const cJSON *lacks = member(json, "incomplete");
    const cJSON *files = member(lacks, "missing_files");
    assert_int_equal(number_at(lacks, "missing_file_count"), 99998);
    assert_int_equal(cJSON_GetArraySize(files), 1000);
    assert_string_equal(cJSON_GetArrayItem(files, 0)->valuestring, "x-00001-of-99999.safetensors");
    assert_string_equal(cJSON_GetArrayItem(files, 999)->valuestring, "x-01001-of-99999.safetensors");
    cJSON_Delete(json);
    expect_error(place, "GET", MODEL "/x?partial=1", 404, "or in 99997 other");
}

/* A group that has a tensor twice, or that has all its shards and one too many, has no incomplete checkpoint. */
static void groups_that_are_not_offered(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "m/x-00001-of-00003.safetensors", "a");
    tree_simple(&place->tree, "m/x-00002-of-00003.safetensors", "a");
    tree_simple(&place->tree, "n/x-00001-of-00001.safetensors", "a");
    tree_text(&place->tree, "n/x-00003-of-00001.safetensors", "rubbish!");
    loopback_open(&place->loop, &place->tree);
    expect_error(place, "GET", MODEL "?partial=1", 404, "no readable checkpoint");
    expect_error(place, "GET", "/models/n/tensors?partial=1", 404, "no readable checkpoint");
}

/* The files are from gguf-split. A file whose contents give another shard number than its name is left out. */
static void a_split_gguf(void **state)
{
    struct place *place = *state;
    tree_copy(&place->tree, TD_TEST_DATA "/gguf/split-00001-of-00003.gguf", "m/q-00001-of-00003.gguf");
    tree_copy(&place->tree, TD_TEST_DATA "/gguf/split-00003-of-00003.gguf", "m/q-00003-of-00003.gguf");
    tree_copy(&place->tree, TD_TEST_DATA "/gguf/split-00003-of-00003.gguf", "n/q-00002-of-00003.gguf");
    tree_copy(&place->tree, TD_TEST_DATA "/gguf/split-00003-of-00003.gguf", "n/q-00003-of-00003.gguf");
    loopback_open(&place->loop, &place->tree);
    cJSON *json = get_json(place, MODEL "?partial=1");
    assert_string_equal(string_at(json, "format"), "gguf");
    cJSON_Delete(json);
    check_group(place, MODEL "?partial=1", "q", MODEL "/t0?partial=1 " MODEL "/t1?partial=1 " MODEL "/t4?partial=1",
                "1 file of the group is missing or refused", "q-00002-of-00003.gguf");
    check_group(place, "/models/n/tensors?partial=1", "q", "/models/n/tensors/t4?partial=1",
                "2 files of the group are missing or refused", "q-00001-of-00003.gguf q-00002-of-00003.gguf");
}

/* A .metadata alone: only tensors without elements need no file. */
static void a_distributed_checkpoint(void **state)
{
    struct place *place = *state;
    tree_copy(&place->tree, TD_TEST_DATA "/dcp/.metadata", "m/.metadata");
    tree_text(&place->tree, "m/__9_0.distcp", "rubbish!");
    loopback_open(&place->loop, &place->tree);
    cJSON *json = get_json(place, MODEL "?partial=1");
    assert_string_equal(string_at(json, "checkpoint"), "dcp");
    assert_string_equal(string_at(json, "format"), "dcp");
    assert_int_equal(number_at(json, "tensor_count"), 1);
    const cJSON *lacks = member(json, "incomplete");
    assert_string_equal(string_at(lacks, "reason"), "1 file of .metadata is missing or refused");
    assert_int_equal(number_at(lacks, "missing_tensor_count"), 5);
    assert_string_equal(cJSON_GetArrayItem(member(lacks, "missing_files"), 0)->valuestring, "__0_0.distcp");
    cJSON_Delete(json);
    expect_error(place, "GET", MODEL "/model.weight?partial=1", 404,
                 ".metadata says that it is in \"__0_0.distcp\", which is missing");
    expect_error(place, "GET", MODEL "/x?partial=1", 404, "has no tensor");
    expect_error(place, "GET", MODEL, 404, "?partial=1");
}

int main(void)
{
    td_log_set_level(TD_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST_IN(partial, what_is_there_can_be_asked_for),
        TEST_IN(unserved, files_that_lack_tensors),
        TEST_IN(unserved, indexes_are_no_shards),
        TEST_IN(unserved, every_missing_file_is_named),
        TEST_IN(unserved, many_incomplete_sets),
        TEST_IN(partial, nothing_else_knows_it),
        cmocka_unit_test(the_id_stays_when_the_set_is_complete),
        TEST_IN(unserved, incomplete_sets_beside_each_other),
        TEST_IN(partial, the_tag_changes_when_a_shard_arrives),
        TEST_IN(unserved, a_group_without_an_index),
        TEST_IN(unserved, few_missing_files_are_named),
        TEST_IN(unserved, groups_that_are_not_offered),
        TEST_IN(unserved, a_split_gguf),
        TEST_IN(unserved, a_distributed_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
