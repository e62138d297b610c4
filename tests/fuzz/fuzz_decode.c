/* Tensors that the server decodes. The input is a letter for the format and a whole file. Every tensor of the file that
 * is chunked, deflated, big-endian or strided is read whole and in windows, which must have the same bytes whatever
 * memory the cache has. Arrays in chunks are decoded a second time, element by element. The fuzzing build does not
 * compare checksums. */
#include "parser/gguf.h"
#include "parser/hdf5/hdf5.h"
#include "parser/npy.h"
#include "parser/npz.h"
#include "parser/torch/pt2.h"
#include "parser/torch/torch.h"
#include "storage/array_blob.h"
#include "storage/decoded.h"
#include "storage/decoded_chunks.h"

#include "tests/fuzz/fuzz_manifest.h"

/* Limits of the cost of one input. */
enum {
    MOST_TENSORS = 6,
    MOST_BYTES = 64 * 1024,
    MOST_STREAM_BYTES = 4 * 1024 * 1024, /* a stream of more than 1 MiB has several parts */
    MOST_CHUNK_BYTES = 256 * 1024,
    MOST_ELEMS = 2048, /* decoded one by one */
    WINDOWS = 8,
    MEMORY_BYTES = 64 * 1024 * 1024,
    SMALL_MEMORY_BYTES = 3 * 1024 * 1024, /* enough to decode within the limits above, but not to keep much */
};

static const struct td_format *choose(uint8_t letter)
{
    switch (letter) {
    case 'g':
        return &td_format_gguf;
    case 'n':
        return &td_format_npy;
    case 'z':
        return &td_format_npz;
    case 'p':
        return &td_format_pt2;
    case 't':
        return &td_format_torch;
    default:
        return &td_format_hdf5;
    }
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* ---- the tensor's blob, as rank/tensor_source makes it -------------------------------------------------- */

static void release(void *context)
{
    (void)context;
}

/* Replaces *blob by `made`, a blob over it, or by NULL when that could not be made. */
static void replace(bool ok, struct td_blob *made, struct td_blob **blob)
{
    td_blob_unref(*blob);
    *blob = ok ? made : NULL;
}

/* Returns the tensor's blob, or NULL when it cannot be opened. Sets *off to where its bytes begin. */
static struct td_blob *open_tensor(struct td_blob *file, const struct td_tensor *t, struct td_decode_cache *cache,
                                   uint64_t *off)
{
    static const uint64_t file_number = 1;
    struct td_blob *made = NULL;
    struct td_blob *blob = td_blob_ref(file);
    struct td_decoded_owner owner = {.release = release};
    struct td_swap order;
    *off = t->offset;
    if (t->coding != NULL) {
        bool ok = td_blob_decoded(blob, t->coding, file_number, cache, &owner, &made, NULL);
        replace(ok, made, &blob);
    }
    if (blob != NULL && t->strides != NULL) {
        bool ok = td_blob_strided(blob, *off, t->dtype->block_bytes, t->rank, t->shape, t->strides, &made, NULL);
        replace(ok, made, &blob);
        *off = 0;
    }
    if (blob != NULL && t->big_endian) {
        FUZZ_CHECK(td_dtype_swap(t->dtype, &order));
        bool ok = td_blob_swapped(blob, *off, t->nbytes, &order, &made, NULL);
        replace(ok, made, &blob);
        *off = 0;
    }
    return blob;
}

static bool read_range(struct td_blob *blob, uint64_t off, uint8_t *out, size_t len)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_blob_read(blob, off, out, len, &err))
        return true;
    FUZZ_CHECK(err.code == TD_FAILED_PRECONDITION); /* damaged: never out of memory, never "try again" */
    FUZZ_CHECK(err.message[0] != '\0' && td_utf8_valid(err.message, strlen(err.message)));
    return false;
}

/* ---- arrays in chunks, element by element -------------------------------------------------------------- */

static const struct td_coding_chunk *find_chunk(const struct td_coding_grid *grid, uint64_t number)
{
    for (size_t i = 0; i < grid->chunk_count; i++)
        if (grid->chunks[i].number == number)
            return &grid->chunks[i];
    return NULL;
}

