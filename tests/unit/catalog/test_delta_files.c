/* The readers of deltas. Frames come from libzstd's writer; sums from the specifications. test_apply.py has the
 * command, fuzz_delta.c all kinds of wrong bytes. */
#include "catalog/delta/delta_frame.h"
#include "catalog/delta/delta_index.h"
#include "catalog/delta/delta_patch.h"
#include "core/digits.h"
#include "tests/unit/alloc_trials.h"

#include <zstd.h>

enum { CONTENT_BYTES = 3 * 1024 * 1024 + 17 }; /* more than the windows of the reader */

/* A tensor in memory, and a frame with its change. */
struct scene {
    uint8_t *old, *new, *content, *frame; /* owned */
    size_t frame_len;
    struct td_input input;
    size_t fails_after; /* the number of reads and writes after which one fails; SIZE_MAX: none does */
    char sum[TD_DELTA_SUM_TEXT_BYTES];
};

static void write_sum(enum td_delta_sum_kind kind, const void *bytes, size_t len, char text[TD_DELTA_SUM_TEXT_BYTES])
{
    struct td_delta_sum *sum = td_delta_sum_create(kind);
    assert_non_null(sum);
    for (size_t i = 0; i < len; i += 1000) /* in pieces */
        td_delta_sum_add(sum, (const uint8_t *)bytes + i, len - i < 1000 ? len - i : 1000);
    td_delta_sum_write(sum, text);
    td_delta_sum_free(sum);
}

/* Makes the scene's frame of `len` bytes of its content. */
static void compress_content(struct scene *scene, size_t len)
{
    scene->frame_len = ZSTD_compress(scene->frame, ZSTD_compressBound(CONTENT_BYTES), scene->content, len, 1);
    assert_false(ZSTD_isError(scene->frame_len));
    scene->input = td_input_memory(scene->frame, scene->frame_len);
}

static void open_scene(struct scene *scene)
{
    scene->old = malloc(CONTENT_BYTES);
    scene->new = malloc(CONTENT_BYTES);
    scene->content = malloc(CONTENT_BYTES);
    scene->frame = malloc(ZSTD_compressBound(CONTENT_BYTES));
    assert_true(scene->old != NULL && scene->new != NULL && scene->content != NULL && scene->frame != NULL);
    for (size_t i = 0; i < CONTENT_BYTES; i++) {
        scene->old[i] = (uint8_t)(i * 31 >> 3);
        scene->content[i] = i % 100 == 0 ? (uint8_t)(i / 100) : 0;
        scene->new[i] = (uint8_t)(scene->old[i] ^ scene->content[i]);
    }
    scene->fails_after = SIZE_MAX;
    write_sum(TD_DELTA_SUM_XXH3_128, scene->new, CONTENT_BYTES, scene->sum);
    compress_content(scene, CONTENT_BYTES);
}

static void close_scene(struct scene *scene)
{
    free(scene->old);
    free(scene->new);
    free(scene->content);
    free(scene->frame);
}

FIXTURE(scene, struct scene, open_scene, close_scene)

/* ---- sums ---------------------------------------------------------------------------------------------- */

