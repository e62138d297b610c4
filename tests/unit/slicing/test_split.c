#include "slicing/plan/split.h"
#include "tests/unit/unit.h"

/* ---- element by element ---- */

enum { MAX_ELEMS = 4096 };

/* The elements of a rank, in order; SIZE_MAX stands for a zero. */
struct elements {
    size_t at[MAX_ELEMS];
    size_t count;
};

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* Returns whether unit u of n goes to rank r of t: as by torch.chunk, or as evenly as possible with the longer shares
 * first. */
static bool goes_to(enum td_uneven uneven, size_t n, size_t t, size_t r, size_t u)
{
    if (n % t == 0)
        return u / (n / t) == r;
    if (uneven == TD_UNEVEN_CHUNK)
        return u / ceil_div(n, t) == r;
    size_t owner = 0;
    size_t left = n / t + (0 < n % t);
    for (size_t i = 0; i < u; i++) {
        if (--left == 0) {
            owner++;
            left = n / t + (owner < n % t);
        }
    }
    return owner == r;
}

/* Collects a rank's elements as the definition of a split says: for each group, the units of each part. */
static void walk(const struct td_rule *rule, size_t t, size_t r, struct elements *out)
{
    out->count = 0;
    for (uint32_t part = 0; part < rule->part_count; part++) {
        const struct td_rule_part *p = &rule->parts[part];
        size_t per = p->count / rule->groups;
        size_t share = p->replicate && p->count < t ? t / p->count : 0;
        for (size_t u = 0; u < p->count; u++) {
            size_t base = 0;
            if (share > 0 ? r / share != u : !goes_to(rule->uneven, p->count, t, r, u))
                continue;
            for (uint32_t before = 0; before < rule->part_count; before++) {
                size_t len = rule->parts[before].count / rule->groups * rule->parts[before].unit;
                base += len * (u / per) + (before < part ? len : 0);
            }
            for (size_t e = 0; e < p->unit; e++)
                out->at[out->count++] = base + u % per * p->unit + e;
        }
    }
}

static void expand(const struct td_split *split, struct elements *out)
{
    out->count = 0;
    for (uint32_t i = 0; i < split->count; i++) {
        const struct td_split_piece *piece = &split->pieces[i];
        assert_true(piece->size > 0 && piece->count > 0);
        assert_int_equal(piece->count > 1, piece->stride > 0);
        for (uint64_t c = 0; c < piece->count; c++)
            for (uint64_t e = 0; e < piece->size; e++)
                out->at[out->count++] = piece->zeros ? SIZE_MAX : (size_t)(piece->start + c * piece->stride + e);
    }
    assert_int_equal(out->count, split->size);
}

static bool dealable(const struct td_rule *rule, size_t t)
{
    for (uint32_t i = 0; i < rule->part_count; i++) {
        const struct td_rule_part *p = &rule->parts[i];
        bool shared = p->replicate && p->count < t && p->count > 0 && t % p->count == 0;
        if (p->count % t != 0 && rule->uneven == TD_UNEVEN_ERROR && !shared)
            return false;
        if (p->replicate && p->count < t && !shared && p->count % t != 0)
            return false; /* the walk does not define this */
    }
    return true;
}

static void agrees_with_the_walk(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 4, 8, 16};
    static struct elements ours;
    static struct elements theirs;
    uint64_t random = 5;
    unsigned compared = 0;
    for (unsigned round = 0; round < 20000; round++) {
        struct td_rule rule = {.groups = 1 + random_below(&random, 4),
                               .uneven = (enum td_uneven)random_below(&random, 3)};
        uint64_t size = 0;
        rule.part_count = 1 + (uint32_t)random_below(&random, 4);
        for (uint32_t i = 0; i < rule.part_count; i++) {
            rule.parts[i] = (struct td_rule_part){.count = rule.groups * (1 + random_below(&random, 9)),
                                                  .unit = 1 + random_below(&random, 5),
                                                  .replicate = random_below(&random, 3) == 0};
            size += rule.parts[i].count * rule.parts[i].unit;
        }
        size_t t = sizes[random_below(&random, COUNT_OF(sizes))];
        size_t r = random_below(&random, t);
        struct td_split split;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_split_dimension(&rule, "w", size, t, r, &split, &err);
        if (!dealable(&rule, t))
            continue;
        CHECK(ok, "round %u: %s", round, err.message);
        expand(&split, &ours);
        walk(&rule, t, r, &theirs);
        assert_int_equal(ours.count, theirs.count);
        assert_memory_equal(ours.at, theirs.at, ours.count * sizeof *ours.at);
        compared++;
    }
    assert_true(compared > 5000);
}

/* ---- by hand ---- */

