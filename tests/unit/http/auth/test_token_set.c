#include "http/auth/token_set.h"

#include "core/clock.h"
#include "tests/unit/alloc_trials.h"

#include <math.h>

/* The texts of tokens; the first is 32 bytes, 32 to 63, in base64url. */
#define SECRET "td_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8"

static struct td_token token_of(const char *name, const char *secret, const char *const *models)
{
    struct td_token token = {.name = name, .models = models, .rights = TD_RIGHT_READ};
    td_sha256(secret, strlen(secret), token.sha256);
    return token;
}

/* A master key of 0, 1, 2 ... 31. */
static struct td_token_set *set_of(const struct td_token *tokens, size_t count)
{
    struct td_error err = TD_ERROR_INIT;
    uint8_t key[TD_TOKEN_KEY_BYTES];
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)i;
    struct td_token_set *set = td_token_set_create(key, tokens, count, &err);
    CHECK(set != NULL, "%s", err.message);
    return set;
}

static const struct td_token *find(const struct td_token_set *set, const char *secret)
{
    return td_token_set_find(set, td_text_of(secret));
}

static void a_token_is_found_by_its_whole_text(void **state)
{
    (void)state;
    const struct td_token tokens[] = {token_of("b", SECRET, NULL), token_of("a", "short", NULL),
                                      token_of("c", "td_other", NULL)};
    struct td_token_set *set = set_of(tokens, COUNT_OF(tokens));
    char text[sizeof SECRET];
    assert_string_equal(find(set, SECRET)->name, "b");
    assert_string_equal(find(set, "short")->name, "a");
    assert_string_equal(find(set, "td_other")->name, "c");
    for (size_t i = 0; i < sizeof text - 1; i++) { /* each byte counts, and each prefix is another text */
        memcpy(text, SECRET, sizeof text);
        text[i] ^= 1;
        assert_null(find(set, text));
        assert_null(td_token_set_find(set, td_text_n(SECRET, i)));
    }
    assert_null(find(set, SECRET "x"));
    assert_null(td_token_set_find(set, td_text_n(SECRET, sizeof SECRET))); /* with its NUL */
    assert_null(td_token_set_find(set, td_text_n(NULL, 0)));
    td_token_set_unref(set);
}

static void a_text_without_bound_is_no_token(void **state)
{
    (void)state;
    char text[TD_TOKEN_MAX_BYTES + 2];
    memset(text, 'x', sizeof text);
    text[TD_TOKEN_MAX_BYTES] = '\0';
    const struct td_token longest = token_of("a", text, NULL);
    text[TD_TOKEN_MAX_BYTES] = 'x';
    text[TD_TOKEN_MAX_BYTES + 1] = '\0';
    const struct td_token tokens[] = {longest, token_of("b", text, NULL)};
    struct td_token_set *set = set_of(tokens, COUNT_OF(tokens));
    assert_null(find(set, text));
    text[TD_TOKEN_MAX_BYTES] = '\0';
    assert_string_equal(find(set, text)->name, "a");
    td_token_set_unref(set);
}

static void names_and_access_keys_find_tokens(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    struct td_token tokens[COUNT];
    char names[COUNT][8];
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%zu", i * 7 % COUNT);
        tokens[i] = token_of(names[i], names[i], NULL);
    }
    struct td_token_set *set = set_of(tokens, COUNT);
    assert_int_equal(td_token_set_count(set), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        const struct td_token *token = &td_token_set_tokens(set)[i];
        assert_string_equal(token->name, names[i]); /* in their order */
        assert_ptr_equal(td_token_set_find_name(set, td_text_of(names[i])), token);
        assert_ptr_equal(td_token_set_find_access_key(set, td_text_of(token->access_key)), token);
        assert_int_equal(strlen(token->access_key), TD_ACCESS_KEY_BYTES - 1);
        assert_true(strspn(token->access_key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == TD_ACCESS_KEY_BYTES - 1);
    }
    assert_null(td_token_set_find_name(set, TD_TEXT("t")));
    assert_null(td_token_set_find_name(set, TD_TEXT("T1")));
    assert_null(td_token_set_find_name(set, TD_TEXT("")));
    assert_null(td_token_set_find_access_key(set, TD_TEXT("t1")));
    assert_null(td_token_set_find_access_key(set, TD_TEXT("TD")));
    td_token_set_unref(set);
}

