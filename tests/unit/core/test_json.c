#include "core/json/json_canonical.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/core/json_cases.h"

#include <cjson/cJSON.h>

/* Reads to the end or to the first fault. The text is copied to a block of exactly its size, so that the sanitizer sees
 * a read past its end. */
static bool accepts(const char *text, size_t len, struct td_error *err)
{
    char *exact = malloc(len + (len == 0));
    assert_non_null(exact);
    memcpy(exact, text, len);
    struct td_json json;
    td_error_init(err);
    td_json_init(&json, td_text_n(exact, len), 1000, err);
    enum td_json_token token;
    do
        token = td_json_next(&json);
    while (token != TD_JSON_ERROR && token != TD_JSON_END);
    if (token == TD_JSON_ERROR) {
        assert_true(err->pos >= 1000);
        assert_int_equal(td_json_next(&json), TD_JSON_ERROR); /* stays failed */
        assert_false(td_json_skip(&json));
    }
    free(exact);
    return token == TD_JSON_END;
}

static void must_accept(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(json_accept); i++) {
        struct td_error err;
        CHECK(accepts(json_accept[i].text, json_accept[i].len, &err), "%s: %s", json_accept[i].text, err.message);
    }
}

/* For a text that ends too early, the message names what the grammar of RFC 8259 expects next. */
static void the_end_says_what_is_missing(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"", "a value"},
        {"{", "a key in quotes or '}'"},
        {"{\"a\"", "':'"},
        {"{\"a\":", "a value"},
        {"{\"a\":1", "',' or '}'"},
        {"{\"weight_map\":{\"w\":\"a.safetensors\"", "',' or '}'"},
        {"{\"a\":1,", "a key"},
        {"[", "a value or ']'"},
        {"[1", "',' or ']'"},
        {"[{}", "',' or ']'"},
        {"[1,", "a value"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_error err;
        char wanted[96];
        (void)snprintf(wanted, sizeof wanted, "JSON ends too early: %s expected", cases[i].wanted);
        assert_false(accepts(cases[i].text, strlen(cases[i].text), &err));
        CHECK(strcmp(err.message, wanted) == 0, "%s: %s", cases[i].text, err.message);
    }
}

static void must_reject(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(json_reject); i++) {
        struct td_error err;
        const struct json_case *c = &json_reject[i];
        CHECK(!accepts(c->text, c->len, &err), "accepted, case %zu: %s", i, c->text);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        check_error(&err, 1000 + c->len, true, c->text);
    }
}

/* A second opinion, where cJSON is known to follow the RFC. */
static void cjson_agrees(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(json_accept) + COUNT_OF(json_reject); i++) {
        bool accept = i < COUNT_OF(json_accept);
        const struct json_case *c = accept ? &json_accept[i] : &json_reject[i - COUNT_OF(json_accept)];
        const char *end = NULL;
        cJSON *tree = cJSON_ParseWithLengthOpts(c->text, c->len, &end, false);
        bool theirs = tree != NULL;
        cJSON_Delete(tree);
        while (theirs && end < c->text + c->len && strchr(" \t\r\n", *end) != NULL && *end != '\0')
            end++;
        theirs = theirs && end == c->text + c->len;
        CHECK(c->cjson_is_wrong || theirs == accept, "case %zu, cJSON %s: %s", i, theirs ? "accepts" : "rejects",
              c->text);
    }
}

/* No prefix of a value that ends with a bracket, a quote or a letter is a value. */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(json_accept); i++) {
        const struct json_case *c = &json_accept[i];
        size_t len = c->len;
        while (len > 0 && strchr(" \t\r\n", c->text[len - 1]) != NULL)
            len--;
        if (len == 0 || (c->text[len - 1] >= '0' && c->text[len - 1] <= '9'))
            continue; /* a number's prefix may be a number */
        for (size_t cut = 0; cut < len; cut++) {
            struct td_error err;
            CHECK(!accepts(c->text, cut, &err), "%zu bytes of %s", cut, c->text);
            check_error(&err, 1000 + cut, true, c->text);
        }
    }
}

