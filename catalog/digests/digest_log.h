/* The log of digests: remembers the SHA-256 of files by their identities, so that no file is hashed twice. It is a
 * table in memory and, when there is a directory for it, an append-only log on disk. The log is only a cache:
 * everything from its first bad record on is ignored and overwritten; a digest counts only for exactly the identity
 * that it was computed for; when the disk fails, the log is given up for this run. Thread-safe.
 *
 * The file "digests" is a log of records (catalog/digests/record_log.h) with the magic "tdigests", version and type 1.
 * A payload is device, inode, size, mtime and ctime in ns (8 bytes each), and the SHA-256. */
#ifndef TD_CATALOG_DIGESTS_DIGEST_LOG_H
#define TD_CATALOG_DIGESTS_DIGEST_LOG_H

#include "catalog/digests/record_log.h"
#include "core/digest.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_DIGEST_LOG_MAX_RECORDS = 4000000 /* more are not kept; these take 310 MiB of memory */ };

struct td_digest_log;

/* Opens the log in state_dir, as td_record_log_open. state_dir NULL: keeps the table in memory only. The log must be
 * writable by nobody else, because a user who can write there decides which digests this process reports. */
bool td_digest_log_open(const char *state_dir, const char *root, enum td_record_log_mode mode,
                        struct td_digest_log **out, struct td_error *err);

/* Writes the records that still wait, and frees the log. NULL: does nothing. */
void td_digest_log_close(struct td_digest_log *log);

/* Copies the SHA-256 of the file with this identity to sum. Returns false when it is not known. */
bool td_digest_log_find(struct td_digest_log *log, const struct td_file_id *id, uint8_t sum[TD_SHA256_BYTES]);

/* Records a digest. The digest reaches the disk with its batch or at the next flush. May wait for the disk. */
void td_digest_log_add(struct td_digest_log *log, const struct td_file_id *id, const uint8_t sum[TD_SHA256_BYTES]);

/* Writes the waiting records and waits until they are on the disk. */
void td_digest_log_flush(struct td_digest_log *log);

/* Does the same, at most once a second; else does nothing. */
void td_digest_log_flush_if_due(struct td_digest_log *log);

/* Drops the digests of all identities for which `keep` returns false. Then rewrites the log without dropped and
 * overwritten records. Calls `keep` under the lock: it must not use this log. */
void td_digest_log_compact(struct td_digest_log *log, bool (*keep)(void *context, const struct td_file_id *id),
                           void *context);

/* Return the number of known identities, and whether added digests reach a disk. */
size_t td_digest_log_count(struct td_digest_log *log);
bool td_digest_log_is_stored(struct td_digest_log *log);

#endif
