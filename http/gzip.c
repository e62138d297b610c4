#define ZLIB_CONST
#include "http/gzip.h"

#include "core/inflate_memory.h"
#include "core/waiting.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW_BYTES = 8 * 1024 };

/* The most that a thread which must not wait unpacks, in some 200 us. */
enum { QUICK_PACKED_BYTES = 16 * 1024, QUICK_BYTES = 64 * 1024 };

struct td_gunzip {
    z_stream stream;
    td_gunzip_take *take;
    void *context;
    bool is_between; /* no member has begun, or the last one has ended */
    unsigned char window[WINDOW_BYTES];
};

_Static_assert(sizeof(struct td_gunzip) + TD_INFLATE_STATE_BYTES <= TD_GUNZIP_BYTES, "the most memory is stated");

struct td_gunzip *td_gunzip_create(td_gunzip_take *take, void *context, struct td_error *err)
{
    enum { GZIP_ALONE = 16 }; /* added to the window's bits (zlib.h, inflateInit2) */
    struct td_gunzip *gunzip = malloc(sizeof *gunzip);
    if (gunzip == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    gunzip->stream = (z_stream){.zalloc = td_inflate_alloc, .zfree = td_inflate_free};
    gunzip->take = take;
    gunzip->context = context;
    gunzip->is_between = true;
    if (inflateInit2(&gunzip->stream, MAX_WBITS + GZIP_ALONE) != Z_OK) {
        (void)td_error_no_memory(err);
        free(gunzip);
        return NULL;
    }
    return gunzip;
}

void td_gunzip_destroy(struct td_gunzip *gunzip)
{
    if (gunzip == NULL)
        return;
    (void)inflateEnd(&gunzip->stream);
    free(gunzip);
}

/* Unpacks what fits into the window, and gives it away. Sets *is_done when all input is unpacked. */
static bool unpack_window(struct td_gunzip *gunzip, bool *is_done, struct td_error *err)
{
    z_stream *stream = &gunzip->stream;
    stream->next_out = gunzip->window;
    stream->avail_out = WINDOW_BYTES;
    int status = inflate(stream, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR)
        return td_error_no_memory(err);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) /* Z_BUF_ERROR: no more input */
        return td_error_set(err, TD_INVALID_ARGUMENT, "the gzip data are damaged: %s",
                            stream->msg != NULL ? stream->msg : "they have no end");
    const size_t made = WINDOW_BYTES - stream->avail_out;
    if (made > 0 && !gunzip->take(gunzip->context, gunzip->window, made, err))
        return false;
    gunzip->is_between = status == Z_STREAM_END;
    *is_done = stream->avail_in == 0 && (gunzip->is_between || stream->avail_out > 0);
    return true;
}

bool td_gunzip_add(struct td_gunzip *gunzip, const void *bytes, size_t len, struct td_error *err)
{
    enum { MOST_AT_ONCE = 1 << 30 }; /* zlib counts in unsigned int */
    z_stream *stream = &gunzip->stream;
    while (len > 0) {
        const size_t part = len < MOST_AT_ONCE ? len : MOST_AT_ONCE;
        bool is_done = false;
        stream->next_in = bytes;
        stream->avail_in = (uInt)part;
        while (!is_done) {
            if (gunzip->is_between)
                (void)inflateReset(stream); /* fails only without a stream */
            if (!unpack_window(gunzip, &is_done, err))
                return false;
        }
        bytes = (const char *)bytes + part;
        len -= part;
    }
    return true;
}

bool td_gunzip_end(const struct td_gunzip *gunzip, struct td_error *err)
{
    return gunzip->is_between || td_error_set(err, TD_INVALID_ARGUMENT, "the gzip data end too early");
}

/* ---- in memory ------------------------------------------------------------------------------------------ */

struct whole {
    const struct td_body_room *room;
    size_t first_bytes; /* the memory to begin with */
    char *bytes;        /* owned */
    size_t len, capacity;
};

/* Makes room for `more` bytes. */
static bool grow(struct whole *whole, size_t more, struct td_error *err)
{
    const uint64_t most = whole->room->most_bytes;
    uint64_t wanted = whole->capacity == 0 ? whole->first_bytes : 2 * (uint64_t)whole->capacity;
    if (more > most - whole->len)
        return td_error_set(err, TD_FAILED_PRECONDITION, "unpacked, the body is longer than --max-body-bytes");
    if (wanted < whole->len + more)
        wanted = whole->len + more;
    if (wanted > most)
        wanted = most;
    if (!whole->room->take(whole->room, wanted - whole->capacity, err))
        return false;
    char *grown = realloc(whole->bytes, (size_t)wanted);
    if (grown == NULL)
        return td_error_no_memory(err);
    whole->bytes = grown;
    whole->capacity = (size_t)wanted;
    return true;
}

static bool take_whole(void *context, const void *bytes, size_t len, struct td_error *err)
{
    struct whole *whole = context;
    if (whole->len + len > QUICK_BYTES && !td_may_wait(err))
        return false;
    if (len > whole->capacity - whole->len && !grow(whole, len, err))
        return false;
    memcpy(whole->bytes + whole->len, bytes, len);
    whole->len += len;
    return true;
}

bool td_gunzip_whole(struct td_text packed, const struct td_body_room *room, char **out, size_t *len,
                     struct td_error *err)
{
    enum { MOST_FIRST_BYTES = 1 << 20 };
    struct whole whole = {.room = room, .first_bytes = MOST_FIRST_BYTES};
    if (packed.len > QUICK_PACKED_BYTES && !td_may_wait(err))
        return false;
    if (packed.len < MOST_FIRST_BYTES / 4)
        whole.first_bytes = packed.len * 4;
    struct td_gunzip *gunzip = td_gunzip_create(take_whole, &whole, err);
    bool ok = gunzip != NULL && td_gunzip_add(gunzip, packed.p, packed.len, err) && td_gunzip_end(gunzip, err);
    td_gunzip_destroy(gunzip);
    if (!ok) {
        free(whole.bytes);
        return false;
    }
    *out = whole.bytes;
    *len = whole.len;
    return true;
}