static void check(const struct td_rule *rule, uint64_t size, uint64_t t, uint64_t r, const char *wanted)
{
    struct td_split split;
    struct td_error err = TD_ERROR_INIT;
    char text[256] = "";
    size_t len = 0;
    if (!td_split_dimension(rule, "w", size, t, r, &split, &err)) {
        assert_int_equal(err.code, TD_FAILED_PRECONDITION);
        check_error(&err, 0, false, wanted);
        assert_non_null(strstr(err.message, "\"w\""));
        CHECK(strcmp(wanted, "refused") == 0, "%s: %s", wanted, err.message);
        return;
    }
    for (uint32_t i = 0; i < split.count; i++) {
        const struct td_split_piece *p = &split.pieces[i];
        if (p->zeros)
            len += (size_t)snprintf(text + len, sizeof text - len, " zeros %llu", (unsigned long long)p->size);
        else if (p->count > 1)
            len += (size_t)snprintf(text + len, sizeof text - len, " %llu+%llu*%llu/%llu", (unsigned long long)p->start,
                                    (unsigned long long)p->size, (unsigned long long)p->count,
                                    (unsigned long long)p->stride);
        else
            len += (size_t)snprintf(text + len, sizeof text - len, " %llu+%llu", (unsigned long long)p->start,
                                    (unsigned long long)p->size);
    }
    CHECK(strcmp(text, wanted) == 0, "\"%s\", not \"%s\"", text, wanted);
}

static void table(void **state)
{
    (void)state;
    struct td_rule plain = {0};
    check(&plain, 8, 2, 1, " 4+4");
    check(&plain, 8, 1, 0, " 0+8");
    check(&plain, 0, 2, 1, "");
    check(&plain, 7, 2, 0, "refused");
    struct td_rule chunk = {.uneven = TD_UNEVEN_CHUNK}; /* torch.chunk(arange(9), 4): 3, 3, 3 and nothing */
    check(&chunk, 9, 4, 2, " 6+3");
    check(&chunk, 9, 4, 3, "");
    check(&chunk, 10, 4, 3, " 9+1");
    check(&chunk, 1, 16, 0, " 0+1");
    check(&chunk, 1, 16, 15, "");
    check(&chunk, UINT64_MAX, 4096, 4095, " 18442240474082181120+4503599627370495"); /* begins at 4095 * 2^52 */
    struct td_rule balanced = {.uneven = TD_UNEVEN_BALANCED};
    check(&balanced, 10, 4, 0, " 0+3");
    check(&balanced, 10, 4, 1, " 3+3");
    check(&balanced, 10, 4, 2, " 6+2");
    check(&balanced, 10, 4, 3, " 8+2");
    struct td_rule vocabulary = {.pad_to = 64}; /* Vp = 192, 96 for each */
    check(&vocabulary, 130, 2, 0, " 0+96");
    check(&vocabulary, 130, 2, 1, " 96+34 zeros 62");
    check(&vocabulary, 130, 8, 6, " zeros 24");
    check(&vocabulary, 130, 5, 0, "refused");
    struct td_rule kv = {.parts = {{.count = 2, .unit = 4, .replicate = true}}, .part_count = 1};
    check(&kv, 8, 8, 3, " 0+4");
    check(&kv, 8, 8, 4, " 4+4");
    check(&kv, 8, 3, 0, "refused");
    check(&kv, 12, 2, 0, "refused");
    struct td_rule halves = {.parts = {{.count = 0, .unit = 1}, {.count = 0, .unit = 1}}, .part_count = 2};
    check(&halves, 12, 2, 1, " 3+3 9+3");
    check(&halves, 12, 1, 0, " 0+12");
    check(&halves, 13, 1, 0, "refused");
    struct td_rule neox = {.parts = {{.count = 4, .unit = 2}, {.count = 4, .unit = 2}, {.count = 4, .unit = 2}},
                           .part_count = 3,
                           .groups = 4};
    check(&neox, 24, 2, 1, " 12+2*2/6 14+2*2/6 16+2*2/6");
    struct td_rule heads = {.parts = {{.count = 6, .unit = 0}}, .part_count = 1};
    check(&heads, 48, 3, 1, " 16+16");
    check(&heads, 48, 4, 1, "refused");
    check(&heads, 47, 1, 0, "refused");
    struct td_rule packed = {.pack = 8};
    check(&packed, 4, 2, 1, " 2+2");
    check(&packed, 3, 2, 1, "refused");
}

static void nothing_overflows(void **state)
{
    (void)state;
    uint64_t big = UINT64_MAX;
    struct td_rule rule = {.parts = {{.count = big, .unit = big}}, .part_count = 1};
    check(&rule, 16, 2, 1, "refused");
    rule = (struct td_rule){.parts = {{.count = big / 2, .unit = 2}, {.count = big / 2, .unit = 2}}, .part_count = 2};
    check(&rule, big, 2, 1, "refused");
    rule = (struct td_rule){.pack = big};
    check(&rule, 2, 2, 1, "refused");
    rule = (struct td_rule){.pad_to = big};
    check(&rule, 4, 4, 1, "refused");
    check(&rule, 4, 5, 0, " 0+4 zeros 3689348814741910319");
    rule = (struct td_rule){.pad_to = big - 1};
    check(&rule, big, 2, 0, "refused");
    rule = (struct td_rule){.pad_to = 64, .parts = {{.count = 1, .unit = 0}}, .part_count = 1};
    check(&rule, 0, 2, 1, "refused");
    rule = (struct td_rule){.groups = big};
    check(&rule, 4, 2, 0, "refused");
    check(&rule, 0, 2, 0, "");
    check(&(struct td_rule){0}, big, 1, 0, " 0+18446744073709551615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_walk),
        cmocka_unit_test(table),
        cmocka_unit_test(nothing_overflows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
