/* The decoders of Xet's upload: LZ4 frames, chunks and xorbs, shards, hashes; and their faults. */
#include "api/hub/xet_shard.h"
#include "api/hub/xet_xorb.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/unit.h"

#include "core/buffer.h"

/* Heads of frames end in a byte of the checksum XXH32 over what follows the magic number. */
#define MAGIC "\x04\x22\x4D\x18"
#define HEAD MAGIC "\x60\x40\x82" /* version 1, blocks of their own, of up to 64 KiB */

/* A frame of "ab", 14 bytes from `offset` bytes back, and the 5 literals in which each compressed block ends. */
#define MATCH_FRAME(offset)   \
    HEAD "\x0B\0\0\0\x2A"     \
         "ab" offset "\0\x50" \
         "cdefg"              \
         "\0\0\0\0"

/* A frame of "abc", which is not compressed. */
#define STORED_FRAME  \
    HEAD "\3\0\0\x80" \
         "abc"        \
         "\0\0\0\0"

static struct td_xet_unpacker unpacker;

/* Unpacks a frame to len bytes, as a chunk with the scheme 1. Returns whether it has them. */
static bool unpack(const char *frame, size_t frame_len, size_t len, char *out)
{
    const struct td_xet_head head = {.scheme = 1, .stored_bytes = (uint32_t)frame_len, .chunk_bytes = (uint32_t)len};
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_xet_chunk_read(&unpacker, &head, (const uint8_t *)frame, (uint8_t *)out, &err);
    assert_true(ok == (err.code == TD_OK) && (ok || err.code == TD_INVALID_ARGUMENT));
    return ok;
}

#define UNPACK(frame, len) unpack(frame, sizeof(frame) - 1, len, out)

static void test_frames(void **state)
{
    char out[400];
    (void)state;
    assert_true(UNPACK(HEAD "\0\0\0\0", 0));
    assert_true(UNPACK(STORED_FRAME, 3) && memcmp(out, "abc", 3) == 0);
    assert_true(UNPACK(HEAD "\4\0\0\0"
                            "\x30"
                            "abc"
                            "\0\0\0\0",
                       3) &&
                memcmp(out, "abc", 3) == 0);
    assert_true(UNPACK(MATCH_FRAME("\2"), 21));
    assert_memory_equal(out, "ababababababababcdefg", 21);
    /* 1 literal, then 15 + 255 + 10 + 4 bytes from 1 back; a match may reach into the block before */
    assert_true(UNPACK(MAGIC "\x40\x40\xC0"
                             "\1\0\0\x80"
                             "x"
                             "\x0B\0\0\0"
                             "\x0F\1\0\xFF\x0A\x50"
                             "yyyyy"
                             "\0\0\0\0",
                       290));
    assert_true(out[0] == 'x' && out[284] == 'x' && out[285] == 'y' && out[289] == 'y');
    /* 15 + 2 literals */
    assert_true(UNPACK(HEAD "\x13\0\0\0"
                            "\xF0\2"
                            "0123456789abcdefg"
                            "\0\0\0\0",
                       17));
    td_xet_unpacker_fini(&unpacker);
}

/* As `lz4 -BX --content-size` writes it: the size, a checksum of the block and one of the content. */
static void test_checksums(void **state)
{
    static const char frame[] = MAGIC "\x7C\x40"
                                      "\3\0\0\0\0\0\0\0"
                                      "\x74"
                                      "\3\0\0\x80"
                                      "abc"
                                      "\xFF\x53\xD1\x32"
                                      "\0\0\0\0"
                                      "\xFF\x53\xD1\x32";
    char out[400], damaged[sizeof frame];
    (void)state;
    assert_true(UNPACK(frame, 3));
    for (size_t i = 0; i < sizeof frame - 1; i++) {
        memcpy(damaged, frame, sizeof frame);
        damaged[i] ^= 1;
        CHECK(!unpack(damaged, sizeof frame - 1, 3, out), "a frame with another byte %zu was taken", i);
    }
    td_xet_unpacker_fini(&unpacker);
}

