/* The first byte of the input says what follows: the text of an index, which is also read as a manifest of SkyRL's; or
 * a frame for a tensor of so many bytes as the next two say; or the content of a frame, around which the target puts a
 * header and raw blocks, since random bytes are hardly ever a frame. New bytes are compared with those of a second
 * implementation, which decodes the whole frame at once. */
#include "catalog/delta/delta_index.h"
#include "catalog/delta/delta_manifest.h"
#include "catalog/delta/delta_patch.h"
#include "tests/fuzz/fuzz_error.h"

#include <stdbool.h>
#include <zstd.h>

enum {
    MODE_INDEX = 0,
    MODE_FRAME = 1, /* every other number: content */
    IS_OVERWRITE = 4,
    IS_ADLER32 = 8,
    IS_WRONG_SUM = 16,
    HEAD_BYTES = 3,
    MOST_BYTES = 65535,
    MOST_CONTENT_BYTES = 4 + 5 * MOST_BYTES,
    RAW_BLOCK_BYTES = 1000,
};

/* ---- indexes ------------------------------------------------------------------------------------------- */

static bool is_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Checks that the rewritten index names the same files, is that of a full version, and does not change when it is
 * rewritten again. */
static void check_rewritten(struct td_text text, const struct td_delta_index *index)
{
    struct td_delta_index other;
    struct td_buffer out;
    struct td_buffer again;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&out);
    td_buffer_init(&again);
    td_delta_index_rewrite(text, "new \"1\"", &out);
    FUZZ_CHECK(!out.failed && td_delta_index_parse(&other, td_buffer_text(&out), &err));
    FUZZ_CHECK(is_same_text(other.version, "new \"1\"") && other.base_version == NULL && other.encoding == NULL);
    FUZZ_CHECK(other.compression == NULL && other.checksum == NULL && !other.map.is_delta);
    FUZZ_CHECK(other.map.entry_count == index->map.entry_count && other.map.file_count == index->map.file_count);
    for (size_t i = 0; i < other.map.entry_count; i++)
        FUZZ_CHECK(strcmp(other.map.entries[i].tensor, index->map.entries[i].tensor) == 0 &&
                   other.map.entries[i].file == index->map.entries[i].file);
    td_delta_index_rewrite(td_buffer_text(&out), "new \"1\"", &again);
    FUZZ_CHECK(again.len == out.len && memcmp(again.data, out.data, out.len) == 0);
    td_delta_index_fini(&other);
    td_buffer_fini(&out);
    td_buffer_fini(&again);
}