/* shows: security.md content-json-depth */
static void nesting_is_bounded(void **state)
{
    (void)state;
    static const struct {
        size_t depth;
        bool ok;
    } cases[] = {{1, true},   {63, true},  {64, true},   {65, true},
                 {127, true}, {128, true}, {129, false}, {100000, false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t n = cases[i].depth;
        char *text = malloc(7 * n);
        assert_non_null(text);
        struct td_error err;
        memset(text, '[', n);
        memset(text + n, ']', n);
        assert_int_equal(accepts(text, 2 * n, &err), cases[i].ok);
        assert_true(cases[i].ok || err.pos == 1000 + TD_JSON_MAX_DEPTH);
        assert_false(accepts(text, n, &err)); /* never closed */
        for (size_t k = 0; k < n; k++)
            memcpy(text + 5 * k, "{\"\":[", 5);
        for (size_t k = 0; k < n; k++)
            memcpy(text + 5 * n + 2 * k, "]}", 2);
        assert_int_equal(accepts(text, 7 * n, &err), n <= TD_JSON_MAX_DEPTH / 2);
        free(text);
    }
}

static void tokens_come_in_order(void **state)
{
    (void)state;
    static const char text[] = " { \"a\" : [ 1 , \"x\\n\" , true ] , \"b\\u0063\" : { } , \"n\" : null, \"f\":false } ";
    static const struct {
        enum td_json_token token;
        const char *value;
    } wanted[] = {
        {TD_JSON_OBJECT_BEGIN, NULL}, {TD_JSON_KEY, "a"},        {TD_JSON_ARRAY_BEGIN, NULL},
        {TD_JSON_NUMBER, "1"},        {TD_JSON_STRING, "x\\n"},  {TD_JSON_TRUE, NULL},
        {TD_JSON_ARRAY_END, NULL},    {TD_JSON_KEY, "b\\u0063"}, {TD_JSON_OBJECT_BEGIN, NULL},
        {TD_JSON_OBJECT_END, NULL},   {TD_JSON_KEY, "n"},        {TD_JSON_NULL, NULL},
        {TD_JSON_KEY, "f"},           {TD_JSON_FALSE, NULL},     {TD_JSON_OBJECT_END, NULL},
        {TD_JSON_END, NULL},
    };
    struct td_json json;
    struct td_error err = TD_ERROR_INIT;
    td_json_init(&json, TD_TEXT(text), 0, &err);
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        CHECK(td_json_next(&json) == wanted[i].token, "token %zu: %s", i, err.message);
        if (wanted[i].value != NULL) {
            assert_int_equal(json.value_len, strlen(wanted[i].value));
            assert_memory_equal(text + json.value, wanted[i].value, json.value_len);
            assert_int_equal(json.escaped, wanted[i].token != TD_JSON_NUMBER && strchr(wanted[i].value, '\\') != NULL);
        }
    }
    assert_int_equal(td_json_next(&json), TD_JSON_END); /* and stays at the end */
}

static void skip_passes_one_value(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":{\"x\":[1,{\"y\":[]}],\"z\":2},\"b\":7,\"c\":[[],[]],\"d\":\"e\"}";
    struct td_json json;
    struct td_error err = TD_ERROR_INIT;
    td_json_init(&json, TD_TEXT(text), 0, &err);
    assert_true(td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "an object"));
    for (const char *key = "abcd"; *key != '\0'; key++) {
        assert_int_equal(td_json_next(&json), TD_JSON_KEY);
        assert_int_equal(text[json.value], *key);
        assert_true(td_json_skip(&json));
    }
    assert_int_equal(td_json_next(&json), TD_JSON_OBJECT_END);
    assert_int_equal(td_json_next(&json), TD_JSON_END);
    assert_false(td_json_skip(&json)); /* nothing left to skip */

    td_json_init(&json, TD_TEXT(text), 0, &err); /* at a key, skips the whole member */
    assert_true(td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "an object"));
    assert_true(td_json_skip(&json));
    assert_int_equal(td_json_next(&json), TD_JSON_KEY);
    assert_int_equal(text[json.value], 'b');

    td_json_init(&json, TD_TEXT(text), 0, &err);
    assert_true(td_json_skip(&json));
    assert_int_equal(td_json_next(&json), TD_JSON_END);

    td_json_init(&json, TD_TEXT("[1,[2"), 0, &err);
    assert_int_equal(td_json_next(&json), TD_JSON_ARRAY_BEGIN);
    assert_true(td_json_skip(&json));
    assert_false(td_json_skip(&json));
    assert_true(err.pos == 5);
}

