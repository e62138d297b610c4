/* Plans that clients post, as JSON. */
#include "slicing/plan_spec.h"

#include "tests/unit/alloc_trials.h"

static bool parse(struct td_plan_spec *spec, const char *text, struct td_error *err)
{
    td_error_init(err);
    return td_plan_spec_parse(spec, td_text_of(text), NULL, err);
}

static void engines(void **state)
{
    (void)state;
    struct td_plan_spec spec;
    struct td_error err;
    assert_true(parse(&spec, "{\"engine\":\"vllm\",\"tp_size\":8}", &err));
    assert_string_equal(spec.engine, "vllm");
    assert_true(spec.tp_size == 8 && spec.ranks == NULL && spec.rules.count == 0);
    td_plan_spec_fini(&spec);
    assert_true(parse(&spec, " { \"tp_size\" : 1 , \"engine\" : \"a\\u00e9\" } ", &err));
    assert_string_equal(spec.engine, "a\xc3\xa9");
    td_plan_spec_fini(&spec);
    td_error_init(&err);
    assert_true(td_plan_spec_init_engine(&spec, td_text_n("fsdp!", 4), TD_MAX_TP_SIZE, &err));
    assert_string_equal(spec.engine, "fsdp");
    td_plan_spec_fini(&spec);
    assert_false(td_plan_spec_init_engine(&spec, TD_TEXT("fsdp"), 0, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_plan_spec_fini(&spec);
}

static void rules(void **state)
{
    (void)state;
    struct td_plan_spec spec;
    struct td_error err;
    assert_true(parse(
        &spec, "{\"tp_size\":2,\"rules\":[{\"match\":\"a.*\",\"dim\":1},{\"match\":\"**\",\"whole\":true}]}", &err));
    assert_true(spec.tp_size == 2 && spec.engine == NULL && spec.rules.count == 2);
    assert_string_equal(spec.rules.rules[0].match, "a.*");
    td_plan_spec_fini(&spec);
}

static void spelled_out(void **state)
{
    (void)state;
    struct td_plan_spec spec;
    struct td_error err;
    assert_true(parse(&spec,
                      "{\"ranks\":[{\"tensors\":[{\"name\":\"a\",\"slice\":\"0:2\",\"as\":\"b\"},{\"name\":\"c\"}]},"
                      "{\"tensors\":[]}]}",
                      &err));
    assert_true(spec.tp_size == 2 && spec.ranks[0].count == 2 && spec.ranks[1].count == 0);
    const struct td_plan_item *items = spec.ranks[0].items;
    assert_string_equal(items[0].name, "a");
    assert_string_equal(items[0].slice, "0:2");
    assert_string_equal(items[0].as, "b");
    assert_true(items[1].slice == NULL && items[1].as == NULL);
    td_plan_spec_fini(&spec);
    assert_true(parse(&spec, "{\"tp_size\":1,\"ranks\":[{\"tensors\":[]}]}", &err));
    td_plan_spec_fini(&spec);
}

static void boxes(void **state)
{
    (void)state;
    struct td_plan_spec spec;
    struct td_error err;
    assert_true(parse(&spec, "{\"boxes\":[{\"name\":\"a\",\"slice\":\"0:2\"},{\"name\":\"a\"}]}", &err));
    assert_true(spec.tp_size == 1 && spec.boxes->count == 2 && spec.ranks == NULL && spec.rules.count == 0);
    const struct td_plan_item *items = spec.boxes->items;
    assert_string_equal(items[0].name, "a");
    assert_string_equal(items[0].slice, "0:2");
    assert_true(strcmp(items[1].name, "a") == 0 && items[1].slice == NULL && items[1].as == NULL);
    td_plan_spec_fini(&spec);
    assert_true(parse(&spec, "{\"boxes\":[]}", &err));
    assert_true(spec.boxes != NULL && spec.boxes->count == 0);
    td_plan_spec_fini(&spec);
}

static void manifests(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"boxes\":[],\"manifest\":\"0a\"}",
        "{\"manifest\":\"0a\",\"engine\":\"fsdp\",\"tp_size\":1}",
        "{\"tp_size\":1,\"manifest\":\"0\\u0061\",\"rules\":[{\"match\":\"a\"}]}",
        "{\"ranks\":[{\"tensors\":[]}],\"manifest\":\"0a\"}",
        "{\"ranks\":[{\"tensors\":[]}],\"manifest\":\"0a\",\"tp_size\":1}",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct td_plan_spec spec;
        struct td_error err;
        CHECK(parse(&spec, texts[i], &err), "%s: %s", texts[i], err.message);
        assert_string_equal(spec.manifest, "0a");
        td_plan_spec_fini(&spec);
    }
}

static void bad_ones(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", ""},
        {"[]", "an object"},
        {"{\"engine\":\"a\",\"tp_size\":\"2\"}", "\"tp_size\""},
        {"{\"engine\":\"a\",\"tp_size\":-1}", "\"tp_size\": -1 is not"},
        {"{\"engine\":\"a\",\"tp_size\":1.5}", "\"tp_size\": 1.5 is not"},
        {"{\"engine\":\"a\",\"tp_size\":99999999999999999999}", "\"tp_size\": 99999999999999999999 is larger"},
        {"{}", "\"engine\" and \"tp_size\""},
        {"{\"engine\":\"a\"}", "\"engine\" and \"tp_size\""},
        {"{\"tp_size\":1}", "\"engine\" and \"tp_size\""},
        {"{\"engine\":1,\"tp_size\":1}", "a string"},
        {"{\"engine\":\"a\\u0000\",\"tp_size\":1}", ""},
        {"{\"engine\":\"a\",\"tp_size\":0}", "from 1 to 4096"},
        {"{\"engine\":\"a\",\"tp_size\":4097}", "from 1 to 4096"},
        {"{\"engine\":\"a\",\"tp_size\":-1}", ""},
        {"{\"engine\":\"a\",\"tp_size\":1.5}", ""},
        {"{\"engine\":\"a\",\"tp_size\":18446744073709551617}", ""},
        {"{\"engine\":\"a\",\"engine\":\"a\",\"tp_size\":1}", "twice"},
        {"{\"engine\":\"a\",\"tp_size\":1,\"ranks\":[{\"tensors\":[]}]}", "\"engine\" and \"tp_size\""},
        {"{\"engine\":\"a\",\"tp_size\":1,\"x\":1}", "\"engine\" and \"tp_size\""},
        {"{\"engine\":\"a\",\"tp_size\":1}}", ""},
        {"{\"engine\":\"a\",\"tp_size\":1", ""},
        {"{\"ranks\":[]}", "\"ranks\" is empty"},
        {"{\"ranks\":[1]}", "\"tensors\""},
        {"{\"ranks\":[{}]}", "\"tensors\""},
        {"{\"ranks\":[{\"tensors\":[],\"x\":1}]}", "unknown key \"x\"; a rank has"},
        {"{\"ranks\":[{\"tensors\":[],\"tensors\":[]}]}", "twice"},
        {"{\"ranks\":[{\"tensor\":[]}]}", "unknown key \"tensor\"; a rank has"},
        {"{\"ranks\":[{\"tensors\":[1]}]}", "\"name\""},
        {"{\"ranks\":[{\"tensors\":[{}]}]}", "without a \"name\""},
        {"{\"ranks\":[{\"tensors\":[{\"name\":\"a\",\"slices\":1}]}]}", "unknown key \"slices\"; a tensor has"},
        {"{\"t\\u0071\":2}", "unknown key \"t\\u0071\"; a plan has"},
        {"{\"ranks\":[{\"tensors\":[{\"name\":\"a\",\"as\":\"b\",\"as\":\"b\"}]}]}", "twice"},
        {"{\"ranks\":[{\"tensors\":[]}],\"tp_size\":2}", "1 ranks are spelled out"},
        {"{\"manifest\":\"a\"}", "\"engine\" and \"tp_size\""},
        {"{\"manifest\":1,\"boxes\":[]}", "the manifest's tag, a string, expected"},
        {"{\"manifest\":null,\"boxes\":[]}", "the manifest's tag, a string, expected"},
        {"{\"manifest\":\"a\",\"boxes\":[],\"manifest\":\"a\"}", "twice"},
        {"{\"boxes\":{}}", "a list of boxes expected"},
        {"{\"boxes\":[1]}", "a box is an object"},
        {"{\"boxes\":[{}]}", "a box without a \"name\""},
        {"{\"boxes\":[{\"name\":\"a\",\"as\":\"b\"}]}", "unknown key \"as\"; a box has"},
        {"{\"boxes\":[{\"name\":\"a\",\"slice\":0}]}", "the slice"},
        {"{\"boxes\":[],\"boxes\":[]}", "twice"},
        {"{\"boxes\":[],\"tp_size\":1}", "or \"boxes\""},
        {"{\"boxes\":[],\"ranks\":[{\"tensors\":[]}]}", "or \"boxes\""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_plan_spec spec;
        struct td_error err;
        CHECK(!parse(&spec, cases[i].text, &err), "%s", cases[i].text);
        CHECK(err.code == TD_INVALID_ARGUMENT && strstr(err.message, cases[i].says) != NULL, "%s: %s", cases[i].text,
              err.message);
        td_plan_spec_fini(&spec);
    }
}

static void too_many_ranks(void **state)
{
    (void)state;
    struct td_buffer text;
    struct td_plan_spec spec;
    struct td_error err;
    for (int extra = 0; extra < 2; extra++) {
        td_buffer_init(&text);
        td_buffer_puts(&text, "{\"ranks\":[");
        for (int i = 0; i < TD_MAX_TP_SIZE + extra; i++)
            td_buffer_puts(&text, i > 0 ? ",{\"tensors\":[]}" : "{\"tensors\":[]}");
        td_buffer_puts(&text, "]}");
        assert_int_equal(parse(&spec, td_buffer_terminate(&text), &err), extra == 0);
        td_plan_spec_fini(&spec);
        td_buffer_fini(&text);
    }
}

/* Writes a text in which the item stands `count` times, with commas between. */
static void write_repeated(struct td_buffer *out, const char *before, const char *item, size_t count, const char *after)
{
    td_buffer_init(out);
    td_buffer_puts(out, before);
    for (size_t i = 0; i < count; i++) {
        td_buffer_puts(out, i > 0 ? "," : "");
        td_buffer_puts(out, item);
    }
    td_buffer_puts(out, after);
}

/* Parses the most items or rules allowed, however short: their number limits the memory. */
static void repeats(const char *before, const char *item, size_t count, const char *after)
{
    struct td_buffer text;
    struct td_plan_spec spec;
    struct td_budget budget;
    struct td_error err = TD_ERROR_INIT;
    write_repeated(&text, before, item, count, after);
    td_budget_init(&budget, text.len * 21 + (4 << 20), "plans");
    CHECK(td_plan_spec_parse(&spec, td_buffer_text(&text), &budget, &err), "%zu of %s: %s", count, item, err.message);
    td_plan_spec_fini(&spec);
    assert_int_equal(td_budget_used(&budget), 0);
    td_buffer_fini(&text);
}

static void many_short_ones(void **state)
{
    (void)state;
    for (size_t n = 1000; n <= TD_RULE_MAX_COUNT; n += 1000)
        repeats("{\"tp_size\":1,\"rules\":[", "{\"match\":\"0\"}", n, "]}");
    repeats("{\"tp_size\":1,\"rules\":[", "{\"match\":\"0\",\"parts\":[{},{},{},{},{},{},{},{}]}", TD_RULE_MAX_COUNT,
            "]}");
    repeats("{\"ranks\":[", "{\"tensors\":[{\"name\":\"a\"}]}", TD_MAX_TP_SIZE, "]}");
    repeats("{\"ranks\":[{\"tensors\":[", "{\"name\":\"\"}", 100000, "]}]}");
    repeats("{\"boxes\":[", "{\"name\":\"\"}", 100000, "]}");
    repeats("{\"boxes\":[", "{\"name\":\"\",\"slice\":\"\"}", 100000, "]}");
}

/* The fault that comes first in the text is reported, however much memory the rest of the text would take. */
static void long_texts_with_a_fault(void **state)
{
    (void)state;
    static const struct {
        const char *before, *item, *after, *says;
        uint64_t pos;
    } cases[] = {
        {"[", "0", "]", "a plan, an object,", 0},
        {"{\"ranks\":[{\"tensors\":[", "0", "]}]}", "a tensor is an object", 22},
        {"{\"ranks\":[{\"tensors\":[", "{}", "]}]}", "without a \"name\"", 23},
        {"{\"ranks\":[{\"tensors\":[", "\"\"", "]}]}", "a tensor is an object", 22},
        {"{\"ranks\":[", "0", "]}", "a rank is an object", 10},
        {"{\"boxes\":[", "0", "]}", "a box is an object", 10},
        {"{\"rules\":[", "0", "]}", "a rule (an object)", 10},
        {"{\"ranks\":[{\"tensors\":[{\"name\":\"a\"}]}],\"x\":[", "0", "]}", "unknown key \"x\"", 38},
        {"{\"rules\":[{\"match\":\"a\"}],\"x\":[", "0", "]}", "unknown key \"x\"", 25},
    };
    static const size_t counts[] = {1, 1566, 70142, 1000000};
    for (size_t i = 0; i < COUNT_OF(cases) * COUNT_OF(counts); i++) {
        const char *says = cases[i / COUNT_OF(counts)].says;
        struct td_buffer text;
        struct td_plan_spec spec;
        struct td_error err = TD_ERROR_INIT;
        write_repeated(&text, cases[i / COUNT_OF(counts)].before, cases[i / COUNT_OF(counts)].item,
                       counts[i % COUNT_OF(counts)], cases[i / COUNT_OF(counts)].after);
        CHECK(!td_plan_spec_parse(&spec, td_buffer_text(&text), NULL, &err), "%zu", i);
        CHECK(err.code == TD_INVALID_ARGUMENT && strstr(err.message, says) != NULL &&
                  err.pos == cases[i / COUNT_OF(counts)].pos,
              "%zu: %s at %llu", i, err.message, (unsigned long long)err.pos);
        td_plan_spec_fini(&spec);
        td_buffer_fini(&text);
    }
}

static void memory_is_of_the_budget(void **state)
{
    (void)state;
    enum { MOST_BYTES = 8 << 20 };
    struct td_buffer text;
    struct td_plan_spec spec;
    struct td_budget budget;
    struct td_error err = TD_ERROR_INIT;
    write_repeated(&text, "[", "0", 4 << 20, "]");
    td_budget_init(&budget, MOST_BYTES, "plans");
    assert_false(td_plan_spec_parse(&spec, td_buffer_text(&text), &budget, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT); /* it is a fault before the place where memory is short */
    assert_true(td_budget_used(&budget) > MOST_BYTES / 2 && td_budget_used(&budget) <= MOST_BYTES);
    td_plan_spec_fini(&spec);
    td_buffer_fini(&text);
    assert_int_equal(td_budget_used(&budget), 0);

    td_error_init(&err);
    write_repeated(&text, "{\"ranks\":[{\"tensors\":[", "{\"name\":\"a\"}", 100000, "]}]}");
    assert_false(td_plan_spec_parse(&spec, td_buffer_text(&text), &budget, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "plans"));
    td_plan_spec_fini(&spec);
    td_buffer_fini(&text);
    assert_int_equal(td_budget_used(&budget), 0);
}

static void every_prefix_and_every_allocation(void **state)
{
    (void)state;
    static const char text[] =
        "{\"tp_size\":2,\"ranks\":[{\"tensors\":[{\"name\":\"a\",\"slice\":\"0:2\"}]},{\"tensors\":[]}]}";
    struct td_plan_spec spec;
    struct td_error err;
    for (size_t len = 0; len < sizeof text - 1; len++) {
        td_error_init(&err);
        assert_false(td_plan_spec_parse(&spec, td_text_n(text, len), NULL, &err));
        td_plan_spec_fini(&spec);
    }
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        bool ok = parse(&spec, text, &err);
        alloc_tried(&trials, ok, &err);
        td_plan_spec_fini(&spec);
    }
    assert_true(trials.k > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines),
        cmocka_unit_test(rules),
        cmocka_unit_test(spelled_out),
        cmocka_unit_test(boxes),
        cmocka_unit_test(manifests),
        cmocka_unit_test(bad_ones),
        cmocka_unit_test(too_many_ranks),
        cmocka_unit_test(many_short_ones),
        cmocka_unit_test(long_texts_with_a_fault),
        cmocka_unit_test(memory_is_of_the_budget),
        cmocka_unit_test(every_prefix_and_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
