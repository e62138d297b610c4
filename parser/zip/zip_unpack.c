#include "parser/zip/zip_unpack.h"

#include "core/inflate_memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

enum { INFLATE_CHUNK_BYTES = 8192 };

struct unpacking {
    const struct td_input *input;
    const struct td_zip_entry *entry;
    struct td_error *err;
    z_stream stream;
    uint64_t read_bytes; /* stored bytes read so far */
    uint8_t chunk[INFLATE_CHUNK_BYTES];
};

/* Gives the stream the next stored bytes; none when all are read. */
static bool refill_input(struct unpacking *u)
{
    uint64_t left = u->entry->stored_bytes - u->read_bytes;
    size_t len = left < sizeof u->chunk ? (size_t)left : sizeof u->chunk;
    if (!td_input_read(u->input, u->entry->offset + u->read_bytes, u->chunk, len, u->err))
        return false;
    u->read_bytes += len;
    u->stream.next_in = u->chunk;
    u->stream.avail_in = (uInt)len;
    return true;
}

static bool refuse_damaged(const struct unpacking *u, const char *how)
{
    uint64_t at = u->entry->offset + u->read_bytes - u->stream.avail_in;
    return td_error_at(u->err, TD_INVALID_ARGUMENT, at, "zip member \"%.96s\": its deflated bytes %s", u->entry->name,
                       how);
}

/* Unpacks out_len bytes to out. Sets *ended when the stream has ended. */
static bool unpack_bytes(struct unpacking *u, uint8_t *out, size_t out_len, bool *ended)
{
    size_t done = 0;
    int status = Z_OK;
    while (done < out_len && status == Z_OK) {
        if (u->stream.avail_in == 0 && !refill_input(u))
            return false;
        uInt room = out_len - done < UINT_MAX ? (uInt)(out_len - done) : UINT_MAX;
        u->stream.next_out = out + done;
        u->stream.avail_out = room;
        status = inflate(&u->stream, Z_NO_FLUSH);
        done += room - u->stream.avail_out;
    }
    *ended = status == Z_STREAM_END;
    if (status == Z_MEM_ERROR)
        return td_error_no_memory(u->err);
    if (status == Z_BUF_ERROR)
        return refuse_damaged(u, "end too early");
    if (status != Z_OK && status != Z_STREAM_END)
        return refuse_damaged(u, u->stream.msg != NULL ? u->stream.msg : "are damaged");
    return done == out_len || refuse_damaged(u, "unpack to fewer than the directory says");
}

/* Checks, once all bytes are unpacked, that the stream ends here and with the last stored byte. */
static bool unpack_end(struct unpacking *u, bool ended)
{
    uint8_t more;
    while (!ended) {
        if (u->stream.avail_in == 0 && !refill_input(u))
            return false;
        u->stream.next_out = &more;
        u->stream.avail_out = 1;
        int status = inflate(&u->stream, Z_NO_FLUSH);
        if (u->stream.avail_out == 0)
            return refuse_damaged(u, "unpack to more than the directory says");
        if (status != Z_OK && status != Z_STREAM_END)
            return refuse_damaged(u, "have no end");
        ended = status == Z_STREAM_END;
    }
    if (u->stream.avail_in != 0 || u->read_bytes != u->entry->stored_bytes)
        return refuse_damaged(u, "end before the stored bytes do");
    return true;
}

/* Returns whether the bytes have the CRC of the directory, or that CRC is 0. crc32_z takes lengths of more than 32
 * bits. */
static bool crc_agrees(const struct td_zip_entry *entry, const uint8_t *bytes, size_t len)
{
    if (entry->crc32 == 0)
        return true;
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes, len) == entry->crc32;
}

/* Unpacks the first len bytes to out. `whole`: they are all of the member, so its end and CRC are checked too. */
static bool inflate_member(const struct td_input *input, const struct td_zip_entry *entry, uint8_t *out, size_t len,
                           bool whole, struct td_error *err)
{
    struct unpacking *u = malloc(sizeof *u); /* too large for a thread's stack */
    if (u == NULL)
        return td_error_no_memory(err);
    u->input = input;
    u->entry = entry;
    u->err = err;
    u->read_bytes = 0;
    u->stream = (z_stream){.zalloc = td_inflate_alloc, .zfree = td_inflate_free};
    bool ok = inflateInit2(&u->stream, -MAX_WBITS) == Z_OK; /* raw: a zip member has no zlib header */
    if (!ok) {
        (void)td_error_no_memory(err);
    } else {
        bool ended;
        ok = unpack_bytes(u, out, len, &ended) && (!whole || unpack_end(u, ended));
        (void)inflateEnd(&u->stream);
    }
    free(u);
    if (ok && whole && !crc_agrees(entry, out, len))
        return td_error_at(err, TD_INVALID_ARGUMENT, entry->offset,
                           "zip member \"%.96s\": its unpacked bytes do not have the CRC that the directory says",
                           entry->name);
    return ok;
}

uint8_t *td_zip_load(const struct td_input *input, const struct td_zip_entry *entry, uint64_t limit_bytes,
                     struct td_error *err)
{
    if (entry->size_bytes > limit_bytes || entry->size_bytes >= SIZE_MAX) {
        (void)td_error_at(err, TD_RESOURCE_EXHAUSTED, entry->header_at,
                          "zip member \"%.96s\" has %" PRIu64 " bytes, more than the limit of %" PRIu64, entry->name,
                          entry->size_bytes, limit_bytes);
        return NULL;
    }
    if (!entry->deflated)
        return td_input_load(input, entry->offset, entry->size_bytes, limit_bytes, err);
    size_t len = (size_t)entry->size_bytes;
    uint8_t *bytes = malloc(len + 1);
    if (bytes == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    if (!inflate_member(input, entry, bytes, len, true, err)) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

bool td_zip_load_head(const struct td_input *input, const struct td_zip_entry *entry, void *out, size_t len,
                      struct td_error *err)
{
    if (len > entry->size_bytes)
        return td_error_at(err, TD_INVALID_ARGUMENT, entry->offset,
                           "zip member \"%.96s\" has %" PRIu64 " bytes, %zu are needed", entry->name, entry->size_bytes,
                           len);
    if (!entry->deflated)
        return td_input_read(input, entry->offset, out, len, err);
    return inflate_member(input, entry, out, len, false, err);
}

bool td_zip_set_coding(struct td_manifest *manifest, const struct td_zip_entry *entry, const struct td_coding **coding,
                       const char **reason)
{
    if (entry->size_bytes > TD_CODING_STREAM_MAX_BYTES) {
        if (*reason == NULL)
            *reason = "compressed (deflate), and larger than 4 GiB";
        return true;
    }
    struct td_coding *made = td_manifest_add_coding(manifest);
    if (made == NULL)
        return false;
    made->kind = TD_CODING_DEFLATE;
    made->text = "compressed (deflate)";
    made->size_bytes = entry->size_bytes;
    made->offset = entry->offset;
    made->stored_bytes = entry->stored_bytes;
    made->crc32 = entry->crc32;
    *coding = made;
    return true;
}