static void expect_says_what(void **state)
{
    (void)state;
    struct td_json json;
    struct td_error err = TD_ERROR_INIT;
    td_json_init(&json, td_text_n("  [1]", 5), 100, &err);
    assert_false(td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "an object"));
    assert_string_equal(err.message, "an object expected");
    assert_true(err.pos == 102);
    assert_int_equal(td_json_next(&json), TD_JSON_ERROR);
}

static bool read_u64(const char *text, uint64_t *out, struct td_error *err)
{
    struct td_json json;
    td_error_init(err);
    td_json_init(&json, td_text_of(text), 0, err);
    return td_json_expect(&json, TD_JSON_NUMBER, "a number") && td_json_u64(&json, out);
}

static void numbers_are_exact_to_64_bits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"4294967295", 4294967295},
        {"4294967296", 4294967296},
        {"9007199254740993", 9007199254740993}, /* 2^53+1: the first that a double cannot hold */
        {"9223372036854775807", 9223372036854775807U},
        {"9223372036854775808", 9223372036854775808U},
        {"18446744073709551614", UINT64_MAX - 1},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {
        "18446744073709551616",
        "18446744073709551620",
        "18446744073709551625",
        "28446744073709551615",
        "100000000000000000000",
        "99999999999999999999999999999999999999999999999999999999999999999",
        "-1",
        "-0",
        "1.0",
        "0.0",
        "1e3",
        "1E0",
        "0e0",
        "-1.5",
    };
    struct td_error err;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        uint64_t value = 1;
        CHECK(read_u64(good[i].text, &value, &err) && value == good[i].value, "%s", good[i].text);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        uint64_t value = 77;
        CHECK(!read_u64(bad[i], &value, &err), "%s", bad[i]);
        assert_true(value == 77);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "2^64-1"));
        assert_int_equal(strncmp(err.message, bad[i], 20 < strlen(bad[i]) ? 20 : strlen(bad[i])), 0);
        check_error(&err, strlen(bad[i]), true, bad[i]);
    }
}

/* Decodes text, a JSON string, into a block of exactly `capacity` bytes. */
static bool decode(const char *text, char *out, size_t capacity, size_t *len, struct td_error *err)
{
    struct td_json json;
    td_error_init(err);
    td_json_init(&json, td_text_of(text), 0, err);
    assert_int_equal(td_json_next(&json), TD_JSON_STRING);
    char *exact = malloc(capacity + (capacity == 0));
    assert_non_null(exact);
    bool ok = td_json_string(&json, exact, capacity, len);
    if (ok)
        memcpy(out, exact, *len + 1);
    free(exact);
    return ok;
}

static void strings_decode(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"\"\"", ""},
        {"\"plain\"", "plain"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u65e5\\ud83d\\ude00\"", "A\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80"},
        {"\"\\uD800\\uDC00\\uDBFF\\uDFFF\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\"\\u0001\\u007f\\u0080\\u07ff\\u0800\\uffff\"", "\x01\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"},
        {"\"\xc3\xa9x\\u0078\"", "\xc3\xa9xx"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char out[64];
        size_t len = 0;
        struct td_error err;
        size_t need = strlen(cases[i].text) + 1;
        CHECK(decode(cases[i].json, out, strlen(cases[i].json) - 1, &len, &err), "%s", cases[i].json);
        assert_int_equal(len, need - 1);
        assert_string_equal(out, cases[i].text);
        for (size_t capacity = 0; capacity < need; capacity++) {
            CHECK(!decode(cases[i].json, out, capacity, &len, &err), "%s in %zu", cases[i].json, capacity);
            check_error(&err, strlen(cases[i].json), true, cases[i].json);
        }
        assert_true(decode(cases[i].json, out, need, &len, &err));
    }
}

static void escaped_nul_is_refused_never_truncated(void **state)
{
    (void)state;
    static const char *const cases[] = {"\"\\u0000\"", "\"a\\u0000\"", "\"a\\u0000b\"", "\"\\n\\u0000\""};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char out[64];
        size_t len;
        struct td_error err;
        assert_false(decode(cases[i], out, sizeof out, &len, &err));
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "NUL"));
    }
}

