/* The bytes of a file that are missing, and the connections that fetch them. Spans are given out in order from the
 * front, and smaller ones towards the end when there are several connections. When nothing is left to give, a
 * connection without work takes the second half of the longest span that is under way, so one slow server does not hold
 * up the end. Pure; one thread. */
#ifndef TD_STORAGE_FETCH_FETCH_SPANS_H
#define TD_STORAGE_FETCH_FETCH_SPANS_H

#include "core/error.h"
#include "storage/fetch/fetch_journal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A span with less left is not shared: that is not worth another request. */
enum { TD_FETCH_STEAL_BYTES = 8 * TD_FETCH_PIECE_BYTES };

#define TD_FETCH_MAX_SPAN_BYTES (UINT64_C(256) * 1024 * 1024) /* that td_fetch_spans_set_cost leads to */

/* The bytes that one connection fetches: [at, end). `at` moves as they arrive. */
struct td_fetch_span {
    uint64_t at, end;
    bool is_open; /* a connection fetches it */
};

struct td_fetch_spans {
    uint64_t size_bytes;
    uint64_t span_bytes;        /* the most that is given out at once; a multiple of the piece, as the next two */
    uint64_t long_bytes;        /* the same, where a request costs so much; 0: no more than span_bytes */
    uint64_t least_bytes;       /* the least that is given out at once, and that a span has which is shared */
    uint8_t *bits;              /* a bit for each piece that is on disk, as in the journal; owned */
    uint64_t next;              /* the first piece that was never given out */
    uint64_t front_piece;       /* all pieces before it are on disk */
    struct td_fetch_span *open; /* one for each connection; owned */
    size_t open_count;
    struct td_fetch_span *returned; /* ended unfinished; owned */
    size_t returned_count;
};

/* Initialises for so many connections, and for a file with the pieces in `bits` (td_fetch_piece_count bits, copied;
 * NULL: none) on disk. Errors: TD_RESOURCE_EXHAUSTED; nothing is then to be freed. */
bool td_fetch_spans_init(struct td_fetch_spans *spans, uint64_t size_bytes, const uint8_t *bits, size_t connections,
                         uint64_t span_bytes, struct td_error *err);
void td_fetch_spans_fini(struct td_fetch_spans *spans);

/* Says how many bytes a connection could receive in the time that passes from a request to the first byte of its
 * answer. Longer spans are then given out, so that little of a connection's time is spent waiting. */
void td_fetch_spans_set_cost(struct td_fetch_spans *spans, uint64_t cost_bytes);

/* Gives the connection (0 to open_count - 1) a span. Returns false when there is nothing to do for it. */
bool td_fetch_spans_give(struct td_fetch_spans *spans, size_t connection);

/* Lets the connection's span reach up to the next piece that is on disk, or to the end of the file, if it is the last
 * one that was given out: for a server that sends the whole file whatever it is asked for. */
void td_fetch_spans_extend(struct td_fetch_spans *spans, size_t connection);

/* Records that the next len bytes of the connection's span are on disk. len is at most what is left of the span. Sets
 * [*first, *end) to the pieces that are complete now, whose bits are set; *first == *end: none. */
void td_fetch_spans_arrived(struct td_fetch_spans *spans, size_t connection, uint64_t len, uint64_t *first,
                            uint64_t *end);

/* Ends the connection's span. The rest of it will be given out before anything else. */
void td_fetch_spans_return(struct td_fetch_spans *spans, size_t connection);

/* Returns the place in the file before which all is on disk; size_bytes: the file is complete. */
uint64_t td_fetch_spans_front(const struct td_fetch_spans *spans);

/* Returns whether the piece is on disk. */
bool td_fetch_spans_has(const struct td_fetch_spans *spans, uint64_t piece);

#endif
