/* The pieces of a blob that arrives (publish_upload.h): which ones are in its unfinished file, and which ones are being
 * written. Pure; not thread-safe. */
#ifndef TD_CATALOG_PUBLISH_UPLOAD_PIECES_H
#define TD_CATALOG_PUBLISH_UPLOAD_PIECES_H

#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>

struct td_upload_pieces {
    uint64_t size_bytes; /* of the blob */
    uint64_t count;      /* of its pieces, of TD_FETCH_PIECE_BYTES; the last one may be shorter */
    uint64_t front;      /* the first piece that is not in the file; count: all pieces are */
    uint8_t *bits;       /* a bit for each piece that is in the file, as in the journal; owned */
    uint8_t *writing;    /* a bit for each piece that is being written; owned */
};

/* Initialises for a blob of this size. Takes ownership of `bits`, those of the pieces that are in the file; NULL: no
 * piece is. Errors: TD_RESOURCE_EXHAUSTED. Call td_upload_pieces_fini in any case. */
bool td_upload_pieces_init(struct td_upload_pieces *pieces, uint64_t size_bytes, uint8_t *bits, struct td_error *err);

/* Frees both arrays; also of zeros. */
void td_upload_pieces_fini(struct td_upload_pieces *pieces);

/* Returns the first byte of a piece; for `count`, the size of the blob. */
uint64_t td_upload_pieces_start(const struct td_upload_pieces *pieces, uint64_t piece);

/* Finds the first run of pieces from *piece on that are not in the file: sets *piece to its first one and *stop to the
 * one after its last. Returns false when there is none. */
bool td_upload_pieces_find_missing(const struct td_upload_pieces *pieces, uint64_t *piece, uint64_t *stop);

/* Claims the first run of pieces from *piece on, before `end`, that are neither in the file nor being written: they
 * count as being written until td_upload_pieces_end_run. Sets *piece and *stop as above. Returns false when there is
 * none. */
bool td_upload_pieces_claim_run(struct td_upload_pieces *pieces, uint64_t *piece, uint64_t end, uint64_t *stop);

/* Ends a claimed run [piece, stop), which is in the file if is_written. */
void td_upload_pieces_end_run(struct td_upload_pieces *pieces, uint64_t piece, uint64_t stop, bool is_written);

/* Returns whether a piece with bytes of [first, end) is being written; `first` is the first byte of a piece. */
bool td_upload_pieces_are_written(const struct td_upload_pieces *pieces, uint64_t first, uint64_t end);

#endif