/* Returns a decoded chunk, which the caller frees with free(), or NULL when it is damaged. */
static uint8_t *decode_chunk(struct td_blob *file, const struct td_coding *coding, const struct td_coding_chunk *chunk,
                             size_t chunk_bytes)
{
    const struct td_coding_grid *grid = &coding->grid;
    bool plain = true;
    for (uint32_t i = 0; i < grid->filter_count; i++)
        plain = plain && (chunk->skipped_filters >> i & 1) != 0;
    size_t len = plain ? chunk_bytes : chunk->bytes;
    uint64_t off = coding->base + chunk->offset;
    FUZZ_CHECK(off <= file->len_bytes && len <= file->len_bytes - off); /* the parser has checked that */
    uint8_t *bytes = malloc(len > 0 ? len : 1);
    FUZZ_CHECK(bytes != NULL);
    memcpy(bytes, file->bytes + off, len);
    if (!plain && !td_chunk_unfilter(grid, chunk->skipped_filters, &bytes, len, chunk_bytes, NULL))
        return NULL;
    return bytes;
}

/* Returns the number of the chunk with element number `e`, and sets *within to the element's number in the chunk. */
static uint64_t locate(const struct td_coding_grid *grid, uint64_t e, uint64_t *within)
{
    uint64_t number = 0;
    uint64_t index[TD_CODING_RANK_MAX];
    *within = 0;
    for (uint32_t i = grid->rank; i-- > 0; e /= grid->shape[i])
        index[i] = e % grid->shape[i];
    for (uint32_t i = 0; i < grid->rank; i++) {
        number = number * ((grid->shape[i] + grid->chunk_shape[i] - 1) / grid->chunk_shape[i]) +
                 index[i] / grid->chunk_shape[i];
        *within = *within * grid->chunk_shape[i] + index[i] % grid->chunk_shape[i];
    }
    return number;
}

/* Decodes the chunk again whenever the next element is in another chunk. Returns whether all needed chunks are sound;
 * the bytes that were read must then be the same. */
static bool decode_elements(struct td_blob *file, const struct td_coding *coding, size_t chunk_bytes,
                            const uint8_t *wanted, uint64_t elems)
{
    const struct td_coding_grid *grid = &coding->grid;
    uint64_t current = UINT64_MAX;
    uint8_t *chunk = NULL;
    bool sound = true;
    for (uint64_t e = 0; sound && e < elems; e++) {
        uint64_t within;
        uint64_t number = locate(grid, e, &within);
        if (number != current) {
            const struct td_coding_chunk *listed = find_chunk(grid, number);
            free(chunk);
            chunk = listed == NULL ? NULL : decode_chunk(file, coding, listed, chunk_bytes);
            sound = listed == NULL || chunk != NULL;
            current = number;
        }
        if (!sound || wanted == NULL)
            continue;
        for (uint32_t k = 0; k < grid->elem_bytes; k++) {
            uint8_t fill = grid->fill == NULL ? 0 : grid->fill[k];
            FUZZ_CHECK(wanted[e * grid->elem_bytes + k] ==
                       (chunk == NULL ? fill : chunk[within * grid->elem_bytes + k]));
        }
    }
    free(chunk);
    return sound;
}

static size_t chunk_size(const struct td_coding_grid *grid)
{
    size_t bytes = grid->elem_bytes;
    for (uint32_t i = 0; i < grid->rank; i++) {
        if (grid->chunk_shape[i] > MOST_CHUNK_BYTES / bytes)
            return SIZE_MAX;
        bytes *= (size_t)grid->chunk_shape[i];
    }
    return bytes;
}

static void check_elements(struct td_blob *file, const struct td_tensor *t, const uint8_t *whole, bool ok)
{
    const struct td_coding *coding = t->coding;
    uint64_t elems = t->nbytes / t->dtype->block_bytes;
    if (coding == NULL || coding->kind != TD_CODING_CHUNKS || t->big_endian || elems > MOST_ELEMS)
        return;
    bool sound = decode_elements(file, coding, chunk_size(&coding->grid), ok ? whole : NULL, elems);
    FUZZ_CHECK(sound == ok);
}

/* ---- windows ------------------------------------------------------------------------------------------- */

