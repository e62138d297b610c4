/* The bytes of a file that are missing, and the connections that fetch them. Spans are assigned in order from the
 * front, and smaller ones towards the end when there are several connections. When all bytes are assigned, an idle
 * connection takes the second half of the longest open span, so that one slow server does not delay the end. Pure; one
 * thread. */
#ifndef TD_STORAGE_FETCH_FETCH_SPANS_H
#define TD_STORAGE_FETCH_FETCH_SPANS_H

#include "core/error.h"
#include "storage/fetch/fetch_journal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A span with fewer missing bytes is not shared: that does not pay for another request. */
enum { TD_FETCH_STEAL_BYTES = 8 * TD_FETCH_PIECE_BYTES };

#define TD_FETCH_MAX_SPAN_BYTES (UINT64_C(256) * 1024 * 1024) /* the longest span after td_fetch_spans_set_cost */

/* The bytes that one connection fetches: [at, end). `at` moves as they arrive. */
struct td_fetch_span {
    uint64_t at, end;
    bool is_open; /* a connection fetches it */
};

struct td_fetch_spans {
    uint64_t size_bytes;
    uint64_t span_bytes;        /* the longest span; a multiple of the piece, as the next two */
    uint64_t long_bytes;        /* the longest span by the cost of a request; 0: span_bytes */
    uint64_t least_bytes;       /* the shortest span, and the shortest rest that is shared */
    uint8_t *bits;              /* a bit for each piece that is on disk, as in the journal; owned */
    uint64_t next;              /* the first piece that was never assigned */
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

/* Sets the cost of a request: the bytes that a connection could receive in the time from a request to the first byte of
 * its answer. Later spans are longer, so that connections spend little of their time waiting. */
void td_fetch_spans_set_cost(struct td_fetch_spans *spans, uint64_t cost_bytes);

/* Assigns a span to the connection (0 to open_count - 1). Returns false when no bytes remain for it. */
bool td_fetch_spans_give(struct td_fetch_spans *spans, size_t connection);

/* Extends the connection's span to the next piece that is on disk, or to the end of the file, if it is the latest
 * assigned span: for a server that ignores ranges and sends the whole file. */
void td_fetch_spans_extend(struct td_fetch_spans *spans, size_t connection);

/* Records that the next len bytes of the connection's span are on disk. len must not exceed the span's rest. Sets
 * [*first, *end) to the pieces that are complete now, whose bits are set; *first == *end: none. */
void td_fetch_spans_arrived(struct td_fetch_spans *spans, size_t connection, uint64_t len, uint64_t *first,
                            uint64_t *end);

/* Ends the connection's span. Its missing bytes are assigned again before others. */
void td_fetch_spans_return(struct td_fetch_spans *spans, size_t connection);

/* Returns the offset before which all bytes are on disk; size_bytes: the file is complete. */
uint64_t td_fetch_spans_front(const struct td_fetch_spans *spans);

/* Returns whether the piece is on disk. */
bool td_fetch_spans_has(const struct td_fetch_spans *spans, uint64_t piece);

#endif
