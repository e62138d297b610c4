/* The unfinished file of a fetch: its missing bytes and the connections that fetch them (fetch_spans), the file on disk
 * (fetch_target), and its digests (fetch_hasher).
 *
 * The bytes of a connection are collected in a block of memory, which is written when it is full, the span ends or some
 * time has passed: one large write costs less than many small ones, and the hasher need not read back a block that
 * continues its input. Bytes in a block have not arrived yet: they are not in the journal, and no event reports them.
 * One thread. */
#ifndef TD_STORAGE_FETCH_FETCH_PART_H
#define TD_STORAGE_FETCH_FETCH_PART_H

#include "core/cancel.h"
#include "core/error.h"
#include "storage/fetch/fetch_hasher.h"
#include "storage/fetch/fetch_spans.h"
#include "storage/fetch/fetch_target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TD_FETCH_BLOCK_NS (UINT64_C(20) * 1000 * 1000) /* the longest time that bytes stay in a block */

/* Functions that a fetch calls, on the thread that called td_fetch_file; each may be NULL. They must be quick. */
struct td_fetch_events {
    /* The unfinished file is open: `fd` may be read by pread, or duplicated, until it ends; the file keeps its bytes
     * when it is renamed. Called once, before all others except `waits`, and again after `discarded`. */
    void (*began)(void *context, int fd, uint64_t size_bytes);
    /* Bytes are in the file, in any order, each byte once; bytes of an earlier process come first (`resumed`). They are
     * not verified before td_fetch_file returns. */
    void (*arrived)(void *context, uint64_t off, uint64_t len, bool resumed);
    /* The fetch waits for bytes from now on, or no longer; before and after it examines the bytes that it has.
     */
    void (*waits)(void *context, bool is_waiting);
    /* All bytes so far were wrong, and the fetch starts over in another file, so that readers of the old descriptor do
     * not see bytes change. */
    void (*discarded)(void *context);
    void *context;
};

struct td_fetch_part {
    const struct td_fetch_expected *expected; /* borrowed, as events */
    const struct td_fetch_events *events;
    struct td_fetch_target target;
    struct td_fetch_spans spans;
    struct td_fetch_hasher *hasher;
    struct td_fetch_block **blocks; /* one for each connection, NULL until it is needed; owned */
    size_t connection_count;
    char etag[TD_FETCH_ETAG_BYTES]; /* the tag that all answers must have if no digest is known */
    char boot[TD_FETCH_BOOT_BYTES];
    bool wants_git_sha1;    /* as in td_fetch_job; false unless the caller sets it after td_fetch_part_open */
    bool has_begun;         /* the unfinished file and its journal exist */
    uint64_t resumed_bytes; /* that an earlier process fetched */
    uint64_t fetched_bytes; /* written, including bytes that were fetched again */
};

/* Reads the machine's boot id; empty: unknown. */
void td_fetch_read_boot(char boot[TD_FETCH_BOOT_BYTES]);

/* Opens the directory of the file `name` below the root, for so many connections. Errors: as td_fetch_target_open;
 * TD_RESOURCE_EXHAUSTED. Call td_fetch_part_close in any case. */
bool td_fetch_part_open(struct td_fetch_part *part, const struct td_root *root, const char *name,
                        const struct td_fetch_expected *expected, const struct td_fetch_events *events,
                        size_t connections, struct td_error *err);

/* Sets *is_there to whether a finished file with the expected digest exists already, and then sets *sums. A file that
 * cannot be read counts as missing. Call with the target's lock. Errors: TD_CONFLICT when cancelled. */
bool td_fetch_part_look(const struct td_fetch_part *part, const struct td_cancel *cancel, bool *is_there,
                        struct td_fetch_sums *sums, struct td_error *err);

/* Prepares the list of missing bytes, from the journal if there is one; span_bytes as td_fetch_spans_init. Call with
 * the target's lock. Errors: as td_fetch_target_check_room and td_fetch_hasher_start. */
bool td_fetch_part_prepare(struct td_fetch_part *part, uint64_t span_bytes, struct td_error *err);

/* Begins the file, if there is nothing to resume. Errors: as td_fetch_target_begin and td_fetch_hasher_start. */
bool td_fetch_part_begin(struct td_fetch_part *part, struct td_error *err);

/* Returns how many bytes the connection's span still needs. */
uint64_t td_fetch_part_room(const struct td_fetch_part *part, size_t connection);

/* Takes the next bytes of the connection's span, received at now_ns; `len` is at most td_fetch_part_room. Errors: as
 * td_fetch_target_write. */
bool td_fetch_part_take(struct td_fetch_part *part, size_t connection, const char *bytes, size_t len, uint64_t now_ns,
                        struct td_error *err);

/* Writes the blocks that are older than TD_FETCH_BLOCK_NS, and sets *due_ns to when the next block must be written;
 * UINT64_MAX: all are empty. Errors: as td_fetch_target_write. */
bool td_fetch_part_flush(struct td_fetch_part *part, uint64_t now_ns, uint64_t *due_ns, struct td_error *err);

/* Writes the connection's block, and ends its span. Returns how many bytes of the span are missing. Errors: as
 * td_fetch_target_write; the span is returned nonetheless. */
uint64_t td_fetch_part_end_span(struct td_fetch_part *part, size_t connection, struct td_error *err);

/* Waits for the digests of the complete file. Errors: as td_fetch_hasher_wait. */
bool td_fetch_part_sums(struct td_fetch_part *part, const struct td_cancel *cancel, struct td_fetch_sums *sums,
                        struct td_error *err);

/* Discards all bytes that have arrived; td_fetch_part_prepare may follow. Errors: as td_fetch_target_lock. */
bool td_fetch_part_forget(struct td_fetch_part *part, const struct td_cancel *cancel, struct td_error *err);

/* Closes and unlocks. Written bytes stay, to be resumed; bytes in blocks are lost. */
void td_fetch_part_close(struct td_fetch_part *part);

#endif
