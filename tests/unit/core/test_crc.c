/* Expected values: the check values of the catalogue of parametrised CRC algorithms, for "123456789". */
#include "core/crc.h"

#include "tests/unit/unit.h"

static void check_values(void **state)
{
    (void)state;
    assert_int_equal(td_crc32c(0, "123456789", 9), 0xE3069283);
    assert_true(td_crc64nvme(0, "123456789", 9) == UINT64_C(0xAE8B14860A799888));
    assert_int_equal(td_crc32c(0, "", 0), 0);
    assert_true(td_crc64nvme(0, "", 0) == 0);
}

/* AWS's example of a trailer: 66,560 letters a have the CRC-32C sOO8/Q==. */
static void the_example_of_a_trailer(void **state)
{
    (void)state;
    static char letters[66560];
    memset(letters, 'a', sizeof letters);
    assert_int_equal(td_crc32c(0, letters, sizeof letters), 0xB0E3BCFD);
}

/* Returns a CRC bit by bit, as its definition says. */
static uint64_t slow_crc(uint64_t polynomial, uint64_t ones, const uint8_t *bytes, size_t len)
{
    uint64_t crc = ones;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? polynomial : 0);
    }
    return crc ^ ones;
}

/* Any length from any address, whole and in two pieces, is as the definition says. */
static void every_length_and_cut(void **state)
{
    (void)state;
    uint8_t bytes[80];
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)random_next(&seed);
    for (size_t from = 0; from < 8; from++) {
        for (size_t len = 0; from + len <= sizeof bytes; len++) {
            const uint8_t *p = bytes + from;
            size_t cut = len / 3;
            uint64_t right32 = slow_crc(UINT64_C(0x82F63B78), UINT32_MAX, p, len);
            uint64_t right64 = slow_crc(UINT64_C(0x9A6C9329AC4BC9B5), UINT64_MAX, p, len);
            assert_true(td_crc32c(0, p, len) == right32);
            assert_true(td_crc64nvme(0, p, len) == right64);
            assert_true(td_crc32c(td_crc32c(0, p, cut), p + cut, len - cut) == right32);
            assert_true(td_crc64nvme(td_crc64nvme(0, p, cut), p + cut, len - cut) == right64);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_values),
        cmocka_unit_test(the_example_of_a_trailer),
        cmocka_unit_test(every_length_and_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
