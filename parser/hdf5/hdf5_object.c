/* Object headers: the specification's section IV.A. A header is a list of messages in one or more blocks; continuation
 * messages name the further blocks. Versions 1 and 2 differ in prefix, checksums and the form of messages. */
#include "parser/hdf5/hdf5_object.h"

#include "core/checked.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    V1_PREFIX_BYTES = 16,
    V1_MESSAGE_BYTES = 8,
    V2_PREFIX_BYTES_MAX = 4 + 1 + 1 + 16 + 4 + 8,
    V2_MESSAGE_BYTES = 4, /* 6 with creation order */
    SIGNATURE_BYTES = 4,
    CHECKSUM_BYTES = 4,
    V2_TIMES = 0x20,
    V2_PHASE_CHANGE = 0x10,
    V2_CREATION_ORDER = 0x04,
};

void td_h5_header_fini(struct td_h5_header *header)
{
    td_h5_buffer_fini(&header->bytes);
    free(header->chunks);
    *header = (struct td_h5_header){0};
}

/* Loads a block of len bytes at addr. Its messages begin after `before` bytes and end `after` bytes before the end. */
static bool add_chunk(struct td_h5 *h, struct td_h5_header *header, uint64_t addr, uint64_t len, size_t before,
                      size_t after)
{
    if (!td_h5_grow(h, &header->chunks, &header->chunk_capacity, header->chunk_count, sizeof *header->chunks))
        return false;
    if (!td_h5_load(h, &header->bytes, header->used_bytes, addr, len, "object header"))
        return false;
    header->chunks[header->chunk_count++] = (struct td_h5_chunk){
        .off = header->used_bytes + before,
        .len = (size_t)len - before - after,
        .addr = addr + before,
    };
    header->used_bytes += (size_t)len;
    return true;
}

/* Checks the checksum at the end of the block that was loaded last, which begins at off. */
static bool check_block(struct td_h5 *h, const struct td_h5_header *header, size_t off, uint64_t addr, const char *what)
{
    size_t end = header->used_bytes - CHECKSUM_BYTES;
    return td_h5_check_sum(h, header->bytes.p + off, end - off, td_load_le32(header->bytes.p + end), addr, what);
}

static bool read_v1(struct td_h5 *h, struct td_h5_header *header, const uint8_t *prefix)
{
    header->version = 1;
    header->flags = 0;
    return add_chunk(h, header, header->addr + V1_PREFIX_BYTES, td_load_le32(prefix + 8), 0, 0);
}

static bool read_v2(struct td_h5 *h, struct td_h5_header *header, const uint8_t *prefix, size_t len)
{
    struct td_h5_cursor c = {.p = prefix + SIGNATURE_BYTES, .left = len - SIGNATURE_BYTES};
    unsigned version = td_h5_u8(&c);
    header->version = 2;
    header->flags = td_h5_u8(&c);
    if ((header->flags & V2_TIMES) != 0)
        (void)td_h5_take(&c, 16);
    if ((header->flags & V2_PHASE_CHANGE) != 0)
        (void)td_h5_take(&c, 4);
    uint64_t messages = td_h5_number(&c, 1U << (header->flags & 3));
    if (c.bad || version != 2)
        return td_h5_fail(h, header->addr, "object header: version %u is unknown, or the file ends within it", version);
    size_t before = len - c.left;
    uint64_t total;
    if (!td_add_u64(messages, before + CHECKSUM_BYTES, &total))
        return td_h5_fail(h, header->addr, "object header: %" PRIu64 " bytes of messages are too many", messages);
    return add_chunk(h, header, header->addr, total, before, CHECKSUM_BYTES) &&
           check_block(h, header, 0, header->addr, "object header");
}

static bool read_continuation(struct td_h5 *h, struct td_h5_header *header, struct td_h5_cursor c)
{
    static const char what[] = "object header continuation";
    uint64_t at = c.addr;
    uint64_t addr = td_h5_number(&c, h->offset_bytes);
    uint64_t len = td_h5_number(&c, h->length_bytes);
    if (c.bad)
        return td_h5_fail(h, at, "%s: its message is too short", what);
    if (!td_h5_visit(h, addr, what))
        return false;
    if (header->version == 1)
        return add_chunk(h, header, addr, len, 0, 0);
    if (len < SIGNATURE_BYTES + CHECKSUM_BYTES)
        return td_h5_fail(h, at, "%s: %" PRIu64 " bytes are too few", what, len);
    size_t off = header->used_bytes;
    if (!add_chunk(h, header, addr, len, SIGNATURE_BYTES, CHECKSUM_BYTES))
        return false;
    if (memcmp(header->bytes.p + off, "OCHK", SIGNATURE_BYTES) != 0)
        return td_h5_fail(h, addr, "%s: no signature \"OCHK\"", what);
    return check_block(h, header, off, addr, what);
}

