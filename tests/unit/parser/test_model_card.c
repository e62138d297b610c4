/* Front matter as JSON. Example 10.9 of YAML 1.2.2 and js-yaml's tests say what scalars mean; huggingface_hub's
 * REGEX_YAML_BLOCK says where the front matter is. */
#include "parser/model_card.h"

#include "core/json/json.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

static bool read_card(const char *text, size_t len, bool is_cut, struct td_buffer *json, struct td_error *err)
{
    char *exact = malloc(len + 1); /* a block of its own, so that the sanitizer sees a read past the end */
    assert_non_null(exact);
    char *shrunk = realloc(exact, len == 0 ? 1 : len);
    assert_non_null(shrunk);
    memcpy(shrunk, text, len);
    td_buffer_init(json);
    td_error_init(err);
    bool ok = td_model_card_read(td_text_n(shrunk, len), is_cut, json, err);
    free(shrunk);
    return ok;
}

/* Checks that the text gives the JSON `wanted`, or, where wanted is NULL, an error with `part` in its message. */
static void expect(const char *text, const char *wanted, const char *part)
{
    struct td_buffer json;
    struct td_error err;
    bool ok = read_card(text, strlen(text), false, &json, &err);
    if (wanted != NULL) {
        CHECK(ok, "%s: %s", text, err.message);
        CHECK(json.len == strlen(wanted) && memcmp(json.data == NULL ? "" : json.data, wanted, json.len) == 0,
              "%s: %.*s, wanted %s", text, (int)json.len, json.data, wanted);
    } else {
        CHECK(!ok && err.code == TD_INVALID_ARGUMENT, "%s: taken", text);
        CHECK(strstr(err.message, part) != NULL, "%s: %s", text, err.message);
    }
    td_buffer_fini(&json);
}

static void where_it_is(void **state)
{
    (void)state;
    expect("---\na: 1\n---\n# text", "{\"a\":1}", NULL);
    expect("\n \t---\r\na: 1\r\n---\r\ntext", "{\"a\":1}", NULL);
    expect("---\na: 1\n---", "{\"a\":1}", NULL);
    expect("---\n---\n", "", NULL);
    expect("---\n# a comment\n---\n", "", NULL);
    expect("", "", NULL);
    expect("---", "", NULL);
    expect("# text\n---\na: 1\n---\n", "", NULL);
    expect("--- a: 1\n---\n", "", NULL);
    expect("---\na: 1\n", "", NULL);
    expect("---\na: 1\n----\n", "", NULL);
    expect("---\na: '1\n--- \n'\n---\n", NULL, "document indicator");
    struct td_buffer json;
    struct td_error err;
    assert_false(read_card("---\na: 1\n", 9, true, &json, &err));
    assert_true(strstr(err.message, "no end") != NULL);
    td_buffer_fini(&json);
}

static void scalars(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"", "null"},
        {"~", "null"},
        {"null", "null"},
        {"NULL", "null"},
        {"nULL", "\"nULL\""},
        {"true", "true"},
        {"False", "false"},
        {"TRUE", "true"},
        {"yes", "\"yes\""},
        {"no", "\"no\""},
        {"on", "\"on\""},
        {"0", "0"},
        {"-0", "0"},
        {"+12", "12"},
        {"-19", "-19"},
        {"0o7", "7"},
        {"0x3A", "58"},
        {"0b101", "5"},
        {"017", "17"},
        {"0o8", "\"0o8\""},
        {"0x", "\"0x\""},
        {"1_000", "1000"},
        {"_1", "\"_1\""},
        {"1_", "\"1_\""},
        {"12:30", "\"12:30\""},
        {"18446744073709551615", "18446744073709551615"},
        {"-9223372036854775807", "-9223372036854775807"},
        {"0.", "0.0"},
        {"-0.5", "-0.5"},
        {".5", "0.5"},
        {"+12e03", "12000.0"},
        {"-2E+05", "-200000.0"},
        {"1e", "\"1e\""},
        {".", "\".\""},
        {"1.2.3", "\"1.2.3\""},
        {".inf", "null"},
        {"-.Inf", "null"},
        {".NAN", "null"},
        {"1e999", "null"},
        {"2024-01-31", "\"2024-01-31\""},
        {"2024-01-31T01:02:03Z", "\"2024-01-31T01:02:03Z\""},
        {"'1'", "\"1\""},
        {"\"true\"", "\"true\""},
        {"|\n  1\n", "\"1\\n\""},
        {"!!str 1", "\"1\""},
        {"! 1", "\"1\""},
        {"!!int '1'", "1"},
        {"!!float 1.5", "1.5"},
        {"\"\\0\"", "\"\\u0000\""},
        {"\"a\\tb\\\"\"", "\"a\\u0009b\\\"\""},
        {"\xc3\xa9", "\"\xc3\xa9\""},
        {"a: b", NULL},
        {"apache-2.0", "\"apache-2.0\""},
        {"10K<n<100K", "\"10K<n<100K\""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[256];
        char wanted[256];
        (void)snprintf(text, sizeof text, "---\nk: %s\n---\n", cases[i].yaml);
        (void)snprintf(wanted, sizeof wanted, "{\"k\":%s}", cases[i].json == NULL ? "" : cases[i].json);
        expect(text, cases[i].json == NULL ? NULL : wanted, "mapping values");
    }
}

