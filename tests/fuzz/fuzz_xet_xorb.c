/* The input is a xorb, as such and as one LZ4 frame. Its chunks are found at the same places byte by byte and in one
 * piece. A chunk that can be unpacked has its length, and the same bytes whatever was in the buffer before. */
#include "api/hub/xet_xorb.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

static uint8_t out[2][TD_XET_CHUNK_BYTES];
static struct td_xet_unpacker unpacker; /* used again for each input, as for each chunk of a xorb */

static bool find(struct td_xet_finder *finder, const uint8_t *data, size_t size, size_t piece, struct td_error *err)
{
    bool ok = true;
    for (size_t at = 0; ok && at < size; at += piece)
        ok = td_xet_finder_add(finder, data + at, size - at < piece ? size - at : piece, err);
    return ok && td_xet_finder_end(finder, err);
}

/* Unpacks a chunk of the xorb twice. */
static void check_chunk(const uint8_t *data, size_t size)
{
    struct td_xet_head head;
    struct td_error err = TD_ERROR_INIT;
    FUZZ_CHECK(size >= TD_XET_HEAD_BYTES && td_xet_head_read(data, &head, &err));
    FUZZ_CHECK(head.chunk_bytes > 0 && head.chunk_bytes <= TD_XET_CHUNK_BYTES);
    FUZZ_CHECK(head.stored_bytes == size - TD_XET_HEAD_BYTES);
    memset(out[0], 0, head.chunk_bytes);
    memset(out[1], 0xAA, head.chunk_bytes);
    memset(unpacker.grouped, 0x55, head.chunk_bytes);
    bool ok = td_xet_chunk_read(&unpacker, &head, data + TD_XET_HEAD_BYTES, out[0], &err);
    memset(unpacker.grouped, 0xFF, head.chunk_bytes);
    FUZZ_CHECK(ok == td_xet_chunk_read(&unpacker, &head, data + TD_XET_HEAD_BYTES, out[1], &err));
    FUZZ_CHECK(!ok || memcmp(out[0], out[1], head.chunk_bytes) == 0);
    FUZZ_CHECK(ok == (err.code == TD_OK));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint32_t begins[2][TD_XET_XORB_CHUNKS + 1];
    struct td_xet_finder a = {.begins = begins[0]}, b = {.begins = begins[1]};
    struct td_error err[2] = {TD_ERROR_INIT, TD_ERROR_INIT};
    bool ok = find(&a, data, size, size + 1, &err[0]);
    FUZZ_CHECK(ok == find(&b, data, size, 1, &err[1]) && a.count == b.count);
    FUZZ_CHECK(ok == (err[0].code == TD_OK) && strcmp(err[0].message, err[1].message) == 0);
    FUZZ_CHECK(a.count == 0 || memcmp(begins[0], begins[1], a.count * sizeof **begins) == 0);
    if (!ok)
        fuzz_check_message(&err[0]);
    for (size_t i = 0; ok && i < a.count; i++) {
        FUZZ_CHECK(begins[0][i] < begins[0][i + 1] && begins[0][i + 1] <= size);
        check_chunk(data + begins[0][i], begins[0][i + 1] - begins[0][i]);
    }
    for (uint32_t len = 0; size <= TD_XET_STORED_BYTES && len < 300; len += 1 + len / 8) {
        const struct td_xet_head head = {.scheme = 1, .stored_bytes = (uint32_t)size, .chunk_bytes = len};
        (void)td_xet_chunk_read(&unpacker, &head, data, out[0], NULL);
    }
    return 0;
}
