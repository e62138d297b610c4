#include "api/hub/xet_xorb.h"

#include "api/hub/xet_lz4.h"

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

bool td_xet_chunk_read(const struct td_xet_head *head, const uint8_t *data, uint8_t *out, uint8_t *scratch,
                       struct td_error *err)
{
    struct td_text frame = td_text_n((const char *)data, head->stored_bytes);
    bool is_grouped = head->scheme == LZ4_IN_GROUPS;
    if (head->scheme == STORED) {
        memcpy(out, data, head->chunk_bytes);
        return true;
    }
    if (!td_xet_lz4_read(frame, is_grouped ? scratch : out, head->chunk_bytes, err))
        return false;
    if (is_grouped)
        join_groups(scratch, head->chunk_bytes, out);
    return true;
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
