/* The destination of a fetched file: a path below a directory. Until the file is complete it is named
 * .NAME.tensord-part and has a journal .NAME.tensord-journal beside it; a tensord lists no names that begin with a dot.
 * A lock keeps a second process, or thread, from writing the same file. Symlinks and ".." cannot lead out of the
 * directory (RESOLVE_BENEATH), a symlink as the last component is not followed, and a file with a second name (a hard
 * link) is not written. */
#ifndef TD_STORAGE_FETCH_FETCH_TARGET_H
#define TD_STORAGE_FETCH_FETCH_TARGET_H

#include "core/cancel.h"
#include "core/error.h"
#include "storage/fetch/fetch_journal.h"
#include "storage/served_root.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TD_FETCH_PART_END ".tensord-part"
#define TD_FETCH_JOURNAL_END ".tensord-journal"
#define TD_FETCH_STAGING_END ".tensord-pull" /* of the staging directory of a pull */

enum { TD_FETCH_NAME_BYTES = 238 }; /* of the last component of a path, so that the journal's name has 255 */

struct td_fetch_target {
    int directory;  /* the file's directory; owned; -1: none */
    int part;       /* owned and locked; -1: none */
    int journal;    /* owned; -1: none */
    bool has_begun; /* there is something to resume */
    uint64_t size_bytes;
    char name[NAME_MAX + 1], part_name[NAME_MAX + 1], journal_name[NAME_MAX + 1];
};

/* Checks, before anything is fetched, that the path can become that of a file: the existing parts above it are
 * directories, and no directory has the file's own name. Changes nothing. Errors as td_fetch_target_open. */
bool td_fetch_target_check(const struct td_root *root, const char *path, struct td_error *err);

/* Opens the directory of `path`, a relative path below the root, and makes directories that are missing. size_bytes:
 * the file's expected size. Errors: TD_PERMISSION_DENIED when the path leads out; TD_INVALID_ARGUMENT for a name that
 * is too long; TD_IO, also for a file in place of a directory, and for a directory in place of the file. Call
 * td_fetch_target_close in any case. */
bool td_fetch_target_open(struct td_fetch_target *target, const struct td_root *root, const char *path,
                          uint64_t size_bytes, struct td_error *err);

/* Opens and locks the unfinished file, or creates an empty one. Waits for another fetch of the same file, at most until
 * cancelled; calls `waits` (may be NULL) once before it waits. Errors: TD_CONFLICT when cancelled, TD_IO. */
bool td_fetch_target_lock(struct td_fetch_target *target, const struct td_cancel *cancel, void (*waits)(void *context),
                          void *context, struct td_error *err);

/* Opens the file with the final name for reading, if it is a regular file of the right size. Returns a descriptor,
 * which the caller closes, or -1. Call with the lock held. */
int td_fetch_target_open_finished(const struct td_fetch_target *target);

/* Reads the journal. Returns false without a journal that fits `wanted`: then begin. Else sets *found, and *bits to new
 * memory with a bit for each piece, which the caller frees; td_fetch_target_note then writes to this journal. */
bool td_fetch_target_resume(struct td_fetch_target *target, const struct td_fetch_journal *wanted,
                            struct td_fetch_journal *found, uint8_t **bits);

/* Checks, before memory is spent on a file that is to start over, that its file system has room for it; the bytes of
 * the unfinished file count as room. Errors: TD_RESOURCE_EXHAUSTED with sys ENOSPC and both numbers. */
bool td_fetch_target_check_room(const struct td_fetch_target *target, struct td_error *err);

/* Starts over: empties the unfinished file, reserves its space on disk, and writes a journal without pieces. journal
 * NULL: the file gets no journal and cannot be resumed, so td_fetch_target_close removes it unless it was placed.
 * Errors: TD_RESOURCE_EXHAUSTED with sys ENOSPC, EDQUOT or EFBIG when the disk has no room, TD_IO. */
bool td_fetch_target_begin(struct td_fetch_target *target, const struct td_fetch_journal *journal,
                           struct td_error *err);

/* Writes bytes at a place of the unfinished file. Errors as td_fetch_target_begin. */
bool td_fetch_target_write(const struct td_fetch_target *target, uint64_t off, const void *bytes, size_t len,
                           struct td_error *err);

/* Writes the bits of the pieces [first, end), not empty, to the journal, if there is one; `bits` has those of all
 * pieces. Errors as td_fetch_target_begin. */
bool td_fetch_target_note(const struct td_fetch_target *target, const uint8_t *bits, uint64_t first, uint64_t end,
                          struct td_error *err);

/* Makes the content of the complete file durable. Errors: TD_RESOURCE_EXHAUSTED for a full disk, TD_IO. */
bool td_fetch_target_sync(const struct td_fetch_target *target, struct td_error *err);

/* Renames the complete file to its final name, replacing a file of that name, and removes the journal. The caller has
 * made the content durable, and makes the name durable by fsync of `directory`. Errors: TD_IO. */
bool td_fetch_target_place(struct td_fetch_target *target, struct td_error *err);

/* Does all of that: makes the complete file durable, content and name. Errors as td_fetch_target_sync. */
bool td_fetch_target_finish(struct td_fetch_target *target, struct td_error *err);

/* Removes the unfinished file and the journal, and unlocks. td_fetch_target_lock may follow, to start over. */
void td_fetch_target_discard(struct td_fetch_target *target);

/* Closes and unlocks. Written bytes stay, to be resumed; a file that was not begun leaves nothing. */
void td_fetch_target_close(struct td_fetch_target *target);

#endif
