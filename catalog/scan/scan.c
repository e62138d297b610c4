/* Plan: the walk lists all files. resolve_file() decides for each what the new snapshot shows: the unchanged file of
 * the snapshot before, a newly read file, or (while it may still be written to) the old state or nothing.
 * tag_snapshot() hashes all that models are made of; when the tag is the old one, the old snapshot is the result and
 * grouping is skipped, which makes the scan of an unchanged tree cheap.
 *
 * What is hard: (1) when a file can be trusted. Two versions can share an mtime, so a file counts as settled only when
 * its mtime, or a change seen half-way, is settle_ns old; a lease can prove earlier that no process writes to it. After
 * reading, the identity is checked again. (2) Memory: a new snapshot is built while the old one lives, so memory of
 * files that it will drop counts as free, see has_memory(). */
#include "catalog/scan/scan.h"

#include "catalog/checkpoints/checkpoint.h"
#include "catalog/model/file_content.h"
#include "catalog/scan/grouping.h"
#include "catalog/scan/walk.h"
#include "core/buffer.h"
#include "core/checked.h"
#include "core/clock.h"
#include "core/utf8.h"
#include "parser/format/names.h"
#include "parser/formats.h"
#include "parser/torch/torch_distcp.h"
#include "storage/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file that is open and being parsed before its turn. */
struct ahead {
    const struct td_found *found;
    int fd;
};

struct scan {
    struct td_snapshot *snapshot;
    const struct td_snapshot *previous;
    const struct td_walk *walk;
    size_t removed_bytes; /* valid with has_removed: memory of the files of `previous` that this snapshot lacks */
    bool has_removed;
    struct td_mapping_cache *maps;
    const struct td_scan_config *config;
    struct td_scan_progress *progress;
    const _Atomic bool *stop;
    const struct td_unsettled_list *was_unsettled;
    struct td_unsettled_list unsettled;
    uint64_t now_ns; /* monotonic */
    int64_t wall_now_ns;
    struct td_grouping grouping;
    struct td_parse_queue *queue; /* of the files in `ahead`, in their order; NULL: files are not parsed ahead */
    struct ahead ahead[TD_PARSE_QUEUE_MAX];
    size_t ahead_count;
    size_t next_ahead; /* number of the first found file that may come into the queue */
    struct td_error *err;
};

struct td_scan_config td_scan_config_default(void)
{
    return (struct td_scan_config){.settle_ns = UINT64_C(2000000000),
                                   .max_files = 1000000,
                                   .max_directories = 1000000,
                                   .limits = td_limits_default()};
}

/* ---- files that may still be written to ---------------------------------------------------------------- */

/* The observations of a young file, besides its identity. */
struct seen {
    uint64_t first_ns; /* since when its identity is the same, monotonic */
    uint64_t due_ns;   /* when it will have settled, monotonic */
    bool half_changed, has_arrived;
    bool is_pending, is_racy; /* see td_snapshot.unsettled.pending_count, racy_count */
};

/* Adds the file to the unsettled ones. */
static bool unsettled_add(struct scan *s, const struct td_found *found, const struct seen *seen)
{
    const struct td_unsettled file = {.id = found->id,
                                      .first_seen_ns = seen->first_ns,
                                      .half_changed = seen->half_changed,
                                      .has_arrived = seen->has_arrived};
    if (!td_unsettled_add(&s->unsettled, &file, found->path, s->err))
        return false;
    td_unsettled_facts_add(&s->snapshot->unsettled, seen->is_pending, seen->is_racy, seen->due_ns);
    return true;
}

/* Returns whether a change may have been seen half-way: a truncation sets the size before the times, so the size
 * differs under the same mtime. The file need not be the same one: a copy with the same mtime may have come between two
 * scans, and be truncated in its turn. */
static bool is_half_changed(const struct td_file_id *before, const struct td_file_id *now)
{
    return before->mtime_ns == now->mtime_ns && before->size_bytes != now->size_bytes;
}

/* Returns whether a file that came by a rename, and so is complete, can be published: every later change will give it
 * another identity. If that needs some time, seen->due_ns becomes the end of that time. */
