#include "parser/format/names.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/work.h"

/* A second key that breaks ties, and the number of comparisons by it. */
struct ties {
    const unsigned char *second;
    size_t asked;
};

static int by_second(const void *context, size_t a, size_t b)
{
    struct ties *ties = *(struct ties *const *)context;
    ties->asked++;
    return (int)ties->second[a] - (int)ties->second[b];
}

enum { MAX_ITEMS = 4096 };

static unsigned char second_keys[MAX_ITEMS];
static struct td_order items[MAX_ITEMS];

/* Sorts and checks that every item is still there, in order, equal ones in their original order. Returns the number of
 * comparisons by the second key. */
static size_t sort_and_check(size_t count)
{
    static bool seen[MAX_ITEMS];
    static uint64_t keys[MAX_ITEMS];
    struct ties ties = {.second = second_keys};
    const struct ties *context = &ties;
    struct td_error err = TD_ERROR_INIT;
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < count; i++)
        keys[items[i].index] = items[i].key;
    assert_true(td_order_sort(items, count, by_second, &context, &err));
    for (size_t i = 0; i < count; i++) {
        size_t here = items[i].index;
        assert_true(here < count && !seen[here] && items[i].key == keys[here]);
        seen[here] = true;
        if (i == 0)
            continue;
        size_t before = items[i - 1].index;
        assert_true(items[i - 1].key <= items[i].key);
        if (items[i - 1].key == items[i].key)
            assert_true(second_keys[before] < second_keys[here] ||
                        (second_keys[before] == second_keys[here] && before < here));
    }
    return ties.asked;
}

static void sorts_every_small_pattern(void **state)
{
    (void)state;
    for (size_t count = 0; count <= 6; count++) {
        size_t patterns = 1;
        for (size_t i = 0; i < count; i++)
            patterns *= 6;
        for (size_t pattern = 0; pattern < patterns; pattern++) {
            size_t rest = pattern;
            for (size_t i = 0; i < count; i++, rest /= 6) {
                items[i] = (struct td_order){.key = rest % 6 / 2 * 1000, .index = i};
                second_keys[i] = (unsigned char)(rest % 2);
            }
            (void)sort_and_check(count);
        }
    }
}

static void sorts_at_random(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (size_t round = 0; round < 200; round++) {
        size_t count = random_below(&seed, MAX_ITEMS + 1);
        size_t range = 1 + random_below(&seed, round % 4 == 0 ? 3 : 100000);
        for (size_t i = 0; i < count; i++) {
            uint64_t key = random_below(&seed, range);
            items[i] = (struct td_order){.key = round % 3 == 0 ? UINT64_MAX - key : key, .index = i};
            second_keys[i] = (unsigned char)random_below(&seed, 4);
        }
        (void)sort_and_check(count);
    }
}

/* Any input takes at most about 2 n log2 n comparisons; n if it is in order; few if it has runs. All first keys are
 * equal, so that every comparison is counted. */
static void comparisons_are_n_log_n(void **state)
{
    (void)state;
    enum { N = 4096, LOG2_N = 12 };
    static const char *const shapes[] = {"ascending", "descending", "random", "sawtooth", "two runs", "all equal"};
    uint64_t seed = 5;
    for (size_t shape = 0; shape < COUNT_OF(shapes); shape++) {
        for (size_t i = 0; i < N; i++) {
            items[i] = (struct td_order){.index = i};
            second_keys[i] = (unsigned char)(shape == 0   ? i * 256 / N
                                             : shape == 1 ? 255 - i * 256 / N
                                             : shape == 2 ? random_below(&seed, 256)
                                             : shape == 3 ? 255 - i % 256
                                             : shape == 4 ? i % (N / 2) * 512 / N
                                                          : 7);
        }
        size_t asked = sort_and_check(N);
        size_t bound = shape == 0 || shape == 5 ? N : shape == 4 ? 5 * N : 2 * N * (LOG2_N + 1);
        CHECK(asked <= bound, "%s: %zu comparisons, at most %zu expected", shapes[shape], asked, bound);
    }
}

