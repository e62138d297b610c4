/* Tests of http/gzip against what zlib and libdeflate pack. */
#include "http/gzip.h"

#include "core/buffer.h"
#include "core/waiting.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/unit.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <zlib.h>

enum { MOST = 1 << 20, LONG = 300 * 1000 };

/* A room that notes what was taken, and refuses more than `left`. */
struct counted_room {
    struct td_body_room room;
    uint64_t *taken;
    uint64_t left;
};

static bool take(const struct td_body_room *room, uint64_t bytes, struct td_error *err)
{
    const struct counted_room *self = (const struct counted_room *)(const void *)room;
    if (*self->taken + bytes > self->left)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "no room");
    *self->taken += bytes;
    return true;
}

static void give(const struct td_body_room *room)
{
    *((const struct counted_room *)(const void *)room)->taken = 0;
}

static uint64_t taken_bytes;

static struct counted_room room_of(uint64_t most, uint64_t left)
{
    taken_bytes = 0;
    return (struct counted_room){
        .room = {.most_bytes = most, .take = take, .give = give}, .taken = &taken_bytes, .left = left};
}

/* Appends a member that zlib makes, with a name and a comment in its header. */
static void pack_by_zlib(struct td_buffer *out, const char *text, size_t len, int level)
{
    enum { GZIP = 16, LONGER = 1024 };
    z_stream stream = {0};
    Bytef name[] = "name", comment[] = "comment", extra[] = "extra";
    gz_header header = {.name = name, .comment = comment, .extra = extra, .extra_len = sizeof extra, .hcrc = 1};
    assert_int_equal(deflateInit2(&stream, level, Z_DEFLATED, MAX_WBITS + GZIP, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflateSetHeader(&stream, &header), Z_OK);
    size_t most = deflateBound(&stream, len) + LONGER;
    assert_true(td_buffer_reserve(out, most));
    stream.next_in = (Bytef *)(uintptr_t)text;
    stream.avail_in = (uInt)len;
    stream.next_out = (Bytef *)out->data + out->len;
    stream.avail_out = (uInt)most;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    out->len += most - stream.avail_out;
    (void)deflateEnd(&stream);
}

static void pack_by_libdeflate(struct td_buffer *out, const char *text, size_t len, int level)
{
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(level);
    assert_non_null(compressor);
    size_t most = libdeflate_gzip_compress_bound(compressor, len);
    assert_true(td_buffer_reserve(out, most));
    size_t made = libdeflate_gzip_compress(compressor, text, len, out->data + out->len, most);
    assert_true(made > 0);
    out->len += made;
    libdeflate_free_compressor(compressor);
}

/* Fills the text with bytes that pack to about half. */
static void fill(char *text, size_t len)
{
    uint32_t state = 1;
    for (size_t i = 0; i < len; i++) {
        state = state * 1664525 + 1013904223;
        text[i] = (char)(state >> 28);
    }
}

static void check_whole(const struct td_buffer *packed, const char *text, size_t len)
{
    struct td_error err = TD_ERROR_INIT;
    struct counted_room room = room_of(MOST, MOST);
    char *out = NULL;
    size_t out_len = 0;
    bool ok = td_gunzip_whole(td_buffer_text(packed), &room.room, &out, &out_len, &err);
    CHECK(ok, "%s", err.message);
    assert_true(out_len == len && (len == 0 || memcmp(out, text, len) == 0));
    assert_true(taken_bytes >= len && taken_bytes <= (len < 100 ? 400 : 4 * len + 4 * packed->len));
    free(out);
}

static void what_others_pack_is_unpacked(void **state)
{
    (void)state;
    static char text[LONG];
    static const size_t lengths[] = {0, 1, 20, 8191, 8192, 8193, 65536, 65537, LONG};
    struct td_buffer packed;
    fill(text, sizeof text);
    td_buffer_init(&packed);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        for (int level = 0; level <= 9; level += 3) {
            td_buffer_clear(&packed);
            pack_by_zlib(&packed, text, lengths[i], level);
            check_whole(&packed, text, lengths[i]);
            td_buffer_clear(&packed);
            pack_by_libdeflate(&packed, text, lengths[i], level);
            check_whole(&packed, text, lengths[i]);
        }
    }
    td_buffer_fini(&packed);
}

static void members_follow_one_another(void **state)
{
    (void)state;
    static char text[LONG];
    struct td_buffer packed;
    fill(text, sizeof text);
    td_buffer_init(&packed);
    for (size_t at = 0; at < LONG; at += LONG / 10) {
        pack_by_zlib(&packed, text + at, LONG / 20, 6);
        pack_by_zlib(&packed, text, 0, 6);
        pack_by_libdeflate(&packed, text + at + LONG / 20, LONG / 20, 1);
    }
    check_whole(&packed, text, LONG);
    td_buffer_fini(&packed);
}

static bool append(void *context, const void *bytes, size_t len, struct td_error *err)
{
    (void)err;
    td_buffer_append(context, bytes, len);
    return true;
}

/* Unpacks the text in pieces of this length. */
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

static void pieces_may_have_any_length(void **state)
{
    (void)state;
    static char text[20000];
    static const size_t pieces[] = {1, 2, 3, 17, 1000, 100000};
    struct td_buffer packed, out;
    fill(text, sizeof text);
    td_buffer_init(&packed);
    td_buffer_init(&out);
    pack_by_zlib(&packed, text, 15000, 6);
    pack_by_libdeflate(&packed, text + 15000, 5000, 6);
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        struct td_error err = TD_ERROR_INIT;
        td_buffer_clear(&out);
        assert_true(unpack_pieces(td_buffer_text(&packed), pieces[i], &out, &err));
        assert_true(out.len == sizeof text && memcmp(out.data, text, out.len) == 0);
    }
    struct td_error err = TD_ERROR_INIT;
    td_buffer_clear(&out);
    assert_true(unpack_pieces(TD_TEXT(""), 1, &out, &err) && out.len == 0); /* no bytes at all */
    td_buffer_fini(&packed);
    td_buffer_fini(&out);
}

