#include "slicing/plan/rule.h"
#include "slicing/rule_json.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/work.h"

#include <inttypes.h>

/* ---- patterns ---- */

/* Returns the captures joined by '|', or "-" when the pattern does not match. */
static const char *captured(const char *pattern, const char *name, char *out, size_t capacity)
{
    struct td_captures captures;
    size_t len = 0;
    if (!td_rule_match(pattern, td_text_of(name), &captures))
        return "-";
    out[0] = '\0';
    for (uint32_t i = 0; i < captures.count; i++)
        len += (size_t)snprintf(out + len, capacity - len, "%s%.*s", i > 0 ? "|" : "", (int)captures.at[i].len,
                                name + captures.at[i].off);
    return out;
}

static void patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name, *captures;
    } cases[] = {
        {"", "", ""},
        {"", "a", "-"},
        {"a", "a", ""},
        {"a", "ab", "-"},
        {"ab", "a", "-"},
        {"*", "a", "a"},
        {"*", "", "-"},
        {"*", "a.b", "-"},
        {"*.b", "a.b", "a"},
        {"*.b", ".b", "-"},
        {"a.*", "a.", "-"},
        {"a.*.c", "a.b.c", "b"},
        {"a.*.c", "a.b.b.c", "-"},
        {"*.*", "a.b", "a|b"},
        {"*.*", "a.b.c", "-"},
        {"**", "", ""},
        {"**", "a.b", "a.b"},
        {"a**", "a", ""},
        {"**a", "a", ""},
        {"**.c", "a.b.c", "a.b"},
        {"**.c", ".c", ""},
        {"**.c", "c", "-"},
        {"**.a.*", "a.a.a.a", "a.a|a"},
        {"**.a.**", "a.a.a.a", "a|a.a"}, /* the shortest captures possible, from the left */
        {"**a.**", "a.a.a", "|a.a"},
        {"**aab", "aaab", "a"},
        {"**ab**ab", "ab.ab.ab", "|.ab."},
        {"**norm.weight", "model.norm.weight", "model."},
        {"model.layers.*.self_attn.q_proj.weight", "model.layers.12.self_attn.q_proj.weight", "12"},
        {"model.layers.*.mlp.up_proj.weight", "model.layers.3.mlp.gate_up_proj.weight", "-"},
        {"model.layers.*.mlp.experts.*.w1.weight", "model.layers.3.mlp.experts.7.w1.weight", "3|7"},
        {"**.*.w", "a.b.c.w", "a.b|c"},
        {"*.**.*", "a.b.c.d", "a|b.c|d"},
        {"*.**", "ab.", "ab|"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[128];
        const char *got = captured(cases[i].pattern, cases[i].name, text, sizeof text);
        CHECK(strcmp(got, cases[i].captures) == 0, "%s on %s: %s, not %s", cases[i].pattern, cases[i].name, got,
              cases[i].captures);
    }
}

/* Matches by trying every way, in exponential time. The first match has the shortest captures from the left. */
static bool naive(const char *p, const char *name, const char *n, struct td_captures *c, uint32_t depth)
{
    if (*p == '\0') {
        c->count = depth;
        return *n == '\0';
    }
    bool any = p[0] == '*' && p[1] == '*';
    if (*p != '*')
        return *n == *p && naive(p + 1, name, n + 1, c, depth);
    size_t least = any ? 0 : strcspn(n, ".");
    size_t most = any ? strlen(n) : least;
    for (size_t len = least; len <= most && (any || len > 0); len++) {
        c->at[depth].off = (uint32_t)(n - name);
        c->at[depth].len = (uint32_t)len;
        if (naive(p + (any ? 2 : 1), name, n + len, c, depth + 1))
            return true;
    }
    return false;
}