static void equals_compares_what_is_meant(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
        bool equal;
    } cases[] = {
        {"\"dtype\"", "dtype", true},
        {"\"dtyp\"", "dtype", false},
        {"\"dtypes\"", "dtype", false},
        {"\"\"", "", true},
        {"\"x\"", "", false},
        {"\"\\u0064type\"", "dtype", true},
        {"\"d\\u0074\\u0079pe\"", "dtype", true},
        {"\"\\u0064typ\"", "dtype", false},
        {"\"\\u0064typex\"", "dtype", false},
        {"\"\\u0064typee\"", "dtype", false},
        {"\"\\/\"", "/", true},
        {"\"\\u00e9\"", "\xc3\xa9", true},
        {"\"\xc3\xa9\\u00e9\"", "\xc3\xa9\xc3\xa9", true},
        {"\"\\u00e9\"", "\xe9", false},
        {"\"\\u00e9\"", "\xc3", false},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", true},
        {"\"a\\u0000\"", "a", false},
        {"\"\\u0000\"", "", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_json json;
        struct td_error err = TD_ERROR_INIT;
        td_json_init(&json, td_text_of(cases[i].json), 0, &err);
        assert_int_equal(td_json_next(&json), TD_JSON_STRING);
        CHECK(td_json_equals(&json, cases[i].text) == cases[i].equal, "%s and %s", cases[i].json, cases[i].text);
        size_t len = strlen(cases[i].text);
        char *exact = malloc(len + (len == 0)); /* without a terminator to stop at */
        assert_non_null(exact);
        memcpy(exact, cases[i].text, len);
        assert_int_equal(td_json_equals_n(&json, td_text_n(exact, len)), cases[i].equal);
        free(exact);
    }
}

static void value_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {{"{\"a\":[1,{}]},2", 12}, {"[\"]\\\"]\"] x", 8}, {"\"a:\":1", 4}, {"12,3", 2}, {"1]", 1},
                 {"{\"a\":[1}", 0},        {"[\"]", 0},           {"12", 0},       {"", 0}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_json_value_len(td_text_of(cases[i].text)) == cases[i].len, "%s", cases[i].text);
}

static void minify_drops_blanks_and_nothing_else(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {" { } ", "{}"},
        {"[ 1 , 2.50 , 1E+2 , -0 ]", "[1,2.50,1E+2,-0]"},
        {"[18446744073709551616]", "[18446744073709551616]"},
        {" { \"a b\" : [ ] , \"c\\u0041\" :\t{ \"d\" : null } , \"e\" : [ true , false ] }\r\n",
         "{\"a b\":[],\"c\\u0041\":{\"d\":null},\"e\":[true,false]}"},
        {"\n\" \\n \"\n", "\" \\n \""},
        {" 7 ", "7"},
        {"[[],[ ],{},[[1],2]]", "[[],[],{},[[1],2]]"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_buffer out;
        struct td_error err = TD_ERROR_INIT;
        td_buffer_init(&out);
        assert_true(td_json_minify(td_text_of(cases[i].text), &out, &err));
        assert_string_equal(td_buffer_terminate(&out), cases[i].wanted);
        td_buffer_fini(&out);
    }
}

/* Minified JSON is valid, no longer than the text, and minifies to itself. */
static void minify_settles_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(json_accept) + COUNT_OF(json_reject); i++) {
        bool good = i < COUNT_OF(json_accept);
        const struct json_case *c = good ? &json_accept[i] : &json_reject[i - COUNT_OF(json_accept)];
        struct td_buffer once, twice;
        struct td_error err = TD_ERROR_INIT;
        td_buffer_init(&once);
        td_buffer_init(&twice);
        CHECK(td_json_minify(td_text_n(c->text, c->len), &once, &err) == good, "%s: %s", c->text, err.message);
        if (good) {
            assert_true(once.len <= c->len);
            assert_true(td_json_minify(td_buffer_text(&once), &twice, &err));
            assert_int_equal(once.len, twice.len);
            assert_memory_equal(once.data, twice.data, once.len);
        }
        td_buffer_fini(&once);
        td_buffer_fini(&twice);
    }
}

/* The form that Python's json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
 * writes, except that numbers keep their spelling and repeated names stay. */
