#include "storage/decoded.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const uint64_t file_number = 1;

/* ---- stored bytes -------------------------------------------------------------------------------------- */

static struct td_blob *blob_of(const uint8_t *bytes, size_t len)
{
    struct td_blob *blob = NULL;
    char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    assert_true(td_blob_from_heap(copy, len, &blob, NULL));
    return blob;
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* Returns bytes that compress to about half. */
static uint8_t *fill(size_t len, uint32_t seed)
{
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i % 64 < 32 ? next_random(&seed) : i / 64);
    return bytes;
}

/* bits 15: a zlib stream; -15: a raw one. */
static uint8_t *deflate_all(const uint8_t *bytes, size_t len, int bits, size_t *out_len)
{
    z_stream s = {0};
    assert_int_equal(deflateInit2(&s, 6, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&s, (uLong)len) + 64;
    uint8_t *out = malloc(room);
    assert_non_null(out);
    s.next_in = (Bytef *)(uintptr_t)bytes;
    s.avail_in = (uInt)len;
    s.next_out = out;
    s.avail_out = (uInt)room;
    assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
    *out_len = room - s.avail_out;
    assert_int_equal(deflateEnd(&s), Z_OK);
    return out;
}

static int released;

static void release(void *context)
{
    (void)context;
    released++;
}

static bool open_blob(struct td_blob *source, const struct td_coding *coding, struct td_decode_cache *cache,
                      struct td_blob **out, struct td_error *err)
{
    struct td_decoded_owner owner = {.release = release};
    return td_blob_decoded(source, coding, file_number, cache, &owner, out, err);
}

struct stream {
    uint8_t *bytes;
    size_t len;
    struct td_blob *source;
    struct td_coding coding;
};

/* Returns a stream that begins at byte 7 of its file. */
static struct stream stream_create(size_t len, uint32_t seed)
{
    struct stream s = {.bytes = fill(len, seed), .len = len};
    size_t stored_len;
    uint8_t *stored = deflate_all(s.bytes, len, -15, &stored_len);
    uint8_t *file = malloc(stored_len + 10);
    assert_non_null(file);
    memset(file, 0xEE, stored_len + 10);
    memcpy(file + 7, stored, stored_len);
    s.source = blob_of(file, stored_len + 10);
    s.coding = (struct td_coding){.kind = TD_CODING_DEFLATE,
                                  .text = "",
                                  .size_bytes = len,
                                  .base = 3,
                                  .offset = 4,
                                  .stored_bytes = stored_len,
                                  .crc32 = (uint32_t)crc32_z(0, s.bytes, len)};
    free(file);
    free(stored);
    return s;
}

static void stream_destroy(struct stream *s)
{
    td_blob_unref(s->source);
    free(s->bytes);
}

static void check_range(struct td_blob *blob, const uint8_t *want, size_t off, size_t len)
{
    struct td_error err = TD_ERROR_INIT;
    uint8_t *got = malloc(len + 1);
    assert_non_null(got);
    CHECK(td_blob_read(blob, off, got, len, &err), "%zu+%zu: %s", off, len, err.message);
    CHECK(memcmp(got, want + off, len) == 0, "%zu+%zu", off, len);
    free(got);
}

static void check_ranges(struct td_blob *blob, const uint8_t *want, size_t len, size_t times, uint32_t seed)
{
    check_range(blob, want, 0, len);
    for (size_t i = 0; i < times && len > 0; i++) {
        size_t off = next_random(&seed) % len;
        check_range(blob, want, off, 1 + next_random(&seed) % (len - off));
    }
}

/* ---- streams ------------------------------------------------------------------------------------------- */

/* Reads whole parts and across their borders, also with too little memory to keep all parts. */
static void ranges_of_a_stream(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 1000, 1048575, 1048576, 1048577, 5000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct stream s = stream_create(sizes[i], (uint32_t)i);
        static const size_t memory[] = {TD_DECODE_MEMORY_BYTES, (size_t)3 * 1024 * 1024};
        for (size_t k = 0; k < COUNT_OF(memory); k++) {
            struct td_decode_cache cache;
            struct td_blob *blob;
            assert_true(td_decode_cache_init(&cache, memory[k], NULL));
            released = 0;
            assert_true(open_blob(s.source, &s.coding, &cache, &blob, NULL));
            assert_int_equal(blob->len_bytes, s.len);
            assert_true(td_blob_prepare(blob, 0, s.len, false, NULL));
            check_ranges(blob, s.bytes, s.len, 30, 5);
            assert_true(td_blob_unchanged(blob));
            assert_true(td_decode_cache_counts(&cache).used_bytes <= memory[k]);
            td_blob_unref(blob);
            assert_int_equal(released, 1);
            td_decode_cache_fini(&cache);
        }
        stream_destroy(&s);
    }
}