/* A frame that announces 2^63 bytes, or has blocks of 4 MiB, takes the memory of two blocks at most. */
static void test_memory(void **state)
{
    static const char *const heads[] = {"\x68\x50\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F\x3B", /* 2^63 - 1 bytes */
                                        "\x40\x70\xDF"};                                /* blocks of 4 MiB */
    static const size_t lens[] = {11, 3};
    static const char bomb[] = "\x0E\0\0\0\x1F" /* 1 literal, then 15 + 8 * 255 + 10 + 4 bytes from 1 back */
                               "x\1\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x0A\0";
    char frame[64], out[400];
    (void)state;
    alloc_count_start();
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        memcpy(frame, MAGIC, 4);
        memcpy(frame + 4, heads[i], lens[i]);
        memcpy(frame + 4 + lens[i], bomb, sizeof bomb);
        assert_false(unpack(frame, 4 + lens[i] + sizeof bomb - 1, sizeof out, out));
    }
    assert_in_range(alloc_count_get().peak_bytes, 1, 2 * 4096 * 1024 + 256 * 1024);
    td_xet_unpacker_fini(&unpacker);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

/* Memory that is short is no fault of the frame. */
static void test_no_memory(void **state)
{
    static const char frame[] = STORED_FRAME;
    const struct td_xet_head head = {.scheme = 1, .stored_bytes = sizeof frame - 1, .chunk_bytes = 3};
    uint8_t out[3];
    struct alloc_trials trials = {0};
    (void)state;
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_xet_chunk_read(&unpacker, &head, (const uint8_t *)frame, out, &err);
        alloc_tried(&trials, ok, &err);
        td_xet_unpacker_fini(&unpacker);
    }
    assert_true(trials.failed >= 2);
}

/* A match from 0 bytes back is invalid. liblz4 1.9 takes it for zeros; it must not show what was in the buffer. */
static void test_a_match_of_itself(void **state)
{
    static const char frame[] = MATCH_FRAME("\0");
    char out[2][21];
    (void)state;
    memset(out[0], 'S', sizeof out[0]);
    memset(out[1], 'T', sizeof out[1]);
    if (unpack(frame, sizeof frame - 1, 21, out[0]) && unpack(frame, sizeof frame - 1, 21, out[1]))
        assert_memory_equal(out[0], out[1], 21);
    td_xet_unpacker_fini(&unpacker);
}

static void test_damaged_frames(void **state)
{
    static const char good[] = MATCH_FRAME("\2");
    char out[400];
    (void)state;
    for (size_t len = 0; len < sizeof good - 1; len++)
        CHECK(!unpack(good, len, 21, out), "a frame of %zu bytes was taken", len);
    assert_false(UNPACK(MATCH_FRAME("\2"), 20));
    assert_false(UNPACK(MATCH_FRAME("\2"), 22));
    assert_false(UNPACK(MATCH_FRAME("\2") "x", 21));
    assert_false(UNPACK(MATCH_FRAME("\3"), 21)); /* before the beginning */
    assert_false(UNPACK(HEAD "\5\0\0\0"
                             "\x22"
                             "ab\2\0"
                             "\0\0\0\0",
                        8)); /* ends in a match */
    assert_false(UNPACK(HEAD "\4\0\0\0"
                             "\xF0\xFF\xFF\xFF"
                             "\0\0\0\0",
                        9)); /* a length without an end */
    assert_false(UNPACK(HEAD "\xFF\xFF\xFF\x7F"
                             "\x10"
                             "c",
                        1));
    assert_false(UNPACK(MAGIC "\x20\x40\x03\0\0\0\0", 0));         /* another version */
    assert_false(UNPACK(MAGIC "\x61\x40\1\0\0\0\xD0\0\0\0\0", 0)); /* a dictionary */
    assert_false(UNPACK("\x50\x2A\x4D\x18\3\0\0\0xyz", 0));        /* a frame to skip */
    assert_false(UNPACK("\x50\x2A\x4D\x18\3\0\0\0xyz" HEAD "\0\0\0\0", 0));
    assert_false(UNPACK(HEAD "\0\0\0\0" HEAD "\0\0\0\0", 0)); /* two frames */
    td_xet_unpacker_fini(&unpacker);
}