/* Matches random patterns that td_rule_check takes with random names of few letters. */
static void patterns_agree_with_trying_everything(void **state)
{
    (void)state;
    static const char *const words[] = {"a", "b", ".", ".a.", "*", "**", "ab", "."};
    uint64_t random = 11;
    unsigned matched = 0;
    for (unsigned round = 0; round < 60000; round++) {
        char pattern[64] = "";
        char name[16] = "";
        for (size_t n = random_below(&random, 7); n > 0; n--)
            (void)strcat(pattern, words[random_below(&random, COUNT_OF(words))]);
        for (size_t n = random_below(&random, 12), i = 0; i < n; i++)
            name[i] = "ab.."[random_below(&random, 4)];
        struct td_rule rule = {.match = pattern};
        if (td_rule_check(&rule) != NULL)
            continue;
        struct td_captures ours;
        struct td_captures theirs;
        bool mine = td_rule_match(pattern, td_text_of(name), &ours);
        bool yours = naive(pattern, name, name, &theirs, 0);
        CHECK(mine == yours, "%s on %s", pattern, name);
        if (!mine)
            continue;
        matched++;
        assert_int_equal(ours.count, theirs.count);
        for (uint32_t i = 0; i < ours.count; i++)
            CHECK(ours.at[i].off == theirs.at[i].off && ours.at[i].len == theirs.at[i].len, "%s on %s", pattern, name);
    }
    assert_true(matched > 1000);
}