static void structures(void **state)
{
    (void)state;
    expect("---\nlicense: mit\ntags:\n- a\n- b: 1\n  c: [x, {y: z}]\n-\n---\n",
           "{\"license\":\"mit\",\"tags\":[\"a\",{\"b\":1,\"c\":[\"x\",{\"y\":\"z\"}]},null]}", NULL);
    expect("---\n{\"a\": [], 1: {}, null: x, true: y}\n---\n", "{\"a\":[],\"1\":{},\"null\":\"x\",\"true\":\"y\"}",
           NULL);
    expect("---\na: &anchor 1\n---\n", "{\"a\":1}", NULL);
    expect("---\na: {b: 1}\nc: {b: 1}\n---\n", "{\"a\":{\"b\":1},\"c\":{\"b\":1}}", NULL);
}

/* The values are those of PyYAML's safe_load, except for what it refuses and YAML 1.2 allows: two anchors of one name,
 * and the text << as a value. */
static void aliases_and_merges(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"a: &x [1, two]\nb: *x\nc: [*x, *x]\n",
         "{\"a\":[1,\"two\"],\"b\":[1,\"two\"],\"c\":[[1,\"two\"],[1,\"two\"]]}"},
        {"a: &x text\nb: *x\n*x : 1\n", "{\"a\":\"text\",\"b\":\"text\",\"text\":1}"},
        {"&k a: *k\n", "{\"a\":\"a\"}"},
        {"a: &x 1\nb: &x 2\nc: *x\n", "{\"a\":1,\"b\":2,\"c\":2}"},
        {"a: &x [&y {b: 1}, *y]\nc: *x\n", "{\"a\":[{\"b\":1},{\"b\":1}],\"c\":[{\"b\":1},{\"b\":1}]}"},
        {"a: &x\nb: *x\n", "{\"a\":null,\"b\":null}"},
        {"a: &m {p: 1, q: [2]}\nb: {<<: *m, q: 3, r: 4}\n",
         "{\"a\":{\"p\":1,\"q\":[2]},\"b\":{\"q\":3,\"r\":4,\"p\":1}}"},
        {"a: &m {p: 1}\nb: &n {p: 2, q: 2}\nc: {<<: [*m, *n]}\nd: {<<: [*n, *m]}\n",
         "{\"a\":{\"p\":1},\"b\":{\"p\":2,\"q\":2},\"c\":{\"p\":1,\"q\":2},\"d\":{\"p\":2,\"q\":2}}"},
        {"a: &m {p: {x: 1}}\nb: &n {<<: *m, q: 2}\nc: {<<: *n}\n",
         "{\"a\":{\"p\":{\"x\":1}},\"b\":{\"q\":2,\"p\":{\"x\":1}},\"c\":{\"q\":2,\"p\":{\"x\":1}}}"},
        {"a: &m {'q, \"}': \"{[\", p: []}\nb: {p: {}, <<: *m}\n",
         "{\"a\":{\"q, \\\"}\":\"{[\",\"p\":[]},\"b\":{\"p\":{},\"q, \\\"}\":\"{[\"}}"},
        {"a: {<<: {}}\nb: {<<: []}\n", "{\"a\":{},\"b\":{}}"},
        {"a: {'<<': 1}\nb: <<\n", "{\"a\":{\"<<\":1},\"b\":\"<<\"}"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "---\n%s---\n", cases[i].yaml);
        expect(text, cases[i].json, NULL);
    }
}

