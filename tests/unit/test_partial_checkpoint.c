/* What ?partial=1 answers of a sharded checkpoint whose index names files that are missing or refused. */
#include "catalog/partial_checkpoint.h"

#include "tests/unit/api_place.h"

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
    (void)state;
    struct place place;
    struct answer answer;
    char got[1024];
    open_partial(&place);
    cJSON *json = get_json(&place, MODEL "?partial=1");
    assert_string_equal(string_at(json, "checkpoint"), "safetensors");
    assert_int_equal(number_at(json, "tensor_count"), 2);
    assert_int_equal(number_at(json, "total_bytes"), 16);
    join(member(json, "tensors"), "href", got);
    assert_string_equal(got, MODEL "/a?partial=1 " MODEL "/b?partial=1");
    const cJSON *lacks = member(json, "incomplete");
    assert_string_equal(string_at(lacks, "reason"), "2 files of the index are missing or refused");
    assert_int_equal(number_at(lacks, "missing_tensor_count"), 2);
    const cJSON *files = member(lacks, "missing_files");
    assert_int_equal(cJSON_GetArraySize(files), 2);
    assert_string_equal(cJSON_GetArrayItem(files, 0)->valuestring, "model-00002-of-00003.safetensors");
    assert_string_equal(cJSON_GetArrayItem(files, 1)->valuestring, "model-00003-of-00003.safetensors");
    cJSON_Delete(json);
    loopback_get(&place.loop, MODEL "/b?partial=1", &answer);
    assert_int_equal(answer.response.status, 200);
    assert_int_equal(answer.len, 8);
    answer_fini(&answer);
    loopback_get(&place.loop, MODEL "/b?partial=1&slice=1:2&checkpoint=safetensors", &answer);
    assert_int_equal(answer.len, 4);
    answer_fini(&answer);
    expect_error(&place, "GET", MODEL "/c?partial=1", 404,
                 "model-00002-of-00003.safetensors\", which is missing");
    expect_error(&place, "GET", MODEL "/d?partial=1", 404,
                 "model-00003-of-00003.safetensors\", which cannot be read");
    expect_error(&place, "GET", MODEL "/x?partial=1", 404, "has no tensor");
    close_place(&place);
}

/* The index alone is wrong: all its files are there, and lack tensors that it names. */
static void files_that_lack_tensors(void **state)
{
    (void)state;
    struct place place;
    tree_open(&place.tree);
    tree_simple(&place.tree, "m/model-00001-of-00001.safetensors", "a b");
    tree_index(&place.tree, "m/model.safetensors.index.json",
               "a model-00001-of-00001.safetensors b model-00001-of-00001.safetensors "
               "c model-00001-of-00001.safetensors");
    tree_simple(&place.tree, "n/model-00001-of-00002.safetensors", "a");
    tree_index(&place.tree, "n/model.safetensors.index.json",
               "a model-00001-of-00002.safetensors b model-00002-of-00002.safetensors");
    loopback_open(&place.loop, &place.tree);
    cJSON *json = get_json(&place, MODEL "?partial=1");
    const cJSON *lacks = member(json, "incomplete");
    assert_string_equal(string_at(lacks, "reason"), "the index names 1 tensor that is not there");
    assert_int_equal(number_at(lacks, "missing_tensor_count"), 1);
    assert_int_equal(cJSON_GetArraySize(member(lacks, "missing_files")), 0);
    cJSON_Delete(json);
    expect_error(&place, "GET", MODEL "/c?partial=1", 404,
                 "model-00001-of-00001.safetensors\", which does not have it");
    json = get_json(&place, "/models/n/tensors?partial=1");
    assert_string_equal(string_at(member(json, "incomplete"), "reason"),
                        "1 file of the index is missing or refused");
    cJSON_Delete(json);
    close_place(&place);
}

static void nothing_else_knows_it(void **state)
{
    (void)state;
    struct place place;
    struct answer answer;
    open_partial(&place);
    expect_error(&place, "GET", MODEL, 404, "add ?partial=1 to .../tensors or .../tensors/{name}");
    expect_error(&place, "GET", MODEL "/a", 404, "?partial=1");
    expect_error(&place, "GET", MODEL "?checkpoint=safetensors", 404, "?partial=1");
    expect_error(&place, "GET", MODEL "?partial=0", 400, "partial must be 1");
    expect_error(&place, "GET", MODEL "?partial=1&checkpoint=none", 404, "");
    expect_error(&place, "GET", MODEL "?partial=1&checkpoint=", 404, "");
    expect_error(&place, "GET", "/models/m/shards/none/tp1/rank-0.safetensors", 404,
                 "no readable checkpoint");
    expect_error(&place, "GET", "/models/m/shards/none/tp1/rank-0.safetensors?partial=1", 400, "unknown");
    expect_error(&place, "GET", "/models/m/model.safetensors", 404, "no readable checkpoint");
    loopback_get(&place.loop, "/models/m/model.safetensors", &answer); /* takes no ?partial= */
    assert_null(strstr(answer.body, "partial"));
    answer_fini(&answer);
    cJSON *json = get_json(&place, "/models/m");
    assert_int_equal(cJSON_GetArraySize(member(json, "checkpoints")), 0);
    assert_int_equal(cJSON_GetArraySize(member(json, "errors")),
                     3); /* the refused file, and two of the index */
    cJSON_Delete(json);
    close_place(&place);
}

static void the_tag_changes_when_a_shard_arrives(void **state)
{
    (void)state;
    struct place place;
    char tags[3][128];
    open_partial(&place);
    get_tag(&place, MODEL "?partial=1", tags[0]);
    tree_simple(&place.tree, "m/model-00002-of-00003.safetensors", "c");
    loopback_rescan(&place.loop);
    get_tag(&place, MODEL "?partial=1", tags[1]);
    assert_string_not_equal(tags[0], tags[1]);
    tree_simple(&place.tree, "m/model-00003-of-00003.safetensors", "d");
    loopback_rescan(&place.loop);
    get_tag(&place, MODEL "?partial=1", tags[2]); /* complete: as without it */
    assert_string_not_equal(tags[1], tags[2]);
    cJSON *json = get_json(&place, MODEL "?partial=1");
    assert_int_equal(number_at(json, "tensor_count"), 4);
    assert_null(cJSON_GetObjectItem(json, "incomplete"));
    cJSON_Delete(json);
    close_place(&place);
}

int main(void)
{
    td_log_set_level(TD_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_there_can_be_asked_for),
        cmocka_unit_test(files_that_lack_tensors),
        cmocka_unit_test(nothing_else_knows_it),
        cmocka_unit_test(the_tag_changes_when_a_shard_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
