/* Codings: how a tensor is stored when the file's bytes are not the tensor's bytes (compressed, or cut into chunks). A
 * coding is data alone: a parser fills it in, and storage/decoded.h makes a blob of the decoded bytes. A coding and
 * everything that it points to live in the arena of their manifest, and do not change after parsing. */
#ifndef TD_CORE_CODING_H
#define TD_CORE_CODING_H

#include <stddef.h>
#include <stdint.h>

/* Limits that bound the cost of an answer. For a tensor beyond one of them, a parser records the reason in place of a
 * coding. */
enum {
    TD_CODING_CHUNK_MAX_BYTES = 64 * 1024 * 1024, /* of a decoded chunk that has filters */
    TD_CODING_FILTERS_MAX = 8,
    TD_CODING_RANK_MAX = 32,
};
#define TD_CODING_STREAM_MAX_BYTES (UINT64_C(4) << 30) /* of a decoded deflate stream, which has no index */

enum td_coding_kind {
    TD_CODING_DEFLATE, /* one raw deflate stream (RFC 1951), as a zip archive stores it */
    TD_CODING_CHUNKS,  /* an array cut into boxes of equal shape, each with its own filters (HDF5) */
};

/* Filters of HDF5 that a chunk can have: gzip, byte shuffle, a checksum, LZF. */
enum td_filter_kind { TD_FILTER_DEFLATE, TD_FILTER_SHUFFLE, TD_FILTER_FLETCHER32, TD_FILTER_LZF };

/* One filter that the writer of the file applied to a chunk. */
struct td_coding_filter {
    enum td_filter_kind kind;
    uint32_t elem_bytes; /* for TD_FILTER_SHUFFLE */
};

/* Where one chunk is stored. */
struct td_coding_chunk {
    uint64_t number;          /* row-major index in the grid of all chunks of the array */
    uint64_t offset;          /* of its stored bytes: base + offset is the position in the file */
    uint32_t bytes;           /* stored */
    uint32_t skipped_filters; /* bit i set: filter i was not applied */
};

/* An array in chunks. A chunk that is not listed holds the fill value. A chunk that crosses the array's edge is stored
 * whole. */
struct td_coding_grid {
    uint32_t rank; /* at least 1 */
    uint32_t elem_bytes;
    const uint64_t *shape, *chunk_shape;  /* no size is 0 */
    const uint8_t *fill;                  /* elem_bytes bytes; NULL: zeros */
    const struct td_coding_chunk *chunks; /* sorted by number, each once */
    size_t chunk_count;
    uint32_t filter_count;
    struct td_coding_filter filters[TD_CODING_FILTERS_MAX]; /* in the order of writing */
};

struct td_coding {
    enum td_coding_kind kind;
    const char *text;    /* for display: "compressed (shuffle, gzip)" */
    uint32_t number;     /* distinguishes the codings of one file */
    uint64_t size_bytes; /* decoded */
    uint64_t base;       /* added to every offset: where the window that was parsed begins in the file */
    /* for TD_CODING_DEFLATE: base + offset is the position of the stream's stored_bytes bytes in the file */
    uint64_t offset, stored_bytes;
    uint32_t crc32; /* of the decoded bytes; 0: unknown */
    /* for TD_CODING_CHUNKS */
    struct td_coding_grid grid;
    struct td_coding *next; /* the next coding of the same file, or NULL */
};

#endif
