/* A second decoder of header blocks (HPACK, RFC 7541), which shares nothing with libnghttp2. It takes a block that is
 * whole, and is slow. */
#ifndef TD_TESTS_FUZZ_HPACK_ORACLE_H
#define TD_TESTS_FUZZ_HPACK_ORACLE_H

#include "core/text.h"
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    HPACK_TABLE_BYTES = 4096,               /* of the dynamic table, at most: no side asks for another size */
    HPACK_ENTRIES = HPACK_TABLE_BYTES / 32, /* of it: each counts 32 bytes more than its texts */
    HPACK_TEXT_BYTES = 1 << 17,             /* of a name or a value; a longer one is refused */
    HPACK_STATIC = 61,
    HPACK_END = 256, /* the symbol of Huffman's code that no text has */
};

struct hpack_entry {
    char *name, *value; /* owned */
    size_t name_len, value_len;
};

struct hpack {
    struct hpack_entry entries[HPACK_ENTRIES]; /* the newest is the first */
    size_t count, bytes, most_bytes;
};

/* Is called for each field of a block. The texts are borrowed. */
typedef void hpack_take(void *context, struct td_text name, struct td_text value);

static inline void hpack_init(struct hpack *hpack)
{
    memset(hpack, 0, sizeof *hpack);
    hpack->most_bytes = HPACK_TABLE_BYTES;
}

/* Drops the oldest entries until the table has at most `bytes`. */
static inline void hpack_shrink(struct hpack *hpack, size_t bytes)
{
    while (hpack->bytes > bytes) {
        struct hpack_entry *last = &hpack->entries[--hpack->count];
        hpack->bytes -= last->name_len + last->value_len + 32;
        free(last->name);
        free(last->value);
    }
}

static inline void hpack_fini(struct hpack *hpack)
{
    hpack_shrink(hpack, 0);
}

/* Returns a copy of the text, which the caller frees. */
static inline char *hpack_copy(struct td_text text)
{
    char *copy = malloc(text.len + 1);
    FUZZ_CHECK(copy != NULL);
    if (text.len > 0)
        memcpy(copy, text.p, text.len);
    return copy;
}

static inline void hpack_add(struct hpack *hpack, struct td_text name, struct td_text value)
{
    const size_t bytes = name.len + value.len + 32;
    const struct hpack_entry entry = {hpack_copy(name), hpack_copy(value), name.len,
                                      value.len}; /* it may be the oldest */
    if (bytes > hpack->most_bytes) {              /* RFC 7541 section 4.4: this empties the table */
        hpack_shrink(hpack, 0);
        free(entry.name);
        free(entry.value);
        return;
    }
    hpack_shrink(hpack, hpack->most_bytes - bytes);
    memmove(hpack->entries + 1, hpack->entries, hpack->count * sizeof *hpack->entries);
    hpack->entries[0] = entry;
    hpack->count++;
    hpack->bytes += bytes;
}

/* Finds an entry by its index: those of the static table (RFC 7541 appendix A) come first. Returns false when there is
 * none. */
