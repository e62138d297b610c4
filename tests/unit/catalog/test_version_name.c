/* Names of versions. The known names are those that trainers write: slime and MX (weight_v000012), torchtitan
 * (step-100), Hugging Face's Trainer (checkpoint-500), Megatron (iter_0000100), verl and SkyRL (global_step_12),
 * DeepSpeed (global_step12), prime-rl (step_12), SkyRL's deltas (delta-00000012). */
#include "catalog/model/version_name.h"

#include "tests/unit/unit.h"

static void names_with_known_prefixes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t number;
    } cases[] = {
        {"weight_v000012", 12},
        {"weight_v0", 0},
        {"0", 0},
        {"000007", 7},
        {"v12", 12},
        {"version3", 3},
        {"version-3", 3},
        {"version_3", 3},
        {"step100", 100},
        {"step-100", 100},
        {"step_100", 100},
        {"global_step12", 12},
        {"global_step-12", 12},
        {"global_step_12", 12},
        {"globalstep12", 12},
        {"globalstep-12", 12},
        {"globalstep_12", 12},
        {"checkpoint500", 500},
        {"checkpoint-500", 500},
        {"checkpoint_500", 500},
        {"iter0000100", 100},
        {"iter-0000100", 100},
        {"iter_0000100", 100},
        {"epoch2", 2},
        {"epoch-2", 2},
        {"epoch_2", 2},
        {"delta1", 1},
        {"delta-00000012", 12},
        {"delta_1", 1},
        {"999999999999999999", UINT64_C(999999999999999999)},
        {"v000000000000000001", 1},
        {"step-999999999999999999", UINT64_C(999999999999999999)},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t number = 77777;
        CHECK(td_version_name_parse(td_text_of(cases[i].name), NULL, &number), "%s", cases[i].name);
        CHECK(number == cases[i].number, "%s", cases[i].name);
        assert_true(td_version_name_parse(td_text_of(cases[i].name), NULL, NULL));
    }
}

static void other_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",
        "v",
        "step",
        "step-",
        "step_",
        "gemma-2",
        "gemma-3",
        "weight_v",
        "weight_v-1",
        "weight_v_1",
        "weight_1",
        "weight-v1",
        "v-1",
        "v_1",
        "-1",
        "_1",
        "+1",
        " 1",
        "1 ",
        "1.5",
        "v1.0",
        "v1a",
        "1a",
        "0x10",
        "V1",
        "Step-1",
        "steps-1",
        "step--1",
        "step-_1",
        "step_-1",
        "step-1-final",
        "step-1/x",
        "my-step-1",
        "checkpoint",
        "run1",
        "1000000000000000000",  /* 19 digits */
        "v0000000000000000001", /* 18 zeros and a digit */
        "99999999999999999999999999999999",
        "v\xD9\xA1", /* the Arabic digit 1 */
    };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        uint64_t number = 77777;
        CHECK(!td_version_name_parse(td_text_of(names[i]), NULL, &number), "%s", names[i]);
        assert_int_equal(number, 77777);
    }
    assert_false(td_version_name_parse(td_text_n("1\0", 2), NULL, NULL));
    assert_false(td_version_name_parse(td_text_n(NULL, 0), NULL, NULL));
}

static void names_with_added_prefixes(void **state)
{
    (void)state;
    static const char *const items[] = {"ckpt=", "run1", "v", ""};
    const struct td_version_prefixes more = {.items = items, .count = COUNT_OF(items)};
    uint64_t number = 0;
    assert_true(td_version_name_parse(TD_TEXT("ckpt=0042"), &more, &number));
    assert_int_equal(number, 42);
    assert_true(td_version_name_parse(TD_TEXT("run12"), &more, &number));
    assert_int_equal(number, 2);
    assert_true(td_version_name_parse(TD_TEXT("step-9"), &more, &number)); /* the known ones stay */
    assert_int_equal(number, 9);
    assert_false(td_version_name_parse(TD_TEXT("ckpt=-42"), &more, &number)); /* "-" and "_" are for known ones */
    assert_false(td_version_name_parse(TD_TEXT("ckpt"), &more, &number));
    assert_false(td_version_name_parse(TD_TEXT("run1"), &more, &number));
    assert_int_equal(number, 9);
    assert_false(td_version_name_parse(TD_TEXT("ckpt=42"), NULL, &number));
}

static void order_is_by_number_then_by_name(void **state)
{
    (void)state;
    static const char *const sorted[] = {"step-2", "step_2", "step-10", "v10"};
    assert_true(td_version_name_compare(2, td_text_of(sorted[0]), 10, td_text_of(sorted[2])) < 0);
    assert_true(td_version_name_compare(10, td_text_of(sorted[2]), 2, td_text_of(sorted[0])) > 0);
    assert_true(td_version_name_compare(2, td_text_of(sorted[0]), 2, td_text_of(sorted[1])) < 0);
    assert_true(td_version_name_compare(10, td_text_of(sorted[3]), 10, td_text_of(sorted[2])) > 0);
    assert_true(td_version_name_compare(10, td_text_of(sorted[3]), 10, td_text_of(sorted[3])) == 0);
    assert_true(td_version_name_compare(UINT64_C(999999999999999999), td_text_of("a"), 0, td_text_of("b")) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_with_known_prefixes),
        cmocka_unit_test(other_names),
        cmocka_unit_test(names_with_added_prefixes),
        cmocka_unit_test(order_is_by_number_then_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