static void check_index(struct td_text text)
{
    struct td_delta_index index;
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_delta_index_parse(&index, text, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    if (ok) {
        const char *const texts[] = {index.version, index.base_version, index.encoding, index.compression,
                                     index.checksum};
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            FUZZ_CHECK(texts[i] == NULL || (texts[i][0] != '\0' && td_utf8_valid(texts[i], strlen(texts[i]))));
        check_rewritten(text, &index);
    } else {
        fuzz_check_refusal(&err, text.len);
    }
    td_delta_index_fini(&index);
}

/* Checks that the index that is made of a manifest has each tensor of it once, with its checksum. */
static void check_manifest(struct td_text text)
{
    struct td_buffer made;
    struct td_delta_sums sums;
    struct td_delta_index index;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&made);
    bool ok = td_delta_manifest_read(text, &made, &sums, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    if (!ok)
        fuzz_check_refusal_somewhere(&err, text.len);
    if (ok && td_delta_index_parse(&index, td_buffer_text(&made), &err)) {
        FUZZ_CHECK(index.map.is_delta && index.map.entry_count == sums.count);
        FUZZ_CHECK(is_same_text(index.encoding, "xor") && index.version != NULL && index.base_version != NULL);
        for (size_t i = 0; i < sums.count; i++) {
            const struct td_shard_entry *entry = &index.map.entries[i];
            FUZZ_CHECK(td_delta_sums_find(&sums, td_text_n(entry->tensor, entry->tensor_len)).p != NULL);
        }
    } else if (ok) {
        fuzz_check_refusal(&err, made.len); /* the name of a file */
    }
    if (ok)
        td_delta_index_fini(&index);
    td_delta_sums_fini(&sums);
    td_buffer_fini(&made);
}

/* ---- frames -------------------------------------------------------------------------------------------- */

/* A tensor, and how far it has been read and written. */
struct tensor {
    uint8_t *bytes;
    uint64_t nbytes, read_to, written_to;
};

static bool read_tensor(void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct tensor *tensor = context;
    (void)err;
    FUZZ_CHECK(off == tensor->read_to && len > 0 && len <= tensor->nbytes - off && tensor->written_to <= off);
    memcpy(out, tensor->bytes + off, len);
    tensor->read_to += len;
    return true;
}

static bool write_tensor(void *context, uint64_t off, const void *bytes, size_t len, struct td_error *err)
{
    struct tensor *tensor = context;
    (void)err;
    FUZZ_CHECK(off == tensor->written_to && len > 0 && len <= tensor->read_to - off);
    memcpy(tensor->bytes + off, bytes, len);
    tensor->written_to += len;
    return true;
}

/* Changes the bytes as the content says. Returns whether the content is right. */
static bool change(uint8_t *bytes, size_t nbytes, const uint8_t *content, size_t len, bool is_overwrite)
{
    if (!is_overwrite) {
        for (size_t i = 0; i < len && len == nbytes; i++)
            bytes[i] = (uint8_t)(bytes[i] ^ content[i]);
        return len == nbytes;
    }
    uint64_t count = len < 4 ? UINT64_MAX : td_load_le32(content);
    if (count > nbytes || len != 4 + 5 * count)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t position = td_load_le32(content + 4 + 4 * i);
        if (position >= nbytes)
            return false;
        bytes[position] = content[4 + 4 * count + i];
    }
    return true;
}

/* Decodes the whole frame. Returns SIZE_MAX when the bytes are not exactly one frame, or its content is too long. */
static size_t decode(const uint8_t *frame, size_t len, uint8_t *content)
{
    if (len < 4 || td_load_le32(frame) != ZSTD_MAGICNUMBER || ZSTD_findFrameCompressedSize(frame, len) != len)
        return SIZE_MAX;
    size_t n = ZSTD_decompress(content, MOST_CONTENT_BYTES, frame, len);
    return ZSTD_isError(n) ? SIZE_MAX : n;
}

/* Writes a frame with this content in raw blocks (RFC 8878, section 3.1.1.2). Returns its length. */
static size_t wrap(const uint8_t *content, size_t len, uint8_t *frame)
{
    static const uint8_t header[] = {0x28, 0xb5, 0x2f, 0xfd, 0, 0x38}; /* a window of 128 KiB, no content size */
    size_t used = sizeof header;
    size_t done = 0;
    memcpy(frame, header, sizeof header);
    do {
        size_t n = len - done < RAW_BLOCK_BYTES ? len - done : RAW_BLOCK_BYTES;
        uint32_t block = (uint32_t)(n << 3) | (done + n == len ? 1 : 0);
        for (int i = 0; i < 3; i++)
            frame[used++] = (uint8_t)(block >> (8 * i));
        if (n > 0)
            memcpy(frame + used, content + done, n);
        used += n;
        done += n;
    } while (done < len);
    return used;
}

/* Writes the checksum of the bytes. */
static void write_sum(enum td_delta_sum_kind kind, const uint8_t *bytes, size_t len, char text[TD_DELTA_SUM_TEXT_BYTES])
{
    struct td_delta_sum *sum = td_delta_sum_create(kind);
    FUZZ_CHECK(sum != NULL);
    td_delta_sum_add(sum, bytes, len);
    td_delta_sum_write(sum, text);
    td_delta_sum_free(sum);
    FUZZ_CHECK(td_delta_sum_is_text(kind, td_text_of(text)));
}

