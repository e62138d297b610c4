#include "storage/fetch/fetch_spans.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = TD_FETCH_PIECE_BYTES,
    COST_LEAST = 4, /* the least span, in costs of a request */
    COST_MOST = 32, /* the longest one */
};

bool td_fetch_spans_has(const struct td_fetch_spans *spans, uint64_t piece)
{
    return (spans->bits[piece / 8] >> (piece % 8) & 1) != 0;
}

static void pass_pieces(struct td_fetch_spans *spans)
{
    uint64_t count = td_fetch_piece_count(spans->size_bytes);
    while (spans->front_piece < count && td_fetch_spans_has(spans, spans->front_piece))
        spans->front_piece++;
}

bool td_fetch_spans_init(struct td_fetch_spans *spans, uint64_t size_bytes, const uint8_t *bits, size_t connections,
                         uint64_t span_bytes, struct td_error *err)
{
    size_t bit_bytes = (size_t)((td_fetch_piece_count(size_bytes) + 7) / 8);
    memset(spans, 0, sizeof *spans);
    spans->size_bytes = size_bytes;
    spans->span_bytes = span_bytes < PIECE ? PIECE : span_bytes / PIECE * PIECE;
    spans->least_bytes = TD_FETCH_STEAL_BYTES;
    spans->open_count = connections;
    spans->bits = calloc(bit_bytes + 1, 1);
    spans->open = calloc(connections, sizeof *spans->open);
    spans->returned = calloc(connections, sizeof *spans->returned);
    if (spans->bits == NULL || spans->open == NULL || spans->returned == NULL) {
        td_fetch_spans_fini(spans);
        return td_error_no_memory(err);
    }
    if (bits != NULL)
        memcpy(spans->bits, bits, bit_bytes);
    pass_pieces(spans);
    return true;
}

void td_fetch_spans_fini(struct td_fetch_spans *spans)
{
    free(spans->bits);
    free(spans->open);
    free(spans->returned);
    memset(spans, 0, sizeof *spans);
}

/* Returns the value, or the nearest bound, in whole pieces. */
static uint64_t clamp_to_pieces(uint64_t value, uint64_t least, uint64_t most)
{
    return (value < least ? least : value > most ? most : value) / PIECE * PIECE;
}

void td_fetch_spans_set_cost(struct td_fetch_spans *spans, uint64_t cost_bytes)
{
    uint64_t cost = clamp_to_pieces(cost_bytes, 0, TD_FETCH_MAX_SPAN_BYTES);
    spans->least_bytes = clamp_to_pieces(COST_LEAST * cost, TD_FETCH_STEAL_BYTES, TD_FETCH_MAX_SPAN_BYTES);
    spans->long_bytes = clamp_to_pieces(COST_MOST * cost, 0, TD_FETCH_MAX_SPAN_BYTES);
}

static uint64_t piece_begin(const struct td_fetch_spans *spans, uint64_t piece)
{
    uint64_t count = td_fetch_piece_count(spans->size_bytes);
    return piece >= count ? spans->size_bytes : piece * PIECE;
}

/* Returns how many pieces from `first` on may be assigned at once. Several connections share the end of the file in
 * ever smaller spans, so that all of them have work until the end. */
static uint64_t most_pieces(const struct td_fetch_spans *spans, uint64_t first)
{
    uint64_t most = (spans->long_bytes > spans->span_bytes ? spans->long_bytes : spans->span_bytes) / PIECE;
    uint64_t share = (td_fetch_piece_count(spans->size_bytes) - first) / (2 * spans->open_count);
    if (share < spans->least_bytes / PIECE)
        share = spans->least_bytes / PIECE;
    return spans->open_count > 1 && share < most ? share : most;
}