bool td_h5_header_read(struct td_h5 *h, struct td_h5_header *header, uint64_t addr)
{
    uint8_t prefix[V2_PREFIX_BYTES_MAX] = {0};
    if (!td_h5_visit(h, addr, "object header"))
        return false;
    uint64_t left = h->size_bytes - addr;
    size_t len = left < sizeof prefix ? (size_t)left : sizeof prefix;
    header->addr = addr;
    header->used_bytes = 0;
    header->chunk_count = 0;
    if (len < V1_PREFIX_BYTES)
        return td_h5_fail(h, addr, "object header at address %" PRIu64 ": the file ends within it", addr);
    if (!td_h5_read(h, addr, prefix, len, "object header"))
        return false;
    bool ok;
    if (memcmp(prefix, "OHDR", SIGNATURE_BYTES) == 0)
        ok = read_v2(h, header, prefix, len);
    else if (prefix[0] == 1)
        ok = read_v1(h, header, prefix);
    else
        ok = td_h5_fail(h, addr, "no object header at address %" PRIu64 ": neither \"OHDR\" nor version 1", addr);
    /* A continuation adds a block after the others, and this loop comes to its messages later. */
    struct td_h5_place place = {0};
    struct td_h5_message message;
    while (ok && td_h5_next_message(h, header, &place, &message))
        if (message.type == TD_H5_CONTINUATION)
            ok = read_continuation(h, header, message.body);
    return ok && h->err->code == TD_OK;
}

/* Takes the message at the cursor, which holds at least the header of a message. */
static void take_message(const struct td_h5_header *header, struct td_h5_cursor *c, struct td_h5_message *out)
{
    uint16_t len;
    if (header->version == 1) {
        out->type = td_h5_u16(c);
        len = td_h5_u16(c);
        out->flags = td_h5_u8(c);
        (void)td_h5_take(c, 3);
    } else {
        out->type = td_h5_u8(c);
        len = td_h5_u16(c);
        out->flags = td_h5_u8(c);
        if ((header->flags & V2_CREATION_ORDER) != 0)
            (void)td_h5_take(c, 2);
    }
    out->body = (struct td_h5_cursor){.addr = c->addr, .left = len};
    out->body.p = td_h5_take(c, len);
}

bool td_h5_next_message(struct td_h5 *h, const struct td_h5_header *header, struct td_h5_place *place,
                        struct td_h5_message *out)
{
    size_t least = V1_MESSAGE_BYTES;
    if (header->version == 2)
        least = V2_MESSAGE_BYTES + ((header->flags & V2_CREATION_ORDER) != 0 ? 2 : 0);
    for (; place->chunk < header->chunk_count; place->chunk++, place->off = 0) {
        const struct td_h5_chunk *chunk = &header->chunks[place->chunk];
        if (chunk->len - place->off < least) /* a gap, or the end */
            continue;
        struct td_h5_cursor c = {
            .p = header->bytes.p + chunk->off + place->off,
            .left = chunk->len - place->off,
            .addr = chunk->addr + place->off,
        };
        take_message(header, &c, out);
        if (c.bad)
            return td_h5_fail(h, chunk->addr + place->off, "object header: a message leaves its block");
        place->off = chunk->len - c.left;
        return true;
    }
    return false;
}

bool td_h5_shared_address(struct td_h5 *h, struct td_h5_cursor body, uint64_t *addr)
{
    enum { IN_HEADER_V3 = 2 };
    unsigned version = td_h5_u8(&body);
    unsigned type = td_h5_u8(&body);
    if (version == 1)
        (void)td_h5_take(&body, 6);
    *addr = td_h5_number(&body, h->offset_bytes);
    /* In versions 1 and 2 a shared message is always in an object header. */
    return !body.bad && (version == 1 || version == 2 || (version == 3 && type == IN_HEADER_V3));
}