static void check_hex(const uint8_t *bytes, const char *wanted)
{
    char text[TD_SHA256_TEXT_BYTES];
    for (size_t i = 0; i < TD_SHA256_BYTES; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    assert_string_equal(text, wanted);
}

/* Computed by hmac, hashlib and base64 of Python 3.11. */
static void secrets_are_derived_by_hmac(void **state)
{
    (void)state;
    const struct td_token tokens[] = {token_of("ci", SECRET, NULL), token_of("cj", SECRET, NULL)};
    struct td_token_set *set = set_of(tokens, COUNT_OF(tokens));
    const struct td_token *token = td_token_set_find_name(set, TD_TEXT("ci"));
    char secret[TD_S3_SECRET_BYTES];
    char other[TD_S3_SECRET_BYTES];
    uint8_t key[TD_SHA256_BYTES];
    check_hex(token->sha256, "6455c3042fb1e95d7bdf2402e178fe52864f37de5f2b993b469816e303e19ac5");
    td_token_s3_secret(set, token, secret);
    assert_string_equal(secret, "9KvSOjSmgM_3wW96WtUy9IwdBj-7WQeKhelU9K-trSg");
    assert_string_equal(token->access_key, "TD56YXPSLFTWP6RYUOEL");
    td_token_url_key(set, token, key);
    check_hex(key, "6c93ef3c27f862991ec57c62e20d4b09176ea7031995a78ede37ee360092ad18");
    td_token_url_key(set, NULL, key);
    check_hex(key, "807a6c1c1b8736bab127b6efee19b7f0ac4e98035433f09b798ad6f063015446");
    td_token_s3_secret(set, td_token_set_find_name(set, TD_TEXT("cj")), other);
    assert_string_not_equal(secret, other);
    td_token_set_unref(set);
}

static void globs_decide_what_is_seen(void **state)
{
    (void)state;
    static const struct {
        const char *globs[3];
        const char *seen[4], *hidden[6];
    } cases[] = {
        {{"demo"}, {"demo"}, {"demo2", "dem", "org/demo", "datasets/demo", "Demo", ""}},
        {{"local/demo"}, {"demo", "local/demo"}, {"local/demo2", "datasets/demo", "x/demo"}},
        {{"local/*"}, {"demo", "local/demo", "local/a/b"}, {"org/demo", "datasets/demo"}},
        {{"org/*"}, {"org/a", "org/a/b"}, {"org", "orga", "datasets/org/a", "x/org/a"}},
        {{"datasets/demo"}, {"datasets/demo"}, {"demo", "datasets/org/demo", "datasets/local/demo"}},
        {{"datasets/local/demo"}, {"datasets/demo", "datasets/local/demo"}, {"demo", "local/demo"}},
        {{"datasets/*"}, {"datasets/demo", "datasets/org/demo"}, {"demo", "datasets", "local/datasets"}},
        {{"*"}, {"demo", "org/demo", "datasets/org/demo", ""}, {NULL}},
        {{"a", "b*"}, {"a", "b", "bc"}, {"ab", "c"}},
        {{NULL}, {NULL}, {"a", "local/a", "datasets/a", ""}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct td_token token = token_of("t", "t", cases[i].globs);
        for (size_t k = 0; k < COUNT_OF(cases[i].seen) && cases[i].seen[k] != NULL; k++)
            CHECK(td_token_may_see(&token, td_text_of(cases[i].seen[k])), "%zu: %s", i, cases[i].seen[k]);
        for (size_t k = 0; k < COUNT_OF(cases[i].hidden) && cases[i].hidden[k] != NULL; k++)
            CHECK(!td_token_may_see(&token, td_text_of(cases[i].hidden[k])), "%zu: %s", i, cases[i].hidden[k]);
    }
    const struct td_token all = token_of("t", "t", NULL);
    assert_true(td_token_may_see(&all, TD_TEXT("any/thing")));
}

static void few_may_write(void **state)
{
    (void)state;
    static const char *const globs[] = {"org/*", NULL};
    struct td_token token = token_of("t", "t", globs);
    assert_false(td_token_may_write(&token, TD_TEXT("org/x")));
    token.rights |= TD_RIGHT_WRITE;
    assert_true(td_token_may_write(&token, TD_TEXT("org/x")));
    assert_false(td_token_may_write(&token, TD_TEXT("other/x")));
    token.models = NULL;
    assert_true(td_token_may_write(&token, TD_TEXT("other/x")));
}

/* A pattern may match an id that begins with a prefix, as its plain beginning shows. */
static void some_may_write_below(void **state)
{
    (void)state;
    static const struct {
        const char *globs[3];
        const char *prefix;
        bool may;
    } cases[] = {
        {{"org/*"}, "org/", true},
        {{"org/run-*"}, "org/", true},
        {{"org/x"}, "org/", true},
        {{"*"}, "org/", true},
        {{"o[rs]g/x"}, "org/", true},
        {{"?rg/x"}, "org/", true},
        {{"org"}, "org/", false},
        {{"or/*"}, "org/", false},
        {{"other/*"}, "org/", false},
        {{"a/*", "org/*"}, "org/", true},
        {{"a/*", "b/*"}, "org/", false},
        {{"org/"}, "org/", true},
        {{"demo"}, "", true},
        {{"datasets/o/*"}, "datasets/", true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_token token = token_of("t", "t", cases[i].globs);
        assert_false(td_token_may_write_below(&token, td_text_of(cases[i].prefix)));
        token.rights |= TD_RIGHT_WRITE;
        CHECK(td_token_may_write_below(&token, td_text_of(cases[i].prefix)) == cases[i].may, "%zu", i);
        token.models = NULL;
        assert_true(td_token_may_write_below(&token, td_text_of(cases[i].prefix)));
    }
}

static void long_ids_are_matched(void **state)
{
    (void)state;
    static const char *const globs[] = {"local/*x", NULL};
    const struct td_token token = token_of("t", "t", globs);
    char id[300];
    memset(id, 'x', sizeof id);
    assert_true(td_token_may_see(&token, td_text_n(id, 255)));
    assert_false(td_token_may_see(&token, td_text_n(id, 256))); /* no file's name is so long */
}

static void tokens_expire_at_their_time(void **state)
{
    (void)state;
    struct td_token token = token_of("t", "t", NULL);
    assert_false(td_token_has_expired(&token, INT64_MAX));
    token.expires_s = 1000;
    assert_false(td_token_has_expired(&token, 999));
    assert_true(td_token_has_expired(&token, 1000));
    assert_true(td_token_has_expired(&token, 1001));
}

static void names_have_few_characters(void **state)
{
    (void)state;
    char longest[TD_TOKEN_NAME_MAX + 1];
    memset(longest, 'a', sizeof longest);
    static const char *const good[] = {"a", "A-Z.a_z-0.9", "-", ".", "_"};
    static const char *const bad[] = {"", "a b", "a/b", "a\n", "\xC3\xA9", "a:b", "a\"b"};
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_token_name_is_valid(td_text_of(good[i])), "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_token_name_is_valid(td_text_of(bad[i])), "%s", bad[i]);
    assert_true(td_token_name_is_valid(td_text_n(longest, TD_TOKEN_NAME_MAX)));
    assert_false(td_token_name_is_valid(td_text_n(longest, TD_TOKEN_NAME_MAX + 1)));
    assert_false(td_token_name_is_valid(td_text_n("a\0b", 3)));
}

static void want_of_memory_is_an_error(void **state)
{
    (void)state;
    static const char *const globs[] = {"a*", "b", NULL};
    const struct td_token tokens[] = {token_of("a", "a", globs), token_of("b", "b", NULL)};
    const uint8_t key[TD_TOKEN_KEY_BYTES] = {0};
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        struct td_token_set *set = td_token_set_create(key, tokens, COUNT_OF(tokens), &err);
        alloc_tried(&trials, set != NULL, &err);
        if (set != NULL) {
            td_token_set_unref(td_token_set_ref(set));
            assert_string_equal(td_token_set_tokens(set)[0].models[1], "b");
        }
        td_token_set_unref(set);
    }
    assert_true(trials.k > 1);
}

/* ---- time ------------------------------------------------------------------------------------------------ */

enum { TIMED_TOKENS = 64, SAMPLES = 4000, KEPT = SAMPLES / 2 };

/* The mistake that the test has to see: a comparison that ends at the first difference. */
static const struct td_token *find_with_early_end(const struct td_token_set *set, struct td_text secret)
{
    uint8_t sum[TD_SHA256_BYTES];
    const struct td_token *found = NULL;
    td_sha256(secret.p, secret.len, sum);
    for (size_t i = 0; i < td_token_set_count(set); i++) {
        const volatile uint8_t *other = td_token_set_tokens(set)[i].sha256;
        size_t k = 0;
        while (k < sizeof sum && sum[k] == other[k])
            k++;
        if (k == sizeof sum)
            found = &td_token_set_tokens(set)[i];
    }
    return found;
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;
    return (*left > *right) - (*left < *right);
}

/* Returns Welch's t of the faster halves of two samples; the slower ones include the work of other programs. */
static double welch_t(uint64_t a[SAMPLES], uint64_t b[SAMPLES])
{
    uint64_t *const samples[] = {a, b};
    double mean[2] = {0};
    double variance[2] = {0};
    for (size_t s = 0; s < 2; s++) {
        qsort(samples[s], SAMPLES, sizeof(uint64_t), compare_u64);
        for (size_t i = 0; i < KEPT; i++)
            mean[s] += (double)samples[s][i] / KEPT;
        for (size_t i = 0; i < KEPT; i++)
            variance[s] += pow((double)samples[s][i] - mean[s], 2) / (KEPT - 1);
    }
    return (mean[0] - mean[1]) / sqrt((variance[0] + variance[1]) / KEPT + 1e-9);
}

/* Returns |t| for the times that it takes to look for a secret whose digest differs from that of each token in the
 * first byte, or in the last. Both classes are measured in turns by chance, over the same memory. */
static double time_difference(const struct td_token *(*find_token)(const struct td_token_set *, struct td_text))
{
    static uint64_t times[2][SAMPLES];
    struct td_token tokens[TIMED_TOKENS];
    char names[TIMED_TOKENS][8];
    size_t counts[2] = {0};
    uint64_t chance = 7;
    for (size_t i = 0; i < TIMED_TOKENS; i++) {
        (void)snprintf(names[i], sizeof names[i], "%zu", i);
        tokens[i] = token_of(names[i], SECRET, NULL);
    }
    struct td_token_set *set = set_of(tokens, TIMED_TOKENS);
    struct td_token *changed = (struct td_token *)(uintptr_t)td_token_set_tokens(set);
    while (counts[0] < SAMPLES || counts[1] < SAMPLES) {
        size_t class = random_below(&chance, 2);
        if (counts[class] == SAMPLES)
            class = 1 - class;
        for (size_t i = 0; i < TIMED_TOKENS; i++) {
            memcpy(changed[i].sha256, tokens[i].sha256, TD_SHA256_BYTES);
            changed[i].sha256[class == 0 ? 0 : TD_SHA256_BYTES - 1] ^= 1;
        }
        uint64_t start = td_clock_ns();
        const struct td_token *found = find_token(set, TD_TEXT(SECRET));
        times[class][counts[class]++] = td_clock_ns() - start;
        assert_null(found);
    }
    td_token_set_unref(set);
    return fabs(welch_t(times[0], times[1]));
}

/* |t| of a comparison that ends early is in the hundreds. Chance alone exceeds 10 less than once in 10^20 runs; three
 * attempts bear a machine that changes its clock rate at the wrong moment. */
/* shows: security.md token-timing */
static void time_tells_nothing_about_digests(void **state)
{
    (void)state;
    enum { BOUND = 10, ATTEMPTS = 3 };
    double t = BOUND;
    double control = time_difference(find_with_early_end);
    CHECK(control > 3 * BOUND, "the test does not see an early end: t = %.1f", control);
    for (int i = 0; i < ATTEMPTS && t >= BOUND; i++)
        t = time_difference(td_token_set_find);
    CHECK(t < BOUND, "t = %.1f (with an early end: %.1f)", t, control);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_found_by_its_whole_text),
        cmocka_unit_test(a_text_without_bound_is_no_token),
        cmocka_unit_test(names_and_access_keys_find_tokens),
        cmocka_unit_test(secrets_are_derived_by_hmac),
        cmocka_unit_test(globs_decide_what_is_seen),
        cmocka_unit_test(few_may_write),
        cmocka_unit_test(some_may_write_below),
        cmocka_unit_test(long_ids_are_matched),
        cmocka_unit_test(tokens_expire_at_their_time),
        cmocka_unit_test(names_have_few_characters),
        cmocka_unit_test(want_of_memory_is_an_error),
        cmocka_unit_test(time_tells_nothing_about_digests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