static bool is_arrived(const struct td_found *found, struct seen *seen)
{
    struct td_wall wall = td_wall_now();
    uint64_t wait_ns = 0;
    if (!seen->has_arrived)
        return false;
    enum td_rest rest =
        td_change_time_at_rest(found->id.ctime_ns, wall.seconds * 1000000000 + wall.nanoseconds, &wait_ns);
    uint64_t due_ns = td_clock_ns() + wait_ns;
    if (rest == TD_REST_SOON && due_ns < seen->due_ns)
        seen->due_ns = due_ns;
    return rest == TD_REST_YES;
}

/* Returns whether a process has the file open for writing, as far as a lease shows, or the file has changed again. */
static bool is_written(const struct scan *s, const struct td_found *found)
{
    uint64_t wait_ns;
    return td_file_at_rest(s->snapshot->root, found->physical, &found->id, s->config->lease_signal, &wait_ns) ==
           TD_REST_WRITTEN;
}

/* Returns whether the file is settled: it came by a rename (is_arrived), or its mtime is at least settle_ns old. A file
 * with an mtime in the future (a skewed clock), or one that changed half-way, is settled when scans have seen it
 * unchanged for that long; the latter not while it is written, since a truncation can take longer. Only then can a
 * later write not leave the same mtime ("racily clean"). published is the identity that is shown now, or NULL. Fills in
 * *seen. */
static bool is_settled(const struct scan *s, const struct td_found *found, const struct td_file_id *published,
                       struct seen *seen)
{
    int64_t age_ns;
    if (__builtin_sub_overflow(s->wall_now_ns, found->id.mtime_ns, &age_ns))
        age_ns = -1; /* past the year 2262, which 64 bits cannot hold: treated as the future */
    const struct td_unsettled *before = td_unsettled_find(s->was_unsettled, found->path);
    bool same = before != NULL && td_file_id_equal(&before->id, &found->id);
    seen->first_ns = same ? before->first_seen_ns : s->now_ns;
    seen->is_pending = true;
    seen->is_racy = false;
    seen->has_arrived = found->has_arrived || (same && before->has_arrived);
    seen->half_changed = (same && before->half_changed) ||
                         (before != NULL && is_half_changed(&before->id, &found->id)) ||
                         (published != NULL && is_half_changed(published, &found->id));
    if (seen->half_changed)
        age_ns = 0;
    uint64_t seen_ns = s->now_ns - seen->first_ns;
    if (s->config->settle_ns == 0 || (age_ns >= 0 && (uint64_t)age_ns >= s->config->settle_ns))
        return true;
    if (seen->first_ns != s->now_ns && seen_ns >= s->config->settle_ns) {
        if (!seen->half_changed || !is_written(s, found))
            return true;
        seen_ns = 0; /* waits once more */
    }
    uint64_t quiet_ns = age_ns > 0 && (uint64_t)age_ns > seen_ns ? (uint64_t)age_ns : seen_ns;
    seen->due_ns = s->now_ns + (s->config->settle_ns - quiet_ns);
    return is_arrived(found, seen);
}

/* Returns whether a young file may be published at once: it was written from its beginning to its end, as cp does, and
 * no writer has it open. A checkpoint file must also parse. Only a scan that was requested publishes such files. */
static bool is_finished(const struct scan *s, const struct td_found *found, struct seen *seen)
{
    uint64_t wait_ns = 0;
    if (!s->config->publish_complete)
        return false;
    enum td_rest rest =
        td_file_at_rest(s->snapshot->root, found->physical, &found->id, s->config->lease_signal, &wait_ns);
    seen->is_pending = rest != TD_REST_WRITTEN;
    seen->is_racy = rest == TD_REST_SOON;
    if (seen->is_racy && s->now_ns + wait_ns < seen->due_ns)
        seen->due_ns = s->now_ns + wait_ns;
    return rest == TD_REST_YES;
}

/* ---- files of the snapshot before, and their memory ----------------------------------------------------- */

static const struct td_entry *previous_entry(const struct scan *s, const char *path)
{
    return s->previous == NULL ? NULL : td_snapshot_find_entry(s->previous, td_text_of(path));
}

static bool is_same_place(const struct td_entry *before, const struct td_found *found)
{
    return before != NULL && strcmp(before->file->source.path, found->physical) == 0;
}

/* Returns whether the entry is this file with unchanged content, so that reading it again would give the same
 * result. */
