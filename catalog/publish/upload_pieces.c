#include "catalog/publish/upload_pieces.h"

#include "storage/fetch/fetch_journal.h"

#include <stdlib.h>

static bool bit_is_set(const uint8_t *bits, uint64_t i)
{
    return (bits[i / 8] >> (i % 8) & 1) != 0;
}

static void set_bit(uint8_t *bits, uint64_t i, bool value)
{
    bits[i / 8] = (uint8_t)((bits[i / 8] & ~(1u << (i % 8))) | ((value ? 1u : 0u) << (i % 8)));
}

static void move_front(struct td_upload_pieces *pieces)
{
    while (pieces->front < pieces->count && bit_is_set(pieces->bits, pieces->front))
        pieces->front++;
}

bool td_upload_pieces_init(struct td_upload_pieces *pieces, uint64_t size_bytes, uint8_t *bits, struct td_error *err)
{
    uint64_t count = td_fetch_piece_count(size_bytes);
    size_t bit_bytes = (size_t)(count / 8 + 1);
    *pieces = (struct td_upload_pieces){.size_bytes = size_bytes, .count = count, .bits = bits};
    if (bits == NULL)
        pieces->bits = calloc(1, bit_bytes);
    pieces->writing = calloc(1, bit_bytes);
    if (pieces->bits == NULL || pieces->writing == NULL)
        return td_error_no_memory(err);
    move_front(pieces);
    return true;
}

void td_upload_pieces_fini(struct td_upload_pieces *pieces)
{
    free(pieces->bits);
    free(pieces->writing);
    *pieces = (struct td_upload_pieces){.count = 0};
}

uint64_t td_upload_pieces_start(const struct td_upload_pieces *pieces, uint64_t piece)
{
    return piece < pieces->count ? piece * TD_FETCH_PIECE_BYTES : pieces->size_bytes;
}

bool td_upload_pieces_find_missing(const struct td_upload_pieces *pieces, uint64_t *piece, uint64_t *stop)
{
    while (*piece < pieces->count && bit_is_set(pieces->bits, *piece))
        ++*piece;
    for (*stop = *piece; *stop < pieces->count && !bit_is_set(pieces->bits, *stop);)
        ++*stop;
    return *stop > *piece;
}

/* Returns whether a part may write the piece. */
static bool is_free(const struct td_upload_pieces *pieces, uint64_t piece)
{
    return !bit_is_set(pieces->bits, piece) && !bit_is_set(pieces->writing, piece);
}

bool td_upload_pieces_claim_run(struct td_upload_pieces *pieces, uint64_t *piece, uint64_t end, uint64_t *stop)
{
    while (*piece < end && !is_free(pieces, *piece))
        ++*piece;
    for (*stop = *piece; *stop < end && is_free(pieces, *stop); ++*stop)
        set_bit(pieces->writing, *stop, true);
    return *stop > *piece;
}

void td_upload_pieces_end_run(struct td_upload_pieces *pieces, uint64_t piece, uint64_t stop, bool is_written)
{
    for (uint64_t i = piece; i < stop; i++) {
        set_bit(pieces->writing, i, false);
        if (is_written)
            set_bit(pieces->bits, i, true);
    }
    move_front(pieces);
}

bool td_upload_pieces_are_written(const struct td_upload_pieces *pieces, uint64_t first, uint64_t end)
{
    uint64_t stop = td_fetch_piece_count(end);
    uint64_t piece = first / TD_FETCH_PIECE_BYTES;
    while (piece < stop && !bit_is_set(pieces->writing, piece))
        piece++;
    return piece < stop;
}