static bool has_states(struct td_decode_cache *cache, uint32_t coding)
{
    struct td_decode_key key = {.coding = coding, .part = TD_DECODE_INDEX};
    key.file = file_number;
    struct td_decoded_part *found = td_decode_cache_find(cache, &key);
    if (found != NULL)
        td_decode_cache_release(cache, found);
    return found != NULL;
}

/* A stream is first inflated in one go. When other parts evict its parts, zlib's states are kept to begin again
 * there. */
static void streams_take_turns(void **state)
{
    (void)state;
    enum { STREAMS = 3, MEMORY = 16 * 1024 * 1024, LEN = 5000000 };
    struct stream s[STREAMS];
    struct td_blob *blobs[STREAMS];
    struct td_decode_cache cache;
    assert_true(td_decode_cache_init(&cache, MEMORY, NULL));
    for (uint32_t i = 0; i < STREAMS; i++) {
        s[i] = stream_create(LEN, i + 1);
        s[i].coding.number = i;
        assert_true(open_blob(s[i].source, &s[i].coding, &cache, &blobs[i], NULL));
    }
    check_range(blobs[0], s[0].bytes, 0, LEN);
    check_range(blobs[0], s[0].bytes, LEN - 1000, 1000);
    assert_false(has_states(&cache, 0));
    struct td_decode_counts counts = td_decode_cache_counts(&cache);
    assert_int_equal(counts.misses, 1);
    assert_int_equal(counts.evictions, 0);
    assert_true(counts.hits >= 5 && counts.used_bytes >= LEN);
    uint32_t seed = 1;
    size_t with_states = 0;
    for (size_t i = 0; i < 60; i++) {
        size_t off = next_random(&seed) % LEN;
        size_t which = next_random(&seed) % STREAMS;
        check_range(blobs[which], s[which].bytes, off, 1 + next_random(&seed) % (LEN - off));
        with_states += has_states(&cache, (uint32_t)which);
        assert_true(td_decode_cache_counts(&cache).used_bytes <= MEMORY);
    }
    assert_true(with_states > 0);
    assert_true(td_decode_cache_counts(&cache).evictions > 0);
    for (size_t i = 0; i < STREAMS; i++) {
        td_blob_unref(blobs[i]);
        stream_destroy(&s[i]);
    }
    td_decode_cache_fini(&cache);
}

static void check_damage(struct td_blob *source, const struct td_coding *coding, const char *says)
{
    struct td_decode_cache cache;
    struct td_blob *blob;
    uint8_t byte;
    const uint64_t offs[] = {0, coding->size_bytes - 1};
    assert_true(td_decode_cache_init(&cache, TD_DECODE_MEMORY_BYTES, NULL));
    assert_true(open_blob(source, coding, &cache, &blob, NULL));
    for (size_t i = 0; i < 4; i++) {
        struct td_error err = TD_ERROR_INIT;
        CHECK(!td_blob_read(blob, offs[i % 2], &byte, 1, &err), "%s", says);
        CHECK(err.code == TD_FAILED_PRECONDITION && strstr(err.message, says) != NULL, "\"%s\", not \"%s\"",
              err.message, says);
    }
    td_blob_unref(blob);
    td_decode_cache_fini(&cache);
}

