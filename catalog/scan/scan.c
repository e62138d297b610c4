/* Plan: the walk lists all files. resolve_file() decides for each what the new snapshot shows: the unchanged file of
 * the snapshot before, a newly read file, or (while it may still be written to) the old state or nothing. The files of
 * a commit of a Hugging Face cache share their fate (catalog/scan/cache_unit.h): add_unit() shows them all or none.
 * tag_snapshot() hashes all that models are made of; when the tag is the old one, the old snapshot is the result and
 * grouping is skipped, which makes the scan of an unchanged tree cheap.
 *
 * What is hard: (1) when a file can be trusted, see catalog/scan/settling.c. After reading, the identity is checked
 * again. (2) Memory: a new snapshot is built while the old one lives, so memory of files that it will drop counts as
 * free, see has_memory(). */
#include "catalog/scan/scan.h"

#include "catalog/checkpoints/checkpoint.h"
#include "catalog/model/file_content.h"
#include "catalog/scan/cache_unit.h"
#include "catalog/scan/grouping.h"
#include "catalog/scan/settling.h"
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
#include <limits.h>
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
    struct td_walk *walk;
    struct td_units units;
    size_t removed_bytes; /* valid with has_removed: memory of the files of `previous` that this snapshot lacks */
    bool has_removed;
    struct td_mapping_cache *maps;
    const struct td_scan_config *config;
    struct td_scan_progress *progress;
    const _Atomic bool *stop;
    struct td_settling settling;
    struct td_unsettled_list unsettled;
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

/* Adds a file or folder to the unsettled ones. */
static bool unsettled_add(struct scan *s, const char *path, const struct td_file_id *id, const struct td_seen *seen)
{
    const struct td_unsettled item = {.id = *id,
                                      .first_seen_ns = seen->first_ns,
                                      .half_changed = seen->half_changed,
                                      .has_arrived = seen->has_arrived};
    if (!td_unsettled_add(&s->unsettled, &item, path, s->err))
        return false;
    td_unsettled_facts_add(&s->snapshot->unsettled, seen->is_pending, seen->is_racy, seen->due_ns);
    return true;
}

/* ---- files of the snapshot before, and their memory ----------------------------------------------------- */

/* Returns the entry of the found file in the snapshot before, or NULL. `unit` is the one that it is in, or NULL. */
static const struct td_entry *previous_entry(const struct scan *s, const struct td_found *found,
                                             const struct td_unit *unit)
{
    if (unit != NULL)
        return s->units.before[found - s->walk->found];
    return s->previous == NULL ? NULL : td_snapshot_find_entry(s->previous, td_text_of(found->path));
}

/* Returns whether the file is settled, see td_settling_is_settled. Fills in *seen. */
static bool is_settled(const struct scan *s, const struct td_found *found, const struct td_unit *unit,
                       struct td_young *young, struct td_seen *seen)
{
    *young = unit != NULL ? td_units_young(&s->units, unit, (size_t)(found - s->walk->found))
                          : td_settling_file(&s->settling, found, previous_entry(s, found, unit));
    return td_settling_is_settled(&s->settling, young, seen);
}

/* Returns the memory of a run of entries of the snapshot before. */
static size_t entries_bytes(const struct scan *s, size_t first, size_t count)
{
    size_t bytes = 0;
    for (size_t i = first; i < first + count; i++)
        bytes += s->previous->entries[i].file->memory_bytes;
    return bytes;
}

/* Returns the memory of the files that this snapshot keeps for what the walk found. */
static size_t kept_bytes(const struct scan *s, const struct td_found *found, const struct td_unit *unit)
{
    const struct td_entry *before = found->error == NULL ? previous_entry(s, found, unit) : NULL;
    struct td_young young;
    struct td_seen seen;
    bool stays = before != NULL && (unit == NULL || !(unit->is_held || unit->is_hidden)) &&
                 (td_settling_is_same_file(before, found) || !is_settled(s, found, unit, &young, &seen));
    return stays ? before->file->memory_bytes : 0;
}

