/* Codings: how bytes are stored in a file that are not stored there as they are answered. A coding is plain numbers: a
 * parser fills it in, storage/decoded.h makes a blob of the decoded bytes of it. Everything that it points to lives in
 * the arena of the manifest that it belongs to, and is not changed once parsing has ended. */
#ifndef TD_CORE_CODING_H
#define TD_CORE_CODING_H

#include <stddef.h>
#include <stdint.h>

/* Parsers give a reason in place of a coding where one of these is passed: what one answer may cost stays bounded. */
enum {
    TD_CODING_CHUNK_MAX_BYTES = 64 * 1024 * 1024, /* decoded; of a chunk with filters */
    TD_CODING_FILTERS_MAX = 8,
    TD_CODING_RANK_MAX = 32,
};
#define TD_CODING_STREAM_MAX_BYTES (UINT64_C(4) << 30) /* decoded; of a deflated stream, which has no index */

enum td_coding_kind {
    TD_CODING_DEFLATE, /* one raw deflate stream (RFC 1951), as a zip archive stores it */
    TD_CODING_CHUNKS,  /* an array cut into boxes of equal shape, each with filters (HDF5) */
};

enum td_filter_kind { TD_FILTER_DEFLATE, TD_FILTER_SHUFFLE, TD_FILTER_FLETCHER32, TD_FILTER_LZF };

struct td_coding_filter {
    enum td_filter_kind kind;
    uint32_t elem_bytes; /* of TD_FILTER_SHUFFLE */
};

struct td_coding_chunk {
    uint64_t number;          /* row-major among the chunks that the array's shape has room for */
    uint64_t offset;          /* in the file, without the coding's base */
    uint32_t bytes;           /* there */
    uint32_t skipped_filters; /* bit i: filter i was not applied */
};

/* Chunks that are not listed hold the fill value. Chunks at the array's edge are stored whole. */
struct td_coding_grid {
    uint32_t rank; /* at least 1 */
    uint32_t elem_bytes;
    const uint64_t *shape, *chunk_shape;  /* no size is 0 */
    const uint8_t *fill;                  /* elem_bytes; NULL: zeros */
    const struct td_coding_chunk *chunks; /* by number, each once */
    size_t chunk_count;
    uint32_t filter_count;
    struct td_coding_filter filters[TD_CODING_FILTERS_MAX]; /* in the order in which they were applied */
};

struct td_coding {
    enum td_coding_kind kind;
    const char *text;    /* what is shown of it: "compressed (shuffle, gzip)" */
    uint32_t number;     /* of this coding among those of its file */
    uint64_t size_bytes; /* decoded */
    uint64_t base;       /* is added to every offset: what was parsed through a window begins there */
    /* of TD_CODING_DEFLATE */
    uint64_t offset, stored_bytes;
    uint32_t crc32; /* of the decoded bytes; 0: not known */
    /* of TD_CODING_CHUNKS */
    struct td_coding_grid grid;
    struct td_coding *next; /* of the same file */
};

#endif