static inline bool hpack_find(const struct hpack *hpack, uint64_t index, struct td_text *name, struct td_text *value)
{
    static const char *const fixed[HPACK_STATIC][2] = {{":authority", ""},
                                                       {":method", "GET"},
                                                       {":method", "POST"},
                                                       {":path", "/"},
                                                       {":path", "/index.html"},
                                                       {":scheme", "http"},
                                                       {":scheme", "https"},
                                                       {":status", "200"},
                                                       {":status", "204"},
                                                       {":status", "206"},
                                                       {":status", "304"},
                                                       {":status", "400"},
                                                       {":status", "404"},
                                                       {":status", "500"},
                                                       {"accept-charset", ""},
                                                       {"accept-encoding", "gzip, deflate"},
                                                       {"accept-language", ""},
                                                       {"accept-ranges", ""},
                                                       {"accept", ""},
                                                       {"access-control-allow-origin", ""},
                                                       {"age", ""},
                                                       {"allow", ""},
                                                       {"authorization", ""},
                                                       {"cache-control", ""},
                                                       {"content-disposition", ""},
                                                       {"content-encoding", ""},
                                                       {"content-language", ""},
                                                       {"content-length", ""},
                                                       {"content-location", ""},
                                                       {"content-range", ""},
                                                       {"content-type", ""},
                                                       {"cookie", ""},
                                                       {"date", ""},
                                                       {"etag", ""},
                                                       {"expect", ""},
                                                       {"expires", ""},
                                                       {"from", ""},
                                                       {"host", ""},
                                                       {"if-match", ""},
                                                       {"if-modified-since", ""},
                                                       {"if-none-match", ""},
                                                       {"if-range", ""},
                                                       {"if-unmodified-since", ""},
                                                       {"last-modified", ""},
                                                       {"link", ""},
                                                       {"location", ""},
                                                       {"max-forwards", ""},
                                                       {"proxy-authenticate", ""},
                                                       {"proxy-authorization", ""},
                                                       {"range", ""},
                                                       {"referer", ""},
                                                       {"refresh", ""},
                                                       {"retry-after", ""},
                                                       {"server", ""},
                                                       {"set-cookie", ""},
                                                       {"strict-transport-security", ""},
                                                       {"transfer-encoding", ""},
                                                       {"user-agent", ""},
                                                       {"vary", ""},
                                                       {"via", ""},
                                                       {"www-authenticate", ""}};
    if (index == 0 || index > HPACK_STATIC + hpack->count)
        return false;
    if (index <= HPACK_STATIC) {
        *name = td_text_n(fixed[index - 1][0], strlen(fixed[index - 1][0]));
        *value = td_text_n(fixed[index - 1][1], strlen(fixed[index - 1][1]));
        return true;
    }
    const struct hpack_entry *entry = &hpack->entries[index - HPACK_STATIC - 1];
    *name = td_text_n(entry->name, entry->name_len);
    *value = td_text_n(entry->value, entry->value_len);
    return true;
}

/* Reads an integer whose first byte has `bits` bits of it (RFC 7541 section 5.1). Returns false at the end of the
 * block, and for a number of more than 28 bits. */
static inline bool hpack_integer(const uint8_t **at, const uint8_t *end, unsigned bits, uint64_t *out)
{
    const uint64_t most = (1U << bits) - 1;
    if (*at == end)
        return false;
    *out = *(*at)++ & most;
    if (*out < most)
        return true;
    for (unsigned shift = 0; *at < end && shift < 28; shift += 7) {
        const uint8_t byte = *(*at)++;
        *out += (uint64_t)(byte & 0x7F) << shift;
        if ((byte & 0x80) == 0)
            return true;
    }
    return false;
}

/* Huffman's code of RFC 7541 appendix B, in canonical form: the codes of each length are consecutive numbers, in the
 * order of the symbols. */
struct hpack_code {
    uint32_t first[31];       /* code of each length */
    uint16_t count[31];       /* codes of each length */
    uint16_t symbols[31][40]; /* of each length, in order */
};