static void repeat(struct td_buffer *text, const char *part, size_t count)
{
    for (size_t i = 0; i < count; i++)
        td_buffer_puts(text, part);
}

/* Aliases of aliases are refused early: they would expand to 9^100 values, or nest ever deeper. */
/* shows: security.md content-front-matter */
static void aliases_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *end, *message;
        int aliases;
    } forms[] = {
        {"[", "]", "too long", 9}, {"[[[[", "]]]]", "nested too deep", 1}, {"{b: ", "}", "nested too deep", 1}};
    struct td_buffer text;
    td_buffer_init(&text);
    for (size_t form = 0; form < COUNT_OF(forms); form++) {
        td_buffer_clear(&text);
        td_buffer_puts(&text, "---\na0: &a0 [x]\n");
        for (int i = 1; i <= 100; i++) {
            td_buffer_printf(&text, "a%d: &a%d %s", i, i, forms[form].begin);
            for (int k = 0; k < forms[form].aliases; k++)
                td_buffer_printf(&text, "%s*a%d", k > 0 ? ", " : "", i - 1);
            td_buffer_printf(&text, "%s\n", forms[form].end);
        }
        td_buffer_puts(&text, "---\n");
        expect(td_buffer_terminate(&text), NULL, forms[form].message);
    }
    td_buffer_clear(&text);
    td_buffer_puts(&text, "---\n");
    for (int i = 0; i < 257; i++)
        td_buffer_printf(&text, "k%d: &a%d 1\n", i, i);
    td_buffer_puts(&text, "---\n");
    expect(td_buffer_terminate(&text), NULL, "more than 256 anchors (line 258");
    td_buffer_clear(&text);
    td_buffer_puts(&text, "---\na: &a {x: '");
    repeat(&text, "y", 100000);
    td_buffer_puts(&text, "'}\nb: [");
    repeat(&text, "{x: 1, <<: *a}, ", 50); /* each merge drops the long value again */
    td_buffer_puts(&text, "]\n---\n");
    expect(td_buffer_terminate(&text), NULL, "too long as JSON");
    td_buffer_fini(&text);
}

/* shows: security.md content-front-matter */
static void refused(void **state)
{
    (void)state;
    expect("---\na: *x\n---\n", NULL, "an alias has no anchor before it (line 2");
    expect("---\na: &x [1, *x]\n---\n", NULL, "an alias stands for a value that holds it (line 2");
    expect("---\na: &x [1]\n*x : 2\n---\n", NULL, "a key is not text");
    expect("---\n<<: 1\n---\n", NULL, "the value of << is neither a map nor a list of maps (line 3");
    expect("---\na: &a {b: 1}\n<<: [*a, 2]\n---\n", NULL, "the value of << is neither");
    expect("---\na: &a {b: 1}\n<<: *a\n<<: *a\n---\n", NULL, "a key twice");
    expect("---\n- a\n---\n", NULL, "not a map");
    expect("---\njust text\n---\n", NULL, "not a map");
    expect("---\na: 1\nb: 2\na: 3\n---\n", NULL, "a key twice");
    expect("---\na: {\"b\": 1, b: 2}\n---\n", NULL, "a key twice");
    expect("---\n[a]: 1\n---\n", NULL, "a key is not text");
    expect("---\n{a: 1}: 1\n---\n", NULL, "a key is not text");
    expect("---\na: !!python/object:os.system x\n---\n", NULL, "a tag is not known");
    expect("---\na: !x [1]\n---\n", NULL, "a tag is not known");
    expect("---\na: [1\n---\n", NULL, "line");
    expect("---\na: \"\\ud800\"\n---\n", NULL, "invalid Unicode");
    expect("---\na: \xff\n---\n", NULL, "UTF-8");
    expect("---\na: 1\n...\nb: 2\n---\n", NULL, "line");
    expect("---\n%YAML 9.9\na: 1\n---\n", NULL, "line");
}