static void sums_are_those_of_the_specifications(void **state)
{
    (void)state;
    char text[TD_DELTA_SUM_TEXT_BYTES];
    write_sum(TD_DELTA_SUM_ADLER32, "", 0, text);
    assert_string_equal(text, "00000001"); /* RFC 1950: s1 begins as 1 */
    write_sum(TD_DELTA_SUM_ADLER32, "Wikipedia", 9, text);
    assert_string_equal(text, "11e60398");
    write_sum(TD_DELTA_SUM_XXH3_128, "", 0, text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f"); /* xxHash's own test of the empty input */
    enum td_delta_sum_kind kind = TD_DELTA_SUM_ADLER32;
    assert_true(td_delta_sum_find(TD_TEXT("xxh3-128"), &kind) && kind == TD_DELTA_SUM_XXH3_128);
    assert_true(td_delta_sum_find(TD_TEXT("adler32"), &kind) && kind == TD_DELTA_SUM_ADLER32);
    assert_false(td_delta_sum_find(TD_TEXT("blake3"), &kind) || td_delta_sum_find(TD_TEXT(""), &kind));
    assert_true(td_delta_sum_is_text(TD_DELTA_SUM_ADLER32, TD_TEXT("11e60398")));
    assert_false(td_delta_sum_is_text(TD_DELTA_SUM_ADLER32, TD_TEXT("11E60398")));
    assert_false(td_delta_sum_is_text(TD_DELTA_SUM_ADLER32, TD_TEXT("1e60398")));
    assert_false(td_delta_sum_is_text(TD_DELTA_SUM_XXH3_128, TD_TEXT("11e60398")));
}

/* ---- frames -------------------------------------------------------------------------------------------- */

static void a_frame_is_read_in_any_pieces(void **state)
{
    struct scene *scene = *state;
    static const size_t pieces[] = {1, 2, 1000, 131072, 1048576, 0, 7};
    struct td_delta_frame *frame;
    struct td_error err = TD_ERROR_INIT;
    uint8_t *out = malloc(CONTENT_BYTES);
    size_t off = 0;
    assert_non_null(out);
    assert_true(td_delta_frame_open(&scene->input, 0, scene->frame_len, CONTENT_BYTES, &frame, &err));
    for (size_t i = 0; off < CONTENT_BYTES; i++) {
        size_t n = pieces[i % COUNT_OF(pieces)];
        n = n < CONTENT_BYTES - off ? n : CONTENT_BYTES - off;
        CHECK(td_delta_frame_read(frame, out + off, n, &err), "%s", err.message);
        off += n;
    }
    assert_true(td_delta_frame_end(frame, &err));
    assert_memory_equal(out, scene->content, CONTENT_BYTES);
    td_delta_frame_close(frame);
    free(out);
}

static void each_cut_of_a_frame_is_an_error(void **state)
{
    struct scene *scene = *state;
    compress_content(scene, 5000);
    uint8_t out[5000];
    for (size_t len = 0; len < scene->frame_len; len++) {
        struct td_delta_frame *frame = NULL;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_delta_frame_open(&scene->input, 0, len, sizeof out, &frame, &err) &&
                  td_delta_frame_read(frame, out, sizeof out, &err) && td_delta_frame_end(frame, &err);
        CHECK(!ok && err.code == TD_INVALID_ARGUMENT, "%zu of %zu bytes", len, scene->frame_len);
        td_delta_frame_close(frame);
    }
}

/* Opens a header alone, which zeros follow. */
static void open_header(const char *hex, uint64_t most_bytes, struct td_error *err)
{
    uint8_t bytes[32] = {0x28, 0xb5, 0x2f, 0xfd};
    struct td_delta_frame *frame;
    size_t len = 4;
    for (; hex[0] != '\0'; hex += 2)
        assert_true(td_hex_read_bytes(td_text_n(hex, 2), &bytes[len++], 1));
    const struct td_input input = td_input_memory(bytes, sizeof bytes);
    td_error_init(err);
    assert_true(td_delta_frame_open(&input, 0, sizeof bytes, most_bytes, &frame, err) == (err->code == TD_OK));
    td_delta_frame_close(frame);
}

/* RFC 8878, section 3.1.1.1: descriptor, window, dictionary, content size. */
static void headers_of_frames(void **state)
{
    (void)state;
    static const struct {
        const char *hex;
        uint64_t most_bytes;
        const char *says; /* NULL: accepted */
    } cases[] = {
        {"0000", 10, NULL},                          /* a window of 1 KiB */
        {"0088", 10, NULL},                          /* 128 MiB */
        {"0089", 10, "needs a window of 150994944"}, /* 144 MiB */
        {"00ff", 10, "needs a window of 4123168604160"},
        {"0089", 150994944, NULL}, /* as long as the tensor */
        {"0089", 150994943, "needs a window"},
        {"200a", 10, NULL}, /* one segment of 10 bytes */
        {"200b", 10, "has 11 bytes, more than the 10 expected"},
        {"6000ff", 65536, NULL}, /* two bytes, and 256 more */
        {"6000ff", 65535, "has 65536 bytes, more than the 65535 expected"},
        {"60ffff", 65535, "has 65791 bytes"},
        {"a0ffffffff", 4294967295, NULL},
        {"e0ffffffffffffffff", 4294967295, "has 18446744073709551615 bytes"},
        {"210100", 10, "needs a dictionary"},
        {"2100", 10, NULL},                           /* no dictionary, written as a number */
        {"08", 10, "do not begin with a zstd frame"}, /* a reserved bit */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_error err;
        open_header(cases[i].hex, cases[i].most_bytes, &err);
        if (cases[i].says == NULL)
            CHECK(err.code == TD_OK, "%s: %s", cases[i].hex, err.message);
        else
            CHECK(strstr(err.message, cases[i].says) != NULL, "%s: %s", cases[i].hex, err.message);
    }
}

/* ---- patches ------------------------------------------------------------------------------------------- */

/* Fails when it is the turn of this call. */
static bool may_go(struct scene *scene, struct td_error *err)
{
    if (scene->fails_after == 0)
        return td_error_set(err, TD_IO, "the disk failed");
    scene->fails_after--;
    return true;
}

static bool read_old(void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct scene *scene = context;
    memcpy(out, scene->old + off, len);
    return may_go(scene, err);
}

static bool write_new(void *context, uint64_t off, const void *bytes, size_t len, struct td_error *err)
{
    struct scene *scene = context;
    memcpy(scene->old + off, bytes, len);
    return may_go(scene, err);
}

static struct td_delta_patch patch_of(const struct scene *scene, enum td_delta_encoding encoding)
{
    return (struct td_delta_patch){.input = &scene->input,
                                   .len = scene->frame_len,
                                   .encoding = encoding,
                                   .sum_kind = TD_DELTA_SUM_XXH3_128,
                                   .sum = td_text_of(scene->sum)};
}

static bool apply(struct scene *scene, enum td_delta_encoding encoding, uint64_t nbytes, struct td_error *err)
{
    const struct td_delta_patch patch = patch_of(scene, encoding);
    const struct td_delta_tensor tensor = {.nbytes = nbytes, .read = read_old, .write = write_new, .context = scene};
    return td_delta_patch_apply(&patch, &tensor, err);
}

/* Makes a frame that overwrites every 100th byte with the new one, from the last to the first. */
static void compress_overwrite(struct scene *scene)
{
    uint32_t count = (CONTENT_BYTES + 99) / 100;
    uint8_t *at = scene->content;
    uint32_t number = count;
    for (uint32_t i = 0; i <= count; i++) {
        for (int j = 0; j < 4; j++)
            *at++ = (uint8_t)(number >> (8 * j));
        number = (count - 1 - i) * 100;
    }
    for (uint32_t i = 0; i < count; i++)
        *at++ = scene->new[(size_t)(count - 1 - i) * 100];
    compress_content(scene, (size_t)(at - scene->content));
}

static void xor_and_overwrite_make_the_new_bytes(void **state)
{
    struct scene *scene = *state;
    struct td_error err = TD_ERROR_INIT;
    CHECK(apply(scene, TD_DELTA_XOR, CONTENT_BYTES, &err), "%s", err.message);
    assert_memory_equal(scene->old, scene->new, CONTENT_BYTES);
    for (size_t i = 0; i < CONTENT_BYTES; i++)
        scene->old[i] ^= scene->content[i];
    compress_overwrite(scene);
    for (int twice = 0; twice < 2; twice++) {
        CHECK(apply(scene, TD_DELTA_OVERWRITE, CONTENT_BYTES, &err), "%s", err.message);
        assert_memory_equal(scene->old, scene->new, CONTENT_BYTES);
    }
}

static void a_disk_that_fails_ends_it(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 8; i++) { /* four windows, each read and written */
        struct td_error err = TD_ERROR_INIT;
        scene->fails_after = i;
        CHECK(!apply(scene, TD_DELTA_XOR, CONTENT_BYTES, &err) && err.code == TD_IO, "call %zu: %s", i, err.message);
    }
    compress_overwrite(scene);
    for (size_t i = 0; i < 8; i++) {
        struct td_error err = TD_ERROR_INIT;
        scene->fails_after = i;
        CHECK(!apply(scene, TD_DELTA_OVERWRITE, CONTENT_BYTES, &err) && err.code == TD_IO, "call %zu", i);
    }
}