static void sort_reports_want_of_memory(void **state)
{
    (void)state;
    struct ties ties = {.second = second_keys};
    const struct ties *context = &ties;
    struct td_error err = TD_ERROR_INIT;
    items[0] = (struct td_order){.key = 2, .index = 0};
    items[1] = (struct td_order){.key = 1, .index = 1};
    alloc_count_start();
    alloc_fail_at(1);
    assert_false(td_order_sort(items, 2, by_second, &context, &err));
    alloc_fail_at(0);
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    items[0].key = 0;
    td_error_init(&err);
    alloc_fail_at(1);
    assert_true(td_order_sort(items, 2, by_second, &context, &err)); /* in order: no allocation */
    alloc_fail_at(0);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

static struct td_text string_at(const void *context, size_t i)
{
    const char *const *strings = context;
    return td_text_of(strings[i]);
}

/* Checks the ordered list of strings, joined by spaces, and the index of the first duplicate. */
static void check_order(const char *const *strings, size_t count, const char *wanted, size_t duplicate)
{
    const char *sorted[16];
    char joined[256] = "";
    struct td_names names = {.count = count, .context = strings, .get = string_at};
    struct td_order *order;
    struct td_error err = TD_ERROR_INIT;
    alloc_count_start();
    assert_true(td_names_order(&names, &order, &err));
    assert_int_equal(td_names_duplicate(&names, order), duplicate);
    for (size_t i = 0; i < count; i++)
        sorted[i] = strings[i];
    td_order_apply(order, count, sorted, sizeof *sorted);
    for (size_t i = 0; i < count; i++) {
        strcat(joined, i > 0 ? " " : "");
        strcat(joined, sorted[i]);
    }
    assert_string_equal(joined, wanted);
    free(order);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

static void names_go_by_bytes(void **state)
{
    (void)state;
    static const char *const mixed[] = {"b", "a", "B", "\xc3\xa9", "~", "aa", "a.b", "a-b", "a0"};
    check_order(mixed, COUNT_OF(mixed), "B a a-b a.b a0 aa b ~ \xc3\xa9", COUNT_OF(mixed));
    static const char *const common[] = {"model.layers.10.w", "model.layers.9.w", "model.layers.1.w", "model.layers.",
                                         "model.layers.2.w"};
    check_order(common, COUNT_OF(common),
                "model.layers. model.layers.1.w model.layers.10.w model.layers.2.w model.layers.9.w", COUNT_OF(common));
    static const char *const tails[] = {"x12345678b", "x12345678a", "x1234567", "x12345678", "x123456789"};
    check_order(tails, COUNT_OF(tails), "x1234567 x12345678 x123456789 x12345678a x12345678b", COUNT_OF(tails));
    static const char *const sorted[] = {"a", "b", "c"};
    check_order(sorted, COUNT_OF(sorted), "a b c", COUNT_OF(sorted));
    check_order(sorted, 1, "a", 1);
    check_order(sorted, 0, "", 0);
    static const char *const empty[] = {"a", ""};
    check_order(empty, COUNT_OF(empty), " a", COUNT_OF(empty));
}

/* Names that are beginnings of one text: only their lengths differ, and no terminator follows them. */
static struct td_text beginning_at(const void *context, size_t i)
{
    return td_text_n(context, 30 - 3 * i);
}

static void names_end_where_their_length_says(void **state)
{
    (void)state;
    char *text = malloc(30);
    assert_non_null(text);
    memset(text, 'a', 30);
    struct td_names names = {.count = 11, .context = text, .get = beginning_at};
    struct td_order *order;
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_names_order(&names, &order, &err));
    assert_int_equal(td_names_duplicate(&names, order), names.count);
    for (size_t i = 0; i < names.count; i++)
        assert_int_equal(order[i].index, names.count - 1 - i);
    free(order);
    free(text);
}

/* Counts accesses to names. Names in order are compared with their neighbours; otherwise the keys decide nearly all. */
static size_t looked_at;

static char numbers[5000][24];

static struct td_text numbered(const void *context, size_t i)
{
    (void)context;
    looked_at++;
    return td_text_of(numbers[i]);
}

static void order_looks_at_few_names(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 7919};
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        struct td_names names = {.count = COUNT_OF(numbers), .get = numbered};
        struct td_order *order;
        struct td_error err = TD_ERROR_INIT;
        for (size_t n = 0; n < names.count; n++)
            (void)snprintf(numbers[n], sizeof numbers[n], "model.layers.%05u", (unsigned)(n * steps[i] % 5000));
        looked_at = 0;
        assert_true(td_names_order(&names, &order, &err));
        CHECK(looked_at <= 5 * names.count, "step %zu: %zu looks at %zu names", steps[i], looked_at, names.count);
        assert_int_equal(order == NULL, steps[i] == 1);
        free(order);
    }
}

