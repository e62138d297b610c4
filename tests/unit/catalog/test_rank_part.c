/* Names of files and directories of ranks, and which of them are parts of a model. */
#include "catalog/checkpoints/rank_part.h"

#include "tests/unit/unit.h"

/* A name, and its set: names with the same key are parts of one model. */
static const struct {
    const char *name;
    enum td_rank_kind kind;
    bool is_first;
    const char *key; /* NULL: any */
} names[] = {
    {"consolidated.00.pth", TD_RANK_KNOWN, true, "consolidated."},
    {"consolidated.07.pt", TD_RANK_KNOWN, false, "consolidated."},
    {"consolidated.safetensors", TD_RANK_NONE, true, NULL},
    {"consolidated.0.pth", TD_RANK_NONE, true, NULL},
    {"model-rank-0-part-0.safetensors", TD_RANK_KNOWN, true, "model-rank#-part#.safetensors"},
    {"model-rank-0-part-3.safetensors", TD_RANK_KNOWN, true, "model-rank#-part#.safetensors"},
    {"model-rank-3-part-0.safetensors", TD_RANK_KNOWN, false, "model-rank#-part#.safetensors"},
    {"model-pp-0-tp-1-part-0.safetensors", TD_RANK_KNOWN, false, "model-pp#-tp#-part#.safetensors"},
    {"mp_rank_00", TD_RANK_KNOWN, true, "mp_rank#"},
    {"mp_rank_00_001", TD_RANK_KNOWN, false, "mp_rank#"},
    {"tp_rank_00_pp_rank_001", TD_RANK_KNOWN, false, "tp_rank#_pp_rank#"},
    {"mp_rank_00_model_states.pt", TD_RANK_KNOWN, true, "mp_rank#_model_states.pt"},
    {"expert_3_mp_rank_00_model_states.pt", TD_RANK_ALWAYS, false, "mp_rank#_model_states.pt"},
    {"layer_12-model_00-model_states.pt", TD_RANK_ALWAYS, false, "mp_rank#_model_states.pt"},
    {"zero_pp_rank_0_mp_rank_00_optim_states.pt", TD_RANK_ALWAYS, true, NULL},
    {"rank0.safetensors", TD_RANK_NUMBER, true, "rank#.safetensors"},
    {"lora-rank-16.safetensors", TD_RANK_NUMBER, false, "lora-rank#.safetensors"},
    {"tp4-rank1.safetensors", TD_RANK_NUMBER, false, "tp4-rank#.safetensors"},
    {"tp1_sharded_checkpoint.safetensors", TD_RANK_NUMBER, false, "tp#_sharded_checkpoint.safetensors"},
    {"model3-mp16.safetensors", TD_RANK_ALWAYS, false, "model"},
    {"model0-mp1.safetensors", TD_RANK_NONE, true, NULL},
    {"checkpoint_last-shard1.pt", TD_RANK_SHARD, false, "checkpoint_last-shard#.pt"},
    {"reshard-model_part-1.pt", TD_RANK_SHARD, true, "reshard-model_part#.pt"},
    {"model-00001-of-00002.safetensors", TD_RANK_NONE, true, NULL},
    {"frank1.pt", TD_RANK_NONE, true, NULL},
    {"rank1a.pt", TD_RANK_NONE, true, NULL},
    {"rank", TD_RANK_NONE, true, NULL},
    {"rank-", TD_RANK_NONE, true, NULL},
    {"", TD_RANK_NONE, true, NULL},
};

static void names_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct td_rank_name read;
        td_rank_name_read(td_text_of(names[i].name), &read);
        CHECK(read.kind == names[i].kind && read.is_first == names[i].is_first, "%s: %d, %d", names[i].name,
              (int)read.kind, read.is_first);
        CHECK(names[i].key == NULL || strcmp(read.key, names[i].key) == 0, "%s: %s", names[i].name, read.key);
    }
}

static void long_names_are_cut(void **state)
{
    (void)state;
    char name[4096];
    struct td_rank_name read;
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = "rank0-"[i % 6];
    td_rank_name_read(td_text_n(name, sizeof name), &read);
    assert_true(strlen(read.key) < TD_RANK_KEY_BYTES);
}

/* Names in one directory, and a character for each of them: '1' it is a part, '0' it is not, '?' it may be one. */
static void sets_are_judged(void **state)
{
    (void)state;
    static const char *const sets[][2] = {
        {"consolidated.00.pth", "0"},
        {"consolidated.01.pth", "1"},
        {"consolidated.00.pth consolidated.01.pth", "11"},
        {"model-rank-0-part-0.bin model-rank-0-part-1.bin", "00"},
        {"model-rank-0-part-0.bin model-rank-1-part-0.bin", "11"},
        {"rank1.bin rank2.bin", "00"},
        {"rank0.bin rank2.bin", "11"},
        {"rank0.bin rank2.pth", "00"},
        {"a-rank0.bin b-rank1.bin", "00"},
        {"mp_rank_00_model_states.pt expert_0_mp_rank_00_model_states.pt", "11"},
        {"a-shard1.pt a-shard2.pt", "??"},
        {"a-shard1.pt", "0"},
    };
    for (size_t i = 0; i < COUNT_OF(sets); i++) {
        struct td_rank_item items[4];
        struct td_rank_name read[4];
        char got[8] = "";
        size_t count = 0;
        struct td_text rest = td_text_of(sets[i][0]);
        while (rest.len > 0) {
            td_rank_name_read(td_text_take_until(&rest, ' '), &read[count]);
            items[count] = (struct td_rank_item){.directory = TD_TEXT("m"), .number = count, .name = &read[count]};
            count++;
        }
        td_rank_items_judge(items, count);
        for (size_t k = 0; k < count; k++)
            got[items[k].number] = (char)(items[k].may_be ? '?' : items[k].is_part ? '1' : '0');
        got[count] = '\0';
        CHECK(strcmp(got, sets[i][1]) == 0, "%s: %s", sets[i][0], got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(sets_are_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