/* Assigns the next pieces that were never assigned. */
static bool assign_next(struct td_fetch_spans *spans, struct td_fetch_span *span)
{
    uint64_t count = td_fetch_piece_count(spans->size_bytes);
    uint64_t first = spans->next;
    while (first < count && td_fetch_spans_has(spans, first))
        first++;
    uint64_t most = most_pieces(spans, first);
    uint64_t end = first;
    while (end < count && end - first < most && !td_fetch_spans_has(spans, end))
        end++;
    spans->next = end;
    if (first == end)
        return false;
    *span = (struct td_fetch_span){.at = first * PIECE, .end = piece_begin(spans, end), .is_open = true};
    return true;
}

/* Takes the second half of the longest open span. */
static bool steal_half(struct td_fetch_spans *spans, struct td_fetch_span *span)
{
    struct td_fetch_span *longest = NULL;
    for (size_t i = 0; i < spans->open_count; i++) {
        struct td_fetch_span *one = &spans->open[i];
        if (one->is_open && (longest == NULL || one->end - one->at > longest->end - longest->at))
            longest = one;
    }
    if (longest == NULL || longest->end - longest->at < spans->least_bytes)
        return false;
    uint64_t middle = (longest->at + (longest->end - longest->at) / 2) / PIECE * PIECE;
    *span = (struct td_fetch_span){.at = middle, .end = longest->end, .is_open = true};
    longest->end = middle;
    return true;
}

/* Takes the returned span that is nearest to the front. */
static bool take_returned(struct td_fetch_spans *spans, struct td_fetch_span *span)
{
    size_t best = 0;
    if (spans->returned_count == 0)
        return false;
    for (size_t i = 1; i < spans->returned_count; i++)
        if (spans->returned[i].at < spans->returned[best].at)
            best = i;
    *span = spans->returned[best];
    span->is_open = true;
    spans->returned[best] = spans->returned[--spans->returned_count];
    return true;
}

bool td_fetch_spans_give(struct td_fetch_spans *spans, size_t connection)
{
    struct td_fetch_span *span = &spans->open[connection];
    return take_returned(spans, span) || assign_next(spans, span) || steal_half(spans, span);
}

void td_fetch_spans_extend(struct td_fetch_spans *spans, size_t connection)
{
    struct td_fetch_span *span = &spans->open[connection];
    uint64_t count = td_fetch_piece_count(spans->size_bytes);
    if (span->end != piece_begin(spans, spans->next))
        return;
    while (spans->next < count && !td_fetch_spans_has(spans, spans->next))
        spans->next++;
    span->end = piece_begin(spans, spans->next);
}

void td_fetch_spans_arrived(struct td_fetch_spans *spans, size_t connection, uint64_t len, uint64_t *first,
                            uint64_t *end)
{
    struct td_fetch_span *span = &spans->open[connection];
    *first = span->at / PIECE;
    span->at += len;
    *end = span->at == spans->size_bytes ? td_fetch_piece_count(spans->size_bytes) : span->at / PIECE;
    for (uint64_t i = *first; i < *end; i++)
        spans->bits[i / 8] |= (uint8_t)(1U << (i % 8));
    pass_pieces(spans);
}

void td_fetch_spans_return(struct td_fetch_spans *spans, size_t connection)
{
    struct td_fetch_span *span = &spans->open[connection];
    if (span->is_open && span->at < span->end)
        spans->returned[spans->returned_count++] = *span;
    *span = (struct td_fetch_span){0};
}

/* Returns the later of `front` and the span's position in the front piece. */
static uint64_t front_in(const struct td_fetch_spans *spans, const struct td_fetch_span *span, uint64_t front)
{
    return span->at > front && span->at / PIECE == spans->front_piece ? span->at : front;
}

uint64_t td_fetch_spans_front(const struct td_fetch_spans *spans)
{
    uint64_t front = piece_begin(spans, spans->front_piece);
    for (size_t i = 0; i < spans->open_count; i++)
        front = front_in(spans, &spans->open[i], front);
    for (size_t i = 0; i < spans->returned_count; i++)
        front = front_in(spans, &spans->returned[i], front);
    return front;
}