/* Wrong sizes in the directory, damaged bytes and a bomb are errors without a byte of output. */
/* shows: security.md content-unpacked-size */
static void streams_are_what_they_say(void **state)
{
    (void)state;
    struct stream s = stream_create(2500000, 1);
    struct td_coding lie = s.coding;
    lie.size_bytes -= 1;
    check_damage(s.source, &lie, "unpack to more");
    lie.size_bytes += 2;
    check_damage(s.source, &lie, "unpack to fewer");
    lie = s.coding;
    lie.crc32 ^= 1;
    check_damage(s.source, &lie, "CRC");
    lie = s.coding;
    lie.stored_bytes -= 1;
    check_damage(s.source, &lie, "have no end");
    lie.stored_bytes /= 2;
    check_damage(s.source, &lie, "too early");
    lie.stored_bytes = s.coding.stored_bytes + 1;
    check_damage(s.source, &lie, "end before the stored bytes do");
    lie.stored_bytes = UINT64_MAX;
    check_damage(s.source, &lie, "outside of the file");
    lie = s.coding;
    lie.base = UINT64_MAX;
    check_damage(s.source, &lie, "outside of the file");
    lie = s.coding;
    lie.offset += 1;
    check_damage(s.source, &lie, "");
    uint32_t seed = 1;
    for (size_t i = 0; i < 60; i++) { /* any flipped bit: the CRC finds those that inflate does not */
        uint8_t *bytes = (uint8_t *)(uintptr_t)s.source->bytes;
        size_t at = 7 + next_random(&seed) % (size_t)s.coding.stored_bytes;
        uint8_t bit = (uint8_t)(1U << next_random(&seed) % 8);
        bytes[at] ^= bit;
        check_damage(s.source, &s.coding, "");
        bytes[at] ^= bit;
    }
    stream_destroy(&s);
}

/* Inflating 4 MB of zeros with a stated size of 100 bytes stops at 100 bytes. */
static void a_bomb_stops_at_its_size(void **state)
{
    (void)state;
    size_t stored_len;
    uint8_t *zeros = calloc(1, 4000000);
    uint8_t *stored = deflate_all(zeros, 4000000, -15, &stored_len);
    struct td_blob *source = blob_of(stored, stored_len);
    struct td_coding coding = {.kind = TD_CODING_DEFLATE, .text = "", .size_bytes = 100, .stored_bytes = stored_len};
    alloc_count_start();
    check_damage(source, &coding, "unpack to more");
    CHECK(alloc_count_get().peak_bytes < 400000, "%zu bytes", alloc_count_get().peak_bytes);
    free(zeros);
    free(stored);
    td_blob_unref(source);
}

/* ---- chunks -------------------------------------------------------------------------------------------- */

/* An array of 4-byte elements in chunks, stored as by a writer. */
struct chunked {
    uint8_t *bytes; /* row-major */
    size_t len;
    struct td_blob *source;
    struct td_coding coding;
    struct td_coding_chunk chunks[64];
    uint64_t shape[4], chunk_shape[4];
};

static const uint8_t fill_value[] = {1, 2, 3, 4};

static size_t product(const uint64_t *sizes, uint32_t rank)
{
    size_t n = 1;
    for (uint32_t i = 0; i < rank; i++)
        n *= (size_t)sizes[i];
    return n;
}

static uint64_t along(const struct chunked *c, uint32_t i)
{
    return (c->shape[i] - 1) / c->chunk_shape[i] + 1;
}

/* Copies elements one by one between the array and chunk `number`. */
static void copy_elements(const struct chunked *c, uint32_t rank, size_t number, uint8_t *chunk, bool to_array)
{
    uint64_t first[4];
    size_t n = number;
    for (uint32_t i = rank; i-- > 0; n /= along(c, i))
        first[i] = n % along(c, i) * c->chunk_shape[i];
    for (size_t e = 0; e < product(c->chunk_shape, rank); e++) {
        size_t at = 0;
        size_t rest = e;
        bool inside = true;
        uint64_t index[4];
        for (uint32_t i = rank; i-- > 0; rest /= c->chunk_shape[i])
            index[i] = first[i] + rest % c->chunk_shape[i];
        for (uint32_t i = 0; i < rank; i++) {
            inside = inside && index[i] < c->shape[i];
            at = at * (size_t)c->shape[i] + (size_t)index[i];
        }
        if (inside)
            memcpy(to_array ? c->bytes + 4 * at : chunk + 4 * e, to_array ? chunk + 4 * e : c->bytes + 4 * at, 4);
    }
}

/* Makes an array that lacks every 5th chunk. `filters` is 0, 1 (deflate) or 2 (shuffle, deflate); every 3rd chunk has
 * none. */
