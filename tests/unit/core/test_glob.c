#include "core/glob.h"
#include "tests/fuzz/glob_oracle.h"
#include "tests/unit/unit.h"

static bool match(const char *pattern, const char *text)
{
    return td_glob_match(td_text_of(pattern), td_text_of(text));
}

static void table(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"a", "a", true},
        {"a", "b", false},
        {"abc", "ab", false},
        {"ab", "abc", false},
        {"*", "", true},
        {"*", "a/b.c", true},
        {"**", "x", true},
        {"?", "", false},
        {"?", "x", true},
        {"?", ".", true},
        {"?", "/", true},
        {"??", "x", false},
        {"a*", "a", true},
        {"a*", "ba", false},
        {"*a", "bba", true},
        {"*a", "ab", false},
        {"a*b", "ab", true},
        {"a*b", "axxb", true},
        {"a*b", "axxbc", false},
        {"a*b*c", "a-b-b-c", true},
        {"*ab", "aab", true},
        {"*aab", "aaab", true},
        {"model.layers.*.weight", "model.layers.0.mlp.weight", true},
        {"model.layers.*.weight", "model.layers.0.mlp.bias", false},
        {"*.q_proj.*", "model.layers.31.self_attn.q_proj.weight", true},
        {"layers.?.w", "layers.7.w", true},
        {"layers.?.w", "layers.17.w", false},
        /* sets */
        {"[abc]", "b", true},
        {"[abc]", "d", false},
        {"[a-c]x", "bx", true},
        {"[a-c]", "d", false},
        {"[a-cx-z]", "y", true},
        {"[!a-c]", "d", true},
        {"[!a-c]", "b", false},
        {"[^a]", "a", false},
        {"[^a]", "b", true},
        {"[]]", "]", true},
        {"[]a]", "a", true},
        {"[!]]", "]", false},
        {"[!]]", "x", true},
        {"[-a]", "-", true},
        {"[a-]", "-", true},
        {"[a-]", "b", false},
        {"[c-a]", "b", false}, /* an empty range */
        {"[*]", "*", true},
        {"[*]", "x", false},
        {"[?]", "?", true},
        {"[?]", "x", false},
        {"[\\]", "\\", true}, /* a backslash in a set is itself */
        {"[a]", "", false},
        {"[a]", "aa", false},
        {"layers.[0-3].*", "layers.2.w", true},
        {"layers.[0-3].*", "layers.4.w", false},
        /* a set that never ends is an ordinary bracket */
        {"[", "[", true},
        {"[a", "[a", true},
        {"[a", "a", false},
        {"[]", "[]", true},
        {"[!]", "[!]", true},
        {"*[", "x[", true},
        /* quoting */
        {"\\*", "*", true},
        {"\\*", "x", false},
        {"\\?", "?", true},
        {"\\?", "x", false},
        {"\\[a]", "[a]", true},
        {"\\[a]", "a", false},
        {"\\\\", "\\", true},
        {"\\a", "a", true},
        {"\\", "\\", true}, /* nothing left to quote */
        {"a\\", "a\\", true},
        {"*\\*", "x*", true},
        {"*\\*", "x", false},
        /* a character of several bytes counts as one */
        {"?", "\xc3\xa9", true},
        {"??", "\xc3\xa9", false},
        {"?", "\xe6\x97\xa5", true},
        {"?", "\xf0\x9f\x98\x80", true},
        {"*??x", "\xe6\x97\xa5x", false},
        {"*??xy", "\xe6\x97\xa5xy", false}, /* a star may not leave half a character to the first ? */
        {"*?x", "\xe6\x97\xa5x", true},
        {"*[!y]x", "\xc3\xa9x", true},
        {"*[!y][!y]x", "\xc3\xa9x", false},
        {"[\xc3\xa9]", "\xc3\xa9", true},
        {"[\xc3\xa9]", "\xc3\xa8", false},
        {"[\xc3\xa0-\xc3\xaf]", "\xc3\xa9", true},
        {"[a-\xc3\xaf]", "\xc3\xa9", true},
        {"[!a]", "\xe6\x97\xa5", true},
        {"\\\xc3\xa9", "\xc3\xa9", true},
        {"\\\xc3\xa9", "\xc3\xa8", false},
        {"*\xa5", "\xe6\x97\xa5", false}, /* a star does not stop inside a character */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(match(cases[i].pattern, cases[i].text) == cases[i].matches, "%s %s %s", cases[i].pattern,
              cases[i].matches ? "should match" : "should not match", cases[i].text);
}

static void lengths_count_not_terminators(void **state)
{
    (void)state;
    assert_true(td_glob_match(TD_TEXT("a?c"), TD_TEXT("a\0c")));
    assert_true(td_glob_match(td_text_n("a*xyz", 2), TD_TEXT("abc")));
    assert_false(td_glob_match(TD_TEXT("abc"), td_text_n("abc", 2)));
    assert_true(td_glob_match(TD_TEXT("a\0c"), TD_TEXT("a\0c")));
    assert_false(td_glob_match(TD_TEXT("a\0c"), TD_TEXT("a\0d")));
}

