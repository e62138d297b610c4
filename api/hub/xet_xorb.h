/* Xorbs: the objects in which Xet's clients send the bytes of large files. A xorb is a row of chunks. Each has a head
 * of 8 bytes, and data:
 *
 *   version (1 byte, 0), length of the data (3), scheme (1), length of the chunk (3); numbers are little-endian
 *
 * The scheme says how the data become the chunk: 0, they are the chunk; 1, an LZ4 frame; 2, an LZ4 frame of the chunk's
 * bytes in four groups: each fourth byte from the first on, from the second on, and so on. A row may end in a footer,
 * which begins with "XETBLOB" and is not needed. Source: the specification of the Xet protocol, "Xorb Format".
 *
 * liblz4 unpacks frames. Linear; one thread for each unpacker and finder. All lengths come from a client. */
#ifndef TD_API_HUB_XET_XORB_H
#define TD_API_HUB_XET_XORB_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_XET_CHUNK_BYTES = 128 * 1024,                   /* the longest chunk */
    TD_XET_STORED_BYTES = TD_XET_CHUNK_BYTES + 4096,   /* its longest data */
    TD_XET_XORB_BYTES = 64 * 1024 * 1024 + 512 * 1024, /* the longest xorb, with a footer */
    TD_XET_XORB_CHUNKS = 16 * 1024,                    /* most chunks of a xorb */
    TD_XET_HEAD_BYTES = 8,
};

/* The head of a chunk. */
struct td_xet_head {
    uint8_t scheme;
    uint32_t stored_bytes; /* at most TD_XET_STORED_BYTES */
    uint32_t chunk_bytes;  /* 1 to TD_XET_CHUNK_BYTES */
};

/* Reads a head. Errors: TD_INVALID_ARGUMENT for another version or scheme, and for lengths that are out of bounds. */
bool td_xet_head_read(const uint8_t bytes[TD_XET_HEAD_BYTES], struct td_xet_head *head, struct td_error *err);

struct LZ4F_dctx_s;

/* Unpacks chunks, one after the other. Starts as zeros, at least lz4. */
struct td_xet_unpacker {
    struct LZ4F_dctx_s *lz4;             /* NULL: no frame was unpacked yet */
    uint8_t grouped[TD_XET_CHUNK_BYTES]; /* a chunk whose bytes are in groups */
};

/* Writes the chunk, head->chunk_bytes, to `out`, from its head->stored_bytes data. A frame must end where the data do,
 * and have exactly the bytes of the chunk; its checksums are compared. It must not need a dictionary. A frame makes
 * liblz4 allocate by the size of its blocks, of at most 4 MiB: twice as much, and 128 KiB, which later frames use
 * again. Its content size is compared, and allocates nothing. Errors: TD_INVALID_ARGUMENT; TD_RESOURCE_EXHAUSTED; `out`
 * is then undefined. */
bool td_xet_chunk_read(struct td_xet_unpacker *unpacker, const struct td_xet_head *head, const uint8_t *data,
                       uint8_t *out, struct td_error *err);

/* Frees what the unpacker allocated. */
void td_xet_unpacker_fini(struct td_xet_unpacker *unpacker);

/* Finds the chunks of a xorb that arrives in pieces of any length. Starts as zeros. */
struct td_xet_finder {
    uint32_t *begins; /* where each chunk begins; of the caller, with room for TD_XET_XORB_CHUNKS + 1 */
    size_t count;     /* of chunks that have begun */
    uint64_t at;      /* bytes that were taken */
    uint64_t data_end;
    bool in_footer;
    uint8_t head[TD_XET_HEAD_BYTES];
    size_t head_len;
};

/* Takes the next bytes. Errors: TD_INVALID_ARGUMENT for a xorb that is longer than TD_XET_XORB_BYTES or has more than
 * TD_XET_XORB_CHUNKS; as td_xet_head_read. */
bool td_xet_finder_add(struct td_xet_finder *finder, const void *bytes, size_t len, struct td_error *err);

/* Ends the xorb: begins[count] is then the end of the last chunk. Errors: TD_INVALID_ARGUMENT for a xorb that is cut,
 * or has no chunk. */
bool td_xet_finder_end(struct td_xet_finder *finder, struct td_error *err);

#endif