static struct chunked *chunked_create(const uint64_t *shape, const uint64_t *chunk_shape, uint32_t rank,
                                      unsigned filters)
{
    struct chunked *c = calloc(1, sizeof *c);
    assert_non_null(c);
    memcpy(c->shape, shape, rank * sizeof *shape);
    memcpy(c->chunk_shape, chunk_shape, rank * sizeof *shape);
    c->len = 4 * product(shape, rank);
    c->bytes = fill(c->len, rank);
    size_t chunk_len = 4 * product(chunk_shape, rank);
    size_t count = 1;
    size_t used = 11;
    for (uint32_t i = 0; i < rank; i++)
        count *= (size_t)along(c, i);
    assert_true(count <= COUNT_OF(c->chunks));
    uint8_t *file = malloc(count * (chunk_len + chunk_len / 4 + 2000));
    uint8_t *chunk = malloc(chunk_len);
    assert_non_null(file);
    assert_non_null(chunk);
    memset(file, 0xDD, used);
    for (size_t k = 0; k < count; k++) {
        if (k % 5 == 4) {
            for (size_t i = 0; i < chunk_len; i++)
                chunk[i] = fill_value[i % 4];
            copy_elements(c, rank, k, chunk, true);
            continue;
        }
        memset(chunk, 0x77, chunk_len);
        copy_elements(c, rank, k, chunk, false);
        bool plain = filters == 0 || k % 3 == 2;
        size_t stored_len = chunk_len;
        uint8_t *stored = chunk;
        uint8_t *shuffled = malloc(chunk_len);
        assert_non_null(shuffled);
        for (size_t i = 0; i < chunk_len; i++)
            shuffled[i % 4 * (chunk_len / 4) + i / 4] = chunk[i];
        if (!plain)
            stored = deflate_all(filters == 2 ? shuffled : chunk, chunk_len, 15, &stored_len);
        memcpy(file + used, stored, stored_len);
        c->chunks[c->coding.grid.chunk_count++] = (struct td_coding_chunk){
            .number = k, .offset = used, .bytes = (uint32_t)stored_len, .skipped_filters = plain ? 3 : 0};
        used += stored_len;
        free(shuffled);
        if (!plain)
            free(stored);
    }
    c->source = blob_of(file, used);
    free(file);
    free(chunk);
    c->coding.kind = TD_CODING_CHUNKS;
    c->coding.text = "";
    c->coding.size_bytes = c->len;
    c->coding.grid.rank = rank;
    c->coding.grid.elem_bytes = 4;
    c->coding.grid.shape = c->shape;
    c->coding.grid.chunk_shape = c->chunk_shape;
    c->coding.grid.fill = fill_value;
    c->coding.grid.chunks = c->chunks;
    c->coding.grid.filter_count = filters;
    c->coding.grid.filters[0].kind = filters == 2 ? TD_FILTER_SHUFFLE : TD_FILTER_DEFLATE;
    c->coding.grid.filters[0].elem_bytes = 4;
    c->coding.grid.filters[1].kind = TD_FILTER_DEFLATE;
    return c;
}

static void chunked_destroy(struct chunked *c)
{
    td_blob_unref(c->source);
    free(c->bytes);
    free(c);
}

static const struct {
    uint32_t rank;
    uint64_t shape[4], chunk_shape[4];
} grids[] = {
    {1, {100}, {7}},
    {1, {5}, {9}},
    {2, {20, 30}, {20, 30}},
    {2, {20, 30}, {6, 7}},
    {2, {20, 30}, {3, 30}},
    {2, {20, 30}, {30, 40}},
    {3, {5, 6, 7}, {2, 3, 4}},
    {3, {5, 6, 7}, {2, 6, 7}},
    {3, {5, 6, 7}, {1, 6, 3}},
    {4, {3, 4, 5, 2}, {2, 2, 3, 2}},
    {4, {2, 3, 1, 9}, {1, 2, 1, 4}},
};

static void ranges_of_chunks(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(grids); i++)
        for (unsigned filters = 0; filters < 3; filters++) {
            struct chunked *c = chunked_create(grids[i].shape, grids[i].chunk_shape, grids[i].rank, filters);
            struct td_decode_cache cache;
            struct td_blob *blob;
            assert_true(td_decode_cache_init(&cache, TD_DECODE_MEMORY_BYTES, NULL));
            assert_true(open_blob(c->source, &c->coding, &cache, &blob, NULL));
            check_ranges(blob, c->bytes, c->len, 300, (uint32_t)i);
            td_blob_unref(blob);
            td_decode_cache_fini(&cache);
            chunked_destroy(c);
        }
}

