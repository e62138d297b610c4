/* Which bytes of a file are missing, and who fetches them. Spans are given out in order from the front. When nothing is
 * left to give, a connection without work takes the second half of the longest span that is under way, so one slow
 * server does not hold up the end. Pure; one thread. */
#ifndef TD_STORAGE_FETCH_SPANS_H
#define TD_STORAGE_FETCH_SPANS_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes that one connection fetches: [at, end). `at` moves as they arrive. */
struct td_fetch_span {
    uint64_t at, end;
    bool is_open; /* somebody fetches it */
};

struct td_fetch_spans {
    uint64_t size_bytes;
    uint64_t span_bytes;        /* the most that is given out at once; a multiple of the piece */
    uint8_t *bits;              /* a bit for each piece that is on disk, as in the journal; owned */
    uint64_t next;              /* all before it is on disk, given out or in `left` */
    uint64_t front;             /* all before it is on disk */
    uint64_t there_bytes;       /* on disk, whole pieces */
    struct td_fetch_span *open; /* one for each connection; owned */
    size_t open_count;
    struct td_fetch_span *left; /* given back unfinished, sorted; owned */
    size_t left_count;
};

/* Initialises for a file of which the pieces in `bits` (td_fetch_piece_count bits, copied; NULL: none) are on disk, and
 * so many connections. Errors: TD_RESOURCE_EXHAUSTED; nothing is then to be freed. */
bool td_fetch_spans_init(struct td_fetch_spans *spans, uint64_t size_bytes, const uint8_t *bits, size_t connections,
                         uint64_t span_bytes, struct td_error *err);
void td_fetch_spans_fini(struct td_fetch_spans *spans);

/* Gives the connection (0 to open_count - 1) a span. Returns false when there is nothing to do for it. */
bool td_fetch_spans_give(struct td_fetch_spans *spans, size_t connection);

/* Notes that the next len bytes of the connection's span are on disk. len is at most what is left of the span. Sets
 * [*first, *end) to the pieces that are complete now, whose bits are set; *first == *end: none. */
void td_fetch_spans_arrived(struct td_fetch_spans *spans, size_t connection, uint64_t len, uint64_t *first,
                            uint64_t *end);

/* Ends the connection's span. What is left of it will be given out before anything else. */
void td_fetch_spans_give_back(struct td_fetch_spans *spans, size_t connection);

/* Returns whether the whole file is on disk. */
bool td_fetch_spans_complete(const struct td_fetch_spans *spans);

#endif