/* ---- xorbs ----------------------------------------------------------------------------------------------- */

#define CHUNK_A        \
    "\0\3\0\0\0\3\0\0" \
    "abc"
/* "aeimbfjncgkodhlp..." in four groups, stored in a frame */
#define CHUNK_B                            \
    "\0\x15\0\0\2\6\0\0" HEAD "\6\0\0\x80" \
    "aebfcd"                               \
    "\0\0\0\0"

static bool find(const char *xorb, size_t len, size_t piece, struct td_xet_finder *finder)
{
    static uint32_t begins[TD_XET_XORB_CHUNKS + 1];
    struct td_error err = TD_ERROR_INIT;
    bool ok = true;
    *finder = (struct td_xet_finder){.begins = begins};
    for (size_t at = 0; ok && at < len; at += piece)
        ok = td_xet_finder_add(finder, xorb + at, len - at < piece ? len - at : piece, &err);
    ok = ok && td_xet_finder_end(finder, &err);
    assert_true(ok == (err.code == TD_OK));
    return ok;
}

static void test_xorbs(void **state)
{
    static const char xorb[] = CHUNK_A CHUNK_B CHUNK_A "XETBLOB and more";
    struct td_xet_finder finder;
    struct td_xet_head head;
    uint8_t out[16];
    struct td_error err = TD_ERROR_INIT;
    (void)state;
    for (size_t piece = 1; piece < sizeof xorb; piece++) {
        assert_true(find(xorb, sizeof xorb - 1, piece, &finder));
        assert_int_equal(finder.count, 3);
        assert_true(finder.begins[0] == 0 && finder.begins[1] == 11 && finder.begins[2] == 40 &&
                    finder.begins[3] == 51);
    }
    assert_true(td_xet_head_read((const uint8_t *)xorb + 11, &head, &err) && head.scheme == 2);
    assert_true(td_xet_chunk_read(&unpacker, &head, (const uint8_t *)xorb + 19, out, &err));
    assert_memory_equal(out, "abcdef", 6);
    assert_true(td_xet_head_read((const uint8_t *)xorb, &head, &err) &&
                td_xet_chunk_read(&unpacker, &head, (const uint8_t *)xorb + 8, out, &err));
    assert_memory_equal(out, "abc", 3);
    td_xet_unpacker_fini(&unpacker);
    assert_true(find(xorb, 51, 7, &finder));
    for (size_t len = 0; len < 51; len++)
        CHECK(find(xorb, len, 7, &finder) == (len == 11 || len == 40), "a xorb of %zu bytes", len);
}

static void test_damaged_xorbs(void **state)
{
    static const struct {
        const char *head;
    } heads[] = {
        {"\1\3\0\0\0\3\0\0"},   /* version */
        {"\0\3\0\0\3\3\0\0"},   /* scheme */
        {"\0\3\0\0\0\4\0\0"},   /* stored, with another length */
        {"\0\0\0\0\0\0\0\0"},   /* empty */
        {"\0\3\0\0\1\1\0\2"},   /* more than 128 KiB */
        {"\0\1\x10\2\1\0\0\2"}, /* the data, too */
    };
    struct td_xet_head head;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        struct td_error err = TD_ERROR_INIT;
        CHECK(!td_xet_head_read((const uint8_t *)heads[i].head, &head, &err), "head %zu was taken", i);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    }
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_xet_head_read((const uint8_t *)"\0\1\x10\2\1\0\0\2" + 0, &head, NULL) == false);
    assert_true(td_xet_head_read((const uint8_t *)"\0\0\x10\2\1\0\0\2", &head, &err));
    assert_true(head.chunk_bytes == TD_XET_CHUNK_BYTES && head.stored_bytes == TD_XET_STORED_BYTES);
}

