/* Elements that differ, compared with a loop over single bytes. */
#include "rank/patch/patch_diff.h"

#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1000, MOST_BYTES = MOST * 8 };

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Compares arrays of this many elements, and checks places and values. */
static void check(const uint8_t *before, const uint8_t *after, size_t count, size_t element)
{
    uint32_t places[MOST];
    uint8_t values[MOST_BYTES];
    size_t at = 0;
    const size_t found = td_patch_diff(before, after, count, element, places);
    td_patch_gather(after, element, places, found, values);
    for (size_t i = 0; i < count; i++) {
        bool differs = false;
        for (size_t k = 0; k < element; k++)
            differs = differs || before[i * element + k] != after[i * element + k];
        if (!differs)
            continue;
        assert_true(at < found);
        assert_int_equal(places[at], i);
        assert_memory_equal(values + at * element, after + i * element, element);
        at++;
    }
    assert_int_equal(at, found);
}

static void places_are_those_of_a_loop(void **state)
{
    static const size_t elements[] = {1, 2, 4, 8};
    uint8_t before[MOST_BYTES + 1];
    uint8_t after[MOST_BYTES + 1];
    uint64_t seed = 1;
    (void)state;
    for (size_t round = 0; round < 2000; round++) {
        const size_t element = elements[round % 4];
        const size_t count = next_random(&seed) % MOST;
        const size_t shift = round % 2; /* not aligned */
        const uint64_t rarity = 1 + next_random(&seed) % 200;
        for (size_t i = 0; i < sizeof before; i++) {
            before[i] = (uint8_t)next_random(&seed);
            after[i] = before[i] ^ (uint8_t)(next_random(&seed) % rarity == 0 ? 1 << next_random(&seed) % 8 : 0);
        }
        check(before + shift, after + shift, count, element);
        check(before + shift, before + shift, count, element);
    }
}

static void sizes_are_powers_of_two(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 20; bytes++)
        assert_int_equal(td_patch_takes(bytes), bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_are_those_of_a_loop),
                                       cmocka_unit_test(sizes_are_powers_of_two)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
