/* The journal of a file that is being fetched: the pieces of the file that are on disk. A journal is beside the
 * unfinished file. It begins with a head, which describes the file; a bit for each piece follows. A piece's bit is
 * written after the piece, so after a kill at any moment all pieces with a bit are there. After a crash of the machine
 * that order is not certain; therefore the head has the machine's boot id, and a file is not resumed after another boot
 * while its digest is not known. Pure: bytes in, bytes out. */
#ifndef TD_STORAGE_FETCH_FETCH_JOURNAL_H
#define TD_STORAGE_FETCH_FETCH_JOURNAL_H

#include "core/digest.h"
#include "storage/fetch/fetch_answer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_FETCH_PIECE_BYTES = 256 * 1024, /* the last piece of a file may be shorter */
    TD_FETCH_JOURNAL_HEAD_BYTES = 512,
    TD_FETCH_BOOT_BYTES = 40, /* of a boot id, with a NUL */
};

/* The file that a journal belongs to. */
struct td_fetch_journal {
    uint64_t size_bytes;
    bool has_sha256;
    uint8_t sha256[TD_SHA256_BYTES];
    char etag[TD_FETCH_ETAG_BYTES]; /* entity tag of the answers with the bytes on disk */
    char boot[TD_FETCH_BOOT_BYTES]; /* of the machine that wrote them */
};

/* Returns the number of pieces of a file, and the size of its journal in bytes. */
uint64_t td_fetch_piece_count(uint64_t size_bytes);
uint64_t td_fetch_journal_bytes(uint64_t size_bytes);

/* Writes the head. */
void td_fetch_journal_write(const struct td_fetch_journal *journal, uint8_t head[TD_FETCH_JOURNAL_HEAD_BYTES]);

/* Reads a head. Returns false for bytes that td_fetch_journal_write has not written, by a checksum. */
bool td_fetch_journal_read(const uint8_t head[TD_FETCH_JOURNAL_HEAD_BYTES], struct td_fetch_journal *journal);

/* Returns whether the fetch of the file `wanted` can resume from the file that a journal describes: size and digest are
 * equal, or the digest was not known then, and decides at the end; or, while it is not known, size, entity tag (unless
 * that of `wanted` is empty: not known yet) and boot. */
bool td_fetch_journal_fits(const struct td_fetch_journal *found, const struct td_fetch_journal *wanted);

#endif