static bool is_same_file(const struct td_entry *before, const struct td_found *found)
{
    return is_same_place(before, found) && td_file_id_equal(&before->file->source.id, &found->id) &&
           !before->file->transient;
}

/* Returns the memory of the files that the snapshot before has and this one will not have. */
static size_t removed_bytes(struct scan *s)
{
    size_t bytes = 0;
    for (size_t i = 0; s->previous != NULL && i < s->previous->entry_count; i++)
        bytes += s->previous->entries[i].file->memory_bytes;
    for (size_t i = 0; bytes > 0 && i < s->walk->count; i++) {
        const struct td_found *found = &s->walk->found[i];
        const struct td_entry *before = found->error == NULL ? previous_entry(s, found->path) : NULL;
        struct seen seen;
        if (before != NULL &&
            (is_same_file(before, found) ||
             !is_settled(s, found, is_same_place(before, found) ? &before->file->source.id : NULL, &seen)))
            bytes -= before->file->memory_bytes;
    }
    return bytes;
}

/* As removed_bytes, which is computed once. */
static size_t replaced_bytes(struct scan *s)
{
    if (!s->has_removed)
        s->removed_bytes = removed_bytes(s);
    s->has_removed = true;
    return s->removed_bytes;
}

/* Returns whether `bytes` of memory are left for one more file. The memory of files that this scan replaces counts as
 * left, though it is freed only with the snapshot before. */
static bool has_memory(struct scan *s, size_t bytes)
{
    const struct td_budget *memory = s->config->memory;
    return td_budget_fits(memory, bytes, 0) || td_budget_fits(memory, bytes, replaced_bytes(s));
}

/* ---- reading one file ---------------------------------------------------------------------------------- */

/* Takes the memory for the file's content. Refuses the file when too little is left. */
static void take_memory(struct scan *s, struct td_file *file)
{
    struct td_budget *memory = s->config->memory;
    struct td_error why = TD_ERROR_INIT;
    size_t bytes = td_file_content_bytes(file);
    if (memory == NULL)
        return;
    if (td_budget_take(memory, bytes) || td_budget_take_replacing(memory, bytes, replaced_bytes(s))) {
        file->memory = memory;
        file->memory_bytes = bytes;
        return;
    }
    (void)td_error_set(&why, TD_INVALID_ARGUMENT,
                       "its description takes %zu bytes of memory, more than is left of the %zu for all files together "
                       "(--max-memory)",
                       bytes, memory->max_bytes);
    if (file->kind == TD_FILE_PLAIN)
        td_file_forget_content(file); /* its facts of the model are lost, nothing else */
    else
        td_file_refuse(file, &why);
    file->needed_bytes = bytes;
}

/* Opens the file and sends it ahead, if it is certain that it will be parsed. */
static void send_ahead(struct scan *s, const struct td_found *found)
{
    const char *name = td_base_name(found->path);
    const struct td_entry *before = previous_entry(s, found->path);
    struct td_error why = TD_ERROR_INIT;
    struct seen seen;
    struct td_file_id id;
    bool is_pointer;
    int fd;
    enum td_file_kind kind = td_file_kind_of(name); /* a .metadata may prove to be a file like others */
    if (found->error != NULL || kind == TD_FILE_DCP_METADATA || !td_parse_pool_takes(kind, td_facts_kind_of(name)) ||
        is_same_file(before, found) ||
        !is_settled(s, found, is_same_place(before, found) ? &before->file->source.id : NULL, &seen) ||
        !td_root_open_file(s->snapshot->root, found->physical, &fd, &id, &why))
        return;
    struct td_input input = td_input_descriptor(&fd, id.size_bytes);
    if (td_file_id_equal(&id, &found->id) && td_lfs_pointer_check(&input, &is_pointer, &why) && !is_pointer &&
        td_parse_queue_put(s->queue, fd, id.size_bytes, name, &s->config->limits))
        s->ahead[s->ahead_count++] = (struct ahead){.found = found, .fd = fd};
    else
        (void)close(fd);
}

