#include "api/hub/xet_xorb.h"

#include <lz4frame.h>
#include <string.h>

enum scheme { STORED, LZ4, LZ4_IN_GROUPS, SCHEMES };

enum { GROUPS = 4 };

static uint32_t read_u24(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

bool td_xet_head_read(const uint8_t bytes[TD_XET_HEAD_BYTES], struct td_xet_head *head, struct td_error *err)
{
    *head = (struct td_xet_head){
        .scheme = bytes[4], .stored_bytes = read_u24(bytes + 1), .chunk_bytes = read_u24(bytes + 5)};
    if (bytes[0] != 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "a chunk of the xorb has the unknown version %u", bytes[0]);
    if (head->scheme >= SCHEMES)
        return td_error_set(err, TD_INVALID_ARGUMENT, "a chunk of the xorb has the unknown scheme %u", head->scheme);
    return (head->chunk_bytes > 0 && head->chunk_bytes <= TD_XET_CHUNK_BYTES &&
            head->stored_bytes <= TD_XET_STORED_BYTES &&
            (head->scheme != STORED || head->stored_bytes == head->chunk_bytes)) ||
           td_error_set(err, TD_INVALID_ARGUMENT, "a chunk of the xorb has a wrong length");
}

/* Puts bytes that are in groups back in their order. */
static void join_groups(const uint8_t *grouped, size_t len, uint8_t *out)
{
    for (size_t g = 0; g < GROUPS; g++)
        for (size_t i = g; i < len; i += GROUPS)
            out[i] = *grouped++;
}

/* ---- LZ4 ------------------------------------------------------------------------------------------------- */

static bool fail_frame(struct td_error *err, const char *what)
{
    return td_error_set(err, TD_INVALID_ARGUMENT, "an LZ4 frame of the xorb %s", what);
}

/* Reports what liblz4 returned. Its numbers of errors are not part of its stable interface, but their names are. */
static bool fail_code(struct td_error *err, LZ4F_errorCode_t code)
{
    const char *name = LZ4F_getErrorName(code);
    return strcmp(name, "ERROR_allocation_failed") == 0 ? td_error_no_memory(err) : fail_frame(err, name);
}

/* Makes the context, or prepares it for the next frame. */
static bool begin_frame(struct td_xet_unpacker *unpacker, struct td_error *err)
{
    if (unpacker->lz4 != NULL) {
        LZ4F_resetDecompressionContext(unpacker->lz4);
        return true;
    }
    LZ4F_errorCode_t code = LZ4F_createDecompressionContext(&unpacker->lz4, LZ4F_VERSION);
    return !LZ4F_isError(code) || fail_code(err, code);
}

/* Reads the head of the frame, and moves *frame behind it. */
static bool read_frame_head(LZ4F_dctx *lz4, struct td_text *frame, struct td_error *err)
{
    LZ4F_frameInfo_t info = LZ4F_INIT_FRAMEINFO;
    size_t taken = frame->len;
    LZ4F_errorCode_t code = LZ4F_getFrameInfo(lz4, &info, frame->p, &taken);
    if (LZ4F_isError(code))
        return fail_code(err, code);
    if (info.frameType != LZ4F_frame || info.dictID != 0)
        return fail_frame(err, "is to be skipped, or needs a dictionary");
    *frame = td_text_skip(*frame, taken);
    return true;
}

/* Unpacks one frame, which must end where the text does and have exactly len bytes. */
static bool unpack_frame(struct td_xet_unpacker *unpacker, struct td_text frame, uint8_t *out, size_t len,
                         struct td_error *err)
{
    size_t left = len;
    if (!begin_frame(unpacker, err) || !read_frame_head(unpacker->lz4, &frame, err))
        return false;
    for (;;) {
        size_t written = left;
        size_t taken = frame.len;
        LZ4F_errorCode_t code = LZ4F_decompress(unpacker->lz4, out, &written, frame.p, &taken, NULL);
        if (LZ4F_isError(code))
            return fail_code(err, code);
        out += written;
        left -= written;
        frame = td_text_skip(frame, taken);
        if (code == 0)
            return (left == 0 && frame.len == 0) || fail_frame(err, "has another length than its chunk");
        if (written == 0 && taken == 0) /* it has more bytes than the chunk, or is cut */
            return fail_frame(err, frame.len > 0 ? "has another length than its chunk" : "is cut");
    }
}

bool td_xet_chunk_read(struct td_xet_unpacker *unpacker, const struct td_xet_head *head, const uint8_t *data,
                       uint8_t *out, struct td_error *err)
{
    struct td_text frame = td_text_n((const char *)data, head->stored_bytes);
    bool is_grouped = head->scheme == LZ4_IN_GROUPS;
    if (head->scheme == STORED) {
        memcpy(out, data, head->chunk_bytes);
        return true;
    }
    if (!unpack_frame(unpacker, frame, is_grouped ? unpacker->grouped : out, head->chunk_bytes, err))
        return false;
    if (is_grouped)
        join_groups(unpacker->grouped, head->chunk_bytes, out);
    return true;
}

void td_xet_unpacker_fini(struct td_xet_unpacker *unpacker)
{
    LZ4F_freeDecompressionContext(unpacker->lz4);
    unpacker->lz4 = NULL;
}

/* ---- chunks of a xorb that arrives ----------------------------------------------------------------------- */

/* Takes the head that is complete. */
static bool end_head(struct td_xet_finder *finder, struct td_error *err)
{
    struct td_xet_head head;
    finder->head_len = 0;
    if (memcmp(finder->head, "XETBLOB", 7) == 0) {
        finder->in_footer = true;
        return true;
    }
    if (!td_xet_head_read(finder->head, &head, err))
        return false;
    if (finder->count == TD_XET_XORB_CHUNKS)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the xorb has more than %d chunks", TD_XET_XORB_CHUNKS);
    finder->begins[finder->count++] = (uint32_t)(finder->at - TD_XET_HEAD_BYTES);
    finder->data_end = finder->at + head.stored_bytes;
    return true;
}

bool td_xet_finder_add(struct td_xet_finder *finder, const void *bytes, size_t len, struct td_error *err)
{
    const uint8_t *p = bytes;
    if (len > TD_XET_XORB_BYTES - finder->at)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the xorb has more than %d bytes", TD_XET_XORB_BYTES);
    while (len > 0) {
        size_t n = 1;
        if (finder->in_footer) {
            n = len;
        } else if (finder->at < finder->data_end) {
            uint64_t rest = finder->data_end - finder->at;
            n = rest < len ? (size_t)rest : len;
        } else {
            finder->head[finder->head_len++] = *p;
        }
        finder->at += n;
        p += n;
        len -= n;
        if (finder->head_len == TD_XET_HEAD_BYTES && !end_head(finder, err))
            return false;
    }
    return true;
}

bool td_xet_finder_end(struct td_xet_finder *finder, struct td_error *err)
{
    bool is_whole = finder->in_footer || (finder->head_len == 0 && finder->at == finder->data_end);
    if (finder->count == 0 || !is_whole)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the xorb is cut, or has no chunk");
    finder->begins[finder->count] = (uint32_t)finder->data_end;
    return true;
}