/* The checksum of the stream finds all flipped bits that inflating does not, except the padding bits of the last
 * byte. */
static void every_bit_changed(const struct chunked *c)
{
    uint8_t *bytes = (uint8_t *)(uintptr_t)c->source->bytes;
    size_t meaningless = 0;
    for (size_t bit = 0; bit < 8 * (size_t)c->chunks[0].bytes; bit++) {
        struct td_decode_cache cache;
        struct td_blob *blob;
        struct td_error err = TD_ERROR_INIT;
        uint8_t *got = malloc(c->len + 1);
        uint8_t *at = bytes + c->chunks[0].offset + bit / 8;
        *at ^= (uint8_t)(1U << bit % 8);
        assert_non_null(got);
        assert_true(td_decode_cache_init(&cache, TD_DECODE_MEMORY_BYTES, NULL));
        assert_true(open_blob(c->source, &c->coding, &cache, &blob, NULL));
        bool ok = td_blob_read(blob, 0, got, c->len, &err);
        CHECK(ok ? memcmp(got, c->bytes, c->len) == 0 : err.code == TD_FAILED_PRECONDITION, "bit %zu: %s", bit,
              err.message);
        meaningless += ok;
        td_blob_unref(blob);
        td_decode_cache_fini(&cache);
        *at ^= (uint8_t)(1U << bit % 8);
        free(got);
    }
    CHECK(meaningless < 8, "%zu bits", meaningless);
}

/* Wrong sizes, bytes outside the file, damaged streams. */
/* shows: security.md content-unpacked-size */
static void chunks_are_what_they_say(void **state)
{
    (void)state;
    const uint64_t shape[] = {40};
    struct chunked *c = chunked_create(shape, shape, 1, 1);
    struct td_coding *coding = &c->coding;
    struct td_coding_chunk was = c->chunks[0];
    c->chunks[0].bytes--;
    check_damage(c->source, coding, "damaged");
    c->chunks[0] = was;
    c->chunks[0].bytes = UINT32_MAX / 2;
    check_damage(c->source, coding, "more than the limit");
    c->chunks[0].bytes = 1000000;
    check_damage(c->source, coding, "outside of the file");
    c->chunks[0] = was;
    c->chunks[0].offset = UINT64_MAX - 1;
    check_damage(c->source, coding, "outside of the file");
    c->chunks[0] = was;
    c->chunks[0].offset--;
    check_damage(c->source, coding, "damaged");
    c->chunks[0] = was;
    c->chunk_shape[0] = 41; /* the stream is shorter */
    check_damage(c->source, coding, "damaged");
    c->shape[0] = c->chunk_shape[0] = 39; /* the stream is longer */
    coding->size_bytes = 156;
    check_damage(c->source, coding, "damaged");
    c->shape[0] = c->chunk_shape[0] = 40;
    coding->size_bytes = 160;
    every_bit_changed(c);
    coding->grid.filters[0].kind = TD_FILTER_LZF;
    check_damage(c->source, coding, "damaged");
    coding->grid.filters[0].kind = TD_FILTER_FLETCHER32;
    check_damage(c->source, coding, "damaged");
    coding->grid.filter_count = 2;
    coding->grid.filters[0].kind = coding->grid.filters[1].kind = TD_FILTER_DEFLATE;
    check_damage(c->source, coding, "damaged");
    chunked_destroy(c);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct stream s = stream_create(3000000, 9);
    const uint64_t shape[] = {20, 30};
    const uint64_t chunk_shape[] = {6, 7};
    struct chunked *c = chunked_create(shape, chunk_shape, 2, 2);
    for (size_t which = 0; which < 2; which++) {
        bool all_failed = false; /* every allocation has failed once */
        for (size_t k = 1; !all_failed; k++) {
            struct td_decode_cache cache;
            struct td_error err = TD_ERROR_INIT;
            struct td_blob *blob = NULL;
            uint8_t got[64];
            assert_true(td_decode_cache_init(&cache, TD_DECODE_MEMORY_BYTES, NULL));
            released = 0;
            alloc_count_start();
            alloc_fail_at(k);
            bool ok = open_blob(which == 0 ? s.source : c->source, which == 0 ? &s.coding : &c->coding, &cache, &blob,
                                &err) &&
                      td_blob_read(blob, which == 0 ? 2900000 : 1000, got, sizeof got, &err);
            alloc_fail_at(0);
            all_failed = alloc_count_get().calls < k;
            assert_true(ok || !all_failed);
            CHECK(ok || err.code == TD_RESOURCE_EXHAUSTED, "%zu: %s", k, err.message);
            CHECK(!ok || memcmp(got, which == 0 ? s.bytes + 2900000 : c->bytes + 1000, sizeof got) == 0, "%zu", k);
            td_blob_unref(blob);
            assert_int_equal(released, 1);
            td_decode_cache_fini(&cache);
        }
    }
    chunked_destroy(c);
    stream_destroy(&s);
}