static void pattern_checks(void **state)
{
    (void)state;
    char long_pattern[TD_RULE_MAX_PATTERN_BYTES + 2];
    memset(long_pattern, 'a', sizeof long_pattern - 1);
    long_pattern[sizeof long_pattern - 1] = '\0';
    const struct {
        struct td_rule rule;
        bool good;
    } cases[] = {
        {{.match = "a"}, true},
        {{.match = "*"}, true},
        {{.match = "**a**"}, true},
        {{.match = "a*"}, false},
        {{.match = "*a"}, false},
        {{.match = "a.*b.c"}, false},
        {{.match = "***"}, false},
        {{.match = "****"}, false},
        {{.match = "*.*.*.*.*.*.*.*"}, true},
        {{.match = "*.*.*.*.*.*.*.*.*"}, false},
        {{.match = "a", .out = "b"}, true},
        {{.match = "*.a", .out = "b*"}, true},
        {{.match = "a", .out = "*"}, false},
        {{.match = "*.*", .out = "*.*.x"}, true},
        {{.match = "*.*", .out = "*.*.x", .stack = true}, false},
        {{.match = "*.*", .out = "*.x", .stack = true}, true},
        {{.match = "*.*", .stack = true}, false},
        {{.match = "a", .out = "x", .stack = true}, false},
        {{.match = long_pattern}, false},
        {{.match = "a", .out = long_pattern}, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK((td_rule_check(&cases[i].rule) == NULL) == cases[i].good, "case %zu, %.40s", i, cases[i].rule.match);
}

static void the_first_rule_counts(void **state)
{
    (void)state;
    struct td_rule rules[] = {{.match = "a.*"}, {.match = "a.b"}, {.match = "**"}};
    struct td_rule_list list = {.rules = rules, .count = 3};
    struct td_captures captures;
    assert_ptr_equal(td_rules_find(&list, TD_TEXT("a.b"), &captures, NULL), &rules[0]);
    assert_ptr_equal(td_rules_find(&list, TD_TEXT("b"), &captures, NULL), &rules[2]);
    list.count = 2;
    assert_null(td_rules_find(&list, TD_TEXT("b"), &captures, NULL));
    uint64_t steps = 1000;
    assert_non_null(td_rules_find(&list, TD_TEXT("a.b"), &captures, &steps));
    assert_true(steps < 1000 && steps > 900);
    steps = 2;
    assert_null(td_rules_find(&list, TD_TEXT("b"), &captures, &steps));
    assert_int_equal(steps, 0);
}

/* The most expensive name: every block of the pattern nearly fits everywhere. */
static void matching_is_pattern_times_name(void **state)
{
    (void)state;
    enum { LEN = 100000 };
    char *name = malloc(LEN);
    char pattern[512];
    assert_non_null(name);
    memset(name, 'a', LEN);
    (void)snprintf(pattern, sizeof pattern, "**%0*d**a", 400, 0);
    memset(pattern + 2, 'a', 400);
    pattern[200] = 'b'; /* makes the middle block unmatchable; the end still fits */
    struct td_captures captures;
    uint64_t work = work_now();
    assert_false(td_rule_match(pattern, td_text_n(name, LEN), &captures));
    work = work_now() - work;
    CHECK(work > (uint64_t)LEN * 198 && work < (uint64_t)LEN * 402 * 8, "%.1f for each pair of characters",
          (double)work / LEN / 402);
    struct td_rule rules[] = {{.match = pattern}};
    struct td_rule_list list = {.rules = rules, .count = 1};
    uint64_t steps = UINT64_MAX;
    assert_null(td_rules_find(&list, td_text_n(name, LEN), &captures, &steps));
    assert_true(UINT64_MAX - steps <= (uint64_t)LEN * 402 && UINT64_MAX - steps >= (uint64_t)LEN * 198);
    free(name);
}

static void results(void **state)
{
    (void)state;
    static const struct {
        const char *match, *out, *name, *wanted;
    } cases[] = {
        {"a", "b", "a", "b"},
        {"*.q.*", "*.qkv.*", "7.q.w", "7.qkv.w"},
        {"h.**", "t.h.**", "h.0.w", "t.h.0.w"},
        {"**.a.*", "x**y*z", "1.2.a.3", "x1.2y3z"},
        {"*.*", "*", "a.b", "a"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_rule rule = {.match = cases[i].match, .out = cases[i].out};
        struct td_captures captures;
        struct td_buffer out;
        td_buffer_init(&out);
        assert_true(td_rule_match(rule.match, td_text_of(cases[i].name), &captures));
        td_rule_write_out(&rule, cases[i].name, &captures, &out);
        assert_string_equal(td_buffer_terminate(&out), cases[i].wanted);
        td_buffer_fini(&out);
    }
}

/* ---- the reader ---- */

struct parsed {
    struct td_arena arena;
    struct td_rule_list rules;
    struct td_error err;
    char *text;
    bool ok;
};

/* Parses the text from a block of exactly its size, so that the sanitizer sees a read past it. */
static void parse(struct parsed *p, const char *text)
{
    size_t len = strlen(text);
    struct td_json_document document;
    p->text = malloc(len + (len == 0));
    assert_non_null(p->text);
    memcpy(p->text, text, len);
    td_error_init(&p->err);
    td_arena_init(&p->arena, 0);
    td_json_document_read(&document, td_text_n(p->text, len), &p->arena, &p->err);
    p->ok = document.root != NULL && td_rules_read(&document, document.root, &p->arena, &p->rules, &p->err);
    p->ok = td_json_document_end(&document) && p->ok;
    assert_int_equal(p->ok, p->err.code == TD_OK);
}

static void parsed_fini(struct parsed *p)
{
    td_arena_fini(&p->arena);
    free(p->text);
}

static void reads_every_key(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, "[{\"match\":\"*.a.*\",\"out\":\"*.b\",\"slot\":2,\"stack\":true,\"stack_size\":8,\"dim\":-1,"
              "\"parts\":[{\"count\":16,\"unit\":128},{\"count\":8,\"unit\":128,\"replicate\":true}],\"groups\":4,"
              "\"pack\":8,\"uneven\":\"chunk\"},"
              "{\"match\":\"d\\u0041\",\"drop\":true},{\"match\":\"w\",\"whole\":true,\"dim\":63},"
              "{\"match\":\"r\",\"refuse\":\"no\"},{\"match\":\"v\",\"pad_to\":64,\"uneven\":\"balanced\",\"dim\":-64},"
              "{\"match\":\"h\",\"parts\":[{\"count\":3,\"unit\":0}],\"uneven\":\"error\"},"
              "{\"match\":\"p\",\"parts\":[{},{}]},{\"match\":\"*.o\",\"out\":\"*.scale\",\"constant\":-2.5e-1}]");
    assert_true(p.ok);
    assert_int_equal(p.rules.count, 8);
    assert_false(p.rules.plain_types_only);
    const struct td_rule *r = p.rules.rules;
    assert_string_equal(r[0].match, "*.a.*");
    assert_string_equal(r[0].out, "*.b");
    assert_int_equal(r[0].slot, 2);
    assert_true(r[0].stack && !r[0].whole && !r[0].drop && r[0].refuse == NULL);
    assert_int_equal(r[0].stack_size, 8);
    assert_int_equal(r[0].dim, -1);
    assert_int_equal(r[0].part_count, 2);
    assert_int_equal(r[0].parts[0].count, 16);
    assert_int_equal(r[0].parts[0].unit, 128);
    assert_false(r[0].parts[0].replicate);
    assert_true(r[0].parts[1].replicate);
    assert_int_equal(r[0].groups, 4);
    assert_int_equal(r[0].pack, 8);
    assert_int_equal(r[0].uneven, TD_UNEVEN_CHUNK);
    assert_int_equal(r[0].pad_to, 1);
    assert_string_equal(r[1].match, "dA");
    assert_true(r[1].drop && r[2].whole);
    assert_int_equal(r[2].dim, 63);
    assert_string_equal(r[3].refuse, "no");
    assert_int_equal(r[4].pad_to, 64);
    assert_int_equal(r[4].uneven, TD_UNEVEN_BALANCED);
    assert_int_equal(r[4].dim, -64);
    assert_int_equal(r[5].parts[0].unit, 0);
    assert_int_equal(r[6].part_count, 2);
    assert_int_equal(r[6].parts[1].count, 0);
    assert_int_equal(r[6].parts[1].unit, 1);
    assert_true(r[7].is_constant && r[7].constant == -0.25F && !r[6].is_constant);
    assert_string_equal(r[7].out, "*.scale");
    parsed_fini(&p);
    parse(&p, "[]");
    assert_true(p.ok && p.rules.count == 0);
    parsed_fini(&p);
}

static void refuses_what_is_no_rule(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"", "value"},
        {"{}", "rules"},
        {"[", "value"},
        {"[1]", "rule"},
        {"[[]]", "rule"},
        {"[{}]", "no match"},
        {"[{\"match\":\"a\"},1]", "rule"},
        {"[1,{\"match\":\"a\"}]", "rule"},
        {"[{\"match\":1}]", "string"},
        {"[{\"match\":null}]", "string"},
        {"[{\"match\":\"\"}]", "empty"},
        {"[{\"match\":\"a*\"}]", "component"},
        {"[{\"match\":\"***\"}]", "touch"},
        {"[{\"match\":\"a\\u0000b\"}]", "NUL"},
        {"[{\"match\":\"a\",\"match\":\"a\"}]", "twice"},
        {"[{\"match\":\"a\",\"mode\":1}]", "unknown"},
        {"[{\"match\":\"a\",\"out\":\"*\"}]", "wildcards"},
        {"[{\"match\":\"a\",\"slot\":-1}]", "whole number"},
        {"[{\"match\":\"a\",\"slot\":1.5}]", "whole number"},
        {"[{\"match\":\"a\",\"slot\":10001}]", "slot"},
        {"[{\"match\":\"a\",\"drop\":1}]", "true or false"},
        {"[{\"match\":\"a\",\"drop\":true,\"out\":\"b\"}]", "nothing else"},
        {"[{\"match\":\"a\",\"drop\":true,\"refuse\":\"b\"}]", "both"},
        {"[{\"match\":\"a\",\"refuse\":\"b\",\"dim\":1}]", "nothing else"},
        {"[{\"match\":\"a\",\"whole\":true,\"pad_to\":2}]", "whole"},
        {"[{\"match\":\"a\",\"constant\":1}]", "needs \"out\""},
        {"[{\"match\":\"a\",\"out\":\"b\",\"constant\":\"1\"}]", "number"},
        {"[{\"match\":\"a\",\"out\":\"b\",\"constant\":null}]", "number"},
        {"[{\"match\":\"a\",\"out\":\"b\",\"constant\":3.5e38}]", "largest F32"},
        {"[{\"match\":\"a\",\"out\":\"b\",\"constant\":1,\"constant\":1}]", "twice"},
        {"[{\"match\":\"a\",\"out\":\"b\",\"constant\":1,\"whole\":true}]", "nothing else"},
        {"[{\"match\":\"a\",\"drop\":true,\"constant\":1}]", "nothing else"},
        {"[{\"match\":\"a\",\"out\":\"*\",\"constant\":1}]", "wildcards"},
        {"[{\"match\":\"a\",\"dim\":64}]", "dim"},
        {"[{\"match\":\"a\",\"dim\":-65}]", "dim"},
        {"[{\"match\":\"a\",\"dim\":1e1}]", "dim"},
        {"[{\"match\":\"a\",\"dim\":99999999999999999999}]", "dim"},
        {"[{\"match\":\"a\",\"dim\":\"0\"}]", "dim"},
        {"[{\"match\":\"a\",\"parts\":{}}]", "array"},
        {"[{\"match\":\"a\",\"parts\":[]}]", "empty"},
        {"[{\"match\":\"a\",\"parts\":[3]}]", "object"},
        {"[{\"match\":\"a\",\"parts\":[{\"counts\":1}]}]", "unknown key \"counts\"; a part has"},
        {"[{\"match\":\"a\",\"hole\":true}]",
         "unknown key \"hole\"; a rule has match, out, slot, refuse, drop, whole, stack, "
         "stack_size, dim, parts, groups, pack, uneven, pad_to"},
        {"[{\"match\":\"a\",\"parts\":[{\"count\":1,\"count\":1}]}]", "twice"},
        {"[{\"match\":\"a\",\"parts\":[{\"count\":18446744073709551616}]}]", "2^64"},
        {"[{\"match\":\"a\",\"parts\":[{\"unit\":0}]}]", "unit 0"},
        {"[{\"match\":\"a\",\"parts\":[{\"unit\":0,\"count\":1},{}]}]", "unit 0"},
        {"[{\"match\":\"a\",\"parts\":[{},{},{},{},{},{},{},{},{}]}]", "8 parts"},
        {"[{\"match\":\"a\",\"groups\":0}]", "groups"},
        {"[{\"match\":\"a\",\"pack\":0}]", "pack"},
        {"[{\"match\":\"a\",\"pad_to\":0}]", "pad_to"},
        {"[{\"match\":\"a\",\"pad_to\":2,\"groups\":2}]", "single part"},
        {"[{\"match\":\"a\",\"pad_to\":2,\"parts\":[{},{}]}]", "single part"},
        {"[{\"match\":\"a\",\"uneven\":\"drop\"}]", "balanced"},
        {"[{\"match\":\"a\",\"uneven\":3}]", "balanced"},
        {"[{\"match\":\"a\",\"stack\":true,\"out\":\"b\"}]", "wildcard"},
        {"[{\"match\":\"*\",\"stack\":true}]", "a rule with \"stack\" needs \"out\""},
        {"[{\"match\":\"a\",\"stack_size\":3}]", "stack"},
        {"[{\"match\":\"a\"}] x", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct parsed p;
        parse(&p, cases[i].text);
        CHECK(!p.ok, "accepted %s", cases[i].text);
        assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
        check_error(&p.err, strlen(cases[i].text), true, cases[i].text);
        CHECK(strstr(p.err.message, cases[i].word) != NULL, "%s: %s", cases[i].text, p.err.message);
        parsed_fini(&p);
    }
}

static const char good[] =
    "[{\"match\":\"*.a\",\"out\":\"*.b\",\"slot\":1,\"dim\":-1,\"parts\":[{\"count\":1,\"unit\":2}]},"
    "{\"match\":\"d\",\"refuse\":\"x\"}]";

static void every_prefix_is_refused(void **state)
{
    (void)state;
    char text[sizeof good];
    for (size_t len = 0; len < sizeof good - 1; len++) {
        struct parsed p;
        memcpy(text, good, len);
        text[len] = '\0';
        parse(&p, text);
        CHECK(!p.ok, "accepted %s", text);
        check_error(&p.err, len, true, text);
        parsed_fini(&p);
    }
}

static void too_many_rules(void **state)
{
    (void)state;
    static const char item[] = "{\"match\":\"a\"},";
    char *text = malloc((TD_RULE_MAX_COUNT + 1) * sizeof item + 2);
    assert_non_null(text);
    for (size_t extra = 0; extra < 2; extra++) {
        size_t len = 1;
        text[0] = '[';
        for (size_t i = 0; i < TD_RULE_MAX_COUNT + extra; i++, len += sizeof item - 1)
            memcpy(text + len, item, sizeof item);
        memcpy(text + len - 1, "]", 2);
        struct parsed p;
        parse(&p, text);
        assert_int_equal(p.ok, extra == 0);
        if (extra > 0)
            assert_non_null(strstr(p.err.message, "10001 rules"));
        parsed_fini(&p);
    }
    free(text);
}

static void failing_allocations(void **state)
{
    (void)state;
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_arena arena;
        struct td_rule_list rules;
        struct td_json_document document;
        struct td_error err = TD_ERROR_INIT;
        td_arena_init(&arena, 0);
        td_json_document_read(&document, TD_TEXT(good), &arena, &err);
        bool ok = td_json_document_end(&document) && td_rules_read(&document, document.root, &arena, &rules, &err);
        alloc_tried(&trials, ok, &err);
        td_arena_fini(&arena);
    }
    assert_true(trials.k > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),
        cmocka_unit_test(patterns_agree_with_trying_everything),
        cmocka_unit_test(pattern_checks),
        cmocka_unit_test(the_first_rule_counts),
        cmocka_unit_test(matching_is_pattern_times_name),
        cmocka_unit_test(results),
        cmocka_unit_test(reads_every_key),
        cmocka_unit_test(refuses_what_is_no_rule),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(too_many_rules),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