static void a_tensor_of_4_gib_has_no_overwrite(void **state)
{
    struct scene *scene = *state;
    struct td_error err = TD_ERROR_INIT;
    const struct td_delta_patch patch = patch_of(scene, TD_DELTA_OVERWRITE);
    assert_true(td_delta_patch_check(&patch, UINT32_MAX, &err));
    assert_false(td_delta_patch_check(&patch, UINT64_C(1) << 32, &err));
    assert_non_null(strstr(err.message, "4 GiB"));
}

static void memory_that_is_short_is_an_error(void **state)
{
    struct scene *scene = *state;
    for (int encoding = 0; encoding < 2; encoding++) {
        struct alloc_trials trials = {0};
        while (alloc_try(&trials)) {
            struct td_error err = TD_ERROR_INIT;
            bool ok = apply(scene, encoding == 0 ? TD_DELTA_XOR : TD_DELTA_OVERWRITE, CONTENT_BYTES, &err);
            alloc_tried(&trials, ok, &err);
            for (size_t i = 0; ok && encoding == 0 && i < CONTENT_BYTES; i++)
                scene->old[i] ^= scene->content[i];
        }
        assert_true(trials.failed >= 3);
        compress_overwrite(scene);
    }
}

/* ---- indexes ------------------------------------------------------------------------------------------- */