/* Returns the memory of the files that the snapshot before has and this one will not have. */
static size_t removed_bytes(struct scan *s)
{
    size_t bytes = s->previous == NULL ? 0 : entries_bytes(s, 0, s->previous->entry_count);
    for (size_t i = 0; bytes > 0 && i < s->walk->count; i++)
        bytes -= kept_bytes(s, &s->walk->found[i], td_units_of_file(&s->units, i));
    for (size_t i = 0; bytes > 0 && i < s->units.count; i++) {
        const struct td_unit *unit = &s->units.items[i];
        if (unit->is_held && !unit->is_hidden)
            bytes -= entries_bytes(s, unit->kept.first, unit->kept.count);
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
    const struct td_unit *unit = td_units_of_file(&s->units, (size_t)(found - s->walk->found));
    struct td_error why = TD_ERROR_INIT;
    struct td_young young;
    struct td_seen seen;
    struct td_file_id id;
    bool is_pointer;
    int fd;
    enum td_file_kind kind = td_file_kind_of(name); /* a .metadata may prove to be a file like others */
    if (found->error != NULL || kind == TD_FILE_DCP_METADATA || !td_parse_pool_takes(kind, td_facts_kind_of(name)) ||
        (unit != NULL && (unit->is_held || unit->is_hidden)) ||
        td_settling_is_same_file(previous_entry(s, found, unit), found) || !is_settled(s, found, unit, &young, &seen) ||
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

/* Returns whether the file, which is not settled, is known to be finished. */
static bool is_finished(const struct scan *s, const struct td_found *found, const struct td_young *young,
                        struct td_seen *seen)
{
    return td_units_is_finished(&s->units, (size_t)(found - s->walk->found)) ||
           td_settling_is_finished(&s->settling, young, seen);
}

/* Decides what to publish for the found file, which is in the unit (NULL: in none). Sets *out to a file with a
 * reference, or to NULL for none yet. */
static bool resolve_file(struct scan *s, const struct td_found *found, const struct td_unit *unit, struct td_file **out)
{
    *out = NULL;
    const struct td_entry *before = previous_entry(s, found, unit);
    if (td_settling_is_same_file(before, found) &&
        (before->file->needed_bytes == 0 || !has_memory(s, before->file->needed_bytes))) {
        *out = td_file_ref(before->file);
        return true;
    }
    struct td_young young;
    struct td_seen seen;
    bool trusted = is_settled(s, found, unit, &young, &seen);
    bool early = !trusted && is_finished(s, found, &young, &seen);
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
            seen.due_ns = s->settling.now_ns + s->config->settle_ns;
    }
    /* A file that is shown with an older identity stays; requests for its bytes get 503 until it settles. */
    if (!unsettled_add(s, found->path, &found->id, &seen))
        return false;
    if (before != NULL)
        *out = td_file_ref(before->file);
    return true;
}

/* Adds an entry, and a candidate for a checkpoint if it is one. Takes over the file's reference. */
static bool add_entry(struct scan *s, const struct td_found *found, const char *path, struct td_file *file)
{
    struct td_snapshot *snapshot = s->snapshot;
    struct td_entry *entry = &snapshot->entries[snapshot->entry_count];
    *entry = (struct td_entry){.path = path, .file = file};
    s->grouping.found[snapshot->entry_count++] = found;
    return file->kind == TD_FILE_PLAIN || td_grouping_add(&s->grouping, path, entry, NULL);
}

/* Adds the reason why a file cannot be served. */
static bool add_error(struct scan *s, const char *path, const char *error)
{
    if (td_is_checkpoint_kind(td_file_kind_of(path)))
        return td_grouping_add(&s->grouping, path, NULL, error);
    td_problems_add(&s->snapshot->problems, &s->snapshot->arena, path, error);
    return true;
}

/* Adds the files number `first` to `end` of the walk, which are in the unit (NULL: in none). */
static bool add_files(struct scan *s, size_t first, size_t end, const struct td_unit *unit)
{
    for (size_t i = first; i < end; i++) {
        const struct td_found *found = &s->walk->found[i];
        struct td_file *file;
        if (td_walk_passes_over(s->walk, i))
            continue;
        if (atomic_load(s->stop))
            return td_error_set(s->err, TD_UNAVAILABLE, "the scan was stopped");
        if (found->error != NULL) {
            if (!add_error(s, found->path, found->error))
                return false;
            continue;
        }
        if (!resolve_file(s, found, unit, &file) || (file != NULL && !add_entry(s, found, found->path, file)))
            return false;
    }
    return true;
}

/* ---- units ---------------------------------------------------------------------------------------------- */

/* How much of the snapshot was there before a unit was added. */
struct mark {
    size_t entries, candidates, problems, unsettled;
};

static struct mark mark_here(const struct scan *s)
{
    return (struct mark){.entries = s->snapshot->entry_count,
                         .candidates = s->grouping.candidate_count,
                         .problems = s->snapshot->problems.count,
                         .unsettled = s->unsettled.count};
}

/* Removes what was added since, but for the unsettled files. */
static void go_back_to(struct scan *s, const struct mark *mark)
{
    while (s->snapshot->entry_count > mark->entries)
        td_file_unref(s->snapshot->entries[--s->snapshot->entry_count].file);
    s->grouping.candidate_count = mark->candidates;
    s->snapshot->problems.count = mark->problems;
}

/* Adds a file or folder of a unit that is held to the unsettled ones, unless its mtime shows that it has settled. What
 * has settled because it arrived is added as well, so that the next scan still knows of the arrival. */
static bool add_held(struct scan *s, const char *path, const struct td_file_id *id, bool settled, struct td_seen *seen)
{
    if (settled && seen->due_ns == 0)
        return true;
    seen->is_pending = seen->is_pending && !settled;
    return unsettled_add(s, path, id, seen);
}

static bool add_held_file(struct scan *s, const struct td_unit *unit, size_t i)
{
    const struct td_found *found = &s->walk->found[i];
    struct td_seen seen = {.due_ns = 0};
    bool settled = td_units_file_is_settled(&s->units, unit, i, &seen);
    return add_held(s, found->path, &found->id, settled, &seen);
}

static bool add_held_folder(struct scan *s, const struct td_unit *unit, size_t i)
{
    const struct td_found_folder *folder = &s->walk->folders[i];
    struct td_seen seen = {.due_ns = 0};
    bool settled = td_units_folder_is_settled(&s->units, unit, i, &seen);
    return add_held(s, folder->path, &folder->id, settled, &seen);
}

/* Adds what has not settled of a unit that is held. Both lists are sorted by path. */
static bool add_unsettled(struct scan *s, const struct td_unit *unit)
{
    size_t i = unit->first;
    const size_t end = unit->first + unit->count;
    for (size_t k = unit->folder_first; k < unit->folder_first + unit->folder_count; k++) {
        for (; i < end && strcmp(s->walk->found[i].path, s->walk->folders[k].path) < 0; i++)
            if (!add_held_file(s, unit, i))
                return false;
        if (!add_held_folder(s, unit, k))
            return false;
    }
    for (; i < end; i++)
        if (!add_held_file(s, unit, i))
            return false;
    return true;
}

/* Returns the path of something below a directory; `rest` begins with '/'. Returns NULL for want of memory. */
static const char *path_below(const struct scan *s, const char *directory, const char *rest)
{
    size_t len = strlen(directory);
    size_t rest_len = strlen(rest);
    char *path = td_arena_alloc(&s->snapshot->arena, len + rest_len + 1);
    if (path == NULL) {
        (void)td_error_no_memory(s->err);
        return NULL;
    }
    memcpy(path, directory, len);
    memcpy(path + len, rest, rest_len + 1);
    return path;
}

/* Adds the problems that a commit on disk had when its kept state was shown: files that cannot be served, and that the
 * state lacks. They get the path of the state. */
static bool add_kept_errors(struct scan *s, const struct td_unit *on_disk, const char *path)
{
    size_t prefix_len = strlen(on_disk->folder->path);
    for (size_t i = on_disk->first; i < on_disk->first + on_disk->count; i++) {
        const struct td_found *found = &s->walk->found[i];
        struct td_seen seen;
        if (found->error == NULL || s->units.before[i] != NULL ||
            !td_units_file_is_settled(&s->units, on_disk, i, &seen))
            continue;
        const char *at = path_below(s, path, found->path + prefix_len);
        if (at == NULL || !add_error(s, at, found->error))
            return false;
    }
    return true;
}

/* Adds the state that is kept in place of a unit, under the unit's path. */
static bool add_kept(struct scan *s, const struct td_unit *unit)
{
    const struct td_unit_state *kept = &unit->kept;
    struct td_found *found = td_arena_alloc(&s->walk->scratch, sizeof *found);
    const char *commit = td_arena_strndup(&s->snapshot->arena, td_text_of(kept->folder->commit));
    if (found == NULL || commit == NULL)
        return td_error_no_memory(s->err);
    *found = (struct td_found){.revision = commit, .other_revision = unit->folder->is_other_revision};
    size_t prefix_len = strlen(kept->folder->path);
    for (size_t i = kept->first; i < kept->first + kept->count; i++) {
        const struct td_entry *before = &s->previous->entries[i];
        const char *path = path_below(s, unit->folder->path, before->path + prefix_len);
        if (path == NULL || !add_entry(s, found, path, td_file_ref(before->file)))
            return false;
    }
    const struct td_unit *on_disk = td_units_of_kept(&s->units, unit);
    return on_disk == NULL || add_kept_errors(s, on_disk, unit->folder->path);
}

/* Adds the files of a commit of a Hugging Face cache, or what is kept in their place. */
static bool add_unit(struct scan *s, struct td_unit *unit)
{
    if (unit->is_hidden)
        return true;
    if (!unit->is_held) {
        const struct mark mark = mark_here(s);
        if (!add_files(s, unit->first, unit->first + unit->count, unit))
            return false;
        if (s->unsettled.count == mark.unsettled)
            return true;
        go_back_to(s, &mark); /* a file changed while it was read */
        td_units_hold(&s->units, unit);
    } else if (!add_unsettled(s, unit)) {
        return false;
    }
    return unit->kept.folder == NULL || add_kept(s, unit);
}

static bool build_entries(struct scan *s)
{
    struct td_snapshot *snapshot = s->snapshot;
    if (!td_units_create(&s->units, &s->settling, s->walk, s->previous, s->err))
        return false;
    /* what is kept may have vanished from disk: then it comes from the snapshot before alone */
    size_t most = s->walk->count + (s->previous == NULL ? 0 : s->previous->entry_count);
    snapshot->entries = calloc(most + 1, sizeof *snapshot->entries);
    s->grouping.found = calloc(most + 1, sizeof *s->grouping.found);
    if (snapshot->entries == NULL || s->grouping.found == NULL)
        return td_error_no_memory(s->err);
    size_t at = 0;
    for (size_t i = 0; i < s->units.count; i++) {
        struct td_unit *unit = &s->units.items[i];
        if (!add_files(s, at, unit->first, NULL) || !add_unit(s, unit))
            return false;
        at = unit->first + unit->count;
    }
    struct td_cache_folder *caches;
    if (!add_files(s, at, s->walk->count, NULL) ||
        !td_units_list(&s->units, &snapshot->arena, &caches, &s->grouping.cache_count))
        return false;
    s->grouping.caches = caches;
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
    for (size_t i = 0; i < s->grouping.cache_count; i++)
        add_cache_folder(digest, &s->grouping.caches[i]);
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

/* As td_walk_limits.is_known; the context is the snapshot before. */
static bool is_known(const void *context, const struct td_cache_folder *folder)
{
    return td_units_know(context, folder);
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
                     .settling = {.settle_ns = config->settle_ns,
                                  .publish_complete = config->publish_complete,
                                  .lease_signal = config->lease_signal,
                                  .root = root,
                                  .published = config->published,
                                  .published_count = config->published_count,
                                  .before = unsettled,
                                  .now_ns = td_clock_ns(),
                                  .wall_now_ns = wall.seconds * TD_NS_PER_S + wall.nanoseconds},
                     .err = err};
    atomic_store(&progress->files_found, 0);
    atomic_store(&progress->files_to_read, 0);
    atomic_store(&progress->files_read, 0);
    s.snapshot = snapshot_create(root, previous);
    if (s.snapshot == NULL)
        return td_error_no_memory(err);
    struct td_walk walk = {0};
    s.walk = &walk;
    s.grouping = (struct td_grouping){
        .snapshot = s.snapshot, .previous = previous, .version_prefixes = config->version_prefixes, .err = err};
    const struct td_walk_limits limits = {.max_files = config->max_files,
                                          .max_directories = config->max_directories,
                                          .all_revisions = config->all_revisions,
                                          .keeps_versions = config->keeps_versions,
                                          .watch = config->watch,
                                          .is_known = config->keeps_published && previous != NULL ? is_known : NULL,
                                          .known_context = previous};
    s.queue = config->parsers == NULL ? NULL : td_parse_queue_create(config->parsers);
    td_tree_watch_begin(config->watch, root);
    bool ok = td_walk_run(&walk, root, config->place, &s.snapshot->arena, &s.snapshot->problems, &limits,
                          &progress->files_found, stop, err) &&
              build_entries(&s) && tag_snapshot(&s) &&
              td_unsettled_facts_set_paths(&s.snapshot->unsettled, &s.unsettled, &s.snapshot->arena, err);
    end_ahead(&s);
    bool unchanged = ok && is_unchanged(&s);
    ok = ok && (unchanged || td_grouping_build(&s.grouping));
    td_tree_watch_end(config->watch, ok && !walk.has_known);
    td_units_fini(&s.units);
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

/* Parses the file of this name. Errors: those of the file; TD_INVALID_ARGUMENT for a .bin that is no checkpoint. */
static bool parse_alone(struct td_file *file, const char *name, int fd, const struct td_limits *limits,
                        struct td_parse_pool *parsers, struct td_error *err)
{
    if (!td_parse_pool_file(parsers, fd, file, name, limits, NULL, err))
        return false;
    file->readable = file->kind != TD_FILE_PLAIN;
    return file->readable ||
           td_error_set(
               err, TD_INVALID_ARGUMENT,
               "its bytes are in none of the formats that a file of such a name is read as: PyTorch, HDF5, GGUF, "
               "safetensors");
}

/* Makes the file the snapshot's one entry and model, with this name. Takes over the file's reference, even when it
 * fails. */
static bool add_alone(struct td_snapshot *snapshot, const char *name, struct td_file *file, struct td_error *err)
{
    const char *path = td_arena_strndup(&snapshot->arena, td_text_of(name));
    snapshot->entries = calloc(1, sizeof *snapshot->entries);
    snapshot->models = calloc(1, sizeof *snapshot->models);
    if (path == NULL || snapshot->entries == NULL || snapshot->models == NULL) {
        td_file_unref(file);
        return td_error_no_memory(err);
    }
    snapshot->entries[0] = (struct td_entry){.path = path, .file = file};
    snapshot->entry_count = 1;
    struct td_model *model = &snapshot->models[0];
    struct td_candidate candidate = {.path = path, .alone = true, .kind = file->kind, .entry = &snapshot->entries[0]};
    model->id = path;
    model->entry_count = 1;
    model->file_bytes = file->source.id.size_bytes;
    model->updated_ns = file->source.id.mtime_ns;
    snapshot->model_count = 1;
    return td_checkpoints_build(snapshot, NULL, model, &candidate, 1, err);
}

/* Scans the file at `path`, whose place below the root is `physical`; root NULL: the snapshot has none. */
static bool scan_alone(const char *path, struct td_root *root, const char *physical, const struct td_limits *limits,
                       struct td_parse_pool *parsers, struct td_snapshot **out, struct td_error *err)
{
    const char *name = td_base_name(path);
    struct td_file_id id;
    struct stat st;
    int fd;
    if (stat(path, &st) != 0)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open it");
    if (!check_name(name, err) || !open_by_path(path, &fd, &id, err))
        return false;
    struct td_file *file = td_file_create(physical, name, &id, NULL, limits);
    bool ok = file != NULL && parse_alone(file, name, fd, limits, parsers, err);
    (void)close(fd);
    if (file == NULL)
        return td_error_no_memory(err);
    struct td_snapshot *snapshot = ok ? snapshot_create(root, NULL) : NULL;
    if (snapshot == NULL) {
        td_file_unref(file);
        return ok ? td_error_no_memory(err) : false;
    }
    if (!add_alone(snapshot, name, file, err)) {
        td_snapshot_free(snapshot);
        return false;
    }
    *out = snapshot;
    return true;
}

bool td_scan_file(const char *path, const struct td_limits *limits, struct td_parse_pool *parsers,
                  struct td_snapshot **out, struct td_error *err)
{
    return scan_alone(path, NULL, td_base_name(path), limits, parsers, out, err);
}

bool td_scan_file_to_read(const char *path, const struct td_limits *limits, struct td_parse_pool *parsers,
                          struct td_snapshot **out, struct td_error *err)
{
    char real[PATH_MAX];
    struct td_root *root = NULL;
    if (realpath(path, real) == NULL)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open it");
    char *slash = strrchr(real, '/');
    if (slash == NULL || slash[1] == '\0')
        return td_error_set(err, TD_FAILED_PRECONDITION, "not a regular file");
    *slash = '\0';
    bool ok = td_root_create(real[0] == '\0' ? "/" : real, &root, err) &&
              scan_alone(path, root, slash + 1, limits, parsers, out, err);
    td_root_unref(root);
    return ok;
}
