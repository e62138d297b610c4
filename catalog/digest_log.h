/* What the contents of files hash to, by the files' identities: a table in memory and, with a directory for it, an
 * append log on disk, so that nothing is hashed twice. The log is a cache: from its first bad record on it is ignored
 * and overwritten, a digest counts only for exactly the identity that it was computed for, and when the disk fails it
 * is given up for this run. Thread-safe.
 *
 * The file "digests" holds a header of 16 bytes ("tdigests", version, byte order), then records: length and type (4
 * bytes each), device, inode, size, mtime and ctime in ns (8 bytes each), the SHA-256, the CRC-32 of all of this, and
 * four zero bytes. */
#ifndef TD_CATALOG_DIGEST_LOG_H
#define TD_CATALOG_DIGEST_LOG_H

#include "core/digest.h"
#include "core/error.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_DIGEST_LOG_BATCH = 256,           /* records that are written and synchronised together, at the latest */
    TD_DIGEST_LOG_MAX_RECORDS = 4000000, /* more are not kept: that is 640 MiB of memory */
};

struct td_digest_log;

enum td_digest_log_mode {
    TD_DIGEST_LOG_WRITE, /* ours alone; when another process has it, it is read and not written */
    TD_DIGEST_LOG_READ,
};

/* state_dir NULL: the table alone. Else the directory is made when it is missing (not by TD_DIGEST_LOG_READ); a
 * sub-directory of it is used when others can write to it (catalog/state_dir.h). The log in it must be ours and
 * writable by nobody else, since whoever can write there says what files hash to. It must not lie in root (NULL: not
 * looked at). Errors: TD_PERMISSION_DENIED, TD_FAILED_PRECONDITION, TD_IO, TD_RESOURCE_EXHAUSTED. What is wrong with
 * the log's content is none, nor a disk that cannot be written. */
bool td_digest_log_open(const char *state_dir, const char *root, enum td_digest_log_mode mode,
                        struct td_digest_log **out, struct td_error *err);

/* Writes what is left. NULL is fine. */
void td_digest_log_close(struct td_digest_log *log);

/* False when nothing is known of this identity. */
bool td_digest_log_find(struct td_digest_log *log, const struct td_file_id *id, uint8_t sum[TD_SHA256_BYTES]);

/* Notes a digest; it reaches the disk with its batch, or at the next flush. May wait for the disk. */
void td_digest_log_add(struct td_digest_log *log, const struct td_file_id *id, const uint8_t sum[TD_SHA256_BYTES]);

void td_digest_log_flush(struct td_digest_log *log);

/* Drops what `keep` returns false for, and writes the log anew without it and without what was overwritten. */
void td_digest_log_compact(struct td_digest_log *log, bool (*keep)(void *context, const struct td_file_id *id),
                           void *context);

/* How many identities are known, and whether what is added reaches a disk. */
size_t td_digest_log_count(struct td_digest_log *log);
bool td_digest_log_is_stored(struct td_digest_log *log);

#endif
