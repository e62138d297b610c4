/* The input is the length of the representation (eight bytes) and a Range field value. The result is compared with the
 * oracle. */
#include "http/range.h"

#include "tests/fuzz/fuzz.h"
#include "tests/kit/range_oracle.h"

/* Returns how many ranges begin within a range that begins before them, or at the same place but earlier in the
 * list. */
static size_t count_overlaps(const struct oracle *oracle)
{
    size_t overlaps = 0;
    for (size_t i = 0; i < oracle->count; i++) {
        const struct oracle_range *a = &oracle->ranges[i];
        for (size_t k = 0; k < oracle->count; k++) {
            const struct oracle_range *b = &oracle->ranges[k];
            bool before = b->off < a->off || (b->off == a->off && k < i);
            if (k != i && before && a->off - b->off < b->len) {
                overlaps++;
                break;
            }
        }
    }
    return overlaps;
}

static void check_ranges(const struct td_byte_range *ranges, size_t count, const struct oracle *oracle, uint64_t size)
{
    FUZZ_CHECK(count == oracle->count && count > 0 && count <= TD_MAX_RANGES);
    for (size_t i = 0; i < count; i++) {
        FUZZ_CHECK(ranges[i].off == oracle->ranges[i].off && ranges[i].len == oracle->ranges[i].len);
        FUZZ_CHECK(ranges[i].len > 0 && ranges[i].off < size && ranges[i].len <= size - ranges[i].off);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct oracle oracle;
    struct td_byte_range ranges[TD_MAX_RANGES];
    size_t count = 0;
    uint64_t length = 0;
    if (size < 8 || size > 4096)
        return 0;
    for (size_t i = 0; i < 8; i++)
        length |= (uint64_t)data[i] << 8 * i;
    const char *value = (const char *)data + 8;
    enum td_range_result result = td_range_parse(td_text_n(value, size - 8), length, ranges, &count);
    oracle_run(&oracle, value, size - 8, length);
    bool excessive = oracle.spec_count > TD_MAX_RANGES || count_overlaps(&oracle) > 2;
    if (oracle.verdict != ORACLE_VALID || length == 0) {
        FUZZ_CHECK(result == TD_RANGE_IGNORE);
    } else if (oracle.count == 0 || excessive) {
        FUZZ_CHECK(result == TD_RANGE_UNSATISFIABLE);
    } else {
        FUZZ_CHECK(result == TD_RANGE_PARTIAL);
        check_ranges(ranges, count, &oracle, length);
    }
    return 0;
}
