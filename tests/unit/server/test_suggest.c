#include "server/config/suggest.h"

#include "tests/unit/unit.h"

static const char *const commands[] = {"serve", "inspect", "plan", "verify", "health", "help", NULL};
static const char *const options[] = {"listen",      "s3-listen", "max-connections", "max-connections-per-address",
                                      "max-files",   "settle",    "state-dir",       "access-log",
                                      "drain-delay", NULL};

static void says(const char *word, const char *prefix, const char *const *known, const char *wanted)
{
    char out[TD_SUGGEST_BYTES];
    char full[TD_SUGGEST_BYTES] = "";
    memset(out, '#', sizeof out);
    td_suggest(word, prefix, known, out);
    if (wanted != NULL)
        (void)snprintf(full, sizeof full, " (did you mean %s%s?)", prefix, wanted);
    CHECK(strcmp(out, full) == 0, "%s: \"%s\", expected \"%s\"", word, out, full);
}

/* Words with one slip: a letter left out, doubled, wrong, or swapped with its neighbour; and a beginning of a word. */
static void slips_are_recognised(void **state)
{
    (void)state;
    says("sevre", "", commands, "serve");
    says("serv", "", commands, "serve");
    says("serrve", "", commands, "serve");
    says("zerve", "", commands, "serve");
    says("insepct", "", commands, "inspect");
    says("ins", "", commands, "inspect");
    says("in", "", commands, "inspect");
    says("verfiy", "", commands, "verify");
    says("plam", "", commands, "plan");
    says("--lisen", "--", options, "listen");
    says("--lisen=127.0.0.1:1", "--", options, "listen");
    says("-listen", "--", options, "listen");
    says("--state_dir", "--", options, "state-dir");
    says("--statedir", "--", options, "state-dir");
    says("--max-conections", "--", options, "max-connections");
    says("--acces-log", "--", options, "access-log");
}

static void other_words_are_not(void **state)
{
    (void)state;
    says("", "", commands, NULL);
    says("--", "--", options, NULL);
    says("-", "--", options, NULL);
    says("x", "", commands, NULL);
    says("models", "", commands, NULL);
    says("download", "", commands, NULL);
    says("--verbose", "--", options, NULL);
    says("--tls-cert", "--", options, NULL);
    says("--listen", "--", options, NULL); /* the name is right, so the fault is elsewhere */
    says("--listen=1", "--", options, NULL);
    says("serve", "", commands, NULL);
    char endless[4096];
    memset(endless, 'l', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    says(endless, "--", options, NULL);
}

static size_t naive_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    if (a_len == 0 || b_len == 0)
        return a_len + b_len;
    size_t best = naive_distance(a + 1, a_len - 1, b + 1, b_len - 1) + (a[0] == b[0] ? 0 : 1);
    size_t n = naive_distance(a + 1, a_len - 1, b, b_len) + 1;
    best = n < best ? n : best;
    n = naive_distance(a, a_len, b + 1, b_len - 1) + 1;
    best = n < best ? n : best;
    if (a_len > 1 && b_len > 1 && a[0] == b[1] && a[1] == b[0]) {
        n = naive_distance(a + 2, a_len - 2, b + 2, b_len - 2) + 1;
        best = n < best ? n : best;
    }
    return best;
}

/* For all words of five letters out of two, exactly those at a distance of 1 are suggested. The oracle is the
 * definition of the distance. */
static void near_is_what_the_distance_says(void **state)
{
    (void)state;
    for (unsigned a = 0; a < 32; a++) {
        for (unsigned b = 0; b < 32; b++) {
            char word[6] = {0};
            char other[6] = {0};
            for (unsigned i = 0; i < 5; i++) {
                word[i] = (a >> i & 1) != 0 ? 'x' : 'y';
                other[i] = (b >> i & 1) != 0 ? 'x' : 'y';
            }
            const char *const known[] = {other, NULL};
            bool is_near = a != b && naive_distance(word, 5, other, 5) <= 1;
            says(word, "", known, is_near ? other : NULL);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slips_are_recognised),
        cmocka_unit_test(other_words_are_not),
        cmocka_unit_test(near_is_what_the_distance_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
