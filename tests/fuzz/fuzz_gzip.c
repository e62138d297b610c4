/* Unpacks gzip at once and in pieces, and compares with libdeflate. The first byte says how long the pieces are. */
#include "http/gzip.h"

#include "core/buffer.h"
#include "tests/fuzz/fuzz.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 16 };

static bool take(const struct td_body_room *room, uint64_t bytes, struct td_error *err)
{
    (void)err;
    FUZZ_CHECK(bytes <= room->most_bytes);
    return true;
}

static void give(const struct td_body_room *room)
{
    (void)room;
}

static const struct td_body_room room = {.most_bytes = MOST_BYTES, .take = take, .give = give};

static bool append(void *context, const void *bytes, size_t len, struct td_error *err)
{
    struct td_buffer *out = context;
    if (len > MOST_BYTES - out->len)
        return td_error_set(err, TD_FAILED_PRECONDITION, "too long");
    td_buffer_append(out, bytes, len);
    return true;
}

static bool unpack_pieces(struct td_text packed, size_t piece, struct td_buffer *out, struct td_error *err)
{
    struct td_gunzip *gunzip = td_gunzip_create(append, out, err);
    bool ok = gunzip != NULL;
    for (size_t at = 0; ok && at < packed.len; at += piece)
        ok = td_gunzip_add(gunzip, packed.p + at, piece < packed.len - at ? piece : packed.len - at, err);
    ok = ok && td_gunzip_end(gunzip, err);
    td_gunzip_destroy(gunzip);
    return ok;
}

/* Checks that libdeflate unpacks the members to the same bytes. */
static void check_by_libdeflate(struct td_text packed, const char *bytes, size_t len)
{
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    char *out = malloc(len + 1);
    FUZZ_CHECK(decompressor != NULL && out != NULL);
    size_t made = 0;
    while (packed.len > 0) {
        size_t taken = 0, part = 0;
        FUZZ_CHECK(libdeflate_gzip_decompress_ex(decompressor, packed.p, packed.len, out + made, len - made, &taken,
                                                 &part) == LIBDEFLATE_SUCCESS);
        packed = td_text_skip(packed, taken);
        made += part;
    }
    FUZZ_CHECK(made == len && (len == 0 || memcmp(out, bytes, len) == 0));
    free(out);
    libdeflate_free_decompressor(decompressor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_error at_once = TD_ERROR_INIT, in_pieces = TD_ERROR_INIT;
    struct td_buffer pieces;
    char *whole = NULL;
    size_t len = 0;
    if (size < 1)
        return 0;
    struct td_text packed = td_text_n((const char *)data + 1, size - 1);
    td_buffer_init(&pieces);
    bool ok = td_gunzip_whole(packed, &room, &whole, &len, &at_once);
    FUZZ_CHECK(unpack_pieces(packed, (size_t)data[0] + 1, &pieces, &in_pieces) == ok);
    bool is_too_long = at_once.code == TD_FAILED_PRECONDITION || in_pieces.code == TD_FAILED_PRECONDITION;
    FUZZ_CHECK(at_once.code == in_pieces.code || is_too_long); /* damage behind the limit may be met before it */
    if (ok) {
        FUZZ_CHECK(len <= MOST_BYTES && len == pieces.len && (len == 0 || memcmp(whole, pieces.data, len) == 0));
        check_by_libdeflate(packed, whole, len);
        free(whole);
    }
    td_buffer_fini(&pieces);
    return 0;
}
