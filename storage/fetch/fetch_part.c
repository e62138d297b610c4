#include "storage/fetch/fetch_part.h"

#include "core/array.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A connection may hold one block of bytes beyond its span's `at`. No other connection must be assigned those bytes. */
_Static_assert(TD_FETCH_BLOCK_BYTES <= TD_FETCH_STEAL_BYTES / 2 - TD_FETCH_PIECE_BYTES, "blocks are too large");

/* ---- the file ------------------------------------------------------------------------------------------ */

void td_fetch_read_boot(char boot[TD_FETCH_BOOT_BYTES])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot, TD_FETCH_BOOT_BYTES - 1);
    boot[n < 0 ? 0 : n] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
    if (fd >= 0)
        (void)close(fd);
}

static struct td_fetch_journal journal_of(const struct td_fetch_part *part)
{
    struct td_fetch_journal journal = {.size_bytes = part->expected->size_bytes,
                                       .has_sha256 = part->expected->has_sha256};
    if (journal.has_sha256)
        memcpy(journal.sha256, part->expected->sha256, sizeof journal.sha256);
    memcpy(journal.etag, part->etag, sizeof journal.etag);
    memcpy(journal.boot, part->boot, sizeof journal.boot);
    return journal;
}

bool td_fetch_part_open(struct td_fetch_part *part, const struct td_root *root, const char *name,
                        const struct td_fetch_expected *expected, const struct td_fetch_events *events,
                        size_t connections, struct td_error *err)
{
    memset(part, 0, sizeof *part);
    part->expected = expected;
    part->events = events;
    td_fetch_read_boot(part->boot);
    if (!td_fetch_target_open(&part->target, root, name, expected->size_bytes, err))
        return false;
    part->blocks = calloc(connections, sizeof *part->blocks);
    if (part->blocks == NULL)
        return td_error_no_memory(err);
    part->connection_count = connections;
    return true;
}

bool td_fetch_part_look(const struct td_fetch_part *part, const struct td_cancel *cancel, bool *is_there,
                        struct td_fetch_sums *sums, struct td_error *err)
{
    const struct td_fetch_expected *expected = part->expected;
    struct td_fetch_hasher *hasher = NULL;
    struct td_error why = TD_ERROR_INIT;
    bool has_digest = expected->has_sha256 || expected->has_git_sha1;
    int fd = has_digest ? td_fetch_target_open_finished(&part->target) : -1;
    *is_there = false;
    if (fd < 0)
        return true;
    if (td_fetch_hasher_start(fd, expected->size_bytes, expected->has_git_sha1, &hasher, &why)) {
        td_fetch_hasher_advance(hasher, expected->size_bytes);
        *is_there = td_fetch_hasher_wait(hasher, cancel, sums, &why) && td_fetch_sums_fit(sums, expected);
    }
    td_fetch_hasher_stop(hasher);
    (void)close(fd);
    return why.code != TD_CONFLICT || td_error_copy(err, &why);
}

/* Returns whether the Git object id is to be computed. */
static bool needs_git_sha1(const struct td_fetch_part *part)
{
    const struct td_fetch_expected *expected = part->expected;
    bool is_wanted = part->wants_git_sha1 && !expected->has_sha256 && expected->size_bytes <= TD_FETCH_GIT_BYTES;
    return expected->has_git_sha1 || is_wanted;
}

/* Reports that the unfinished file is open, and begins to hash it. */
static bool open_part(struct td_fetch_part *part, struct td_error *err)
{
    const struct td_fetch_events *events = part->events;
    uint64_t size_bytes = part->expected->size_bytes;
    part->has_begun = true;
    if (events->began != NULL)
        events->began(events->context, part->target.part, size_bytes);
    return td_fetch_hasher_start(part->target.part, size_bytes, needs_git_sha1(part), &part->hasher, err);
}

bool td_fetch_part_begin(struct td_fetch_part *part, struct td_error *err)
{
    const struct td_fetch_journal journal = journal_of(part);
    return td_fetch_target_begin(&part->target, &journal, err) && open_part(part, err);
}

/* Reports the pieces that an earlier process has fetched. */
static void report_resumed(struct td_fetch_part *part)
{
    const struct td_fetch_events *events = part->events;
    uint64_t size_bytes = part->expected->size_bytes;
    uint64_t count = td_fetch_piece_count(size_bytes);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t off = i * TD_FETCH_PIECE_BYTES;
        uint64_t len = size_bytes - off < TD_FETCH_PIECE_BYTES ? size_bytes - off : TD_FETCH_PIECE_BYTES;
        if (!td_fetch_spans_has(&part->spans, i))
            continue;
        part->resumed_bytes += len;
        if (events->arrived != NULL)
            events->arrived(events->context, off, len, true);
    }
}

bool td_fetch_part_prepare(struct td_fetch_part *part, uint64_t span_bytes, struct td_error *err)
{
    const struct td_fetch_journal wanted = journal_of(part);
    struct td_fetch_journal found;
    uint8_t *bits = NULL;
    bool is_resumed = td_fetch_target_resume(&part->target, &wanted, &found, &bits);
    if (!is_resumed && !td_fetch_target_check_room(&part->target, err))
        return false;
    bool ok = td_fetch_spans_init(&part->spans, wanted.size_bytes, bits, part->connection_count, span_bytes, err);
    free(bits);
    if (!ok || !is_resumed)
        return ok;
    memcpy(part->etag, found.etag, sizeof part->etag);
    if (!open_part(part, err))
        return false;
    report_resumed(part);
    td_fetch_hasher_advance(part->hasher, td_fetch_spans_front(&part->spans));
    return true;
}

