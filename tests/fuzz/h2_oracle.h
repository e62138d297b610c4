/* Follows both directions of a connection of HTTP/2 (RFC 9113), and checks what the server sends against it and against
 * what the client has sent. Shares nothing with libnghttp2. */
#ifndef TD_TESTS_FUZZ_H2_ORACLE_H
#define TD_TESTS_FUZZ_H2_ORACLE_H

#include "core/buffer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/hpack_oracle.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    H2_DATA = 0,
    H2_HEADERS = 1,
    H2_RST_STREAM = 3,
    H2_SETTINGS = 4,
    H2_PING = 6,
    H2_GOAWAY = 7,
    H2_WINDOW_UPDATE = 8,
    H2_CONTINUATION = 9,
    H2_END_STREAM = 1, /* the flags */
    H2_ACK = 1,
    H2_END_HEADERS = 4,
    H2_PADDED = 8,
    H2_PRIORITY_FIELDS = 0x20,
    H2_HEAD_BYTES = 9,
    H2_PREFACE_BYTES = 24,
    H2_FRAME_BYTES = 16384, /* most of a payload, while no side allows more */
    H2_WINDOW_BYTES = 65535,
};

struct h2_frame {
    uint8_t type, flags;
    uint32_t stream;
    const uint8_t *payload;
    size_t len;
};

/* A stream, as both sides have used it. */
struct h2_seen {
    uint32_t id;
    uint64_t header_bytes; /* of the request: at least so many, without fields that are dropped */
    uint64_t room_bytes;   /* at most so many bytes of DATA may be sent, besides the first window */
    uint64_t data_bytes;   /* of the answer */
    uint8_t head[5];       /* of the message of gRPC that is arriving */
    size_t head_len;
    uint64_t message_left;
    unsigned status; /* 0: no answer yet */
    int grpc_status; /* -1: not yet */
    bool has_request, is_grpc, has_ended, was_reset;
};

/* One direction. */
struct h2_side {
    struct td_buffer bytes; /* a frame that is not complete */
    struct hpack hpack;
    struct td_buffer block; /* a header block that is not complete */
    uint32_t block_stream;  /* 0: none is arriving */
    bool block_ends;        /* its stream */
    bool is_broken;         /* what follows cannot be understood */
};

struct h2_oracle {
    struct h2_side client, server;
    struct h2_seen *seen; /* owned */
    size_t seen_count, seen_capacity;
    uint64_t most_header_bytes; /* a request with more is refused */
    uint64_t first_window;      /* of a stream: the largest that the client has allowed */
    uint64_t room_bytes;        /* as of a stream, of the connection */
    uint64_t data_bytes;
    uint64_t settings, pings; /* that the client has sent and the server has not acknowledged */
    uint32_t last_stream;     /* of the server's last GOAWAY */
    bool has_settings;        /* the server's first frame */
    bool was_acknowledged;    /* SETTINGS of the client */
    bool has_preface;         /* the client's */
    /* of the block that is decoded */
    struct h2_seen *stream;
};

static inline void h2_oracle_init(struct h2_oracle *oracle, uint64_t most_header_bytes)
{
    memset(oracle, 0, sizeof *oracle);
    td_buffer_init(&oracle->client.bytes);
    td_buffer_init(&oracle->client.block);
    td_buffer_init(&oracle->server.bytes);
    td_buffer_init(&oracle->server.block);
    hpack_init(&oracle->client.hpack);
    hpack_init(&oracle->server.hpack);
    oracle->most_header_bytes = most_header_bytes;
    oracle->first_window = oracle->room_bytes = H2_WINDOW_BYTES;
    oracle->last_stream = UINT32_MAX;
}

static inline void h2_oracle_fini(struct h2_oracle *oracle)
{
    td_buffer_fini(&oracle->client.bytes);
    td_buffer_fini(&oracle->client.block);
    td_buffer_fini(&oracle->server.bytes);
    td_buffer_fini(&oracle->server.block);
    hpack_fini(&oracle->client.hpack);
    hpack_fini(&oracle->server.hpack);
    free(oracle->seen);
}

/* Returns what was seen of a stream; NULL when nothing was. The client's ids only grow. */
static inline struct h2_seen *h2_find(const struct h2_oracle *oracle, uint32_t id)
{
    for (size_t i = oracle->seen_count; i > 0; i--)
        if (oracle->seen[i - 1].id == id)
            return &oracle->seen[i - 1];
    return NULL;
}