static void canonical_form(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {" { } ", "{}"},
        {"[ 1 , 2.50 , 1E+2 ]", "[1,2.50,1E+2]"},
        {"{\"b\":1,\"a\":2}", "{\"a\":2,\"b\":1}"},
        {"{\"a\":2 , \"b\":1}", "{\"a\":2,\"b\":1}"},
        {"{\"ab\":1,\"a\":2,\"\":3}", "{\"\":3,\"a\":2,\"ab\":1}"},
        {"{\"z\":{\"y\":[{\"d\":1,\"c\":[]}],\"x\":null},\"a\":[3,2,1]}",
         "{\"a\":[3,2,1],\"z\":{\"x\":null,\"y\":[{\"c\":[],\"d\":1}]}}"},
        {"{\"\\u0062\":\"\\u0041\\/\",\"a\":\"\\n\"}", "{\"a\":\"\\n\",\"b\":\"A/\"}"},
        {"{\"\\u00e9\":1,\"z\":2}", "{\"z\":2,\"\xc3\xa9\":1}"},
        {"{\"a\":1,\"a\":0}", "{\"a\":1,\"a\":0}"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_buffer out;
        struct td_error err = TD_ERROR_INIT;
        td_buffer_init(&out);
        CHECK(td_json_canonical(td_text_of(cases[i].text), &out, &err), "%s: %s", cases[i].text, err.message);
        assert_string_equal(td_buffer_terminate(&out), cases[i].wanted);
        td_buffer_fini(&out);
    }
}

/* Each allocation fails in turn: the result is an error, and nothing leaks. */
static void canonical_form_reports_want_of_memory(void **state)
{
    (void)state;
    static const char text[] = "{\"b\":{\"d\":\"\\u0041\",\"c\":1},\"a\":[]}";
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_buffer out;
        struct td_error err = TD_ERROR_INIT;
        td_buffer_init(&out);
        bool ok = td_json_canonical(TD_TEXT(text), &out, &err);
        alloc_tried(&trials, ok, &err);
        td_buffer_fini(&out);
    }
    assert_true(trials.k > 3);
}

static void minify_reports_want_of_memory(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,2,3]}";
    struct td_buffer out;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&out);
    alloc_fail_at(1);
    assert_false(td_json_minify(TD_TEXT(text), &out, &err));
    alloc_fail_at(0);
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    td_buffer_fini(&out);
}

static void reading_takes_no_heap(void **state)
{
    (void)state;
    alloc_count_start();
    for (size_t i = 0; i < COUNT_OF(json_accept); i++) {
        struct td_json json;
        struct td_error err = TD_ERROR_INIT;
        td_json_init(&json, td_text_n(json_accept[i].text, json_accept[i].len), 0, &err);
        enum td_json_token token;
        do
            token = td_json_next(&json);
        while (token != TD_JSON_END && token != TD_JSON_ERROR);
        CHECK(token == TD_JSON_END, "%s: %s", json_accept[i].text, err.message);
    }
    assert_int_equal(alloc_count_get().calls, 0);
}

static void written_strings_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"", "\"\""},
        {"plain", "\"plain\""},
        {"a\"b\\c/d", "\"a\\\"b\\\\c/d\""},
        {"\n\t\x01\x1f\x7f", "\"\\n\\u0009\\u0001\\u001f\\u007f\""},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\"\xc3\xa9\xf0\x9f\x98\x80\""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_buffer out;
        struct td_error err;
        char back[64];
        size_t len;
        td_buffer_init(&out);
        td_json_write_cstring(&out, cases[i].text);
        assert_string_equal(td_buffer_terminate(&out), cases[i].wanted);
        assert_true(decode(out.data, back, sizeof back, &len, &err));
        assert_string_equal(back, cases[i].text);
        td_buffer_fini(&out);
    }
    struct td_buffer out;
    td_buffer_init(&out);
    td_json_write_string(&out, TD_TEXT("a\0b"));
    assert_string_equal(td_buffer_terminate(&out), "\"a\\u0000b\"");
    td_buffer_fini(&out);
}

/* Every byte at every place of texts of up to 17 bytes, between plain bytes that are near the special ones. */
static void plain_text_is_known(void **state)
{
    (void)state;
    static const char near[] = " !#[]~^ !#[]~^ !#";
    char text[sizeof near];
    assert_true(td_json_is_plain(td_text_n(NULL, 0)));
    for (size_t len = 1; len < sizeof near; len++) {
        assert_true(td_json_is_plain(td_text_n(near, len)));
        for (size_t at = 0; at < len; at++) {
            for (int byte = 0; byte < 256; byte++) {
                bool wanted = byte >= ' ' && byte <= '~' && byte != '"' && byte != '\\';
                memcpy(text, near, len);
                text[at] = (char)byte;
                CHECK(td_json_is_plain(td_text_n(text, len)) == wanted, "byte %d at %zu of %zu", byte, at, len);
            }
        }
    }
}

