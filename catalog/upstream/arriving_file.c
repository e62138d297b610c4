#include "catalog/upstream/arriving_file.h"

#include "core/array.h"
#include "parser/formats.h"
#include "storage/file_source.h"
#include "storage/incoming.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the frontier -------------------------------------------------------------------------------------- */

/* Inserts a piece at its place and joins it with the pieces that it touches. */
static void insert_piece(struct td_frontier *frontier, struct td_frontier_piece piece)
{
    size_t first = 0;
    while (first < frontier->count && frontier->pieces[first].end < piece.off)
        first++;
    size_t end = first;
    for (; end < frontier->count && frontier->pieces[end].off <= piece.end; end++) {
        const struct td_frontier_piece *other = &frontier->pieces[end];
        piece.off = other->off < piece.off ? other->off : piece.off;
        piece.end = other->end > piece.end ? other->end : piece.end;
    }
    if (first == end && !TD_ARRAY_GROW(frontier->pieces, frontier->count, frontier->capacity, NULL))
        return;
    memmove(&frontier->pieces[first + 1], &frontier->pieces[end], (frontier->count - end) * sizeof piece);
    frontier->count = frontier->count - (end - first) + 1;
    frontier->pieces[first] = piece;
}

void td_frontier_add(struct td_frontier *frontier, uint64_t off, uint64_t len)
{
    uint64_t end = len > UINT64_MAX - off ? UINT64_MAX : off + len;
    if (off > frontier->bytes) {
        insert_piece(frontier, (struct td_frontier_piece){off, end});
        return;
    }
    if (end > frontier->bytes)
        frontier->bytes = end;
    size_t used = 0;
    for (; used < frontier->count && frontier->pieces[used].off <= frontier->bytes; used++)
        if (frontier->pieces[used].end > frontier->bytes)
            frontier->bytes = frontier->pieces[used].end;
    if (used == 0)
        return;
    frontier->count -= used;
    memmove(frontier->pieces, &frontier->pieces[used], frontier->count * sizeof *frontier->pieces);
}

void td_frontier_fini(struct td_frontier *frontier)
{
    free(frontier->pieces);
    memset(frontier, 0, sizeof *frontier);
}

/* ---- the file ------------------------------------------------------------------------------------------ */

/* Opens the file again, for reading only: the kernel grants no leases on a file while a duplicate of a writing
 * descriptor is open. */
static void on_began(void *context, int fd, uint64_t size_bytes)
{
    struct td_arriving_file *arriving = context;
    char path[32];
    (void)size_bytes;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int mine = arriving->is_attached ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (mine < 0) /* no descriptors, or no /proc: the file is opened when it is complete */
        return;
    td_incoming_attach(arriving->blob, mine);
    arriving->is_attached = true;
}

static void on_arrived(void *context, uint64_t off, uint64_t len, bool resumed)
{
    struct td_arriving_file *arriving = context;
    td_frontier_add(&arriving->frontier, off, len);
    if (arriving->is_attached)
        td_incoming_advance(arriving->blob, arriving->frontier.bytes);
    if (resumed)
        arriving->resumed_bytes += len;
    else
        atomic_fetch_add_explicit(arriving->fetched_bytes, len, memory_order_relaxed);
}

/* Cancels the fetch, since readers may have received wrong bytes. */
static void on_discarded(void *context)
{
    struct td_arriving_file *arriving = context;
    atomic_store(&arriving->intake->wrong_file, arriving->index);
    atomic_store(&arriving->intake->is_cancelled, true);
}

/* Opens the finished file, sets its modification time to the model's and passes its digest to the catalog, which then
 * does not hash the file again. */
static bool open_finished(const struct td_arriving_file *arriving, const struct td_remote_file *file,
                          const struct td_fetch_outcome *outcome, int *fd, struct td_error *err)
{
    struct stat st;
    struct td_file_id id;
    const struct td_intake *intake = arriving->intake;
    const struct timespec times[2] = {{.tv_sec = intake->began_s}, {.tv_sec = intake->began_s}};
    if (!td_root_open_file(intake->folder, file->path, fd, &id, err))
        return false;
    if (futimens(*fd, times) != 0 || fstat(*fd, &st) != 0) {
        int sys = errno;
        (void)close(*fd);
        return td_error_sys(err, TD_IO, sys, "cannot set the time of \"%s\"", file->path);
    }
    id = td_file_id_of(&st);
    if (arriving->config->catalog != NULL)
        td_catalog_note_digest(arriving->config->catalog, &id, outcome->sums.sha256);
    return true;
}

_Static_assert((int)TD_LFS_POINTER_BYTES <= (int)TD_INCOMING_SMALL_BYTES,
               "a HEAD waits until a file that may be a pointer is complete");

/* Checks whether the finished file is a Git LFS pointer. Sets arriving->is_lfs_pointer. */
static bool check_for_pointer(struct td_arriving_file *arriving, int fd, struct td_error *err)
{
    const struct td_input input = td_input_descriptor(&fd, arriving->blob->len_bytes);
    return td_lfs_pointer_check(&input, &arriving->is_lfs_pointer, err);
}

static bool fetch_from_source(struct td_arriving_file *arriving, struct td_fetch_outcome *outcome, struct td_error *err)
{
    struct td_intake *intake = arriving->intake;
    const struct td_cancel cancel = td_intake_cancel(intake);
    const struct td_upstream_wish wish = {
        .id = intake->id, .via = intake->via, .alone = intake->alone, .cancel = &cancel};
    const struct td_upstream_source *source = &arriving->config->source;
    const struct td_remote_file *file = &intake->model.listing.files[arriving->index];
    const struct td_fetch_events events = {
        .began = on_began, .arrived = on_arrived, .discarded = on_discarded, .context = arriving};
    int fd = -1;
    if (!source->fetch(source->context, &wish, &intake->model, file, intake->folder, &events, outcome, err))
        return false;
    if (!open_finished(arriving, file, outcome, &fd, err))
        return false;
    if (!check_for_pointer(arriving, fd, err)) {
        (void)close(fd);
        return false;
    }
    if (arriving->is_attached)
        (void)close(fd);
    else
        td_incoming_attach(arriving->blob, fd);
    return true;
}

bool td_arriving_file_fetch(struct td_arriving_file *arriving, struct td_fetch_outcome *outcome, struct td_error *err)
{
    bool ok = fetch_from_source(arriving, outcome, err);
    td_frontier_fini(&arriving->frontier);
    return ok;
}
