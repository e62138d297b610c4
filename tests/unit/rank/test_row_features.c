/* Features of rows. The wanted texts are what Features.to_dict of the library datasets 5.2 gives for the same types;
 * tests/interop/test_json_rows.py reads answers by that library. */
#include "rank/row_features.h"

#include "tests/unit/alloc_trials.h"

#define VALUE(dtype) "{\"dtype\":\"" dtype "\",\"_type\":\"Value\"}"
#define LIST(type) "{\"feature\":" type ",\"_type\":\"List\"}"
#define JSON "{\"_type\":\"Json\"}"

/* Returns whether the rows have the features {"feature_idx":0,"name":"a","type":WANTED}, and there was memory. */
static bool has_type(const char *const rows[], const char *wanted, bool check)
{
    struct td_row_features features;
    struct td_buffer out;
    struct td_error err = TD_ERROR_INIT;
    bool is_object;
    td_buffer_init(&out);
    bool ok = td_row_features_init(&features, NULL, &err);
    for (size_t i = 0; ok && rows[i] != NULL; i++)
        ok = td_row_features_read(&features, td_text_of(rows[i]), &is_object, &err);
    if (ok)
        td_row_features_write(&features, &out);
    const char *text = td_buffer_terminate(&out);
    ok = ok && text != NULL && !features.names.failed;
    if (check) {
        char whole[1024];
        (void)snprintf(whole, sizeof whole, "[{\"feature_idx\":0,\"name\":\"a\",\"type\":%s}]", wanted);
        CHECK(ok, "%s", err.message);
        assert_string_equal(text, whole);
    }
    td_buffer_fini(&out);
    td_row_features_fini(&features);
    return ok;
}

static void types_of_values(void **state)
{
    static const struct {
        const char *rows[4];
        const char *wanted;
    } cases[] = {
        {{"{\"a\":1}", "{\"a\":-9223372036854775808}"}, VALUE("int64")},
        {{"{\"a\":9223372036854775808}"}, VALUE("float64")},
        {{"{\"a\":1}", "{\"a\":1e2}", "{\"a\":3}"}, VALUE("float64")},
        {{"{\"a\":null}", "{\"a\":\"x\"}", "{\"a\":null}"}, VALUE("string")},
        {{"{\"a\":null}"}, VALUE("null")},
        {{"{\"a\":true}", "{\"a\":1}"}, JSON},
        {{"{\"a\":[]}"}, LIST(VALUE("null"))},
        {{"{\"a\":[[1],[]]}", "{\"a\":[[null,2.5]]}"}, LIST(LIST(VALUE("float64")))},
        {{"{\"a\":{\"x\":{\"y\":[]},\"z\":1}}", "{\"a\":{\"w\":false}}"},
         "{\"x\":{\"y\":" LIST(VALUE("null")) "},\"z\":" VALUE("int64") ",\"w\":" VALUE("bool") "}"},
        {{"{\"a\":{}}"}, "{}"},
        {{"{\"a\":[1,{\"x\":[2]},3]}"}, LIST(JSON)},
        {{"{\"a\":{\"x\":1}}", "{\"a\":[1]}", "{\"a\":{\"x\":[]}}"}, JSON},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(has_type(cases[i].rows, cases[i].wanted, true));
}

static void rows_that_are_wrong(void **state)
{
    static const char *const rows[] = {"",   "{",          "{\"a\"", "{\"a\":}", "{\"a\":1,}",
                                       "[1", "{\"a\":[1}", "1 2",    "{} {}",    "\"\xff\""};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct td_row_features features;
        struct td_error err = TD_ERROR_INIT;
        bool is_object;
        assert_true(td_row_features_init(&features, NULL, &err));
        CHECK(!td_row_features_read(&features, td_text_of(rows[i]), &is_object, &err), "%s", rows[i]);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        td_row_features_fini(&features);
    }
}

static void names_of_a_group(void **state)
{
    struct td_row_features features;
    struct td_error err = TD_ERROR_INIT;
    bool again;
    (void)state;
    assert_true(td_row_features_init(&features, NULL, &err));
    for (uint64_t group = 1; group < 3; group++) {
        assert_true(td_row_features_add_string(&features, TD_TEXT("x"), group, &again, &err) && !again);
        assert_true(td_row_features_add_string(&features, TD_TEXT(""), group, &again, &err) && !again);
        assert_true(td_row_features_add_string(&features, TD_TEXT("x"), group, &again, &err) && again);
    }
    for (int i = 2; i <= TD_ROW_COLUMNS_MOST; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%d", i);
        bool ok = td_row_features_add_string(&features, td_text_of(name), 1, &again, &err);
        assert_true(ok == (i < TD_ROW_COLUMNS_MOST));
    }
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    td_row_features_fini(&features);
}

static void every_allocation_may_fail(void **state)
{
    static const char *const rows[] = {"{\"a\":{\"b\":[1,{\"c\":null}]}}", NULL};
    (void)state;
    struct alloc_trials trials = {0};
    while (alloc_try(&trials))
        alloc_tried(&trials, has_type(rows, NULL, false), NULL);
    assert_true(trials.k > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_of_values),
        cmocka_unit_test(rows_that_are_wrong),
        cmocka_unit_test(names_of_a_group),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
