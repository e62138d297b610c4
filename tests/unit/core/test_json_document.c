#include "tests/kit/json_tree.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/core/json_cases.h"
#include "tests/unit/unit.h"

/* A document and its memory. The text is in a block of exactly its size, so that the sanitizer sees a read past it.
 */
struct place {
    struct td_json_document document;
    struct td_arena arena;
    struct td_error err;
    char *text;
};

static void place_read_n(struct place *p, const char *text, size_t len, size_t limit_bytes)
{
    p->text = malloc(len + (len == 0));
    assert_non_null(p->text);
    memcpy(p->text, text, len);
    td_error_init(&p->err);
    td_arena_init(&p->arena, limit_bytes);
    td_json_document_read(&p->document, td_text_n(p->text, len), &p->arena, &p->err);
}

static void place_read(struct place *p, const char *text)
{
    place_read_n(p, text, strlen(text), 0);
}

static void place_fini(struct place *p)
{
    td_arena_fini(&p->arena);
    free(p->text);
}

static const cJSON *member(const struct place *p, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(p->document.root, name);
    CHECK(item != NULL, "no \"%s\"", name);
    return item;
}

static void types_and_values(void **state)
{
    (void)state;
    struct place p;
    place_read(&p, " {\"o\":{\"x\":1},\"a\":[1,[],2],\"s\":\"caf\\u00e9 \\ud83d\\ude00\",\"n\":-1.50e+3,\"t\":true,"
                   "\"f\":false,\"z\":null,\"k\\u0065y\":\"\"} ");
    assert_true(td_json_document_end(&p.document) && json_tree_matches(&p.document));
    assert_ptr_equal(td_json_document_object(&p.document, "an object"), p.document.root);
    assert_int_equal(cJSON_GetArraySize(p.document.root), 8);
    assert_true(cJSON_IsObject(member(&p, "o")) && cJSON_GetArraySize(member(&p, "a")) == 3);
    assert_string_equal(cJSON_GetStringValue(member(&p, "s")), "caf\xc3\xa9 \xf0\x9f\x98\x80");
    assert_true(cJSON_IsRaw(member(&p, "n")));
    assert_string_equal(member(&p, "n")->valuestring, "-1.50e+3");
    assert_true(cJSON_IsTrue(member(&p, "t")) && cJSON_IsFalse(member(&p, "f")) && cJSON_IsNull(member(&p, "z")));
    assert_string_equal(td_json_document_string(&p.document, member(&p, "key")), "");
    struct td_text spelled = td_json_document_spelled(&p.document, member(&p, "s"));
    assert_true(td_text_equals(spelled, "caf\\u00e9 \\ud83d\\ude00"));
    assert_true(td_text_equals(td_json_document_spelled(&p.document, member(&p, "a")), "[1,[],2]"));
    assert_int_equal(p.err.code, TD_OK);
    place_fini(&p);
}

static void whole_numbers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
        const char *says; /* NULL: no error */
    } cases[] = {
        {"0", 0, NULL},
        {"9007199254740993", UINT64_C(9007199254740993), NULL}, /* 2^53 + 1 is no double */
        {"18446744073709551615", UINT64_MAX, NULL},
        {"18446744073709551616", 0, "18446744073709551616 is larger than 2^64-1"},
        {"-1", 0, "-1 is not a whole number from 0 to 2^64-1"},
        {"1.0", 0, "1.0 is not a whole number from 0 to 2^64-1"},
        {"1e2", 0, "1e2 is not a whole number from 0 to 2^64-1"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct place p;
        char text[64];
        uint64_t value = 7;
        (void)snprintf(text, sizeof text, "[ %s]", cases[i].text);
        place_read(&p, text);
        bool ok = td_json_document_u64(&p.document, p.document.root->child, &value);
        CHECK(ok == (cases[i].says == NULL), "%s: %s", cases[i].text, p.err.message);
        assert_true(ok ? value == cases[i].value : p.err.pos == 2 && strcmp(p.err.message, cases[i].says) == 0);
        place_fini(&p);
    }
}

static void repeated_names_are_all_there(void **state)
{
    (void)state;
    struct place p;
    place_read(&p, "{\"a\":1,\"b\":2,\"\\u0061\":3}");
    assert_true(td_json_document_end(&p.document));
    assert_string_equal(member(&p, "a")->valuestring, "1");
    const cJSON *last = cJSON_GetArrayItem(p.document.root, 2);
    assert_string_equal(last->string, "a");
    assert_string_equal(last->valuestring, "3");
    assert_false(td_json_document_fail_key(&p.document, last, "%s twice", last->string));
    assert_true(p.err.pos == 13 && strcmp(p.err.message, "a twice") == 0);
    place_fini(&p);
}