static void duplicates_are_found_at_their_second_place(void **state)
{
    (void)state;
    static const char *const one[] = {"c", "a", "b", "a"};
    check_order(one, COUNT_OF(one), "a a b c", 3);
    static const char *const adjacent[] = {"a", "b", "b", "c"};
    check_order(adjacent, COUNT_OF(adjacent), "a b b c", 2);
    static const char *const many[] = {"z", "y", "z", "y", "z"};
    check_order(many, COUNT_OF(many), "y y z z z", 3);
    static const char *const empty[] = {"", "x", ""};
    check_order(empty, COUNT_OF(empty), "  x", 2);
    static const char *const longer[] = {"0123456789b", "0123456789a", "0123456789b"};
    check_order(longer, COUNT_OF(longer), "0123456789a 0123456789b 0123456789b", 2);
}

static void order_survives_want_of_memory(void **state)
{
    (void)state;
    static const char *const strings[] = {"c", "b", "a"};
    struct td_names names = {.count = 3, .context = strings, .get = string_at};
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_order *order;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_names_order(&names, &order, &err);
        alloc_tried(&trials, ok, &err);
        free(ok ? order : NULL);
    }
    assert_true(trials.k > 1); /* it did allocate */
}

/* Checks that numbering the repeated names gives `wanted`. */
static void check_numbered(const char *const *strings, const char *const *wanted, size_t count)
{
    struct td_names names = {.count = count, .context = strings, .get = string_at};
    struct td_text *fresh;
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&arena, 0);
    assert_true(td_names_number_repeated(&names, &arena, &fresh, &err));
    for (size_t i = 0; i < count; i++) {
        const char *text = fresh == NULL || fresh[i].p == NULL ? strings[i] : fresh[i].p;
        assert_string_equal(text, wanted[i]);
        assert_true(text == strings[i] || fresh[i].len == strlen(text));
    }
    free(fresh);
    td_arena_fini(&arena);
}

static void repeated_names_are_numbered(void **state)
{
    (void)state;
    static const char *const different[] = {"b", "a", "ab"};
    static const char *const twice[] = {"x", "a", "x", "a", "x"};
    static const char *const twice_wanted[] = {"x", "a", "x#2", "a#2", "x#3"};
    static const char *const taken[] = {"x#3", "x", "x", "x", "x#2", "x#2"};
    static const char *const taken_wanted[] = {"x#3", "x", "x#4", "x#5", "x#2", "x#2#2"};
    static const char *const empty[] = {"", "", "#2"};
    static const char *const empty_wanted[] = {"", "#3", "#2"};
    check_numbered(different, different, COUNT_OF(different));
    check_numbered(twice, twice_wanted, COUNT_OF(twice));
    check_numbered(taken, taken_wanted, COUNT_OF(taken));
    check_numbered(empty, empty_wanted, COUNT_OF(empty));
    check_numbered(NULL, NULL, 0);
}

static struct td_text half_repeated(const void *context, size_t i)
{
    static char texts[2][16];
    static size_t turn;
    char *text = texts[turn++ % 2]; /* the caller holds two names at a time */
    (void)context;
    (void)snprintf(text, sizeof texts[0], i % 2 == 0 ? "x" : "x#%zu", i / 2 + 2);
    return td_text_of(text);
}

static uint64_t work_of_numbering(size_t count)
{
    struct td_names names = {.count = count, .get = half_repeated};
    struct td_text *fresh;
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&arena, 0);
    uint64_t work = work_now();
    assert_true(td_names_number_repeated(&names, &arena, &fresh, &err));
    work = work_now() - work;
    char last[16];
    (void)snprintf(last, sizeof last, "x#%zu", count);
    assert_null(fresh[0].p);
    assert_string_equal(fresh[count - 2].p, last);
    free(fresh);
    td_arena_fini(&arena);
    return work;
}

/* 100,000 equal names, beside all the numbered names that they would get. */
static void numbers_that_are_taken_cost_little(void **state)
{
    (void)state;
    const size_t count = SANITIZED ? 40000 : 200000;
    uint64_t half = work_of_numbering(count / 2);
    check_linear(half, work_of_numbering(count), "numbering");
}