static void metadata_of_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says; /* the version, or NULL and the fault */
        bool ok;
    } cases[] = {
        {"{\"metadata\":{\"version\":\"000001\"},\"weight_map\":{}}", "000001", true},
        {"{\"weight_map\":{},\"metadata\":{\"a\":{\"version\":\"2\"},\"version\":7}}", "7", true},
        {"{\"weight_map\":{},\"metadata\":{\"vers\\u0069on\":\"\\u20ac\"}}", "\xe2\x82\xac", true},
        {"{\"weight_map\":{},\"metadata\":null}", NULL, true},
        {"{\"weight_map\":{}}", NULL, true},
        {"{\"weight_map\":{},\"metadata\":[]}", "must be an object", false},
        {"{\"weight_map\":{},\"metadata\":{\"version\":\"\"}}", "must be a text", false},
        {"{\"weight_map\":{},\"metadata\":{\"version\":null}}", "must be a text", false},
        {"{\"weight_map\":{},\"metadata\":{\"version\":[\"1\"]}}", "must be a text", false},
        {"{\"weight_map\":{},\"metadata\":{\"version\":\"\\u0000\"}}", "NUL", false},
        {"{\"weight_map\":{},\"metadata\":{\"version\":\"1\",\"version\":\"1\"}}", "twice", false},
        {"{\"metadata\":{},\"weight_map\":{},\"metadata\":{}}", "twice", false},
        {"{\"metadata\":{\"version\":\"1\"}}", "weight_map is missing", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_delta_index index;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_delta_index_parse(&index, td_text_of(cases[i].text), &err);
        CHECK(ok == cases[i].ok, "%s: %s", cases[i].text, err.message);
        if (!ok && cases[i].says != NULL)
            CHECK(strstr(err.message, cases[i].says) != NULL, "%s: %s", cases[i].text, err.message);
        else if (cases[i].says == NULL || index.version == NULL)
            CHECK(cases[i].says == index.version, "%s", cases[i].text);
        else
            CHECK(strcmp(index.version, cases[i].says) == 0, "%s", cases[i].text);
        td_delta_index_fini(&index);
    }
}

static void a_rewritten_index_is_that_of_a_full_version(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"{\"weight_map\":{}}", "{\"weight_map\":{},\"metadata\":{\"version\":\"9\"}}\n"},
        {"{ \"metadata\" : null , \"weight_map\" : { \"a\" : \"b\" } }",
         "{\"metadata\":{\"version\":\"9\"},\"weight_map\" : { \"a\" : \"b\" }}\n"},
        {"{\"metadata\":{\"version\":\"8\",\"total_size\":1e400,\"checksum_format\":\"adler32\"},\"weight_map\":{}}",
         "{\"metadata\":{\"total_size\":1e400,\"version\":\"9\"},\"weight_map\":{}}\n"},
        {"{\"x\":[1, 2],\"weight_map\":{},\"metadata\":{}}",
         "{\"x\":[1, 2],\"weight_map\":{},\"metadata\":{\"version\":\"9\"}}\n"},
    };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        struct td_buffer out;
        td_buffer_init(&out);
        td_delta_index_rewrite(td_text_of(pairs[i][0]), "9", &out);
        assert_string_equal(td_buffer_terminate(&out), pairs[i][1]);
        td_buffer_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_specifications),
        TEST_IN(scene, a_frame_is_read_in_any_pieces),
        TEST_IN(scene, each_cut_of_a_frame_is_an_error),
        cmocka_unit_test(headers_of_frames),
        TEST_IN(scene, xor_and_overwrite_make_the_new_bytes),
        TEST_IN(scene, a_disk_that_fails_ends_it),
        TEST_IN(scene, a_tensor_of_4_gib_has_no_overwrite),
        TEST_IN(scene, memory_that_is_short_is_an_error),
        cmocka_unit_test(metadata_of_indexes),
        cmocka_unit_test(a_rewritten_index_is_that_of_a_full_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
