#include "storage/fetch/fetch_journal.h"

#include "core/input.h"

#include <string.h>

/* The head: magic, size, size of a piece, whether a digest is known, the digest, entity tag, boot id; zeros; and the
 * SHA-256 of all that at the end. Numbers are little-endian. */
enum {
    AT_SIZE = 16,
    AT_PIECE = 24,
    AT_HAS_SHA256 = 28,
    AT_SHA256 = 32,
    AT_ETAG = 64,
    AT_BOOT = AT_ETAG + TD_FETCH_ETAG_BYTES,
    AT_CHECKSUM = TD_FETCH_JOURNAL_HEAD_BYTES - TD_SHA256_BYTES,
};
_Static_assert(AT_BOOT + TD_FETCH_BOOT_BYTES <= AT_CHECKSUM, "the members of the head do not fit");

static const uint8_t magic[AT_SIZE] = "tensord fetch 1";

uint64_t td_fetch_piece_count(uint64_t size_bytes)
{
    return size_bytes / TD_FETCH_PIECE_BYTES + (size_bytes % TD_FETCH_PIECE_BYTES != 0 ? 1 : 0);
}

uint64_t td_fetch_journal_bytes(uint64_t size_bytes)
{
    return TD_FETCH_JOURNAL_HEAD_BYTES + (td_fetch_piece_count(size_bytes) + 7) / 8;
}

static void store_le(uint8_t *p, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

void td_fetch_journal_write(const struct td_fetch_journal *journal, uint8_t head[TD_FETCH_JOURNAL_HEAD_BYTES])
{
    memset(head, 0, TD_FETCH_JOURNAL_HEAD_BYTES);
    memcpy(head, magic, sizeof magic);
    store_le(head + AT_SIZE, journal->size_bytes, 8);
    store_le(head + AT_PIECE, TD_FETCH_PIECE_BYTES, 4);
    head[AT_HAS_SHA256] = journal->has_sha256 ? 1 : 0;
    if (journal->has_sha256)
        memcpy(head + AT_SHA256, journal->sha256, TD_SHA256_BYTES);
    memcpy(head + AT_ETAG, journal->etag, strnlen(journal->etag, TD_FETCH_ETAG_BYTES - 1));
    memcpy(head + AT_BOOT, journal->boot, strnlen(journal->boot, TD_FETCH_BOOT_BYTES - 1));
    td_sha256(head, AT_CHECKSUM, head + AT_CHECKSUM);
}

bool td_fetch_journal_read(const uint8_t head[TD_FETCH_JOURNAL_HEAD_BYTES], struct td_fetch_journal *journal)
{
    uint8_t again[TD_FETCH_JOURNAL_HEAD_BYTES];
    memset(journal, 0, sizeof *journal);
    journal->size_bytes = td_load_le64(head + AT_SIZE);
    journal->has_sha256 = head[AT_HAS_SHA256] == 1;
    memcpy(journal->sha256, head + AT_SHA256, TD_SHA256_BYTES);
    memcpy(journal->etag, head + AT_ETAG, TD_FETCH_ETAG_BYTES - 1);
    memcpy(journal->boot, head + AT_BOOT, TD_FETCH_BOOT_BYTES - 1);
    td_fetch_journal_write(journal, again);
    return journal->size_bytes <= INT64_MAX && memcmp(head, again, sizeof again) == 0;
}

bool td_fetch_journal_fits(const struct td_fetch_journal *found, const struct td_fetch_journal *wanted)
{
    if (found->size_bytes != wanted->size_bytes)
        return false;
    if (wanted->has_sha256)
        return !found->has_sha256 || memcmp(found->sha256, wanted->sha256, TD_SHA256_BYTES) == 0;
    return !found->has_sha256 && found->etag[0] != '\0' && found->boot[0] != '\0' &&
           strcmp(found->boot, wanted->boot) == 0 &&
           (wanted->etag[0] == '\0' || strcmp(found->etag, wanted->etag) == 0);
}