static void members_are_counted_and_found(void **state)
{
    (void)state;
    static const char text[] = " { \"a\" : {\"x\":[1,{\"a\":2}]} , \"b\\u0063\":null,\"a\":[[]], \"\":\"a\" ,\"a\":1}";
    struct td_json json;
    struct td_error err = TD_ERROR_INIT;
    td_json_init(&json, TD_TEXT(text), 0, &err);
    assert_true(td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "an object"));
    assert_int_equal(td_json_count_members(json), 5);
    assert_int_equal(td_json_find_member(json, TD_TEXT("a"), 0), strstr(text, "\"a\" :") - text);
    assert_int_equal(td_json_find_member(json, TD_TEXT("a"), 1), strstr(text, "\"a\":[") - text);
    assert_int_equal(td_json_find_member(json, TD_TEXT("a"), 2), strstr(text, "\"a\":1") - text);
    assert_int_equal(td_json_find_member(json, TD_TEXT("a"), 3), 0);
    assert_int_equal(td_json_find_member(json, TD_TEXT("bc"), 0), strstr(text, "\"b\\") - text);
    assert_int_equal(td_json_find_member(json, TD_TEXT(""), 0), strstr(text, "\"\":") - text);
    assert_int_equal(td_json_find_member(json, TD_TEXT("x"), 0), 0); /* not a member of this object */
    assert_int_equal(td_json_next(&json), TD_JSON_KEY);              /* the reader has not moved */
    assert_int_equal(err.code, TD_OK);
}

static void seek_stops_at_the_value_of_a_key_of_this_object(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":{\"b\":1,\"c\":[2]},\"b\":3,\"c\":4}";
    struct td_json json;
    uint64_t number = 0;
    td_json_init(&json, TD_TEXT(text), 0, NULL);
    assert_int_equal(td_json_next(&json), TD_JSON_OBJECT_BEGIN);
    assert_true(td_json_seek(&json, "c"));
    assert_int_equal(td_json_next(&json), TD_JSON_NUMBER);
    assert_true(td_json_u64(&json, &number) && number == 4);
    assert_false(td_json_seek(&json, "a")); /* it came before */
    td_json_init(&json, TD_TEXT("{\"a\":1,oops"), 0, NULL);
    assert_int_equal(td_json_next(&json), TD_JSON_OBJECT_BEGIN);
    assert_false(td_json_seek(&json, "oops"));
}

static void faults_are_left_to_the_callers_pass(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":1,\"b\":2,oops";
    struct td_json json;
    struct td_error err = TD_ERROR_INIT;
    td_json_init(&json, TD_TEXT(text), 0, &err);
    assert_true(td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "an object"));
    assert_int_equal(td_json_count_members(json), 2);
    assert_int_equal(td_json_find_member(json, TD_TEXT("c"), 0), 0);
    assert_int_equal(err.code, TD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(must_accept),
        cmocka_unit_test(must_reject),
        cmocka_unit_test(the_end_says_what_is_missing),
        cmocka_unit_test(cjson_agrees),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(tokens_come_in_order),
        cmocka_unit_test(skip_passes_one_value),
        cmocka_unit_test(seek_stops_at_the_value_of_a_key_of_this_object),
        cmocka_unit_test(expect_says_what),
        cmocka_unit_test(numbers_are_exact_to_64_bits),
        cmocka_unit_test(strings_decode),
        cmocka_unit_test(escaped_nul_is_refused_never_truncated),
        cmocka_unit_test(equals_compares_what_is_meant),
        cmocka_unit_test(value_lengths),
        cmocka_unit_test(minify_drops_blanks_and_nothing_else),
        cmocka_unit_test(minify_settles_at_once),
        cmocka_unit_test(minify_reports_want_of_memory),
        cmocka_unit_test(canonical_form),
        cmocka_unit_test(canonical_form_reports_want_of_memory),
        cmocka_unit_test(reading_takes_no_heap),
        cmocka_unit_test(written_strings_read_back),
        cmocka_unit_test(plain_text_is_known),
        cmocka_unit_test(members_are_counted_and_found),
        cmocka_unit_test(faults_are_left_to_the_callers_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