static size_t random_text(uint64_t *seed, const char *const *alphabet, size_t letters, size_t max, char *out)
{
    size_t len = 0;
    for (size_t n = random_below(seed, max + 1); n > 0; n--) {
        const char *letter = alphabet[random_below(seed, letters)];
        memcpy(out + len, letter, strlen(letter));
        len += strlen(letter);
    }
    return len;
}

static void random_patterns_against_the_oracle(void **state)
{
    (void)state;
    static const char *const in_pattern[] = {"a", "b", "\xc3\xa9", "\xe6\x97\xa5", "*", "*", "?", "?", "[", "]", "!",
                                             "^", "-", "\\"};
    static const char *const in_text[] = {"a", "b", "\xc3\xa9", "\xe6\x97\xa5", "[", "]", "-", "\\", "*"};
    uint64_t seed = 42;
    size_t matches = 0;
    enum { ROUNDS = 300000 };
    for (size_t round = 0; round < ROUNDS; round++) {
        char pattern[64], text[64];
        size_t letters = round % 2 == 0 ? 4 : COUNT_OF(in_text); /* few letters, many near misses */
        size_t pattern_len = random_text(&seed, in_pattern, COUNT_OF(in_pattern), 9, pattern);
        size_t text_len = random_text(&seed, in_text, letters, 9, text);
        struct glob_points p, t;
        assert_true(glob_oracle_points(pattern, pattern_len, &p) && glob_oracle_points(text, text_len, &t));
        bool wanted = glob_oracle(&p, &t);
        matches += wanted;
        CHECK(td_glob_match(td_text_n(pattern, pattern_len), td_text_n(text, text_len)) == wanted, "'%.*s' %s '%.*s'",
              (int)pattern_len, pattern, wanted ? "should match" : "should not match", (int)text_len, text);
    }
    assert_true(matches > ROUNDS / 50 && matches < ROUNDS / 2); /* both verdicts are common */
}

/* Backtracking into every star would take exponential time. */
/* shows: security.md client-globs */
static void stars_cost_pattern_times_text(void **state)
{
    (void)state;
    enum { STARS = 500, TEXT = 20000 };
    char pattern[3 * STARS + 1];
    char *text = malloc(TEXT);
    assert_non_null(text);
    memset(text, 'a', TEXT);
    for (size_t i = 0; i < STARS; i++)
        memcpy(pattern + 2 * i, "*a", 2);
    pattern[2 * STARS] = 'b';
    assert_false(td_glob_match(td_text_n(pattern, 2 * STARS + 1), td_text_n(text, TEXT)));
    assert_true(td_glob_match(td_text_n(pattern, 2 * STARS), td_text_n(text, TEXT)));
    for (size_t i = 0; i < STARS; i++)
        memcpy(pattern + 3 * i, "*?a", 3);
    pattern[3 * STARS] = 'b';
    assert_false(td_glob_match(td_text_n(pattern, 3 * STARS + 1), td_text_n(text, TEXT)));
    memset(pattern, '[', sizeof pattern); /* unclosed brackets: one search for an end, not one at each */
    memset(text, '[', TEXT);
    pattern[0] = '*';
    pattern[3 * STARS] = 'b';
    assert_false(td_glob_match(td_text_n(pattern, sizeof pattern), td_text_n(text, TEXT)));
    free(text);
}

/* Names that end otherwise than the pattern cost nothing but the look at their ends: here 5,000 times 2 million steps
 * else. */
/* shows: security.md token-slow-patterns */
static void another_end_is_seen_at_once(void **state)
{
    (void)state;
    enum { TEXT = 20000, ROUNDS = 5000 };
    static const char pattern[] =
        "*[bcdefghijklmnopqrstuvwxyzBCDEFGHIJKLMNOPQRSTUVWXYZ0123456789bcdefghijklmnopqrstuvwxyz]N";
    static char text[TEXT];
    memset(text, 'a', sizeof text);
    double began = cpu_seconds();
    for (int i = 0; i < ROUNDS; i++)
        assert_false(td_glob_match(TD_TEXT(pattern), td_text_n(text, sizeof text)));
    CHECK(cpu_seconds() - began < 1.0, "%.1f s", cpu_seconds() - began);
    text[TEXT - 1] = 'N';
    text[TEXT - 2] = 'b';
    assert_true(td_glob_match(TD_TEXT(pattern), td_text_n(text, sizeof text)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(lengths_count_not_terminators),
        cmocka_unit_test(random_patterns_against_the_oracle),
        cmocka_unit_test(stars_cost_pattern_times_text),
        cmocka_unit_test(another_end_is_seen_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