static inline const struct hpack_code *hpack_huffman(void)
{
    static const uint8_t lengths[HPACK_END + 1] = {
        13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
        28, 28, 28, 28, 28, 28, 6,  10, 10, 12, 13, 6,  8,  11, 10, 10, 8,  11, 8,  6,  6,  6,  5,  5,  5,  6,
        6,  6,  6,  6,  6,  6,  7,  8,  15, 6,  12, 10, 13, 6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
        7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8,  13, 19, 13, 14, 6,  15, 5,  6,  5,  6,  5,  6,  6,
        6,  5,  7,  7,  6,  6,  6,  5,  6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7,  15, 11, 14, 13, 28, 20, 22,
        20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23,
        22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22,
        23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
        19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22,
        25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30};
    static struct hpack_code code;
    if (code.first[30] != 0)
        return &code;
    for (uint16_t symbol = 0; symbol <= HPACK_END; symbol++) {
        const uint8_t length = lengths[symbol];
        FUZZ_CHECK(code.count[length] < sizeof code.symbols[0] / sizeof code.symbols[0][0]);
        code.symbols[length][code.count[length]++] = symbol;
    }
    for (size_t length = 1; length <= 30; length++)
        code.first[length] = (code.first[length - 1] + code.count[length - 1]) << 1;
    FUZZ_CHECK(code.first[30] + code.count[30] == 1U << 30); /* no code is left over */
    return &code;
}

/* Decodes a text in Huffman's code. Returns false for one that RFC 7541 section 5.2 does not allow, or too long. */
static inline bool hpack_expand(const uint8_t *bytes, size_t len, char *out, size_t *out_len)
{
    const struct hpack_code *code = hpack_huffman();
    uint32_t bits = 0;
    size_t length = 0;
    *out_len = 0;
    for (size_t i = 0; i < len * 8; i++) {
        bits = bits << 1 | (bytes[i / 8] >> (7 - i % 8) & 1U);
        if (++length > 30)
            return false;
        if (bits - code->first[length] >= code->count[length])
            continue;
        const uint16_t symbol = code->symbols[length][bits - code->first[length]];
        if (symbol == HPACK_END || *out_len == HPACK_TEXT_BYTES)
            return false;
        out[(*out_len)++] = (char)symbol;
        bits = 0;
        length = 0;
    }
    return length < 8 && bits == (1U << length) - 1; /* the rest is the beginning of HPACK_END */
}

/* Reads a text into `out`, which has HPACK_TEXT_BYTES. */
static inline bool hpack_text(const uint8_t **at, const uint8_t *end, char *out, struct td_text *text)
{
    uint64_t len;
    const bool is_huffman = *at < end && (**at & 0x80) != 0;
    if (!hpack_integer(at, end, 7, &len) || len > (uint64_t)(end - *at) || len > HPACK_TEXT_BYTES)
        return false;
    size_t n = (size_t)len;
    if (!is_huffman)
        memcpy(out, *at, n);
    else if (!hpack_expand(*at, n, out, &n))
        return false;
    *at += len;
    *text = td_text_n(out, n);
    return true;
}

/* Decodes a block, whose fields are given to `take` in order. Returns false, perhaps after some fields, when the block
 * is not valid; the table is then of no use. */
static inline bool hpack_decode(struct hpack *hpack, const uint8_t *at, size_t len, hpack_take *take, void *context)
{
    static char names[HPACK_TEXT_BYTES], values[HPACK_TEXT_BYTES];
    for (const uint8_t *end = len > 0 ? at + len : at; at < end;) {
        const uint8_t byte = *at;
        uint64_t number;
        struct td_text name, value;
        const bool is_indexed = (byte & 0x80) != 0;
        const bool is_kept = (byte & 0xC0) == 0x40;
        const bool is_size = (byte & 0xE0) == 0x20;
        if (!hpack_integer(&at, end, is_indexed ? 7 : is_kept ? 6 : is_size ? 5 : 4, &number))
            return false;
        if (is_size) {
            if (number > HPACK_TABLE_BYTES)
                return false;
            hpack->most_bytes = (size_t)number;
            hpack_shrink(hpack, hpack->most_bytes);
            continue;
        }
        if ((is_indexed || number > 0) && !hpack_find(hpack, number, &name, &value))
            return false;
        if (!is_indexed && number == 0 && !hpack_text(&at, end, names, &name))
            return false;
        if (!is_indexed && !hpack_text(&at, end, values, &value))
            return false;
        take(context, name, value);
        if (is_kept)
            hpack_add(hpack, name, value);
    }
    return true;
}

#endif