/* ---- threads ------------------------------------------------------------------------------------------- */

/* A source that counts the bytes that are read of it. */
struct counting {
    struct td_blob blob;
    struct td_blob *source;
    _Atomic uint64_t read_bytes;
};

static bool counting_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct counting *c = (struct counting *)(void *)blob;
    atomic_fetch_add(&c->read_bytes, len);
    return td_blob_read(c->source, off, out, len, err);
}

static void keep(struct td_blob *blob)
{
    (void)blob;
}

static const struct td_blob_class counting_class = {.destroy = keep, .read = counting_read};

static void counting_init(struct counting *c, struct td_blob *source)
{
    *c = (struct counting){.blob = {.class = &counting_class, .refs = 1, .len_bytes = source->len_bytes},
                           .source = source};
}

enum { THREADS = 40, MEMORY = 4 * 1024 * 1024, ROUNDS = 4 };

struct reading {
    pthread_t thread;
    struct td_blob *blob;
    const uint8_t *want;
    uint64_t off;
    bool damaged;
    bool may_be_busy; /* memory is short, so that reading may fail */
    size_t wrong, right;
};

static void *read_in_turn(void *argument)
{
    struct reading *r = argument;
    for (size_t i = 0; i < ROUNDS; i++) {
        uint8_t got[1000];
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_blob_read(r->blob, r->off, got, sizeof got, &err);
        if (r->damaged)
            r->wrong += ok || err.code != TD_FAILED_PRECONDITION;
        else
            r->wrong += ok ? memcmp(got, r->want + r->off, sizeof got) != 0
                           : !r->may_be_busy || err.code != TD_RESOURCE_EXHAUSTED;
        r->right += ok;
        r->off += 1400000;
    }
    return NULL;
}

static void run_readings(struct reading *readings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&readings[i].thread, NULL, read_in_turn, &readings[i]), 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pthread_join(readings[i].thread, NULL), 0);
        CHECK(readings[i].wrong == 0, "reader %zu: %zu wrong", i, readings[i].wrong);
    }
}

/* Threads read ten tensors, every fourth of them damaged, with memory to make two. They make parts, wait for others,
 * wait for memory and fail. The memory stays within the limit. */
/* shows: security.md content-unpacked-readers */
static void memory_is_bounded_whoever_reads(void **state)
{
    (void)state;
    enum { TENSORS = 10, WAITER_BYTES = 2 * TD_DECODE_PART_BYTES };
    static struct td_decode_cache cache;
    static struct reading readings[THREADS];
    struct stream s = stream_create(6000000, 3);
    struct td_coding codings[TENSORS];
    assert_true(td_decode_cache_init(&cache, MEMORY, NULL));
    cache.wait_ms = cache.made_ms = 600000;
    for (uint32_t i = 0; i < TENSORS; i++) {
        codings[i] = s.coding;
        codings[i].number = i;
        codings[i].crc32 ^= i % 4 == 3;
    }
    for (size_t i = 0; i < THREADS; i++) {
        readings[i] =
            (struct reading){.want = s.bytes, .off = i * 1000, .damaged = i % TENSORS % 4 == 3, .may_be_busy = true};
        assert_true(open_blob(s.source, &codings[i % TENSORS], &cache, &readings[i].blob, NULL));
    }
    alloc_count_start();
    run_readings(readings, THREADS);
    struct alloc_count count = alloc_count_get();
    CHECK(count.peak_bytes < MEMORY + THREADS * WAITER_BYTES, "%zu bytes", count.peak_bytes);
    assert_true(td_decode_cache_counts(&cache).used_bytes <= MEMORY);
    size_t right = 0;
    for (size_t i = 0; i < THREADS; i++) {
        right += readings[i].right;
        td_blob_unref(readings[i].blob);
    }
    assert_true(right > THREADS);
    td_decode_cache_fini(&cache);
    stream_destroy(&s);
}