static void a_nul_is_not_cut(void **state)
{
    (void)state;
    struct place p;
    place_read(&p, "{\"a\":\"x\\u0000\\u0041\",\"b\\u0000\":1}");
    assert_true(td_json_document_end(&p.document) && json_tree_matches(&p.document));
    const cJSON *a = member(&p, "a");
    assert_true(td_json_item_is_string(a) && !cJSON_IsString(a));
    assert_string_equal(a->next->string, "b\\u0000");
    assert_null(td_json_document_string(&p.document, a));
    assert_true(p.err.code == TD_INVALID_ARGUMENT && p.err.pos == 5);
    assert_string_equal(p.err.message, "string holds a NUL");
    place_fini(&p);
}

static void positions_of_faults(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": [1, 2 ] , \"\\u00e9\" :{}}";
    struct place p;
    place_read(&p, text);
    const cJSON *a = member(&p, "a");
    assert_false(td_json_document_fail(&p.document, a->child->next, "%d is wrong", 2));
    assert_true(p.err.pos == 10 && strcmp(p.err.message, "2 is wrong") == 0);
    td_error_init(&p.err);
    assert_false(td_json_document_fail_end(&p.document, a, "too few"));
    assert_int_equal(p.err.pos, 12);
    td_error_init(&p.err);
    assert_false(td_json_document_fail_end(&p.document, p.document.root, "too few"));
    assert_int_equal(p.err.pos, sizeof text - 2);
    td_error_init(&p.err);
    assert_false(td_json_document_unknown_key(&p.document, a->next, "there is a"));
    assert_true(p.err.pos == 16 && strcmp(p.err.message, "unknown key \"\\u00e9\"; there is a") == 0);
    place_fini(&p);
    place_read(&p, " [1]");
    assert_null(td_json_document_object(&p.document, "a plan, an object,"));
    assert_true(p.err.pos == 1 && strcmp(p.err.message, "a plan, an object, expected") == 0);
    place_fini(&p);
}

/* The document and the pull reader agree on every text. */
static void texts_of_the_rfc(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(json_accept) + COUNT_OF(json_reject); i++) {
        bool accept = i < COUNT_OF(json_accept);
        const struct json_case *c = accept ? &json_accept[i] : &json_reject[i - COUNT_OF(json_accept)];
        for (size_t len = accept ? 0 : c->len; len <= c->len; len++) { /* every prefix of the accepted texts */
            struct place p;
            place_read_n(&p, c->text, len, 0);
            CHECK(json_tree_matches(&p.document), "case %zu, %zu bytes: %s", i, len, c->text);
            bool ok = td_json_document_end(&p.document);
            CHECK(len < c->len || ok == accept, "case %zu: %s", i, c->text);
            assert_int_equal(p.err.code, ok ? TD_OK : TD_INVALID_ARGUMENT);
            place_fini(&p);
        }
    }
}

/* When a text has two faults, the error names the first one. */
static void the_first_fault_wins(void **state)
{
    (void)state;
    struct place p;
    place_read(&p, "{\"a\":[1,2],\"b\":[3,4 x");
    const cJSON *a = member(&p, "a");
    const cJSON *b = member(&p, "b");
    assert_false(td_json_document_fail_end(&p.document, a, "mine"));
    assert_true(p.err.pos == 9 && strcmp(p.err.message, "mine") == 0);
    td_error_init(&p.err);
    assert_false(td_json_document_fail(&p.document, b->child->next, "mine"));
    assert_string_equal(p.err.message, "mine");
    td_error_init(&p.err);
    assert_false(td_json_document_fail_end(&p.document, b, "mine")); /* not closed */
    assert_true(p.err.pos == 20 && strcmp(p.err.message, "not JSON: ',' or ']' expected") == 0);
    td_error_init(&p.err);
    assert_false(td_json_document_end(&p.document));
    assert_int_equal(p.err.pos, 20);
    place_fini(&p);
    place_read(&p, "{\"a\": ");
    a = member(&p, "a");
    assert_true(cJSON_IsInvalid(a));
    assert_null(td_json_document_string(&p.document, a)); /* the text ends before a value */
    assert_string_equal(p.err.message, "JSON ends too early: a value expected");
    td_error_init(&p.err);
    assert_false(td_json_document_fail_key(&p.document, a, "mine"));
    assert_string_equal(p.err.message, "mine");
    place_fini(&p);
    place_read(&p, "");
    assert_null(td_json_document_object(&p.document, "an object"));
    assert_string_equal(p.err.message, "JSON ends too early: a value expected");
    place_fini(&p);
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    static const size_t depths[] = {1, TD_JSON_MAX_DEPTH, TD_JSON_MAX_DEPTH + 1, 1000000};
    for (size_t i = 0; i < COUNT_OF(depths); i++) {
        size_t n = depths[i];
        char *text = malloc(2 * n);
        struct place p;
        assert_non_null(text);
        memset(text, '[', n);
        memset(text + n, ']', n);
        place_read_n(&p, text, 2 * n, 0);
        assert_true(json_tree_matches(&p.document));
        assert_int_equal(td_json_document_end(&p.document), n <= TD_JSON_MAX_DEPTH);
        assert_true(n <= TD_JSON_MAX_DEPTH || p.err.pos == TD_JSON_MAX_DEPTH);
        place_fini(&p);
        free(text);
    }
}