/* Every cut and every changed bit is noticed, but where it says nothing about the content: in the header's time, extra
 * flags and system (RFC 1952 section 2.3.1), and in the padding after the last block. */
static void damage_is_noticed(void **state)
{
    (void)state;
    char text[500];
    struct td_buffer packed;
    struct counted_room room = room_of(MOST, MOST);
    size_t accepted = 0;
    td_buffer_init(&packed);
    fill(text, sizeof text);
    pack_by_libdeflate(&packed, text, sizeof text, 6);
    for (size_t at = 0; at < packed.len; at++) {
        char *out = NULL;
        size_t len = 0;
        struct td_error err = TD_ERROR_INIT, cut = TD_ERROR_INIT;
        if (at > 0) {
            assert_false(td_gunzip_whole(td_text_n(packed.data, at), &room.room, &out, &len, &cut));
            assert_int_equal(cut.code, TD_INVALID_ARGUMENT);
        }
        give(&room.room);
        packed.data[at] = (char)(packed.data[at] ^ 0x20);
        bool ok = td_gunzip_whole(td_buffer_text(&packed), &room.room, &out, &len, &err);
        CHECK(ok || err.code == TD_INVALID_ARGUMENT, "byte %zu: %s", at, err.message);
        if (ok) {
            CHECK(len == sizeof text && memcmp(out, text, len) == 0, "byte %zu", at);
            free(out);
            accepted++;
        }
        packed.data[at] = (char)(packed.data[at] ^ 0x20);
        give(&room.room);
    }
    assert_in_range(accepted, 6, 7);
    td_buffer_putc(&packed, '\0');
    struct td_error err = TD_ERROR_INIT;
    char *out = NULL;
    size_t len = 0;
    assert_false(td_gunzip_whole(td_buffer_text(&packed), &room.room, &out, &len, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_buffer_fini(&packed);
}

/* 1 KiB that would unpack to 1 MiB stops at the limit, and never takes more than it. */
/* shows: security.md client-bodies */
static void the_limit_holds(void **state)
{
    (void)state;
    static char zeros[MOST];
    struct td_buffer packed;
    td_buffer_init(&packed);
    pack_by_libdeflate(&packed, zeros, MOST, 9);
    assert_true(packed.len < 2000);
    for (uint64_t most = MOST - 1; most > 0; most /= 3) {
        struct td_error err = TD_ERROR_INIT;
        struct counted_room room = room_of(most, UINT64_MAX);
        char *out = NULL;
        size_t len = 0;
        assert_false(td_gunzip_whole(td_buffer_text(&packed), &room.room, &out, &len, &err));
        assert_int_equal(err.code, TD_FAILED_PRECONDITION);
        assert_true(taken_bytes <= most);
    }
    struct td_error err = TD_ERROR_INIT;
    struct counted_room room = room_of(MOST, MOST);
    char *out = NULL;
    size_t len = 0;
    assert_true(td_gunzip_whole(td_buffer_text(&packed), &room.room, &out, &len, &err));
    assert_true(len == MOST && taken_bytes == MOST);
    free(out);
    room = room_of(MOST, MOST / 2);
    assert_false(td_gunzip_whole(td_buffer_text(&packed), &room.room, &out, &len, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    td_buffer_fini(&packed);
}

/* A thread that must not wait unpacks a little, and leaves the rest to another one. */
static void long_work_waits(void **state)
{
    (void)state;
    static char text[LONG];
    static const struct {
        size_t len;
        int level;
        bool is_refused;
    } cases[] = {{0, 6, false}, {60000, 9, false}, {70000, 9, true}, {20000, 0, true}, {100, 0, false}};
    struct td_buffer packed;
    td_buffer_init(&packed);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_error err = TD_ERROR_INIT;
        struct counted_room room = room_of(MOST, MOST);
        char *out = NULL;
        size_t len = 0;
        td_buffer_clear(&packed);
        pack_by_libdeflate(&packed, text, cases[i].len, cases[i].level);
        td_waiting_forbid();
        bool ok = td_gunzip_whole(td_buffer_text(&packed), &room.room, &out, &len, &err);
        CHECK(td_waiting_allow() == cases[i].is_refused && ok != cases[i].is_refused, "case %zu", i);
        if (ok)
            free(out);
    }
    td_buffer_fini(&packed);
}

static void without_memory_nothing_leaks(void **state)
{
    (void)state;
    static char text[LONG];
    struct td_buffer packed;
    struct alloc_trials trials = {0};
    fill(text, sizeof text);
    td_buffer_init(&packed);
    pack_by_zlib(&packed, text, LONG, 6);
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        struct counted_room room = room_of(MOST, MOST);
        char *out = NULL;
        size_t len;
        bool ok = td_gunzip_whole(td_buffer_text(&packed), &room.room, &out, &len, &err);
        alloc_tried(&trials, ok, &err);
        if (ok)
            free(out);
    }
    assert_true(trials.k > 3);
    td_buffer_fini(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_pack_is_unpacked),
        cmocka_unit_test(members_follow_one_another),
        cmocka_unit_test(pieces_may_have_any_length),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(the_limit_holds),
        cmocka_unit_test(long_work_waits),
        cmocka_unit_test(without_memory_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
