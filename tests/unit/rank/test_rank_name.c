#include "rank/rank_name.h"

#include "tests/unit/unit.h"

/* api/openapi.yaml, /models/{model}/shards/{engine}/{tp}/{file}: tp1 to tp4096. */
static void sizes_are_from_1_to_4096(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "tp", "tp0",  "tp01", "tp4097",        "tp-1", "tp+1", "tp 1",
                                      "TP1", "p1", "tp1 ", "tp1x", "tp99999999999", "1",    "t"};
    uint64_t size = 0;
    assert_true(td_rank_name_read_size(td_text_of("tp1"), &size) && size == 1);
    assert_true(td_rank_name_read_size(td_text_of("tp8"), &size) && size == 8);
    assert_true(td_rank_name_read_size(td_text_of("tp4096"), &size) && size == 4096);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_rank_name_read_size(td_text_of(bad[i]), &size), "%s", bad[i]);
}

static void files_have_three_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t rank;
        bool as_json;
    } good[] = {
        {"rank-0.safetensors", 0, false},
        {"rank-7.json", 7, true},
        {"model-rank-31-part-0.safetensors", 31, false},
        {"rank-999999999.safetensors", 999999999, false},
    };
    static const char *const bad[] = {"",
                                      "rank-.json",
                                      "rank-00.json",
                                      "rank-1000000000.json",
                                      "rank-1.JSON",
                                      "rank-1.safetensors.json",
                                      "rank-1",
                                      "rank--1.safetensors",
                                      "model-rank-1-part-1.safetensors",
                                      "model-rank-part-0.safetensors",
                                      "model-rank-1.json",
                                      "a/rank-1.json"};
    uint64_t rank;
    bool as_json;
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_rank_name_read_file(td_text_of(good[i].name), &rank, &as_json) && rank == good[i].rank &&
                  as_json == good[i].as_json,
              "%s", good[i].name);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_rank_name_read_file(td_text_of(bad[i]), &rank, &as_json), "%s", bad[i]);
}

/* docs/slicing.md: none and fsdp need only names and shapes, the others need config.json too. */
static void engines_are_those_there_are(void **state)
{
    (void)state;
    struct td_rank_name name;
    assert_true(td_rank_name_engine(td_text_of("none"), 3, &name));
    assert_true(name.tp_size == 3 && name.by_engine && !name.by_config && name.id.len == 0);
    assert_true(td_rank_name_engine(td_text_of("fsdp"), 1, &name) && !name.by_config);
    assert_true(td_rank_name_engine(td_text_of("vllm"), 1, &name) && name.by_config);
    assert_true(td_rank_name_engine(td_text_of("nano-vllm"), 1, &name) && name.by_config);
    assert_false(td_rank_name_engine(td_text_of(""), 1, &name));
    assert_false(td_rank_name_engine(td_text_of("vllmx"), 1, &name));
    assert_false(td_rank_name_engine(TD_TEXT("nonesuch"), 1, &name));
    assert_true(td_rank_name_engine(td_text_n("nonesuch", 4), 1, &name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_from_1_to_4096),
        cmocka_unit_test(files_have_three_names),
        cmocka_unit_test(engines_are_those_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