/* Fills the queue with file number i, which is about to be read, and the files after it. Considers each file once. */
static void look_ahead(struct scan *s, size_t i)
{
    if (s->next_ahead < i)
        s->next_ahead = i;
    if (s->ahead_count > TD_PARSE_QUEUE_MAX / 2)
        return; /* many at once: each time that the process falls asleep costs more than a small file */
    while (s->queue != NULL && s->ahead_count < TD_PARSE_QUEUE_MAX && s->next_ahead < s->walk->count &&
           s->next_ahead < i + TD_PARSE_QUEUE_MAX)
        send_ahead(s, &s->walk->found[s->next_ahead++]);
}

/* Removes the first file that was sent ahead. The caller closes it. */
static int pop_ahead(struct scan *s)
{
    int fd = s->ahead[0].fd;
    memmove(&s->ahead[0], &s->ahead[1], --s->ahead_count * sizeof s->ahead[0]);
    return fd;
}

/* Closes the files that were sent ahead and not taken. */
static void end_ahead(struct scan *s)
{
    td_parse_queue_destroy(s->queue);
    while (s->ahead_count > 0)
        (void)close(pop_ahead(s));
}

static bool is_ahead(const struct scan *s, const struct td_found *found)
{
    return s->ahead_count > 0 && s->ahead[0].found == found;
}

/* Parses an open file, which may have been sent ahead. */
static bool parse_file(struct scan *s, struct td_file *file, const char *name, int fd, bool was_sent,
                       struct td_error *err)
{
    const struct td_limits *limits = &s->config->limits;
    return was_sent ? td_parse_queue_take(s->queue, file, limits, s->stop, err)
                    : td_parse_pool_file(s->config->parsers, fd, file, name, limits, s->stop, err);
}

/* Opens and parses a file for which td_file_is_read holds. `name` is the name that clients know. Sets *same to false
 * when another file has taken its place since the walk. */
static void file_read(struct scan *s, const struct td_found *found, struct td_file *file, const char *name, bool *same)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_file_id id;
    int fd;
    look_ahead(s, (size_t)(found - s->walk->found));
    bool was_sent = is_ahead(s, found);
    *same = true;
    if (was_sent) {
        fd = pop_ahead(s);
        id = found->id;
    } else if (!td_root_open_file(s->snapshot->root, file->source.path, &fd, &id, &why)) {
        td_error_name_it(&why, file->source.path);
        td_file_fail(file, &why);
        return;
    }
    if (td_file_id_equal(&id, &file->source.id)) {
        bool ok = parse_file(s, file, name, fd, was_sent, &why);
        file->readable = ok && file->kind != TD_FILE_PLAIN;
        if (!ok)
            td_file_fail(file, &why);
        if (file->readable || file->facts != NULL)
            take_memory(s, file);
    }
    *same = td_file_id_is(fd, &file->source.id);
    (void)close(fd);
}

/* ---- entries ------------------------------------------------------------------------------------------- */

/* Decides what to publish for the found file. Sets *out to a file with a reference, or to NULL for none yet. */
static bool resolve_file(struct scan *s, const struct td_found *found, struct td_file **out)
{
    *out = NULL;
    const struct td_entry *before = previous_entry(s, found->path);
    if (is_same_file(before, found) &&
        (before->file->needed_bytes == 0 || !has_memory(s, before->file->needed_bytes))) {
        *out = td_file_ref(before->file);
        return true;
    }
    struct seen seen;
    bool trusted = is_settled(s, found, is_same_place(before, found) ? &before->file->source.id : NULL, &seen);
    bool early = !trusted && is_finished(s, found, &seen);
    if (trusted || early) {
        trusted = true;
        const char *name = td_base_name(found->path);
        struct td_file *file = td_file_create(found->physical, name, &found->id, s->maps, &s->config->limits);
        if (file == NULL)
            return td_error_no_memory(s->err);
        uint64_t counted = file->kind != TD_FILE_PLAIN ? 1 : 0; /* the others take no time */
        atomic_fetch_add(&s->progress->files_to_read, counted);
        if (td_file_is_read(file))
            file_read(s, found, file, name, &trusted);
        atomic_fetch_add(&s->progress->files_read, counted);
        bool half = early && file->error != NULL; /* the writer may continue */
        if (trusted && !half) {
            td_hasher_recall(s->config->hasher, file);
            *out = file;
            return true;
        }
        td_file_unref(file);
        seen.is_pending = false;
        if (!half)
            seen.due_ns = s->now_ns + s->config->settle_ns;
    }
    /* A file that is shown with an older identity stays; requests for its bytes get 503 until it settles. */
    if (!unsettled_add(s, found, &seen))
        return false;
    if (before != NULL)
        *out = td_file_ref(before->file);
    return true;
}