bool td_fetch_part_sums(struct td_fetch_part *part, const struct td_cancel *cancel, struct td_fetch_sums *sums,
                        struct td_error *err)
{
    td_fetch_hasher_advance(part->hasher, part->expected->size_bytes);
    return td_fetch_hasher_wait(part->hasher, cancel, sums, err);
}

bool td_fetch_part_forget(struct td_fetch_part *part, const struct td_cancel *cancel, struct td_error *err)
{
    const struct td_fetch_events *events = part->events;
    bool had_begun = part->has_begun;
    td_fetch_hasher_stop(part->hasher);
    part->hasher = NULL;
    td_fetch_spans_fini(&part->spans);
    for (size_t i = 0; i < part->connection_count; i++)
        if (part->blocks[i] != NULL)
            part->blocks[i]->len = 0;
    td_fetch_target_discard(&part->target);
    part->has_begun = false;
    part->etag[0] = '\0';
    part->resumed_bytes = 0;
    if (had_begun && events->discarded != NULL)
        events->discarded(events->context);
    return td_fetch_target_lock(&part->target, cancel, NULL, NULL, err);
}

void td_fetch_part_close(struct td_fetch_part *part)
{
    for (size_t i = 0; i < part->connection_count; i++)
        free(part->blocks[i]);
    free(part->blocks);
    td_fetch_hasher_stop(part->hasher);
    td_fetch_spans_fini(&part->spans);
    td_fetch_target_close(&part->target);
}

/* ---- blocks -------------------------------------------------------------------------------------------- */

/* Writes the connection's block to the file, and gives it to the hasher if the hasher continues there. */
static bool write_block(struct td_fetch_part *part, size_t connection, struct td_error *err)
{
    struct td_fetch_block *block = part->blocks[connection];
    const struct td_fetch_events *events = part->events;
    uint64_t off = block->off;
    size_t len = block->len;
    uint64_t first;
    uint64_t end;
    if (!td_fetch_target_write(&part->target, off, block->bytes, len, err))
        return false;
    td_fetch_spans_arrived(&part->spans, connection, len, &first, &end);
    if (first < end && !td_fetch_target_note(&part->target, part->spans.bits, first, end, err))
        return false;
    if (td_fetch_hasher_give(part->hasher, block))
        part->blocks[connection] = NULL;
    else
        block->len = 0;
    td_fetch_hasher_advance(part->hasher, td_fetch_spans_front(&part->spans));
    part->fetched_bytes += len;
    if (events->arrived != NULL)
        events->arrived(events->context, off, len, false);
    return true;
}

/* Returns how many bytes the connection has in its block. */
static size_t held_bytes(const struct td_fetch_part *part, size_t connection)
{
    return part->blocks[connection] == NULL ? 0 : part->blocks[connection]->len;
}

uint64_t td_fetch_part_room(const struct td_fetch_part *part, size_t connection)
{
    const struct td_fetch_span *span = &part->spans.open[connection];
    return span->end - span->at - held_bytes(part, connection);
}

/* Copies bytes to the connection's block, which ends where a multiple of its size is in the file, so that whole pages
 * and pieces are written. Returns their number; 0: out of memory. */
static size_t fill_block(struct td_fetch_part *part, size_t connection, const char *bytes, size_t len, uint64_t now_ns)
{
    struct td_fetch_block *block = part->blocks[connection];
    if (block == NULL)
        block = part->blocks[connection] = td_fetch_hasher_block(part->hasher);
    if (block == NULL)
        return 0;
    if (block->len == 0) {
        block->off = part->spans.open[connection].at;
        block->since_ns = now_ns;
    }
    size_t room = TD_FETCH_BLOCK_BYTES - (size_t)((block->off + block->len) % TD_FETCH_BLOCK_BYTES);
    return td_array_fill(block->bytes, block->len + room, &block->len, bytes, len);
}

bool td_fetch_part_take(struct td_fetch_part *part, size_t connection, const char *bytes, size_t len, uint64_t now_ns,
                        struct td_error *err)
{
    while (len > 0) {
        size_t taken = fill_block(part, connection, bytes, len, now_ns);
        if (taken == 0)
            return td_error_no_memory(err);
        bytes += taken;
        len -= taken;
        const struct td_fetch_block *block = part->blocks[connection];
        bool is_full = (block->off + block->len) % TD_FETCH_BLOCK_BYTES == 0;
        if ((is_full || td_fetch_part_room(part, connection) == 0) && !write_block(part, connection, err))
            return false;
    }
    return true;
}

bool td_fetch_part_flush(struct td_fetch_part *part, uint64_t now_ns, uint64_t *due_ns, struct td_error *err)
{
    *due_ns = UINT64_MAX;
    for (size_t i = 0; i < part->connection_count; i++) {
        if (held_bytes(part, i) == 0)
            continue;
        uint64_t due = part->blocks[i]->since_ns + TD_FETCH_BLOCK_NS;
        if (due <= now_ns && !write_block(part, i, err))
            return false;
        if (due > now_ns && due < *due_ns)
            *due_ns = due;
    }
    return true;
}

uint64_t td_fetch_part_end_span(struct td_fetch_part *part, size_t connection, struct td_error *err)
{
    const struct td_fetch_span *span = &part->spans.open[connection];
    if (held_bytes(part, connection) > 0)
        (void)write_block(part, connection, err);
    uint64_t left = span->end - span->at;
    td_fetch_spans_return(&part->spans, connection);
    return left;
}