/* Bombs and other long texts give an error or their JSON, in time proportional to their length. */
/* shows: security.md content-front-matter */
static void long_texts(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *part;
        size_t count;
        const char *end, *message; /* NULL: accepted */
    } cases[] = {
        {"a: ", "[", 64, "", "nested too deep"},
        {"a: ", "[", 500000, "", ""},
        {"a: ", "{a: ", 100000, "", ""},
        {"", "? ", 300000, "", ""},
        {"a:\n", "- ", 300000, "", "nested too deep"},
        {"a: [", "x, ", 300000, "]", NULL},
        {"a: '", "x ", 500000, "'", NULL},
        {"a: \"", "\\0", 480000, "\"", NULL},
        {"a: [", "~,", 500000, "]", NULL},
        {"a: &a [", "&b 1, ", 100000, "]", NULL},
        {"a: [", "'", 900001, "]", ""},
        {"a: [", "*a, ", 200000, "]", "no anchor"},
        {"b: &a 1\na: [", "*a, ", 200000, "]", NULL},
        {"b: &a 1234567890123456789\na: [", "*a, ", 250000, "]", "too long as JSON"},
        {"a: [", "&b x, ", 100000, "*b]", NULL},
        {"a: ", "&b [", 60, "*b", "holds it"},
        {"", "a", 1000000, ": 1", ""},
        {"a: |\n", " x\n", 300000, "", NULL},
        {"a: {", "b,", 400000, "}", "a key twice"},
        {"", "# c\n", 250000, "a: 1", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_buffer text;
        struct td_buffer json;
        struct td_error err;
        td_buffer_init(&text);
        td_buffer_puts(&text, "---\n");
        td_buffer_puts(&text, cases[i].begin);
        repeat(&text, cases[i].part, cases[i].count);
        td_buffer_puts(&text, cases[i].end);
        td_buffer_puts(&text, "\n---\n");
        assert_true(!text.failed && text.len <= TD_CARD_MAX_BYTES);
        bool ok = read_card(text.data, text.len, false, &json, &err);
        CHECK(ok == (cases[i].message == NULL), "case %zu: %s", i, err.message);
        CHECK(ok || strstr(err.message, cases[i].message) != NULL, "case %zu: %s", i, err.message);
        CHECK(json.len <= 2 * TD_CARD_MAX_JSON_BYTES, "case %zu: %zu", i, json.len);
        td_buffer_fini(&json);
        td_buffer_fini(&text);
    }
}

/* The limit counts the whole object, with its last brace. */
static void the_length_as_json(void **state)
{
    (void)state;
    static const size_t around = sizeof "{'a':''}" - 1;
    for (size_t excess = 0; excess <= 1; excess++) {
        struct td_buffer text;
        struct td_buffer json;
        struct td_error err;
        td_buffer_init(&text);
        td_buffer_puts(&text, "---\na: '");
        repeat(&text, "x", TD_CARD_MAX_JSON_BYTES - around + excess);
        td_buffer_puts(&text, "'\n---\n");
        assert_false(text.failed);
        bool ok = read_card(text.data, text.len, false, &json, &err);
        if (excess == 0)
            CHECK(ok && json.len == TD_CARD_MAX_JSON_BYTES, "%zu: %s", json.len, err.message);
        else
            CHECK(!ok && strstr(err.message, "too long as JSON") != NULL, "%zu: %s", json.len, err.message);
        td_buffer_fini(&json);
        td_buffer_fini(&text);
    }
}

/* Reads front matter: `before`, then `count` directives, each with a tag handle of its own and followed by `newline`.
 * *calls is the number of allocations. */
static bool read_directives(const char *before, size_t count, const char *newline, size_t *calls, struct td_error *err)
{
    struct td_buffer text;
    struct td_buffer json;
    td_buffer_init(&text);
    td_buffer_init(&json);
    td_error_init(err);
    td_buffer_printf(&text, "---\n%s", before);
    for (size_t i = 0; i < count; i++)
        td_buffer_printf(&text, "%%TAG !%zx! x%s", i, newline);
    td_buffer_puts(&text, "--- \nb: 1\n---\n");
    assert_true(!text.failed && text.len <= TD_CARD_MAX_BYTES);
    alloc_count_start();
    bool ok = td_model_card_read(td_buffer_text(&text), false, &json, err);
    *calls = alloc_count_get().calls;
    td_buffer_fini(&json);
    td_buffer_fini(&text);
    return ok;
}

/* libyaml compares each %TAG with all earlier ones, so that a megabyte of them took 17 seconds. Too many are refused
 * before libyaml sees them: nothing is allocated. */
