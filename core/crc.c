/* Both are computed by tables, eight bytes at a time: table k has the CRC of a byte that k zero bytes follow. The
 * tables are made at the first call. x86-64 has an instruction for CRC-32C, which is used where the processor has it.
 */
#include "core/crc.h"

#include <pthread.h>
#include <string.h>

enum { STEP = 8 };

struct crc_tables {
    uint64_t of[STEP][256];
};

static struct crc_tables castagnoli, nvme;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Fills the tables of a polynomial, whose bits are in reflected order. */
static void fill_tables(struct crc_tables *tables, uint64_t polynomial)
{
    for (unsigned i = 0; i < 256; i++) {
        uint64_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? polynomial : 0);
        tables->of[0][i] = crc;
    }
    for (unsigned i = 0; i < 256; i++)
        for (int k = 1; k < STEP; k++)
            tables->of[k][i] = tables->of[k - 1][i] >> 8 ^ tables->of[0][tables->of[k - 1][i] & 0xFF];
}

static void fill_all(void)
{
    fill_tables(&castagnoli, UINT64_C(0x82F63B78));
    fill_tables(&nvme, UINT64_C(0x9A6C9329AC4BC9B5));
}

/* Returns the eight bytes as a number, the first byte the lowest. */
static uint64_t little(const uint8_t *p)
{
    uint64_t value = 0;
    for (int i = 0; i < STEP; i++)
        value |= (uint64_t)p[i] << 8 * i;
    return value;
}

static uint64_t run_tables(const struct crc_tables *tables, uint64_t crc, const uint8_t *p, size_t len)
{
    for (; len >= STEP; p += STEP, len -= STEP) {
        uint64_t x = crc ^ little(p);
        crc = 0;
        for (int k = 0; k < STEP; k++)
            crc ^= tables->of[STEP - 1 - k][x >> 8 * k & 0xFF];
    }
    for (; len > 0; p++, len--)
        crc = crc >> 8 ^ tables->of[0][(crc ^ *p) & 0xFF];
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t run_instruction(uint32_t crc, const uint8_t *p, size_t len)
{
    uint64_t wide = crc;
    for (; len >= STEP; p += STEP, len -= STEP) {
        uint64_t next;
        memcpy(&next, p, sizeof next);
        wide = _mm_crc32_u64(wide, next);
    }
    crc = (uint32_t)wide;
    for (; len > 0; p++, len--)
        crc = _mm_crc32_u8(crc, *p);
    return crc;
}
#endif

uint32_t td_crc32c(uint32_t crc, const void *bytes, size_t len)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~run_instruction(~crc, bytes, len);
#endif
    (void)pthread_once(&once, fill_all);
    return ~(uint32_t)run_tables(&castagnoli, ~crc, bytes, len);
}

uint64_t td_crc64nvme(uint64_t crc, const void *bytes, size_t len)
{
    (void)pthread_once(&once, fill_all);
    return ~run_tables(&nvme, ~crc, bytes, len);
}