/* Reads windows, the whole and windows again, with `memory` for the cache. `ok` says whether the whole could be read
 * before. */
static void check_windows(struct td_blob *file, const struct td_tensor *t, const uint8_t *whole, bool ok, size_t memory,
                          uint32_t seed)
{
    struct td_decode_cache cache;
    uint64_t begin;
    FUZZ_CHECK(td_decode_cache_init(&cache, memory, NULL));
    struct td_blob *blob = open_tensor(file, t, &cache, &begin);
    FUZZ_CHECK(blob != NULL);
    size_t len = (size_t)t->nbytes;
    uint8_t *got = malloc(len + 1);
    FUZZ_CHECK(got != NULL);
    bool stream = t->coding != NULL && t->coding->kind == TD_CODING_DEFLATE;
    for (unsigned i = 0; i < WINDOWS && len > 0; i++) {
        size_t off = i == WINDOWS / 2 ? 0 : next_random(&seed) % len;
        size_t taken = i == WINDOWS / 2 ? len : 1 + next_random(&seed) % (len - off);
        bool read = read_range(blob, begin + off, got, taken);
        FUZZ_CHECK(!ok || read);            /* a tensor that can be read whole can be read in parts */
        FUZZ_CHECK(!read || !stream || ok); /* a stream gives no byte before all of it is checked */
        FUZZ_CHECK(!ok || memcmp(got, whole + off, taken) == 0);
        FUZZ_CHECK(td_decode_cache_counts(&cache).used_bytes <= memory);
    }
    free(got);
    td_blob_unref(blob);
    td_decode_cache_fini(&cache);
}

static bool is_of_interest(const struct td_tensor *t)
{
    if (t->reason != NULL || t->file != 0 || t->nbytes > MOST_STREAM_BYTES)
        return false;
    if (t->coding == NULL)
        return (t->big_endian || t->strides != NULL) && t->nbytes <= MOST_BYTES;
    if (t->coding->kind == TD_CODING_DEFLATE)
        return t->coding->size_bytes <= MOST_STREAM_BYTES;
    return t->nbytes <= MOST_BYTES && chunk_size(&t->coding->grid) <= MOST_CHUNK_BYTES;
}

static void check_tensor(struct td_blob *file, const struct td_tensor *t, uint32_t seed)
{
    struct td_decode_cache cache;
    uint64_t begin;
    FUZZ_CHECK(td_decode_cache_init(&cache, MEMORY_BYTES, NULL));
    struct td_blob *blob = open_tensor(file, t, &cache, &begin);
    FUZZ_CHECK(blob != NULL);
    uint8_t *whole = malloc((size_t)t->nbytes + 1);
    FUZZ_CHECK(whole != NULL);
    bool ok = read_range(blob, begin, whole, (size_t)t->nbytes);
    FUZZ_CHECK(td_decode_cache_counts(&cache).used_bytes <= MEMORY_BYTES);
    td_blob_unref(blob);
    td_decode_cache_fini(&cache);
    check_elements(file, t, whole, ok);
    check_windows(file, t, whole, ok, MEMORY_BYTES, seed);
    check_windows(file, t, whole, ok, SMALL_MEMORY_BYTES, seed + 1);
    free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_manifest manifest;
    struct td_error err;
    struct td_blob *file;
    if (size < 2)
        return 0;
    struct td_input input = td_input_memory(data + 1, size - 1);
    if (fuzz_parse(choose(data[0]), &input, td_limits_default().max_memory_bytes, &manifest, &err)) {
        char *copy = malloc(size - 1);
        FUZZ_CHECK(copy != NULL);
        memcpy(copy, data + 1, size - 1);
        FUZZ_CHECK(td_blob_from_heap(copy, size - 1, &file, NULL));
        unsigned checked = 0;
        for (size_t i = 0; checked < MOST_TENSORS && i < manifest.tensor_count; i++)
            if (is_of_interest(&manifest.tensors[i])) {
                check_tensor(file, &manifest.tensors[i], (uint32_t)(size + i));
                checked++;
            }
        td_blob_unref(file);
    }
    td_manifest_fini(&manifest);
    return 0;
}
