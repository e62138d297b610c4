/* Counts by address: beside counts in a plain array, with failing allocations, with addresses that collide. */
#include "server/net/address_counts.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>

static struct in6_addr address_of(const char *text)
{
    struct in6_addr address;
    assert_int_equal(inet_pton(AF_INET6, text, &address), 1);
    return address;
}

/* Returns the address with this number in 2001:db8::/64. */
static struct in6_addr address_number(uint64_t number)
{
    struct in6_addr address = address_of("2001:db8::");
    for (size_t i = 0; i < 8; i++)
        address.s6_addr[15 - i] = (uint8_t)(number >> 8 * i);
    return address;
}

/* The first line is of the reference implementation (vectors.h of github.com/veorq/SipHash), 16 bytes. The others are
 * of OpenSSL: openssl mac -macopt hexkey:KEY -macopt size:8 -in FILE SIPHASH. Keys and hashes are little-endian. */
static void hashes_are_siphash(void **state)
{
    (void)state;
    static const struct {
        uint64_t key[2];
        const char *address;
        uint64_t hash;
    } cases[] = {
        {{0x0706050403020100, 0x0f0e0d0c0b0a0908}, "1:203:405:607:809:a0b:c0d:e0f", 0x3f2acc7f57c29bdb},
        {{0x8899aabbccddeeff, 0x0011223344556677}, "::ffff:192.0.2.7", 0xff3248e23733b8c0},
        {{0x5c8011ab5c273594, 0xe8250f52aec39446}, "8b5c:490f:796c:d146:3ba3:dc8f:9358:7f65", 0xf00a7468dea03ca8},
        {{0xdb615088b527a6b8, 0xe598f243db0878d3}, "6169:92e2:e9ff:cee3:3efb:7853:93c7:104e", 0xd05666d1afc70076},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct in6_addr address = address_of(cases[i].address);
        CHECK(td_address_hash(cases[i].key, &address) == cases[i].hash, "%zu", i);
    }
}

/* Tables have different keys, so that what collides in one server does not in the next. */
static void keys_are_random(void **state)
{
    (void)state;
    struct td_address_counts a, b;
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_address_counts_init(&a, &err) && td_address_counts_init(&b, &err));
    assert_true(a.key[0] != b.key[0] && a.key[1] != b.key[1]);
    td_address_counts_fini(&a);
    td_address_counts_fini(&b);
}

enum { ADDRESSES = 300, STEPS = 4000 };

/* Checks each count, and that the table holds no more than it needs. */
static void check_counts(const struct td_address_counts *counts, const uint32_t *expected, size_t addresses)
{
    size_t used = 0;
    for (uint64_t i = 0; i < addresses; i++) {
        struct in6_addr address = address_number(i);
        CHECK(td_address_counts_get(counts, &address) == expected[i], "%d", (int)i);
        used += expected[i] > 0 ? 1 : 0;
    }
    assert_int_equal(counts->used, used);
    assert_true(used * 2 <= counts->capacity);
    assert_true(counts->capacity <= 16 || used >= counts->capacity / 8);
}

/* Random additions and removals, more of the former at first and of the latter in the end. Neighbours in the table
 * move when one of them ends; eight addresses come and go so often that they also move over the table's end. */
static void counts_follow_additions_and_removals(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        size_t addresses = seed % 2 == 0 ? ADDRESSES : 8;
        struct td_address_counts counts;
        struct td_error err = TD_ERROR_INIT;
        uint32_t expected[ADDRESSES] = {0};
        uint64_t random = seed;
        assert_true(td_address_counts_init(&counts, &err));
        counts.key[0] = counts.key[1] = seed; /* the same in every run */
        for (size_t step = 0; step < STEPS; step++) {
            size_t which = random_below(&random, addresses);
            struct in6_addr address = address_number(which);
            size_t add_weight = addresses == ADDRESSES ? STEPS - step : STEPS / 2;
            if (random_below(&random, STEPS) < add_weight) {
                assert_true(td_address_counts_add(&counts, &address));
                expected[which]++;
            } else if (expected[which] > 0) {
                td_address_counts_remove(&counts, &address);
                expected[which]--;
            }
            if (step % 40 == 0 || addresses < ADDRESSES)
                check_counts(&counts, expected, addresses);
        }
        for (uint64_t i = 0; i < addresses; i++) {
            struct in6_addr address = address_number(i);
            for (; expected[i] > 0; expected[i]--)
                td_address_counts_remove(&counts, &address);
            check_counts(&counts, expected, addresses);
        }
        assert_true(counts.used == 0 && counts.capacity == 16);
        td_address_counts_fini(&counts);
    }
}

/* Without memory nothing changes: an address is not counted, and no other is lost. A removal needs no memory. */
static void without_memory_nothing_changes(void **state)
{
    (void)state;
    struct td_address_counts counts;
    struct td_error err = TD_ERROR_INIT;
    uint32_t expected[ADDRESSES] = {0};
    size_t refused = 0;
    assert_true(td_address_counts_init(&counts, &err));
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        struct in6_addr address = address_number(i);
        alloc_fail_at(1);
        bool is_added = td_address_counts_add(&counts, &address);
        alloc_fail_at(0);
        if (!is_added) {
            refused++;
            check_counts(&counts, expected, ADDRESSES);
            assert_true(td_address_counts_add(&counts, &address));
        }
        expected[i] = 1;
    }
    check_counts(&counts, expected, ADDRESSES);
    assert_int_equal(refused, 7); /* for 16, 32, ... 1024 slots */
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        struct in6_addr address = address_number(i);
        alloc_fail_at(1);
        td_address_counts_remove(&counts, &address);
        alloc_fail_at(0);
        assert_int_equal(td_address_counts_get(&counts, &address), 0);
    }
    assert_int_equal(counts.used, 0);
    td_address_counts_fini(&counts);
}

/* A search looks at few slots, however many addresses there are and whatever their bits are: counting the addresses of
 * one prefix, whose low bits or whose high bits alone differ, leaves no long runs of used slots. */
static void no_prefix_makes_long_runs(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift <= 48; shift += 16) {
        struct td_address_counts counts;
        struct td_error err = TD_ERROR_INIT;
        assert_true(td_address_counts_init(&counts, &err));
        for (uint64_t i = 0; i < 10000; i++) {
            struct in6_addr address = address_number(i << shift);
            assert_true(td_address_counts_add(&counts, &address));
        }
        size_t run = 0;
        size_t longest = 0;
        for (size_t i = 0; i < 2 * counts.capacity; i++) { /* twice, for a run over the end */
            run = counts.slots[i % counts.capacity].count > 0 ? run + 1 : 0;
            longest = run > longest ? run : longest;
        }
        CHECK(longest < 200, "%zu slots after a shift by %u", longest, shift); /* at random: about 20 */
        td_address_counts_fini(&counts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_siphash),
        cmocka_unit_test(keys_are_random),
        cmocka_unit_test(counts_follow_additions_and_removals),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(no_prefix_makes_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
