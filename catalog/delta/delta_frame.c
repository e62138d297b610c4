#include "catalog/delta/delta_frame.h"

#include <stdlib.h>
#include <zstd.h>

enum {
    STORED_BYTES = 128 * 1024, /* read at once */
    HEADER_BYTES = 18,         /* most bytes of a frame header, with the magic number */
    SMALLEST_WINDOW_LOG = 10,  /* RFC 8878, section 3.1.1.1.2 */
};

struct td_delta_frame {
    const struct td_input *input;
    uint64_t next, end; /* the stored bytes that are not read yet */
    ZSTD_DCtx *decoder;
    ZSTD_inBuffer stored;
    bool has_ended; /* the decoder has met the end of the frame */
    uint8_t bytes[STORED_BYTES];
};

/* The fields of a frame header. */
struct header {
    uint64_t window_bytes;
    bool has_content; /* it says how long the content is */
    uint64_t content_bytes;
    bool has_dictionary;
};

/* Returns the little-endian number in the `len` bytes at p, at most 8. */
static uint64_t load_number(const uint8_t *p, size_t len)
{
    uint64_t number = 0;
    for (size_t i = 0; i < len; i++)
        number |= (uint64_t)p[i] << (8 * i);
    return number;
}

/* Reads a frame header (RFC 8878, section 3.1.1.1). Returns false when the bytes are no frame header, or are cut. */
static bool read_header(const uint8_t *bytes, size_t len, struct header *out)
{
    static const uint8_t number_bytes[] = {0, 1, 2, 4};
    if (len < 6 || td_load_le32(bytes) != ZSTD_MAGICNUMBER)
        return false;
    uint8_t descriptor = bytes[4];
    bool is_single = (descriptor & 0x20) != 0; /* one segment: the window is the content */
    size_t dictionary = number_bytes[descriptor & 3];
    size_t content = (size_t)1 << (descriptor >> 6);
    size_t window = is_single ? 0 : 1;
    if (content == 1 && !is_single)
        content = 0;
    if ((descriptor & 0x08) != 0 || len < 5 + window + dictionary + content)
        return false;
    *out = (struct header){.has_content = content > 0};
    out->has_dictionary = load_number(bytes + 5 + window, dictionary) != 0;
    out->content_bytes = load_number(bytes + 5 + window + dictionary, content) + (content == 2 ? 256 : 0);
    uint64_t base = UINT64_C(1) << (SMALLEST_WINDOW_LOG + (bytes[5] >> 3));
    out->window_bytes = is_single ? out->content_bytes : base + base / 8 * (bytes[5] & 7);
    return true;
}

static bool check_header(const struct header *header, uint64_t most_bytes, struct td_error *err)
{
    uint64_t window = most_bytes > TD_DELTA_WINDOW_BYTES ? most_bytes : TD_DELTA_WINDOW_BYTES;
    if (header->has_dictionary)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the zstd frame needs a dictionary");
    if (header->has_content && header->content_bytes > most_bytes)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the zstd frame has %llu bytes, more than the %llu expected",
                            (unsigned long long)header->content_bytes, (unsigned long long)most_bytes);
    return header->window_bytes <= window ||
           td_error_set(err, TD_INVALID_ARGUMENT, "the zstd frame needs a window of %llu bytes, more than %llu",
                        (unsigned long long)header->window_bytes, (unsigned long long)window);
}

/* Makes the decoder, with memory for this window at most. */
static bool make_decoder(struct td_delta_frame *frame, uint64_t window_bytes, struct td_error *err)
{
    ZSTD_bounds bounds = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
    int log = bounds.lowerBound;
    while (log < bounds.upperBound && UINT64_C(1) << log < window_bytes)
        log++;
    frame->decoder = ZSTD_createDCtx();
    return (frame->decoder != NULL &&
            !ZSTD_isError(ZSTD_DCtx_setParameter(frame->decoder, ZSTD_d_windowLogMax, log))) ||
           td_error_no_memory(err);
}

bool td_delta_frame_open(const struct td_input *input, uint64_t off, uint64_t len, uint64_t most_bytes,
                         struct td_delta_frame **out, struct td_error *err)
{
    uint8_t bytes[HEADER_BYTES];
    struct header header;
    size_t n = len < sizeof bytes ? (size_t)len : sizeof bytes;
    *out = NULL;
    if (!td_input_read(input, off, bytes, n, err))
        return false;
    if (!read_header(bytes, n, &header))
        return td_error_set(err, TD_INVALID_ARGUMENT, "its bytes do not begin with a zstd frame");
    if (!check_header(&header, most_bytes, err))
        return false;
    struct td_delta_frame *frame = malloc(sizeof *frame);
    if (frame == NULL)
        return td_error_no_memory(err);
    frame->input = input;
    frame->next = off;
    frame->end = off + len;
    frame->stored = (ZSTD_inBuffer){.src = frame->bytes};
    frame->has_ended = false;
    if (!make_decoder(frame, header.window_bytes, err)) {
        td_delta_frame_close(frame);
        return false;
    }
    *out = frame;
    return true;
}

void td_delta_frame_close(struct td_delta_frame *frame)
{
    if (frame == NULL)
        return;
    (void)ZSTD_freeDCtx(frame->decoder);
    free(frame);
}

/* Reads more stored bytes if all are decoded. There may be none. */
static bool fill(struct td_delta_frame *frame, struct td_error *err)
{
    uint64_t left = frame->end - frame->next;
    size_t n = left < STORED_BYTES ? (size_t)left : STORED_BYTES;
    if (frame->stored.pos < frame->stored.size || n == 0)
        return true;
    if (!td_input_read(frame->input, frame->next, frame->bytes, n, err))
        return false;
    frame->next += n;
    frame->stored.size = n;
    frame->stored.pos = 0;
    return true;
}

/* Decodes bytes until `out` is full, the frame ends, or the stored bytes do. */
static bool decode(struct td_delta_frame *frame, ZSTD_outBuffer *out, struct td_error *err)
{
    while (!frame->has_ended) {
        if (!fill(frame, err))
            return false;
        size_t before = frame->stored.pos + out->pos;
        size_t left = ZSTD_decompressStream(frame->decoder, out, &frame->stored);
        if (ZSTD_isError(left))
            return td_error_set(err, TD_INVALID_ARGUMENT, "the zstd frame is damaged: %s", ZSTD_getErrorName(left));
        frame->has_ended = left == 0;
        if (frame->stored.pos + out->pos == before)
            break;
    }
    return true;
}

bool td_delta_frame_read(struct td_delta_frame *frame, void *out, size_t len, struct td_error *err)
{
    ZSTD_outBuffer buffer = {.dst = out, .size = len};
    if (len == 0)
        return true;
    if (!decode(frame, &buffer, err))
        return false;
    return buffer.pos == len || td_error_set(err, TD_INVALID_ARGUMENT, "the zstd frame ends too early");
}

bool td_delta_frame_end(struct td_delta_frame *frame, struct td_error *err)
{
    uint8_t more;
    ZSTD_outBuffer buffer = {.dst = &more, .size = 1};
    if (!decode(frame, &buffer, err))
        return false;
    if (buffer.pos > 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the zstd frame has more bytes than expected");
    if (!frame->has_ended)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the zstd frame ends too early");
    return (frame->stored.pos == frame->stored.size && frame->next == frame->end) ||
           td_error_set(err, TD_INVALID_ARGUMENT, "bytes follow the zstd frame");
}