/* The stored bytes of a tensor with many readers are read once, in one go or part by part. Damaged bytes are read once
 * in each way that fits in memory. */
/* shows: security.md content-damaged-requests */
static void a_stream_is_inflated_once(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        unsigned damaged = i % 2;
        bool in_one_go = i / 2 == 0;
        static struct td_decode_cache cache;
        static struct reading readings[THREADS];
        struct stream s = stream_create(6000000, 5);
        struct counting source;
        counting_init(&source, s.source);
        s.coding.crc32 ^= damaged;
        assert_true(
            td_decode_cache_init(&cache, in_one_go ? (size_t)TD_DECODE_MEMORY_BYTES : (size_t)16 * 1024 * 1024, NULL));
        cache.wait_ms = cache.made_ms = 600000;
        for (size_t k = 0; k < THREADS; k++) {
            readings[k] = (struct reading){.want = s.bytes, .off = k * 1000, .damaged = damaged != 0};
            assert_true(open_blob(&source.blob, &s.coding, &cache, &readings[k].blob, NULL));
        }
        run_readings(readings, THREADS);
        uint64_t times = in_one_go && damaged ? 2 : 1;
        CHECK(source.read_bytes == times * s.coding.stored_bytes, "%llu bytes were read of %llu",
              (unsigned long long)source.read_bytes, (unsigned long long)s.coding.stored_bytes);
        for (size_t k = 0; k < THREADS; k++)
            td_blob_unref(readings[k].blob);
        td_decode_cache_fini(&cache);
        stream_destroy(&s);
    }
}

static bool always(void *context)
{
    (void)context;
    return true;
}

static bool from_third_time(void *context)
{
    int *times = context;
    return ++*times >= 3;
}