static inline struct h2_seen *h2_see(struct h2_oracle *oracle, uint32_t id)
{
    struct h2_seen *found = h2_find(oracle, id);
    if (found != NULL)
        return found;
    if (oracle->seen_count == oracle->seen_capacity) {
        oracle->seen_capacity = 2 * oracle->seen_capacity + 16;
        oracle->seen = realloc(oracle->seen, oracle->seen_capacity * sizeof *oracle->seen);
        FUZZ_CHECK(oracle->seen != NULL);
    }
    oracle->seen[oracle->seen_count] = (struct h2_seen){.id = id, .grpc_status = -1};
    return &oracle->seen[oracle->seen_count++];
}

static inline uint32_t h2_number(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Takes the next frame that is complete. Returns false when there is none. */
static inline bool h2_take_frame(struct h2_side *side, struct h2_frame *frame, size_t *at)
{
    if (side->bytes.len - *at < H2_HEAD_BYTES)
        return false;
    const uint8_t *head = (const uint8_t *)side->bytes.data + *at;
    const size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    if (side->bytes.len - *at - H2_HEAD_BYTES < len)
        return false;
    *frame = (struct h2_frame){head[3], head[4], h2_number(head + 5) & 0x7FFFFFFF, head + H2_HEAD_BYTES, len};
    *at += H2_HEAD_BYTES + len;
    return true;
}

/* Drops the first bytes, which have been handled. */
static inline void h2_drop_bytes(struct h2_side *side, size_t len)
{
    if (len > 0)
        memmove(side->bytes.data, side->bytes.data + len, side->bytes.len - len);
    side->bytes.len -= len;
}

/* Adds a frame's fragment to the header block that is arriving. Returns whether the block is complete. */
static inline bool h2_add_fragment(struct h2_side *side, const struct h2_frame *frame)
{
    size_t from = 0, until = frame->len;
    if (frame->type == H2_HEADERS) {
        side->block_stream = frame->stream;
        side->block_ends = (frame->flags & H2_END_STREAM) != 0;
        td_buffer_clear(&side->block);
        if ((frame->flags & H2_PADDED) != 0) {
            const size_t padding = frame->len > 0 ? frame->payload[0] : 0;
            from = 1;
            until = padding + 1 <= frame->len ? frame->len - padding : 0;
        }
        from += (frame->flags & H2_PRIORITY_FIELDS) != 0 ? 5 : 0;
    }
    if (from > until) {
        side->is_broken = true;
        return false;
    }
    td_buffer_append(&side->block, frame->payload + from, until - from);
    FUZZ_CHECK(!side->block.failed);
    return (frame->flags & H2_END_HEADERS) != 0;
}

/* ---- the client ---------------------------------------------------------------------------------------- */

/* Counts a field of a request, unless a server may drop it or has to refuse the request for it. */
static inline void h2_count_field(void *context, struct td_text name, struct td_text value)
{
    struct h2_oracle *oracle = context;
    bool is_kept = name.len > 0;
    for (size_t i = 0; i < name.len; i++)
        is_kept = is_kept && ((name.p[i] >= 'a' && name.p[i] <= 'z') || name.p[i] == '-' || name.p[i] == ':');
    for (size_t i = 0; i < value.len; i++)
        is_kept = is_kept && value.p[i] > ' ' && value.p[i] <= '~';
    if (is_kept && oracle->stream != NULL)
        oracle->stream->header_bytes += name.len + value.len;
}

static inline void h2_client_block(struct h2_oracle *oracle)
{
    struct h2_side *side = &oracle->client;
    struct h2_seen *seen = h2_see(oracle, side->block_stream);
    oracle->stream = seen->has_request ? NULL : seen; /* else these are trailers */
    seen->has_request = true;
    if (!hpack_decode(&side->hpack, (const uint8_t *)side->block.data, side->block.len, h2_count_field, oracle))
        side->is_broken = true;
    side->block_stream = 0;
}

static inline void h2_client_settings(struct h2_oracle *oracle, const struct h2_frame *frame)
{
    if ((frame->flags & H2_ACK) != 0)
        return;
    oracle->settings++;
    for (size_t at = 0; at + 6 <= frame->len; at += 6) {
        const uint32_t value = h2_number(frame->payload + at + 2);
        if (frame->payload[at] == 0 && frame->payload[at + 1] == 4 && value > oracle->first_window)
            oracle->first_window = value;
    }
}

static inline void h2_client_frame(struct h2_oracle *oracle, const struct h2_frame *frame)
{
    struct h2_side *side = &oracle->client;
    const bool continues = frame->type == H2_CONTINUATION && frame->stream == side->block_stream;
    if (side->block_stream != 0 && !continues) {
        side->is_broken = true; /* RFC 9113 section 6.10: the server ends the connection */
        return;
    }
    if (frame->type == H2_HEADERS || continues) {
        if (frame->stream == 0)
            side->is_broken = true;
        else if (h2_add_fragment(side, frame))
            h2_client_block(oracle);
    } else if (frame->type == H2_SETTINGS) {
        h2_client_settings(oracle, frame);
    } else if (frame->type == H2_PING && (frame->flags & H2_ACK) == 0) {
        oracle->pings++;
    } else if (frame->type == H2_WINDOW_UPDATE && frame->len == 4) {
        const uint32_t bytes = h2_number(frame->payload) & 0x7FFFFFFF;
        *(frame->stream == 0 ? &oracle->room_bytes : &h2_see(oracle, frame->stream)->room_bytes) += bytes;
    }
}

/* Follows what the client sends. */
static inline void h2_oracle_sends(struct h2_oracle *oracle, const uint8_t *bytes, size_t len)
{
    struct h2_side *side = &oracle->client;
    struct h2_frame frame;
    size_t at = 0;
    td_buffer_append(&side->bytes, bytes, len);
    FUZZ_CHECK(!side->bytes.failed);
    if (!oracle->has_preface && side->bytes.len < H2_PREFACE_BYTES)
        return;
    at = oracle->has_preface ? 0 : H2_PREFACE_BYTES;
    oracle->has_preface = true;
    while (!side->is_broken && h2_take_frame(side, &frame, &at))
        h2_client_frame(oracle, &frame);
    h2_drop_bytes(side, at);
}

/* ---- the server ---------------------------------------------------------------------------------------- */

/* Checks a field of an answer (RFC 9113 section 8.2). */
static inline void h2_check_field(void *context, struct td_text name, struct td_text value)
{
    static const char grpc[] = "application/grpc";
    struct h2_oracle *oracle = context;
    struct h2_seen *seen = oracle->stream;
    FUZZ_CHECK(name.len > 0 && !td_text_equals(name, "connection") && !td_text_equals(name, "transfer-encoding"));
    for (size_t i = 0; i < name.len; i++)
        FUZZ_CHECK(name.p[i] > ' ' && name.p[i] < 0x7F && !(name.p[i] >= 'A' && name.p[i] <= 'Z'));
    for (size_t i = 0; i < value.len; i++)
        FUZZ_CHECK(value.p[i] >= ' ' && value.p[i] < 0x7F);
    if (td_text_equals(name, ":status")) {
        FUZZ_CHECK(seen->status == 0 && value.len == 3);
        for (size_t i = 0; i < 3; i++)
            seen->status = 10 * seen->status + (unsigned)(value.p[i] - '0');
        return;
    }
    FUZZ_CHECK(name.p[0] != ':' && seen->status != 0); /* the status comes first */
    if (td_text_equals(name, "content-type"))
        seen->is_grpc = td_text_begins(value, td_text_n(grpc, sizeof grpc - 1));
    if (td_text_equals(name, "grpc-status")) {
        FUZZ_CHECK(seen->grpc_status < 0 && value.len > 0 && value.len <= 2);
        seen->grpc_status = 0;
        for (size_t i = 0; i < value.len; i++)
            seen->grpc_status = 10 * seen->grpc_status + (value.p[i] - '0');
        FUZZ_CHECK(seen->grpc_status <= 16);
    }
}

/* Checks the end of an answer: calls that were handled have a status of gRPC, and whole messages. */
static inline void h2_end_answer(struct h2_seen *seen)
{
    seen->has_ended = true;
    if (seen->status == 200)
        FUZZ_CHECK(seen->is_grpc && seen->grpc_status >= 0 && seen->head_len == 0);
}

static inline void h2_server_block(struct h2_oracle *oracle)
{
    struct h2_side *side = &oracle->server;
    struct h2_seen *seen = h2_find(oracle, side->block_stream);
    FUZZ_CHECK(seen != NULL && (seen->has_request || oracle->client.is_broken) && !seen->has_ended && !seen->was_reset);
    const bool is_trailers = seen->status != 0;
    FUZZ_CHECK(!is_trailers || side->block_ends);
    oracle->stream = seen;
    FUZZ_CHECK(hpack_decode(&side->hpack, (const uint8_t *)side->block.data, side->block.len, h2_check_field, oracle));
    FUZZ_CHECK(seen->status >= 200 && seen->status < 600);
    if (!is_trailers) {
        const bool is_refused = seen->status >= 400 || (side->block_ends && seen->grpc_status > 0);
        FUZZ_CHECK(is_refused || seen->header_bytes <= oracle->most_header_bytes);
    }
    if (side->block_ends)
        h2_end_answer(seen);
    side->block_stream = 0;
}

/* Follows the messages of gRPC in an answer: a byte of flags, four bytes with the length, and the message. */
static inline void h2_follow_messages(struct h2_seen *seen, const uint8_t *bytes, size_t len)
{
    for (size_t n; len > 0; bytes += n, len -= n) {
        if (seen->head_len < sizeof seen->head) {
            n = 1;
            seen->head[seen->head_len++] = *bytes;
            if (seen->head_len == sizeof seen->head) {
                FUZZ_CHECK(seen->head[0] <= 1);
                seen->message_left = h2_number(seen->head + 1);
            }
        } else {
            n = len < seen->message_left ? len : (size_t)seen->message_left;
            seen->message_left -= n;
        }
        if (seen->head_len == sizeof seen->head && seen->message_left == 0)
            seen->head_len = 0;
    }
}

static inline void h2_server_data(struct h2_oracle *oracle, const struct h2_frame *frame)
{
    struct h2_seen *seen = h2_find(oracle, frame->stream);
    FUZZ_CHECK(seen != NULL && seen->status != 0 && !seen->has_ended && !seen->was_reset);
    FUZZ_CHECK((frame->flags & ~H2_END_STREAM) == 0);
    seen->data_bytes += frame->len;
    oracle->data_bytes += frame->len;
    if (!oracle->client.is_broken) { /* RFC 9113 section 6.9: never more than the windows */
        FUZZ_CHECK(seen->data_bytes <= oracle->first_window + seen->room_bytes);
        FUZZ_CHECK(oracle->data_bytes <= oracle->room_bytes);
    }
    if (seen->status == 200)
        h2_follow_messages(seen, frame->payload, frame->len);
    if ((frame->flags & H2_END_STREAM) != 0)
        h2_end_answer(seen);
}

/* Checks a frame that concerns the whole connection. */
static inline void h2_server_control(struct h2_oracle *oracle, const struct h2_frame *frame)
{
    const bool is_ack = (frame->flags & H2_ACK) != 0;
    if (frame->type == H2_SETTINGS) {
        FUZZ_CHECK(frame->stream == 0 && frame->len % 6 == 0 && (!is_ack || frame->len == 0));
        FUZZ_CHECK(!is_ack || oracle->client.is_broken || oracle->settings > 0);
        oracle->settings -= is_ack && oracle->settings > 0 ? 1 : 0;
        oracle->was_acknowledged = oracle->was_acknowledged || is_ack;
    } else if (frame->type == H2_PING) {
        FUZZ_CHECK(frame->stream == 0 && frame->len == 8 && is_ack);
        FUZZ_CHECK(oracle->client.is_broken || oracle->pings > 0);
        oracle->pings -= oracle->pings > 0 ? 1 : 0;
    } else {
        FUZZ_CHECK(frame->type == H2_GOAWAY && frame->stream == 0 && frame->len >= 8);
        const uint32_t last = h2_number(frame->payload);
        FUZZ_CHECK(last <= oracle->last_stream); /* RFC 9113 section 6.8 */
        oracle->last_stream = last;
    }
}

static inline void h2_server_frame(struct h2_oracle *oracle, const struct h2_frame *frame)
{
    struct h2_side *side = &oracle->server;
    FUZZ_CHECK(frame->len <= H2_FRAME_BYTES);
    FUZZ_CHECK(oracle->has_settings || (frame->type == H2_SETTINGS && (frame->flags & H2_ACK) == 0));
    oracle->has_settings = true;
    FUZZ_CHECK((frame->type == H2_CONTINUATION) == (side->block_stream != 0));
    FUZZ_CHECK(side->block_stream == 0 || side->block_stream == frame->stream);
    if (frame->type == H2_HEADERS || frame->type == H2_CONTINUATION) {
        FUZZ_CHECK(frame->stream != 0);
        if (h2_add_fragment(side, frame))
            h2_server_block(oracle);
        FUZZ_CHECK(!side->is_broken);
    } else if (frame->type == H2_DATA) {
        h2_server_data(oracle, frame);
    } else if (frame->type == H2_RST_STREAM) {
        FUZZ_CHECK(frame->stream != 0 && frame->len == 4);
        h2_see(oracle, frame->stream)->was_reset = true;
    } else if (frame->type == H2_WINDOW_UPDATE) {
        FUZZ_CHECK(frame->len == 4 && (h2_number(frame->payload) & 0x7FFFFFFF) > 0);
    } else {
        h2_server_control(oracle, frame);
    }
}

/* Follows and checks what the server sends. */
static inline void h2_oracle_receives(struct h2_oracle *oracle, const uint8_t *bytes, size_t len)
{
    struct h2_side *side = &oracle->server;
    struct h2_frame frame;
    size_t at = 0;
    td_buffer_append(&side->bytes, bytes, len);
    FUZZ_CHECK(!side->bytes.failed);
    while (h2_take_frame(side, &frame, &at))
        h2_server_frame(oracle, &frame);
    h2_drop_bytes(side, at);
}

#endif