static void numbering_survives_want_of_memory(void **state)
{
    (void)state;
    static const char *const strings[] = {"b", "a", "b", "a"};
    struct td_names names = {.count = 4, .context = strings, .get = string_at};
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_text *fresh;
        struct td_arena arena;
        struct td_error err = TD_ERROR_INIT;
        td_arena_init(&arena, 0);
        bool ok = td_names_number_repeated(&names, &arena, &fresh, &err);
        alloc_tried(&trials, ok, &err);
        assert_true(ok || fresh == NULL);
        free(fresh);
        td_arena_fini(&arena);
    }
    assert_true(trials.k > 3); /* order, scratch, list, arena */
}

/* All permutations of five items, for items of several sizes. */
static void apply_moves_whole_items(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4, 16, 48, 64};
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        for (size_t permutation = 0; permutation < 3125; permutation++) {
            struct td_order order[5];
            unsigned char base[5 * 64];
            size_t wanted[5];
            unsigned used = 0;
            for (size_t i = 0, rest = permutation; i < 5; i++, rest /= 5) {
                order[i] = (struct td_order){.index = rest % 5};
                wanted[i] = rest % 5;
                used |= 1U << (rest % 5);
            }
            if (used != 31)
                continue;
            for (size_t i = 0; i < 5; i++)
                memset(base + i * sizes[s], (int)i, sizes[s]);
            td_order_apply(order, 5, base, sizes[s]);
            for (size_t i = 0; i < 5 * sizes[s]; i++)
                assert_int_equal(base[i], wanted[i / sizes[s]]);
        }
    }
}

static struct td_text pointer_name(const void *context, size_t i)
{
    const char *text = ((const char *const *)context)[i];
    return td_text_of(text);
}

/* Every name and every gap between two names, in lists of every length, one name more than once. */
static void names_are_searched_by_bytes(void **state)
{
    (void)state;
    static const char *const sorted[] = {"", "B", "a", "a.b", "a/b", "ab", "b", "b", "b", "\xc3\xa9"};
    static const struct {
        const char *name;
        size_t at; /* in the whole list */
        bool found;
    } cases[] = {
        {"", 0, true},    {"A", 1, false},  {"B", 1, true},        {"C", 2, false},
        {"a", 2, true},   {"a.", 3, false}, {"a.b", 3, true},      {"a.c", 4, false},
        {"a/b", 4, true}, {"aa", 5, false}, {"ab", 5, true},       {"abc", 6, false},
        {"b", 6, true},   {"c", 9, false},  {"\xc3\xa9", 9, true}, {"\xc3\xaa", 10, false},
    };
    for (size_t count = 0; count <= COUNT_OF(sorted); count++) {
        const struct td_names names = {.count = count, .context = sorted, .get = pointer_name};
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            bool found;
            size_t at = td_names_search(&names, td_text_of(cases[i].name), &found);
            CHECK(at == (cases[i].at < count ? cases[i].at : count), "\"%s\" of %zu: %zu", cases[i].name, count, at);
            CHECK(found == (cases[i].found && cases[i].at < count), "\"%s\" of %zu", cases[i].name, count);
            assert_int_equal(td_names_search(&names, td_text_of(cases[i].name), NULL), at);
        }
        bool found;
        (void)td_names_search(&names, td_text_n("a.b and more", 3), &found); /* the length counts */
        assert_int_equal(found, count > 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorts_every_small_pattern),
        cmocka_unit_test(sorts_at_random),
        cmocka_unit_test(comparisons_are_n_log_n),
        cmocka_unit_test(sort_reports_want_of_memory),
        cmocka_unit_test(names_go_by_bytes),
        cmocka_unit_test(order_looks_at_few_names),
        cmocka_unit_test(names_end_where_their_length_says),
        cmocka_unit_test(duplicates_are_found_at_their_second_place),
        cmocka_unit_test(order_survives_want_of_memory),
        cmocka_unit_test(repeated_names_are_numbered),
        cmocka_unit_test(numbers_that_are_taken_cost_little),
        cmocka_unit_test(numbering_survives_want_of_memory),
        cmocka_unit_test(apply_moves_whole_items),
        cmocka_unit_test(names_are_searched_by_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