/* A cancelled request ends within a part and leaves nothing that would fail the next request. */
static void inflating_stops_when_nobody_waits(void **state)
{
    (void)state;
    struct stream s = stream_create(6000000, 6);
    struct td_decode_cache cache;
    struct counting source;
    struct td_blob *blob;
    struct td_error err = TD_ERROR_INIT;
    uint8_t byte;
    int times = 0;
    const struct td_cancel cancel = {.is_asked = from_third_time, .context = &times};
    struct td_decoded_owner owner = {.release = release, .cancel = &cancel};
    counting_init(&source, s.source);
    assert_true(td_decode_cache_init(&cache, (size_t)8 * 1024 * 1024, NULL)); /* too little to inflate in one go */
    assert_true(td_blob_decoded(&source.blob, &s.coding, file_number, &cache, &owner, &blob, NULL));
    assert_false(td_blob_read(blob, 5000000, &byte, 1, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    CHECK(source.read_bytes > 0 && source.read_bytes < s.coding.stored_bytes / 2, "%llu bytes",
          (unsigned long long)source.read_bytes);
    td_blob_unref(blob);
    assert_true(open_blob(s.source, &s.coding, &cache, &blob, NULL));
    check_ranges(blob, s.bytes, s.len, 5, 1);
    td_blob_unref(blob);
    td_decode_cache_fini(&cache);
    stream_destroy(&s);
}

/* An answer can need any number of parts, often repeatedly for a transposed tensor. A cancelled request makes no
 * further part but still reads cached parts. */
/* shows: security.md content-transposed */
static void no_part_is_made_when_nobody_waits(void **state)
{
    (void)state;
    struct stream s = stream_create(6000000, 6);
    struct td_decode_cache cache;
    struct counting source;
    struct td_blob *blob;
    struct td_error err = TD_ERROR_INIT;
    uint8_t byte;
    const struct td_cancel cancel = {.is_asked = always};
    struct td_decoded_owner owner = {.release = release, .cancel = &cancel};
    counting_init(&source, s.source);
    assert_true(td_decode_cache_init(&cache, (size_t)4 * 1024 * 1024, NULL)); /* too little for all parts */
    assert_true(open_blob(&source.blob, &s.coding, &cache, &blob, NULL));
    check_ranges(blob, s.bytes, s.len, 5, 1);
    assert_true(td_blob_read(blob, 5500000, &byte, 1, NULL));
    td_blob_unref(blob);
    uint64_t before = source.read_bytes;
    assert_true(td_blob_decoded(&source.blob, &s.coding, file_number, &cache, &owner, &blob, NULL));
    assert_true(td_blob_read(blob, 5500000, &byte, 1, NULL));
    assert_int_equal(byte, s.bytes[5500000]);
    size_t failed = 0;
    for (uint64_t off = 0; off < s.len; off += 500000) {
        bool ok = td_blob_read(blob, off, &byte, 1, &err);
        CHECK(ok ? byte == s.bytes[off] : err.code == TD_RESOURCE_EXHAUSTED, "%llu", (unsigned long long)off);
        failed += ok ? 0 : 1;
    }
    assert_true(failed > 0);
    assert_true(source.read_bytes == before);
    td_blob_unref(blob);
    td_decode_cache_fini(&cache);
    stream_destroy(&s);
}

/* Errors about stored bytes name the tensor and the file of the request, also when another request found them. */
static void damage_is_told_by_name(void **state)
{
    (void)state;
    struct stream s = stream_create(1000, 3);
    struct td_decode_cache cache;
    s.coding.crc32 ^= 1;
    assert_true(td_decode_cache_init(&cache, TD_DECODE_MEMORY_BYTES, NULL));
    for (size_t i = 0; i < 2; i++) {
        static const char *const files[] = {"a.npz", "link.npz"};
        struct td_decoded_owner owner = {.release = release, .tensor = "w", .file = files[i]};
        struct td_blob *blob;
        struct td_error err = TD_ERROR_INIT;
        uint8_t byte;
        char wanted[64];
        assert_true(td_blob_decoded(s.source, &s.coding, file_number, &cache, &owner, &blob, NULL));
        assert_false(td_blob_read(blob, 0, &byte, 1, &err));
        (void)snprintf(wanted, sizeof wanted, "tensor \"w\" of \"%s\": its deflated bytes", files[i]);
        assert_int_equal(err.code, TD_FAILED_PRECONDITION);
        CHECK(strncmp(err.message, wanted, strlen(wanted)) == 0, "%s", err.message);
        td_blob_unref(blob);
    }
    td_decode_cache_fini(&cache);
    stream_destroy(&s);
}

/* Bytes that change during a read look damaged; such an error is not kept. */
static bool never_unchanged(struct td_blob *blob)
{
    (void)blob;
    return false;
}

static void a_file_that_changes_is_no_damage(void **state)
{
    (void)state;
    struct stream s = stream_create(1000, 3);
    struct td_blob_class class = *s.source->class;
    struct td_decode_cache cache;
    struct td_blob *blob;
    struct td_error err = TD_ERROR_INIT;
    uint8_t byte;
    class.unchanged = never_unchanged;
    s.source->class = &class;
    s.coding.crc32 ^= 1;
    assert_true(td_decode_cache_init(&cache, TD_DECODE_MEMORY_BYTES, NULL));
    assert_true(open_blob(s.source, &s.coding, &cache, &blob, NULL));
    assert_false(td_blob_read(blob, 0, &byte, 1, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    assert_false(td_blob_unchanged(blob));
    td_blob_unref(blob);
    td_decode_cache_fini(&cache);
    stream_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_of_a_stream),
        cmocka_unit_test(streams_take_turns),
        cmocka_unit_test(streams_are_what_they_say),
        cmocka_unit_test(a_bomb_stops_at_its_size),
        cmocka_unit_test(ranges_of_chunks),
        cmocka_unit_test(chunks_are_what_they_say),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(memory_is_bounded_whoever_reads),
        cmocka_unit_test(a_stream_is_inflated_once),
        cmocka_unit_test(inflating_stops_when_nobody_waits),
        cmocka_unit_test(no_part_is_made_when_nobody_waits),
        cmocka_unit_test(damage_is_told_by_name),
        cmocka_unit_test(a_file_that_changes_is_no_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
