#include "parser/pt2.h"

#include "tests/unit/format_fixture.h"

static void as_torch_reads(const struct fixture *f)
{
    check_fixture(&td_format_pt2, f);
}

static void what_torch_wrote(void **state)
{
    (void)state;
    each_fixture("pt2", ".pt2", 6, as_torch_reads);
}

static void prefixes(const struct fixture *f)
{
    check_prefixes(&td_format_pt2, f);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    each_fixture("pt2", ".pt2", 6, prefixes);
}

static void allocations(const struct fixture *f)
{
    check_allocations(&td_format_pt2, f);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    each_fixture("pt2", ".pt2", 6, allocations);
}

static bool any_refusal(const struct td_error *err)
{
    (void)err;
    return true;
}

static void changes(const struct fixture *f)
{
    static const uint8_t bits[] = {0x01, 0x10};
    struct sample s = fixture_sample(&td_format_pt2, f);
    const struct changes each = {
        .end = f->len, .step = 3, .by = bits, .count = sizeof bits, .flip = true, .unplaced = any_refusal};
    check_each_change(&s, &each);
}

static void any_byte_may_change(void **state)
{
    (void)state;
    each_fixture("pt2", ".pt2", 6, changes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_torch_wrote),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(any_byte_may_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