/* The arena's limit holds for any number of values. Faults before the limit are still found. */
static void memory_is_bounded(void **state)
{
    (void)state;
    enum { COUNT = 100000, LIMIT = 1024 * 1024 };
    char *text = malloc(2 * COUNT + 1);
    struct place p;
    assert_non_null(text);
    for (size_t i = 0; i < COUNT; i++)
        memcpy(text + 2 * i, i == 0 ? "[0" : ",0", 2);
    text[2 * COUNT] = ']';
    alloc_count_start();
    place_read_n(&p, text, 2 * COUNT + 1, LIMIT);
    assert_true(alloc_count_get().peak_bytes < LIMIT + LIMIT / 4 + 2 * COUNT);
    assert_false(td_json_document_end(&p.document));
    assert_int_equal(p.err.code, TD_FAILED_PRECONDITION);
    assert_string_equal(p.err.message, "the tree of a JSON text needs more than the limit of 1024 KiB of memory");
    td_error_init(&p.err);
    assert_false(td_json_document_fail(&p.document, p.document.root->child, "not a string"));
    assert_true(p.err.pos == 1 && strcmp(p.err.message, "not a string") == 0);
    place_fini(&p);
    place_read_n(&p, text, 2 * COUNT + 1, 0);
    assert_true(td_json_document_end(&p.document) && cJSON_GetArraySize(p.document.root) == COUNT);
    assert_true(p.arena.used_bytes <= (size_t)COUNT * 84);
    place_fini(&p);
    free(text);
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&p.arena, 0);
    td_json_document_read(&p.document, td_text_n("", UINT32_MAX), &p.arena, &err); /* the text is not read */
    assert_false(td_json_document_end(&p.document));
    assert_true(err.code == TD_FAILED_PRECONDITION && p.document.root == NULL);
    td_arena_fini(&p.arena);
}

static void every_failing_allocation(void **state)
{
    (void)state;
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_puts(&text, "{\"k\":[");
    for (size_t i = 0; i < 300; i++)
        td_buffer_printf(&text, "{\"key%zu\":%zu,\"\\u0041%zu\":\"value\\n%zu\"},", i, i, i, i);
    td_buffer_puts(&text, "null]}");
    bool ok = false;
    size_t k = 1;
    for (; !ok; k++) {
        struct td_json_document document;
        struct td_arena arena;
        struct td_error err = TD_ERROR_INIT;
        alloc_count_start();
        td_arena_init(&arena, 0);
        alloc_fail_at(k);
        td_json_document_read(&document, td_buffer_text(&text), &arena, &err);
        alloc_fail_at(0);
        const cJSON *root = document.root;
        if (root != NULL && root->child != NULL)
            assert_false(td_json_document_fail_end(&document, root, "mine"));
        assert_true(err.code == TD_OK ||
                    err.code == (document.fault.code == TD_OK ? TD_INVALID_ARGUMENT : TD_RESOURCE_EXHAUSTED));
        td_error_init(&err);
        ok = td_json_document_end(&document);
        assert_int_equal(err.code, ok ? TD_OK : TD_RESOURCE_EXHAUSTED);
        td_arena_fini(&arena);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
    assert_true(k > 5);
    td_buffer_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_and_values),
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(repeated_names_are_all_there),
        cmocka_unit_test(a_nul_is_not_cut),
        cmocka_unit_test(positions_of_faults),
        cmocka_unit_test(texts_of_the_rfc),
        cmocka_unit_test(the_first_fault_wins),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