/* A xorb has a bounded number of chunks. */
static void test_many_chunks(void **state)
{
    struct td_buffer xorb;
    struct td_xet_finder finder;
    (void)state;
    td_buffer_init(&xorb);
    for (size_t i = 0; i < TD_XET_XORB_CHUNKS; i++)
        td_buffer_append(&xorb, CHUNK_A, sizeof CHUNK_A - 1);
    assert_true(find(xorb.data, xorb.len, 4096, &finder) && finder.count == TD_XET_XORB_CHUNKS);
    td_buffer_append(&xorb, CHUNK_A, sizeof CHUNK_A - 1);
    assert_false(find(xorb.data, xorb.len, 4096, &finder));
    td_buffer_fini(&xorb);
}

/* ---- shards ---------------------------------------------------------------------------------------------- */

enum { RECORD = 48 };

static void add_record(struct td_buffer *shard, const void *hash, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t words[] = {a, b, c, d};
    td_buffer_append(shard, hash, 32);
    for (size_t i = 0; i < 4; i++)
        for (unsigned k = 0; k < 4; k++)
            td_buffer_putc(shard, (char)(words[i] >> 8 * k));
}

static void test_shards(void **state)
{
    struct td_buffer shard;
    struct td_xet_file file;
    struct td_error err = TD_ERROR_INIT;
    size_t at;
    uint8_t hash[32], end[32];
    char text[TD_XET_HASH_TEXT_BYTES];
    (void)state;
    for (unsigned i = 0; i < 32; i++)
        hash[i] = (uint8_t)i;
    memset(end, 0xFF, sizeof end);
    td_buffer_init(&shard);
    add_record(&shard, "HFRepoMetaData\0with 17 more byte", 2, 0, 0, 0);
    add_record(&shard, hash, 3U << 30, 2, 0, 0); /* verification and SHA-256 */
    add_record(&shard, hash, 0, 100, 0, 1);
    add_record(&shard, hash, 0, 50, 3, 7);
    add_record(&shard, hash, 0, 0, 0, 0);
    add_record(&shard, hash, 0, 0, 0, 0);
    add_record(&shard, hash, 0, 0, 0, 0);
    add_record(&shard, hash, 0, 0, 0, 0); /* a file without terms */
    add_record(&shard, end, 0, 0, 0, 0);
    struct td_text whole = td_buffer_text(&shard);
    assert_true(td_xet_shard_open(whole, &at, &err) && td_xet_shard_next(whole, &at, &file, &err));
    assert_true(file.has_sha256 && file.term_count == 2 && file.bytes == 150);
    assert_true(file.sha256[0] == 7 && file.sha256[7] == 0 && file.sha256[8] == 15 && file.sha256[31] == 24);
    struct td_xet_term term = td_xet_file_term(&file, 1);
    assert_true(term.bytes == 50 && term.first == 3 && term.end == 7 && memcmp(term.xorb, hash, 32) == 0);
    assert_true(td_xet_shard_next(whole, &at, &file, &err) && !file.has_sha256 && file.term_count == 0);
    assert_false(td_xet_shard_next(whole, &at, &file, &err));
    assert_int_equal(err.code, TD_OK);
    td_xet_hash_write(hash, text);
    assert_string_equal(text, "07060504030201000f0e0d0c0b0a090817161514131211101f1e1d1c1b1a1918");
    assert_true(td_xet_hash_read(td_text_of(text), end) && memcmp(end, hash, 32) == 0);
    for (size_t len = RECORD; len < whole.len - RECORD; len++) { /* cut anywhere */
        td_error_init(&err);
        assert_true(td_xet_shard_open(td_text_n(whole.p, len), &at, &err));
        while (td_xet_shard_next(td_text_n(whole.p, len), &at, &file, &err))
            continue;
        CHECK(err.code == TD_INVALID_ARGUMENT, "a shard of %zu bytes", len);
    }
    assert_false(td_xet_shard_open(td_text_n(whole.p, RECORD - 1), &at, NULL));
    shard.data[RECORD + 39] = 0x7F; /* 2 billion terms */
    td_error_init(&err);
    at = RECORD;
    assert_false(td_xet_shard_next(whole, &at, &file, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_buffer_fini(&shard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_damaged_frames),
        cmocka_unit_test(test_a_match_of_itself),
        cmocka_unit_test(test_checksums),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_xorbs),
        cmocka_unit_test(test_damaged_xorbs),
        cmocka_unit_test(test_many_chunks),
        cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