/* Applies the frame to a tensor, and compares the result with `wanted`, the new bytes; NULL: the frame is wrong. */
static void check_patch(struct td_delta_patch *patch, const uint8_t *old, const uint8_t *wanted, size_t nbytes,
                        bool is_wrong_sum)
{
    struct tensor tensor = {.bytes = malloc(nbytes + 1), .nbytes = nbytes};
    const struct td_delta_tensor target = {
        .nbytes = nbytes, .read = read_tensor, .write = write_tensor, .context = &tensor};
    struct td_error err = TD_ERROR_INIT;
    char sum[TD_DELTA_SUM_TEXT_BYTES];
    FUZZ_CHECK(tensor.bytes != NULL);
    memcpy(tensor.bytes, old, nbytes);
    write_sum(patch->sum_kind, wanted == NULL ? old : wanted, nbytes, sum);
    sum[0] = is_wrong_sum ? (sum[0] == 'a' ? 'b' : 'a') : sum[0];
    patch->sum = td_text_of(sum);
    bool ok = td_delta_patch_apply(patch, &target, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    if (ok) {
        FUZZ_CHECK(wanted != NULL && !is_wrong_sum && tensor.written_to == nbytes);
        FUZZ_CHECK(memcmp(tensor.bytes, wanted, nbytes) == 0);
        FUZZ_CHECK(td_delta_patch_check(patch, nbytes, &err));
    } else {
        fuzz_check_message(&err);
        FUZZ_CHECK(wanted == NULL || is_wrong_sum || strstr(err.message, "needs a window") != NULL);
    }
    free(tensor.bytes);
}

static void check_frame(uint8_t flags, size_t nbytes, const uint8_t *data, size_t size)
{
    uint8_t *memory = malloc((size_t)2 * nbytes + MOST_CONTENT_BYTES + 2 * size + 64);
    FUZZ_CHECK(memory != NULL);
    uint8_t *old = memory;
    uint8_t *wanted = old + nbytes;
    uint8_t *content = wanted + nbytes;
    uint8_t *frame = content + MOST_CONTENT_BYTES;
    size_t content_bytes = size;
    size_t frame_bytes = size;
    for (size_t i = 0; i < nbytes; i++)
        old[i] = wanted[i] = (uint8_t)(i * 7 + 3);
    if ((flags & 3) == MODE_FRAME) {
        memcpy(frame, data, size);
        content_bytes = decode(data, size, content);
    } else {
        content_bytes = size < MOST_CONTENT_BYTES ? size : MOST_CONTENT_BYTES;
        memcpy(content, data, content_bytes);
        frame_bytes = wrap(content, content_bytes, frame);
        FUZZ_CHECK(frame_bytes <= 2 * size + 64);
    }
    bool is_overwrite = (flags & IS_OVERWRITE) != 0;
    bool is_right = content_bytes != SIZE_MAX && change(wanted, nbytes, content, content_bytes, is_overwrite);
    const struct td_input input = td_input_memory(frame, frame_bytes);
    struct td_delta_patch patch = {
        .input = &input,
        .len = frame_bytes,
        .encoding = is_overwrite ? TD_DELTA_OVERWRITE : TD_DELTA_XOR,
        .sum_kind = (flags & IS_ADLER32) != 0 ? TD_DELTA_SUM_ADLER32 : TD_DELTA_SUM_XXH3_128,
    };
    check_patch(&patch, old, is_right ? wanted : NULL, nbytes, (flags & IS_WRONG_SUM) != 0);
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 1 && (data[0] & 3) == MODE_INDEX) {
        check_index(td_text_n((const char *)data + 1, size - 1));
        check_manifest(td_text_n((const char *)data + 1, size - 1));
    } else if (size >= HEAD_BYTES)
        check_frame(data[0], td_load_le16(data + 1), data + HEAD_BYTES, size - HEAD_BYTES);
    return 0;
}