/* Returns whether a part of a distributed checkpoint is beside this .metadata, which sorts before its parts. Without a
 * part, it is a dot-file like others. */
static bool has_distcp_beside(const struct td_walk *walk, size_t metadata)
{
    const char *path = walk->found[metadata].path;
    size_t directory_len = (size_t)(td_base_name(path) - path);
    for (size_t i = metadata + 1; i < walk->count; i++) {
        const char *other = walk->found[i].path;
        if (strncmp(path, other, directory_len) != 0)
            return false;
        if (strchr(other + directory_len, '/') == NULL && td_file_kind_of(other) == TD_FILE_DCP_PART)
            return true;
    }
    return false;
}

static bool build_entries(struct scan *s)
{
    const struct td_walk *walk = s->walk;
    struct td_snapshot *snapshot = s->snapshot;
    snapshot->entries = calloc(walk->count + 1, sizeof *snapshot->entries);
    s->grouping.found = calloc(walk->count + 1, sizeof *s->grouping.found);
    if (snapshot->entries == NULL || s->grouping.found == NULL)
        return td_error_no_memory(s->err);
    for (size_t i = 0; i < walk->count; i++) {
        const struct td_found *found = &walk->found[i];
        enum td_file_kind kind = td_file_kind_of(found->path);
        if (kind == TD_FILE_DCP_METADATA && !has_distcp_beside(walk, i))
            continue;
        if (atomic_load(s->stop))
            return td_error_set(s->err, TD_UNAVAILABLE, "the scan was stopped");
        if (found->error != NULL) {
            if (!td_is_checkpoint_kind(kind))
                td_problems_add(&snapshot->problems, &snapshot->arena, found->path, found->error);
            else if (!td_grouping_add(&s->grouping, found->path, NULL, found->error))
                return false;
            continue;
        }
        struct td_file *file;
        if (!resolve_file(s, found, &file))
            return false;
        if (file == NULL)
            continue;
        struct td_entry *entry = &snapshot->entries[snapshot->entry_count];
        *entry = (struct td_entry){.path = found->path, .file = file};
        s->grouping.found[snapshot->entry_count++] = found;
        if (file->kind != TD_FILE_PLAIN && !td_grouping_add(&s->grouping, found->path, entry, NULL))
            return false;
    }
    return true;
}

/* ---- the snapshot --------------------------------------------------------------------------------------- */

/* Adds a cache folder: the commit of a ref can change while its files stay. */
static void add_cache_folder(struct td_digest *digest, const struct td_cache_folder *folder)
{
    td_digest_add_cstring(digest, folder->path);
    td_digest_add_cstring(digest, folder->commit);
    for (size_t i = 0; i < folder->ref_count; i++) {
        td_digest_add_cstring(digest, folder->refs[i].name);
        td_digest_add_cstring(digest, folder->refs[i].commit);
    }
}

/* Sets the snapshot's tag from all that models are made of. Runs before they are made. */
static bool tag_snapshot(struct scan *s)
{
    struct td_snapshot *snapshot = s->snapshot;
    struct td_digest *digest = td_digest_create();
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const struct td_file *file = snapshot->entries[i].file;
        td_digest_add_cstring(digest, snapshot->entries[i].path);
        td_digest_add_cstring(digest, file->source.path); // NOLINT(clang-analyzer-core.*): entries have files
        td_digest_add_cstring(digest, file->identity_tag);
        td_digest_add_cstring(digest, file->error == NULL ? "" : file->error);
        td_digest_add_cstring(digest, file->facts == NULL ? "" : "facts");
        snapshot->hashed_count += td_file_sha256(file) != NULL ? 1 : 0;
    }
    for (size_t i = 0; i < s->walk->cache_count; i++)
        add_cache_folder(digest, &s->walk->caches[i]);
    for (size_t i = 0; i < snapshot->problems.count; i++) {
        td_digest_add_cstring(digest, snapshot->problems.items[i].path);
        td_digest_add_cstring(digest, snapshot->problems.items[i].message);
    }
    for (size_t i = 0; i < s->grouping.candidate_count; i++) {
        if (s->grouping.candidates[i].entry != NULL)
            continue;
        td_digest_add_cstring(digest, s->grouping.candidates[i].path);
        td_digest_add_cstring(digest, s->grouping.candidates[i].error);
    }
    return td_digest_finish(digest, snapshot->tag) || td_error_no_memory(s->err);
}

