/* Follows the frames of HTTP/2 (RFC 9113 section 4.1) in the bytes that a client sends, to bound what costs the server
 * work and gives the client nothing: floods of SETTINGS, PING, PRIORITY, WINDOW_UPDATE, RST_STREAM and of empty or tiny
 * DATA, and frames that never end. libnghttp2 checks everything else.
 *
 * Each connection has a credit. Frames that carry a request or a piece of a body, and frames that the server sends, add
 * to it; all others take from it. Resets of streams also take from a second credit, to which nothing but time adds
 * (CVE-2023-44487). Both grow with time. One thread at a time. */
#ifndef TD_SERVER_H2_H2_FRAMES_H
#define TD_SERVER_H2_H2_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_H2_CREDIT_MOST = 2000,
    TD_H2_CREDIT_PER_S = 200,
    TD_H2_CREDIT_PER_SENT = 4, /* for each frame that the server sends with a piece of an answer */
    TD_H2_RESET_COST = 4,      /* of a reset, from the credit for resets: so 500 at once, and 50 in a second */
    TD_H2_HEAD_BYTES = 9,      /* of a frame */
    TD_H2_PREFACE_BYTES = 24,
};

struct td_h2_frames {
    uint8_t head[TD_H2_HEAD_BYTES]; /* of the frame that is arriving */
    size_t head_len;                /* of it, the bytes that have arrived */
    size_t preface_left;
    uint64_t payload_left;
    bool in_block; /* a header block is not complete: CONTINUATION follows */
    int64_t credit, reset_credit;
    uint64_t credited_ns;   /* when time was last added */
    uint64_t unfinished_ns; /* since when the frame or header block has been arriving; 0: none is */
};

/* Begins with the client's preface. */
void td_h2_frames_init(struct td_h2_frames *frames, uint64_t now_ns);

/* Follows bytes that have arrived. Returns false when a credit is used up: the connection is to be ended. */
bool td_h2_frames_take(struct td_h2_frames *frames, const uint8_t *bytes, size_t len, uint64_t now_ns);

/* Adds credit for a frame that the server sends with a piece of an answer. */
void td_h2_frames_earn(struct td_h2_frames *frames);

#endif
