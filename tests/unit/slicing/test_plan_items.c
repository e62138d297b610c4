#include "slicing/plan/plan_items.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/slicing/plan_fixture.h"

static const struct tensor_spec specs[] = {
    {"a", "F32", 2, {4, 6}, NULL}, {"b", "BF16", 1, {8}, NULL},        {"c", "F32", 0, {0}, NULL},
    {"d", "F32", 2, {0, 3}, NULL}, {"e", "F32", 1, {2}, "compressed"},
};

static void in_the_order_given(void **state)
{
    (void)state;
    static const struct td_plan_item items[] = {
        {"b", "first", "2:-1"}, {"a", NULL, ":,1"}, {"a", "again", NULL}, {"c", NULL, NULL}, {"d", NULL, NULL}};
    struct tensor_set set;
    struct td_plan plan;
    struct td_error err = TD_ERROR_INIT;
    tensor_set_init(&set, specs, COUNT_OF(specs));
    CHECK(td_plan_from_items(items, COUNT_OF(items), &set.list, NULL, &plan, &err), "%s", err.message);
    assert_int_equal(plan.output_count, 5);
    assert_int_equal(plan.total_bytes, 2 * 5 + 4 * 4 + 4 * 24 + 4);
    const struct td_plan_output *o = plan.outputs;
    assert_string_equal(o[0].name, "first");
    assert_int_equal(o[0].rank, 1);
    assert_int_equal(o[0].shape[0], 5);
    assert_int_equal(o[0].nbytes, 10);
    assert_int_equal(plan.pieces[o[0].first_piece].tensor, 1);
    assert_int_equal(plan.pieces[o[0].first_piece].selection->starts[0], 2);
    assert_int_equal(plan.pieces[o[0].first_piece].count, 1);
    assert_string_equal(o[1].name, "a");
    assert_int_equal(o[1].rank, 1); /* an integer index drops its dimension */
    assert_int_equal(o[1].shape[0], 4);
    assert_int_equal(plan.pieces[o[1].first_piece].selection->sizes[1], 1);
    assert_string_equal(o[2].name, "again");
    assert_null(plan.pieces[o[2].first_piece].selection);
    assert_int_equal(plan.pieces[o[2].first_piece].size, 4);
    assert_int_equal(o[3].rank, 0);
    assert_int_equal(plan.pieces[o[3].first_piece].size, 1);
    assert_int_equal(o[4].piece_count, 0);
    td_plan_fini(&plan);
    CHECK(td_plan_from_items(NULL, 0, &set.list, NULL, &plan, &err), "%s", err.message);
    assert_int_equal(plan.output_count, 0);
    td_plan_fini(&plan);
    tensor_set_fini(&set);
}

/* A plan from a selection equals a plan of one item with that slice. */
static void a_selection_is_an_item(void **state)
{
    (void)state;
    static const struct td_plan_item item = {"a", NULL, "1:3,4"};
    struct tensor_set set;
    struct td_selection selection;
    struct td_plan listed;
    struct td_plan plan;
    tensor_set_init(&set, specs, COUNT_OF(specs));
    assert_true(td_slice_parse(TD_TEXT("1:3,4"), 2, set.tensors[0].shape, &selection, NULL));
    assert_true(td_plan_from_items(&item, 1, &set.list, NULL, &listed, NULL));
    assert_true(td_plan_from_selection(&set.list, 0, &selection, NULL, &plan, NULL));
    memset(&selection, 0xff, sizeof selection); /* the plan has its own copy */
    assert_true(plan.tp_size == 1 && plan.tp_rank == 0 && plan.output_count == 1 && plan.piece_count == 1);
    assert_int_equal(plan.total_bytes, 2 * 4);
    const struct td_plan_output *o = &plan.outputs[0];
    assert_string_equal(o->name, "a");
    assert_true(o->rank == 1 && o->shape[0] == 2 && o->nbytes == 8);
    assert_true(o->cell_count == 1 && o->first_piece == 0 && o->piece_count == 1);
    assert_true(plan.pieces[0].tensor == 0 && plan.pieces[0].count == 1);
    const struct td_selection *mine = plan.pieces[0].selection;
    const struct td_selection *wanted = listed.pieces[0].selection;
    assert_true(mine->rank == 2 && mine->dropped == wanted->dropped);
    assert_memory_equal(mine->starts, wanted->starts, 2 * sizeof *mine->starts);
    assert_memory_equal(mine->sizes, wanted->sizes, 2 * sizeof *mine->sizes);
    td_plan_fini(&plan);
    td_plan_fini(&listed);
    td_selection_all(2, set.tensors[0].shape, &selection);
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_plan_from_selection(&set.list, 0, &selection, NULL, &plan, &err);
        alloc_tried(&trials, ok, &err);
        assert_true(ok ? plan.total_bytes == 4 * 24 : plan.outputs == NULL);
        td_plan_fini(&plan);
    }
    assert_true(trials.k > 1);
    tensor_set_fini(&set);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        struct td_plan_item items[2];
        size_t count;
        enum td_code code;
        const char *word;
    } cases[] = {
        {{{"x", NULL, NULL}}, 1, TD_NOT_FOUND, "\"x\""},
        {{{"", NULL, NULL}}, 1, TD_NOT_FOUND, "\"\""},
        {{{"a", NULL, "::2"}}, 1, TD_INVALID_ARGUMENT, ""},
        {{{"a", NULL, "4,0"}}, 1, TD_INVALID_ARGUMENT, ""},
        {{{"a", NULL, NULL}, {"a", NULL, "0"}}, 2, TD_INVALID_ARGUMENT, "\"a\""},
        {{{"b", NULL, NULL}, {"a", "b", NULL}}, 2, TD_INVALID_ARGUMENT, "\"b\""},
        {{{"e", NULL, NULL}}, 1, TD_FAILED_PRECONDITION, "compressed"},
    };
    struct tensor_set set;
    tensor_set_init(&set, specs, COUNT_OF(specs));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_plan plan;
        struct td_error err = TD_ERROR_INIT;
        CHECK(!td_plan_from_items(cases[i].items, cases[i].count, &set.list, NULL, &plan, &err), "case %zu", i);
        CHECK(err.code == cases[i].code, "case %zu: %s", i, err.message);
        CHECK(strstr(err.message, cases[i].word) != NULL, "case %zu: %s", i, err.message);
        assert_null(plan.outputs);
        td_plan_fini(&plan);
    }
    tensor_set_fini(&set);
}

static void failing_allocations(void **state)
{
    (void)state;
    static const struct td_plan_item items[] = {{"b", "z", "2:-1"}, {"a", NULL, NULL}};
    struct tensor_set set;
    struct alloc_trials trials = {0};
    tensor_set_init(&set, specs, COUNT_OF(specs));
    while (alloc_try(&trials)) {
        struct td_plan plan;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_plan_from_items(items, COUNT_OF(items), &set.list, NULL, &plan, &err);
        alloc_tried(&trials, ok, &err);
        td_plan_fini(&plan);
    }
    assert_true(trials.k > 2);
    tensor_set_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_the_order_given),
        cmocka_unit_test(a_selection_is_an_item),
        cmocka_unit_test(refusals),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