/* Returns whether grouping would make the same models as those of the snapshot before. */
static bool is_unchanged(const struct scan *s)
{
    const struct td_snapshot *now = s->snapshot;
    const struct td_snapshot *before = s->previous;
    return before != NULL && strcmp(before->tag, now->tag) == 0 && before->root == now->root &&
           before->hashed_count == now->hashed_count && before->unsettled.count == 0 && now->unsettled.count == 0 &&
           td_snapshot_has_all_problems(before);
}

/* `root` is NULL for a snapshot of one file. */
static struct td_snapshot *snapshot_create(struct td_root *root, const struct td_snapshot *previous)
{
    struct td_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot == NULL)
        return NULL;
    atomic_init(&snapshot->refs, 1);
    td_arena_init(&snapshot->arena, 0);
    snapshot->root = root == NULL ? NULL : td_root_ref(root);
    snapshot->generation = previous == NULL ? 1 : previous->generation + 1;
    return snapshot;
}

bool td_scan(struct td_root *root, struct td_mapping_cache *maps, struct td_snapshot *previous,
             const struct td_scan_config *config, struct td_unsettled_list *unsettled,
             struct td_scan_progress *progress, const _Atomic bool *stop, struct td_snapshot **out,
             struct td_error *err)
{
    struct td_wall wall = td_wall_now();
    struct scan s = {.previous = previous,
                     .maps = maps,
                     .config = config,
                     .progress = progress,
                     .stop = stop,
                     .was_unsettled = unsettled,
                     .now_ns = td_clock_ns(),
                     .wall_now_ns = wall.seconds * 1000000000 + wall.nanoseconds,
                     .err = err};
    atomic_store(&progress->files_found, 0);
    atomic_store(&progress->files_to_read, 0);
    atomic_store(&progress->files_read, 0);
    s.snapshot = snapshot_create(root, previous);
    if (s.snapshot == NULL)
        return td_error_no_memory(err);
    struct td_walk walk = {0};
    s.walk = &walk;
    s.grouping = (struct td_grouping){.snapshot = s.snapshot, .previous = previous, .walk = &walk, .err = err};
    const struct td_walk_limits limits = {.max_files = config->max_files,
                                          .max_directories = config->max_directories,
                                          .all_revisions = config->all_revisions,
                                          .watch = config->watch};
    s.queue = config->parsers == NULL ? NULL : td_parse_queue_create(config->parsers);
    td_tree_watch_begin(config->watch, root);
    bool ok = td_walk_run(&walk, root, config->place, &s.snapshot->arena, &s.snapshot->problems, &limits,
                          &progress->files_found, stop, err) &&
              build_entries(&s) && tag_snapshot(&s) &&
              td_unsettled_facts_set_paths(&s.snapshot->unsettled, &s.unsettled, &s.snapshot->arena, err);
    end_ahead(&s);
    bool unchanged = ok && is_unchanged(&s);
    ok = ok && (unchanged || td_grouping_build(&s.grouping));
    td_tree_watch_end(config->watch, ok);
    td_walk_fini(&walk);
    td_grouping_fini(&s.grouping);
    free(s.grouping.found);
    if (!ok) {
        td_unsettled_list_fini(&s.unsettled);
        td_snapshot_free(s.snapshot);
        return false;
    }
    td_unsettled_list_fini(unsettled);
    *unsettled = s.unsettled;
    *out = unchanged ? td_snapshot_ref(previous) : s.snapshot;
    if (unchanged)
        td_snapshot_free(s.snapshot);
    return true;
}

/* ---- one file by itself -------------------------------------------------------------------------------- */

