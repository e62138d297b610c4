#include "api/hub/xet_shard.h"

#include "core/digits.h"

#include <string.h>

enum { RECORD = 48 };

#define HAS_VERIFICATION (UINT32_C(1) << 31)
#define HAS_SHA256 (UINT32_C(1) << 30)

static uint32_t read_u32(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Reverses the bytes within each 8. */
static void swap_words(const uint8_t in[TD_XET_HASH_BYTES], uint8_t out[TD_XET_HASH_BYTES])
{
    for (size_t i = 0; i < TD_XET_HASH_BYTES; i++)
        out[i] = in[i / 8 * 8 + 7 - i % 8];
}

void td_xet_hash_write(const uint8_t hash[TD_XET_HASH_BYTES], char text[TD_XET_HASH_TEXT_BYTES])
{
    uint8_t swapped[TD_XET_HASH_BYTES];
    swap_words(hash, swapped);
    td_hex_write(swapped, sizeof swapped, text);
}

bool td_xet_hash_read(struct td_text text, uint8_t hash[TD_XET_HASH_BYTES])
{
    uint8_t swapped[TD_XET_HASH_BYTES];
    if (!td_hex_read_bytes(text, swapped, sizeof swapped))
        return false;
    swap_words(swapped, hash);
    return true;
}

bool td_xet_shard_open(struct td_text shard, size_t *at, struct td_error *err)
{
    static const char tag[] = "HFRepoMetaData"; /* with its NUL */
    *at = RECORD;
    return (shard.len >= RECORD && memcmp(shard.p, tag, sizeof tag) == 0) ||
           td_error_set(err, TD_INVALID_ARGUMENT, "the body is no shard of Xet");
}

static bool is_end(const char *record)
{
    static const uint8_t end[TD_XET_HASH_BYTES] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                                   0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                                   0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    return memcmp(record, end, sizeof end) == 0;
}

struct td_xet_term td_xet_file_term(const struct td_xet_file *file, size_t i)
{
    const char *record = file->terms.p + i * RECORD;
    struct td_xet_term term = {
        .bytes = read_u32(record + 36), .first = read_u32(record + 40), .end = read_u32(record + 44)};
    memcpy(term.xorb, record, sizeof term.xorb);
    return term;
}

/* Adds up the terms. Returns false for one that is empty. */
static bool add_terms(struct td_xet_file *file)
{
    for (size_t i = 0; i < file->term_count; i++) {
        struct td_xet_term term = td_xet_file_term(file, i);
        if (term.first >= term.end || term.bytes == 0)
            return false;
        file->bytes += term.bytes;
    }
    return true;
}

bool td_xet_shard_next(struct td_text shard, size_t *at, struct td_xet_file *file, struct td_error *err)
{
    struct td_text rest = td_text_skip(shard, *at);
    if (rest.len >= RECORD && is_end(rest.p))
        return false;
    size_t records = rest.len / RECORD;
    if (records == 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the shard is cut at byte %zu", *at);
    uint32_t flags = read_u32(rest.p + 32);
    size_t count = read_u32(rest.p + 36);
    size_t needed = 1 + ((flags & HAS_SHA256) != 0 ? 1 : 0); /* at most 2 + 2^33 with the terms */
    needed += (flags & HAS_VERIFICATION) != 0 ? 2 * count : count;
    *file = (struct td_xet_file){.has_sha256 = (flags & HAS_SHA256) != 0, .term_count = count};
    if (needed > records)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the file at byte %zu of the shard is cut", *at);
    file->terms = td_text_n(rest.p + RECORD, count * RECORD);
    if (!add_terms(file))
        return td_error_set(err, TD_INVALID_ARGUMENT, "the file at byte %zu of the shard has an empty term", *at);
    if (file->has_sha256)
        swap_words((const uint8_t *)rest.p + (needed - 1) * RECORD, file->sha256);
    *at += needed * RECORD;
    return true;
}
