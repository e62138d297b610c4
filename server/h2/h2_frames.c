#include "server/h2/h2_frames.h"

#include "core/clock.h"

#include <string.h>

/* Types and flags of RFC 9113 section 6. */
enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, CONTINUATION = 9, END_HEADERS = 4, END_STREAM = 1 };

/* DATA of fewer bytes is tiny, unless it ends a request. */
enum { TINY_BYTES = 32 };

void td_h2_frames_init(struct td_h2_frames *frames, uint64_t now_ns)
{
    *frames = (struct td_h2_frames){.preface_left = TD_H2_PREFACE_BYTES,
                                    .credit = TD_H2_CREDIT_MOST,
                                    .reset_credit = TD_H2_CREDIT_MOST,
                                    .credited_ns = now_ns,
                                    .unfinished_ns = now_ns};
}

static void add_credit(int64_t *credit, int64_t more)
{
    *credit += more;
    if (*credit > TD_H2_CREDIT_MOST)
        *credit = TD_H2_CREDIT_MOST;
}

void td_h2_frames_earn(struct td_h2_frames *frames)
{
    add_credit(&frames->credit, TD_H2_CREDIT_PER_SENT);
}

/* Adds the credit of the time since the last call. */
static void add_time(struct td_h2_frames *frames, uint64_t now_ns)
{
    enum { MOST = 2 * TD_H2_CREDIT_MOST };
    const uint64_t step_ns = (uint64_t)TD_NS_PER_S / TD_H2_CREDIT_PER_S;
    uint64_t steps = now_ns > frames->credited_ns ? (now_ns - frames->credited_ns) / step_ns : 0;
    frames->credited_ns += steps * step_ns;
    const int64_t more = steps < MOST ? (int64_t)steps : MOST;
    add_credit(&frames->credit, more);
    add_credit(&frames->reset_credit, more);
}

/* Judges a frame by its head, which is complete. */
static void begin_frame(struct td_h2_frames *frames)
{
    const uint8_t *head = frames->head;
    const uint8_t type = head[3], flags = head[4];
    frames->payload_left = (uint64_t)head[0] << 16 | (uint64_t)head[1] << 8 | head[2];
    if (type == HEADERS || type == CONTINUATION)
        frames->in_block = true;
    if (type == HEADERS)
        add_credit(&frames->credit, 2);
    else if (type == DATA)
        frames->credit -= frames->payload_left < TINY_BYTES && (flags & END_STREAM) == 0 ? 1 : 0;
    else
        frames->credit -= type == SETTINGS ? 4 : 1;
    if (type == RST_STREAM)
        frames->reset_credit -= TD_H2_RESET_COST;
}

/* Notes that the frame is complete. */
static void end_frame(struct td_h2_frames *frames)
{
    const uint8_t type = frames->head[3], flags = frames->head[4];
    frames->head_len = 0;
    if ((type == HEADERS || type == CONTINUATION) && (flags & END_HEADERS) != 0)
        frames->in_block = false;
    if (!frames->in_block)
        frames->unfinished_ns = 0;
}

/* Returns how many of `len` bytes belong to a part that lacks `left` bytes. */
static size_t take_part(size_t left, size_t len)
{
    return left < len ? left : len;
}

bool td_h2_frames_take(struct td_h2_frames *frames, const uint8_t *bytes, size_t len, uint64_t now_ns)
{
    add_time(frames, now_ns);
    for (size_t n; len > 0; bytes += n, len -= n) {
        if (frames->preface_left > 0) {
            n = take_part(frames->preface_left, len);
            frames->preface_left -= n;
        } else if (frames->head_len < TD_H2_HEAD_BYTES) {
            n = take_part(TD_H2_HEAD_BYTES - frames->head_len, len);
            memcpy(frames->head + frames->head_len, bytes, n);
            frames->head_len += n;
            if (frames->head_len == TD_H2_HEAD_BYTES)
                begin_frame(frames);
        } else {
            n = take_part((size_t)frames->payload_left, len);
            frames->payload_left -= n;
        }
        if (frames->head_len == TD_H2_HEAD_BYTES && frames->payload_left == 0)
            end_frame(frames);
    }
    bool is_unfinished = frames->preface_left > 0 || frames->head_len > 0 || frames->in_block;
    if (!is_unfinished)
        frames->unfinished_ns = 0;
    else if (frames->unfinished_ns == 0)
        frames->unfinished_ns = now_ns;
    return frames->credit >= 0 && frames->reset_credit >= 0;
}