static bool open_by_path(const char *path, int *fd, struct td_file_id *id, struct td_error *err)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd < 0)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open it");
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(*fd);
        return td_error_set(err, TD_FAILED_PRECONDITION, "not a regular file");
    }
    *id = td_file_id_of(&st);
    return true;
}

/* Returns whether a file of this name can be inspected by itself. */
static bool check_name(const char *name, struct td_error *err)
{
    struct td_buffer known;
    switch (td_file_kind_of(name)) {
    case TD_FILE_TENSORS:
    case TD_FILE_MAYBE_TENSORS:
        return true;
    case TD_FILE_SHARD_INDEX:
    case TD_FILE_DCP_METADATA:
        return td_error_set(err, TD_INVALID_ARGUMENT, "names the files of a sharded checkpoint; inspect its directory");
    case TD_FILE_DCP_PART:
        return td_error_set(err, TD_INVALID_ARGUMENT, "is a part of a distributed checkpoint; inspect its directory");
    default:
        break;
    }
    td_buffer_init(&known);
    for (size_t i = 0; td_format_at(i) != NULL; i++)
        for (const char *const *extension = td_format_at(i)->extensions; *extension != NULL; extension++)
            if (td_format_at(i) != &td_format_distcp)
                td_buffer_printf(&known, " %s", *extension);
    const char *list = td_buffer_terminate(&known);
    (void)td_error_set(err, TD_INVALID_ARGUMENT, "its name is not that of a checkpoint file; known extensions are%s",
                       list == NULL ? "" : list);
    td_buffer_fini(&known);
    return false;
}

/* Parses the file. Errors: those of the file; TD_INVALID_ARGUMENT for a .bin that is no checkpoint. */
static bool parse_alone(struct td_file *file, int fd, const struct td_limits *limits, struct td_parse_pool *parsers,
                        struct td_error *err)
{
    if (!td_parse_pool_file(parsers, fd, file, file->source.path, limits, NULL, err))
        return false;
    file->readable = file->kind != TD_FILE_PLAIN;
    return file->readable ||
           td_error_set(
               err, TD_INVALID_ARGUMENT,
               "its bytes are in none of the formats that a file of such a name is read as: PyTorch, HDF5, GGUF, "
               "safetensors");
}

/* Makes the file the snapshot's one entry and model. Takes over the file's reference, even when it fails. */
static bool add_alone(struct td_snapshot *snapshot, struct td_file *file, struct td_error *err)
{
    snapshot->entries = calloc(1, sizeof *snapshot->entries);
    snapshot->models = calloc(1, sizeof *snapshot->models);
    if (snapshot->entries == NULL || snapshot->models == NULL) {
        td_file_unref(file);
        return td_error_no_memory(err);
    }
    snapshot->entries[0] = (struct td_entry){.path = file->source.path, .file = file};
    snapshot->entry_count = 1;
    struct td_model *model = &snapshot->models[0];
    struct td_candidate candidate = {
        .path = file->source.path, .alone = true, .kind = file->kind, .entry = &snapshot->entries[0]};
    model->id = file->source.path;
    model->entry_count = 1;
    model->file_bytes = file->source.id.size_bytes;
    model->updated_ns = file->source.id.mtime_ns;
    snapshot->model_count = 1;
    return td_checkpoints_build(snapshot, NULL, model, &candidate, 1, err);
}

bool td_scan_file(const char *path, const struct td_limits *limits, struct td_parse_pool *parsers,
                  struct td_snapshot **out, struct td_error *err)
{
    const char *name = td_base_name(path);
    struct td_file_id id;
    struct stat st;
    int fd;
    if (stat(path, &st) != 0)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open it");
    if (!check_name(name, err) || !open_by_path(path, &fd, &id, err))
        return false;
    struct td_file *file = td_file_create(name, name, &id, NULL, limits);
    bool ok = file != NULL && parse_alone(file, fd, limits, parsers, err);
    (void)close(fd);
    if (file == NULL)
        return td_error_no_memory(err);
    struct td_snapshot *snapshot = ok ? snapshot_create(NULL, NULL) : NULL;
    if (snapshot == NULL) {
        td_file_unref(file);
        return ok ? td_error_no_memory(err) : false;
    }
    if (!add_alone(snapshot, file, err)) {
        td_snapshot_free(snapshot);
        return false;
    }
    *out = snapshot;
    return true;
}