/* shows: security.md content-front-matter */
static void directives_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *before, *newline;
        size_t count;
    } cases[] = {
        {"", "\n", 70000},
        {"", "\n", TD_CARD_MAX_DIRECTIVES + 1},
        {"# text\n\n", "\r\n", TD_CARD_MAX_DIRECTIVES + 1},
        {"a: 1\n", "\r", TD_CARD_MAX_DIRECTIVES + 1},
        {"a: 1\n...\n", "\xc2\x85", TD_CARD_MAX_DIRECTIVES + 1},
        {"a: \"\n", "\xe2\x80\xa8", TD_CARD_MAX_DIRECTIVES + 1},
        {"\xef\xbb\xbf\n", "\xe2\x80\xa9", TD_CARD_MAX_DIRECTIVES + 1},
        {"", "\n \n#\n", TD_CARD_MAX_DIRECTIVES + 1},
    };
    struct td_error err;
    size_t calls;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bool ok = read_directives(cases[i].before, cases[i].count, cases[i].newline, &calls, &err);
        CHECK(!ok && err.code == TD_INVALID_ARGUMENT && calls == 0, "case %zu: %zu allocations", i, calls);
        CHECK(strstr(err.message, "more than 16 lines begin with %") != NULL, "case %zu: %s", i, err.message);
    }
    assert_true(read_directives("", TD_CARD_MAX_DIRECTIVES, "\n", &calls, &err));
    expect("---\n%YAML 1.1\n--- # text\na: 1\n---\n", "{\"a\":1}", NULL);
    expect("---\n%TAG !t! tag:yaml.org,2002:\n--- \na: !t!str 1\n---\n", "{\"a\":\"1\"}", NULL);
    expect("---\na: \"x\n%y\"\n---\n", "{\"a\":\"x %y\"}", NULL);
}

/* A percent sign that does not begin a line begins no directive. */
static void percent_signs_are_text(void **state)
{
    (void)state;
    struct td_buffer text;
    struct td_buffer json;
    struct td_error err;
    td_buffer_init(&text);
    td_buffer_puts(&text, "---\n");
    for (int i = 0; i < 100; i++)
        td_buffer_printf(&text, "k%d%%: 1%%\n  %%%d \xc3\xa8%%\n", i, i);
    td_buffer_puts(&text, "---\n");
    bool ok = read_card(text.data, text.len, false, &json, &err);
    CHECK(ok, "%s", err.message);
    td_buffer_fini(&json);
    td_buffer_fini(&text);
}

static const char whole[] =
    "---\nlicense: mit\ntags: [a, \"b\\u00e9\", 1.5]\nmodel-index:\n- &i {name: x, results: []}\n"
    "more: {<<: *i, name: &y [*i]}\n---\n";

static void every_prefix(void **state)
{
    (void)state;
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        struct td_buffer json;
        struct td_error err;
        bool ok = read_card(whole, len, false, &json, &err);
        CHECK(ok, "%zu: %s", len, err.message); /* without an end there is no front matter */
        CHECK(json.len == 0 || len == sizeof whole - 2, "%zu", len);
        td_buffer_fini(&json);
    }
}

/* shows: security.md content-front-matter */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    size_t failed = 0;
    for (size_t k = 1;; k++) {
        struct td_buffer json;
        struct td_error err = TD_ERROR_INIT;
        td_buffer_init(&json);
        alloc_fail_at(k);
        bool ok = td_model_card_read(TD_TEXT(whole), false, &json, &err);
        alloc_fail_at(0);
        td_buffer_fini(&json);
        if (ok)
            break;
        failed++;
        CHECK(err.code == TD_RESOURCE_EXHAUSTED, "%zu: %d %s", k, (int)err.code, err.message);
    }
    assert_true(failed > 5); /* libyaml's among them; LeakSanitizer finds leaks */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_it_is),
        cmocka_unit_test(scalars),
        cmocka_unit_test(structures),
        cmocka_unit_test(aliases_and_merges),
        cmocka_unit_test(aliases_are_bounded),
        cmocka_unit_test(refused),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(the_length_as_json),
        cmocka_unit_test(directives_are_bounded),
        cmocka_unit_test(percent_signs_are_text),
        cmocka_unit_test(every_prefix),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
