/* Shards: the lists by which Xet's clients say how files are made of chunks. A shard has a head of 48 bytes: a tag of
 * 32 bytes, which begins with "HFRepoMetaData" and a NUL, its version and the length of its footer (8 bytes each). Then
 * come files; each is a row of records of 48 bytes:
 *
 *   the file:   hash (32), flags (4), number of terms (4), unused (8)
 *   each term:  hash of a xorb (32), flags (4), bytes of the file (4), first chunk (4), end of the chunks (4)
 *   each term again, for verification, if flag 1<<31 is set: hash (32), unused (16)
 *   the SHA-256 of the file (32), unused (16), if flag 1<<30 is set
 *
 * A record that begins with 32 bytes 0xFF ends the files; what follows is about xorbs, and is not needed. Numbers are
 * little-endian. A hash is four numbers of 8 bytes; as text each is written as a number, so the bytes of a SHA-256 are
 * in reverse order within each 8. Source: the specification of the Xet protocol, "Shard Format".
 *
 * Pure, linear; any thread. All counts come from a client. */
#ifndef TD_API_HUB_XET_SHARD_H
#define TD_API_HUB_XET_SHARD_H

#include "core/digest.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_XET_HASH_BYTES = 32, TD_XET_HASH_TEXT_BYTES = 65 /* with a NUL */ };

struct td_xet_file {
    bool has_sha256;
    uint8_t sha256[TD_SHA256_BYTES];
    struct td_text terms; /* their records; borrowed */
    size_t term_count;
    uint64_t bytes; /* of all terms */
};

/* A stretch of a file: the chunks [first, end) of a xorb. */
struct td_xet_term {
    uint8_t xorb[TD_XET_HASH_BYTES];
    uint32_t bytes, first, end;
};

/* Checks the head of a shard, and sets *at to where its files begin. Errors: TD_INVALID_ARGUMENT. */
bool td_xet_shard_open(struct td_text shard, size_t *at, struct td_error *err);

/* Reads the file at *at, and moves *at behind it. Returns false at the end of the files, with err as it is, and for a
 * fault: TD_INVALID_ARGUMENT for a record that is cut, and for a term that is empty. */
bool td_xet_shard_next(struct td_text shard, size_t *at, struct td_xet_file *file, struct td_error *err);

/* Returns a term of a file, by a number below term_count. */
struct td_xet_term td_xet_file_term(const struct td_xet_file *file, size_t i);

/* Writes a hash as its text. */
void td_xet_hash_write(const uint8_t hash[TD_XET_HASH_BYTES], char text[TD_XET_HASH_TEXT_BYTES]);

/* Reads the text of a hash: 64 lower-case hexadecimal digits. Returns false for other texts. */
bool td_xet_hash_read(struct td_text text, uint8_t hash[TD_XET_HASH_BYTES]);

#endif
