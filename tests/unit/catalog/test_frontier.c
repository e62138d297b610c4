/* The frontier, compared with a map of the bytes that have arrived. */
#include "catalog/upstream/arriving_file.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

static void pieces_in_any_order_give_the_length_without_a_gap(void **state)
{
    enum { SIZE = 300, ROUNDS = 400 };
    uint64_t random = 88172645463325252U;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct td_frontier frontier = {.bytes = 0};
        bool is_here[SIZE] = {false};
        for (int step = 0; step < 60; step++) {
            size_t off = random_below(&random, SIZE);
            size_t len = random_below(&random, SIZE - off < 40 ? SIZE - off + 1 : 40);
            size_t want = 0;
            td_frontier_add(&frontier, off, len);
            for (size_t i = off; i < off + len; i++)
                is_here[i] = true;
            while (want < SIZE && is_here[want])
                want++;
            CHECK(frontier.bytes == want, "round %d, step %d: %llu instead of %zu", round, step,
                  (unsigned long long)frontier.bytes, want);
        }
        td_frontier_fini(&frontier);
    }
}

static void want_of_memory_makes_it_too_small_and_never_too_large(void **state)
{
    (void)state;
    struct td_frontier frontier = {.bytes = 0};
    alloc_fail_at(1);
    td_frontier_add(&frontier, 10, 5);
    alloc_fail_at(0);
    td_frontier_add(&frontier, 0, 10);
    assert_int_equal(frontier.bytes, 10);
    td_frontier_add(&frontier, 10, 7);
    assert_int_equal(frontier.bytes, 17);
    td_frontier_fini(&frontier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_in_any_order_give_the_length_without_a_gap),
        cmocka_unit_test(want_of_memory_makes_it_too_small_and_never_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
