#include "catalog/scan.h"

#include "catalog/bucket.h"
#include "catalog/checkpoint.h"
#include "catalog/dcp_checkpoint.h"
#include "catalog/described.h"
#include "catalog/external_data.h"
#include "catalog/repo.h"
#include "catalog/walk.h"
#include "core/buffer.h"
#include "core/checked.h"
#include "core/clock.h"
#include "core/utf8.h"
#include "parser/lfs_pointer.h"
#include "parser/names.h"
#include "storage/at_rest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names that are kept for the HTTP interface and so cannot end an id. */
static const char *const reserved_names[] = {"tensors", "files", "plans", "shards", "model.safetensors"};

struct scan {
    struct td_snapshot *snapshot;
    const struct td_snapshot *previous;
    const struct td_walk *walk;
    uint64_t
        going_bytes; /* once has_going: what files take that are in the snapshot before and not in this one */
    bool has_going;
    struct td_mapping_cache *maps;
    const struct td_scan_config *config;
    struct td_scan_progress *progress;
    const _Atomic bool *stop;
    const struct td_unsettled_list *was_unsettled;
    struct td_unsettled_list unsettled;
    uint64_t now_ns; /* monotonic */
    int64_t wall_now_ns;
    struct td_candidate *candidates;
    const struct td_found **found; /* of each entry */
    size_t candidate_count, candidate_capacity;
    size_t in_directories; /* candidates that do not lie directly in the root */
    bool root_is_model;    /* the files directly in the root are one model */
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

/* What is known of a file that was found, besides its identity. */
struct seen {
    uint64_t first_ns; /* since when it looks as it does, monotonic */
    uint64_t due_ns;   /* when it will be settled */
    bool half_changed;
    bool is_pending, is_racy; /* see td_snapshot.pending_count, racy_count */
};

/* Notes the file; it is due when it has been quiet for the settling time. */
static bool unsettled_add(struct scan *s, const struct td_found *found, const struct seen *seen)
{
    if (!td_unsettled_add(&s->unsettled, found->path, &found->id, seen->first_ns, seen->half_changed, s->err))
        return false;
    s->snapshot->unsettled_count++;
    s->snapshot->pending_count += seen->is_pending ? 1 : 0;
    s->snapshot->racy_count += seen->is_racy ? 1 : 0;
    if (s->snapshot->next_due_ns == 0 || seen->due_ns < s->snapshot->next_due_ns)
        s->snapshot->next_due_ns = seen->due_ns;
    return true;
}

/* A truncation sets the size before the times: another size under the same mtime is a change seen half-way. */
static bool is_half_changed(const struct td_file_id *before, const struct td_file_id *now)
{
    return before->inode == now->inode && before->device == now->device &&
           before->mtime_ns == now->mtime_ns && before->size_bytes != now->size_bytes;
}

/* A file is settled when its mtime lies settle_ns back; for a mtime in the future (a skewed clock), and after a change
 * that was seen half-way, when it has been seen unchanged that long. Only then can a later write not leave the same mtime
 * behind ("racily clean"). published is what is shown now, or NULL. */
static bool is_settled(const struct scan *s, const struct td_found *found, const struct td_file_id *published,
                       struct seen *seen)
{
    int64_t age_ns;
    if (__builtin_sub_overflow(s->wall_now_ns, found->id.mtime_ns, &age_ns))
        age_ns = -1; /* past the year 2262, which 64 bits do not hold: in the future */
    const struct td_unsettled *before = td_unsettled_find(s->was_unsettled, found->path);
    bool same = before != NULL && td_file_id_equal(&before->id, &found->id);
    seen->first_ns = same ? before->first_seen_ns : s->now_ns;
    seen->is_pending = true;
    seen->is_racy = false;
    seen->half_changed = (same && before->half_changed) ||
                         (before != NULL && is_half_changed(&before->id, &found->id)) ||
                         (published != NULL && is_half_changed(published, &found->id));
    if (seen->half_changed)
        age_ns = 0;
    uint64_t seen_ns = s->now_ns - seen->first_ns;
    if (s->config->settle_ns == 0 || (age_ns >= 0 && (uint64_t)age_ns >= s->config->settle_ns))
        return true;
    if (seen->first_ns != s->now_ns && seen_ns >= s->config->settle_ns)
        return true;
    uint64_t quiet_ns = age_ns > 0 && (uint64_t)age_ns > seen_ns ? (uint64_t)age_ns : seen_ns;
    seen->due_ns = s->now_ns + (s->config->settle_ns - quiet_ns);
    return false;
}

/* Whether a young file may be published at once, as who asks for a scan wishes: what wrote it from its beginning to its end,
 * as cp does, is done with it. Of a checkpoint the parser's verdict has to come on top. */
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

/* ---- what was known before, and its memory -------------------------------------------------------------- */

static const struct td_entry *previous_entry(const struct scan *s, const char *path)
{
    return s->previous == NULL ? NULL : td_snapshot_find_entry(s->previous, path, strlen(path));
}

static bool is_same_place(const struct td_entry *before, const struct td_found *found)
{
    return before != NULL && strcmp(before->file->source.path, found->physical) == 0;
}

/* Whether before is this file as it is now, and reading it again would tell the same. */
static bool is_same_file(const struct td_entry *before, const struct td_found *found)
{
    return is_same_place(before, found) && td_file_id_equal(&before->file->source.id, &found->id) &&
           !before->file->transient;
}

/* What the files take that go with the snapshot before. */
static uint64_t going_bytes(struct scan *s)
{
    uint64_t bytes = 0;
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

/* Whether so much is left for one more file. What files take that this scan replaces does not count, though it is there
 * until the snapshot before is gone; it is looked for when it matters. */
static bool has_memory(struct scan *s, uint64_t bytes)
{
    const struct td_memory *memory = s->config->memory;
    uint64_t used = atomic_load_explicit(&memory->used_bytes, memory_order_relaxed);
    if (used <= memory->max_bytes && bytes <= memory->max_bytes - used)
        return true;
    if (!s->has_going)
        s->going_bytes = going_bytes(s);
    s->has_going = true;
    used -= s->going_bytes;
    return used <= memory->max_bytes && bytes <= memory->max_bytes - used;
}

/* ---- reading one file ---------------------------------------------------------------------------------- */

static void file_refuse(struct td_file *file, const struct td_error *why)
{
    char message[TD_ERROR_MESSAGE_BYTES + 64];
    if (why->pos == TD_ERROR_POS_NONE)
        (void)snprintf(message, sizeof message, "%s", why->message);
    else
        (void)snprintf(message, sizeof message, "%s (at byte %" PRIu64 ")", why->message, why->pos);
    file->error = strdup(message);
    file->transient =
        why->code != TD_INVALID_ARGUMENT || file->error == NULL; /* no memory: say it next time */
    td_file_forget_content(file);
}

static bool read_index(struct td_file *file, const struct td_input *input, const struct td_limits *limits,
                       struct td_error *err)
{
    if (input->size_bytes > limits->max_header_bytes)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "index of %" PRIu64 " bytes is larger than the limit of %" PRIu64,
                            input->size_bytes, limits->max_header_bytes);
    size_t len = (size_t)input->size_bytes;
    char *text = malloc(len + 1);
    if (text == NULL)
        return td_error_no_memory(err);
    bool ok = td_input_read(input, 0, text, len, err) && td_shard_index_parse(&file->index, text, len, err);
    free(text);
    return ok;
}

static bool parse_file(struct td_file *file, const char *name, const struct td_input *input,
                       const struct td_limits *limits, struct td_error *err)
{
    if (!td_lfs_pointer_check(input, &file->is_lfs_pointer, err))
        return false;
    if (file->is_lfs_pointer)
        return td_error_set(err, TD_INVALID_ARGUMENT, TD_LFS_POINTER_REASON);
    if (file->kind == TD_FILE_PLAIN)
        return file->facts_kind == TD_FACTS_NONE || td_facts_read(file->facts_kind, input, &file->facts, err);
    if (file->kind == TD_FILE_SHARD_INDEX)
        return read_index(file, input, limits, err);
    if (file->kind == TD_FILE_DCP_METADATA)
        return td_dcp_parse(&file->dcp, input, limits, err) &&
               td_dcp_check(&file->dcp, input->size_bytes, limits->max_memory_bytes, err);
    bool ok = td_format_parse(name, input, limits, &file->format, &file->manifest, err);
    if (file->format == NULL)
        file->kind = TD_FILE_PLAIN;
    return ok && (file->format == NULL ||
                  td_facts_count_elements(&file->manifest, &file->counts, &file->count_count, err));
}

/* What is kept of a file. */
static uint64_t content_bytes(const struct td_file *file)
{
    enum { OWN_BYTES = 2048 }; /* its members and names, and what the first chunk of an arena leaves unused */
    uint64_t bytes = OWN_BYTES;
    if (file->format != NULL)
        bytes += file->manifest.arena.used_bytes + td_external_join_bytes(&file->manifest);
    if (file->kind == TD_FILE_SHARD_INDEX)
        bytes += file->index.arena.used_bytes;
    if (file->kind == TD_FILE_DCP_METADATA)
        bytes += file->dcp.arena.used_bytes + td_dcp_join_bytes(&file->dcp);
    if (file->facts != NULL)
        bytes += file->facts->arena.used_bytes;
    return bytes;
}

/* Takes the memory that the file's content needs; refuses the file when it is not left. */
static void take_memory(struct scan *s, struct td_file *file)
{
    struct td_memory *memory = s->config->memory;
    struct td_error why;
    uint64_t bytes = content_bytes(file);
    if (memory == NULL)
        return;
    if (has_memory(s, bytes)) {
        file->memory = memory;
        file->memory_bytes = bytes;
        atomic_fetch_add_explicit(&memory->used_bytes, bytes, memory_order_relaxed);
        return;
    }
    td_error_init(&why);
    (void)td_error_set(&why, TD_INVALID_ARGUMENT,
                       "what is known of it takes %" PRIu64
                       " bytes of memory, more than is left of the %" PRIu64
                       " that all files together may take (--max-memory)",
                       bytes, memory->max_bytes);
    if (file->kind == TD_FILE_PLAIN)
        td_file_forget_content(file); /* what it says of the model is not known, and that is all */
    else
        file_refuse(file, &why);
    file->needed_bytes = bytes;
}

/* Whether a scan looks into the file: it holds tensors or describes them, or is as short as a Git LFS pointer. */
static bool is_read(const struct td_file *file)
{
    return file->kind != TD_FILE_PLAIN || file->facts_kind != TD_FACTS_NONE ||
           file->source.id.size_bytes < TD_LFS_POINTER_BYTES;
}

/* Notes why the file could not be read. A plain file is served whatever is in it, so only a pointer is refused; after a
 * fault that may pass the next scan looks again. */
static void file_failed(struct td_file *file, const struct td_error *why)
{
    if (file->kind != TD_FILE_PLAIN || file->is_lfs_pointer)
        file_refuse(file, why);
    else
        file->transient = why->code != TD_PERMISSION_DENIED && why->code != TD_INVALID_ARGUMENT;
}

/* Opens and parses a file that is_read, known to clients by this name. *same is false when it is no longer the file that
 * was found. */
static void file_read(struct scan *s, struct td_file *file, const char *name, bool *same)
{
    struct td_error why;
    struct td_file_id id;
    int fd;
    td_error_init(&why);
    *same = true;
    if (!td_root_open_file(s->snapshot->root, file->source.path, &fd, &id, &why)) {
        file_failed(file, &why);
        return;
    }
    if (td_file_id_equal(&id, &file->source.id)) {
        struct td_input input = td_input_descriptor(&fd, id.size_bytes);
        bool ok = parse_file(file, name, &input, &s->config->limits, &why);
        file->readable = ok && file->kind != TD_FILE_PLAIN;
        if (!ok)
            file_failed(file, &why);
        else if (file->readable || file->facts != NULL)
            take_memory(s, file);
        struct stat st;
        if (fstat(fd, &st) == 0)
            id = td_file_id_of(&st);
    }
    *same = td_file_id_equal(&id, &file->source.id);
    (void)close(fd);
}

/* A file that was found at path (below the root), known to clients by name, not read yet. NULL: no memory. */
static struct td_file *file_create(const char *path, const char *name, const struct td_file_id *id,
                                   struct td_mapping_cache *maps, const struct td_limits *limits)
{
    struct td_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    atomic_init(&file->refs, 1);
    file->maps = maps;
    file->source.path = strdup(path);
    file->source.id = *id;
    file->kind = td_file_kind_of(name);
    file->format = td_format_for_name(name);
    file->facts_kind = td_facts_kind_of(name);
    if (file->format != NULL)
        td_manifest_init(&file->manifest, limits->max_memory_bytes);
    if (file->source.path == NULL || !td_digest_file_id(id, file->identity_tag)) {
        td_file_unref(file);
        return NULL;
    }
    return file;
}

/* ---- entries ------------------------------------------------------------------------------------------- */

/* What the found file becomes: *file has a reference, or is NULL when it is not to be published now. */
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
    bool trusted =
        is_settled(s, found, is_same_place(before, found) ? &before->file->source.id : NULL, &seen);
    bool early = !trusted && is_finished(s, found, &seen);
    if (trusted || early) {
        trusted = true;
        const char *name = td_base_name(found->path);
        struct td_file *file = file_create(found->physical, name, &found->id, s->maps, &s->config->limits);
        if (file == NULL)
            return td_error_no_memory(s->err);
        uint64_t counted = file->kind != TD_FILE_PLAIN ? 1 : 0; /* looking into the others takes no time */
        atomic_fetch_add(&s->progress->files_to_read, counted);
        if (is_read(file))
            file_read(s, file, name, &trusted);
        atomic_fetch_add(&s->progress->files_read, counted);
        bool half = early && file->error != NULL; /* whoever wrote it may go on */
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
    /* Known under an older identity: keep showing that; its bytes are answered with 503 until it settles. */
    if (!unsettled_add(s, found, &seen))
        return false;
    if (before != NULL)
        *out = td_file_ref(before->file);
    return true;
}

static bool add_candidate(struct scan *s, const char *path, const struct td_entry *entry, const char *error)
{
    if (s->candidate_count == s->candidate_capacity) {
        size_t capacity = s->candidate_capacity == 0 ? 64 : s->candidate_capacity * 2;
        struct td_candidate *candidates = realloc(s->candidates, capacity * sizeof *candidates);
        if (candidates == NULL)
            return td_error_no_memory(s->err);
        s->candidates = candidates;
        s->candidate_capacity = capacity;
    }
    const char *name = td_base_name(path);
    s->candidates[s->candidate_count++] =
        (struct td_candidate){.path = path,
                              .directory_len = name == path ? 0 : (size_t)(name - path) - 1,
                              .kind = td_file_kind_of(name),
                              .entry = entry,
                              .error = error};
    return true;
}

/* A .metadata is a distributed checkpoint's only among its files; else it is a dot-file like others. It sorts before
 * them. */
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
    s->found = calloc(walk->count + 1, sizeof *s->found);
    if (snapshot->entries == NULL || s->found == NULL)
        return td_error_no_memory(s->err);
    for (size_t i = 0; i < walk->count; i++) {
        const struct td_found *found = &walk->found[i];
        enum td_file_kind kind = td_file_kind_of(found->path);
        if (kind == TD_FILE_DCP_METADATA && !has_distcp_beside(walk, i))
            continue;
        if (atomic_load(s->stop))
            return td_error_set(s->err, TD_UNAVAILABLE, "the scan was stopped");
        if (found->error != NULL) {
            if (kind == TD_FILE_PLAIN)
                td_problems_add(&snapshot->problems, &snapshot->arena, found->path, found->error);
            else if (!add_candidate(s, found->path, NULL, found->error))
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
        s->found[snapshot->entry_count++] = found;
        if (file->kind != TD_FILE_PLAIN && !add_candidate(s, found->path, entry, NULL))
            return false;
    }
    return true;
}

/* ---- models -------------------------------------------------------------------------------------------- */

/* Directories before the root, each model's files together and by path. */
static int candidate_compare(const void *a, const void *b)
{
    const struct td_candidate *x = a;
    const struct td_candidate *y = b;
    int order = (x->directory_len == 0 ? 1 : 0) - (y->directory_len == 0 ? 1 : 0);
    if (order == 0)
        order = td_name_compare(x->path, x->model_len, y->path, y->model_len);
    return order != 0 ? order : strcmp(x->path, y->path);
}

static bool same_model(const struct td_candidate *a, const struct td_candidate *b)
{
    return (a->directory_len == 0) == (b->directory_len == 0) &&
           td_name_compare(a->path, a->model_len, b->path, b->model_len) == 0;
}

/* The entries that are the model's: all below its directory. Without one, from its first to its last candidate. */
static void model_range(struct td_model *model, const struct scan *s, size_t first, size_t end)
{
    const struct td_snapshot *snapshot = s->snapshot;
    if (model->directory_len > 0) {
        td_snapshot_entries_below(snapshot, model->id, model->directory_len, &model->first_entry,
                                  &model->entry_count);
        return;
    }
    if (s->root_is_model) {
        model->entry_count = snapshot->entry_count;
        return;
    }
    for (size_t i = first; i < end; i++) {
        const struct td_entry *entry = s->candidates[i].entry;
        if (entry == NULL)
            continue;
        size_t at = (size_t)(entry - snapshot->entries);
        if (model->entry_count == 0)
            model->first_entry = at;
        model->entry_count = at - model->first_entry + 1;
    }
}

static void model_files(struct scan *s, struct td_model *model, size_t first, size_t end)
{
    const struct td_snapshot *snapshot = s->snapshot;
    model_range(model, s, first, end);
    for (size_t i = 0; i < model->entry_count; i++) {
        const struct td_file *file = snapshot->entries[model->first_entry + i].file;
        const struct td_file_id id =
            file->source.id; // NOLINT(clang-analyzer-core.*): every entry has its file
        if (!td_add_u64(model->file_bytes, id.size_bytes, &model->file_bytes))
            model->file_bytes = UINT64_MAX; /* of sparse files */
        if (id.mtime_ns > model->updated_ns)
            model->updated_ns = id.mtime_ns;
    }
    for (size_t i = first; i < end && model->revision == NULL; i++) {
        if (s->candidates[i].entry == NULL)
            continue;
        const struct td_found *found = s->found[s->candidates[i].entry - snapshot->entries];
        model->revision = found->revision;
        model->is_other_revision = found->other_revision;
    }
    if (model->directory_len > 0 || s->root_is_model)
        model->config = td_model_find_file(snapshot, model, "config.json", strlen("config.json"));
}

static bool ends_in_reserved(const char *id)
{
    for (size_t i = 0; i < sizeof reserved_names / sizeof *reserved_names; i++)
        if (strcmp(td_base_name(id), reserved_names[i]) == 0)
            return true;
    return false;
}

static int directory_compare(const void *a, const void *b)
{
    const struct td_candidate *x = a;
    const struct td_candidate *y = b;
    return td_name_compare(x->path, x->directory_len, y->path, y->directory_len);
}

/* Whether a model's files lie in this directory; the candidates are sorted. */
static bool is_directory_id(const struct scan *s, const char *id)
{
    const struct td_candidate wanted = {.path = id, .directory_len = strlen(id)};
    return s->in_directories > 0 &&
           bsearch(&wanted, s->candidates, s->in_directories, sizeof wanted, directory_compare) != NULL;
}

/* The root's own name, where it can be an id. "/" has none. */
static const char *root_id(const struct scan *s)
{
    const char *name = td_base_name(s->snapshot->root->real_path);
    bool usable = name[0] != '\0' && td_utf8_valid(name, strlen(name)) && !ends_in_reserved(name);
    return usable ? name : "root";
}

/* The id of the model whose first file this is, in the snapshot's arena; NULL: no memory. */
static const char *model_id(struct scan *s, const struct td_candidate *first)
{
    struct td_arena *arena = &s->snapshot->arena;
    if (first->directory_len == 0 && s->root_is_model)
        return td_arena_strndup(arena, root_id(s), strlen(root_id(s)));
    const char *id = td_arena_strndup(arena, first->path, first->model_len);
    bool is_stem = first->directory_len == 0 && first->path[first->model_len] != '\0';
    if (id != NULL && is_stem && (is_directory_id(s, id) || ends_in_reserved(id)))
        return first->path;
    return id;
}

/* Whether the id can be used; a problem when not. */
static bool check_id(struct scan *s, const struct td_candidate *first, const char *id)
{
    char message[512];
    if (first->directory_len > 0 && ends_in_reserved(id))
        (void)snprintf(
            message, sizeof message,
            "not published: an id cannot end in \"%s\": that name is kept for the HTTP interface; rename the directory",
            td_base_name(id));
    else if (first->directory_len == 0 && is_directory_id(s, id))
        (void)snprintf(
            message, sizeof message,
            "the files directly in DIR are not published: a directory in it has DIR's own name; rename one of the two");
    else
        return true;
    td_problems_add(&s->snapshot->problems, &s->snapshot->arena, id, message);
    return false;
}

/* Git LFS pointers in the place of other files than checkpoints are problems of the model, too. */
static void add_pointers(const struct scan *s, struct td_model *model)
{
    struct td_snapshot *snapshot = s->snapshot;
    bool owns = model->directory_len > 0 || s->root_is_model; /* what lies between its files */
    for (size_t i = 0; owns && i < model->entry_count; i++) {
        const struct td_entry *entry = &snapshot->entries[model->first_entry + i];
        if (entry->file->kind == TD_FILE_PLAIN && entry->file->is_lfs_pointer)
            td_problems_add(&model->problems, &snapshot->arena, td_model_relative(model, entry),
                            entry->file->error);
    }
}

/* One model out of candidates [first, end). */
static bool build_model(struct scan *s, size_t first, size_t end)
{
    struct td_snapshot *snapshot = s->snapshot;
    const struct td_candidate *candidate = &s->candidates[first];
    const char *id = model_id(s, candidate);
    if (id == NULL)
        return td_error_no_memory(s->err);
    if (!check_id(s, candidate, id))
        return true;
    struct td_model *model = &snapshot->models[snapshot->model_count++];
    model->id = id;
    model->directory_len = candidate->directory_len;
    model_files(s, model, first, end);
    if (!td_checkpoints_build(snapshot, s->previous, model, candidate, end - first, s->err))
        return false;
    add_pointers(s, model);
    return true;
}

static int model_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_model *)a)->id, ((const struct td_model *)b)->id);
}

/* A config.json, an index, a .metadata or a part of a distributed checkpoint makes the files beside it one model, in the
 * root as in any directory (a config.json by itself only when there is no other model). Else each file directly in the root is one, and each group of shards. */
static void part_root(struct scan *s)
{
    static const char config[] = "config.json";
    bool described = td_snapshot_find_entry(s->snapshot, config, sizeof config - 1) != NULL;
    for (size_t i = 0; i < s->candidate_count; i++) {
        bool in_root = s->candidates[i].directory_len == 0;
        s->in_directories += in_root ? 0 : 1;
        s->root_is_model =
            s->root_is_model || (in_root && (described || s->candidates[i].kind != TD_FILE_TENSORS));
    }
    for (size_t i = 0; i < s->candidate_count; i++) {
        struct td_candidate *candidate = &s->candidates[i];
        if (candidate->directory_len > 0) {
            candidate->model_len = candidate->directory_len;
        } else if (!s->root_is_model) {
            size_t stem_len = td_shard_stem_len(candidate->path);
            candidate->model_len = stem_len > 0 ? stem_len : strlen(candidate->path);
        }
    }
}

/* Makes the folder of this config.json a model, whatever else is in it. A candidate that is no checkpoint file adds nothing
 * where the folder has checkpoint files. */
static bool add_described(void *context, const struct td_entry *config)
{
    struct scan *s = context;
    return add_candidate(s, config->path, config, NULL);
}

static bool add_described_folders(struct scan *s)
{
    if (!td_described_each(s->snapshot, add_described, s))
        return false;
    const struct td_entry *root = s->candidate_count == 0 ? td_described_root(s->snapshot) : NULL;
    return root == NULL || add_described(s, root);
}

static bool build_models(struct scan *s)
{
    struct td_snapshot *snapshot = s->snapshot;
    if (!add_described_folders(s))
        return false;
    part_root(s);
    if (s->candidate_count > 0)
        qsort(s->candidates, s->candidate_count, sizeof *s->candidates, candidate_compare);
    snapshot->models = calloc(s->candidate_count + 1, sizeof *snapshot->models);
    if (snapshot->models == NULL)
        return td_error_no_memory(s->err);
    for (size_t first = 0, end; first < s->candidate_count; first = end) {
        end = first + 1;
        while (end < s->candidate_count && same_model(&s->candidates[first], &s->candidates[end]))
            end++;
        if (!build_model(s, first, end))
            return false;
    }
    if (snapshot->model_count > 0)
        qsort(snapshot->models, snapshot->model_count, sizeof *snapshot->models, model_compare);
    return td_repos_build(snapshot, s->walk->caches, s->walk->cache_count, s->err) &&
           td_buckets_build(snapshot, s->err);
}

/* What a cache's refs name can change without its files. */
static void add_cache_folder(struct td_digest *digest, const struct td_cache_folder *folder)
{
    td_digest_add_cstring(digest, folder->path);
    td_digest_add_cstring(digest, folder->commit);
    for (size_t i = 0; i < folder->ref_count; i++) {
        td_digest_add_cstring(digest, folder->refs[i].name);
        td_digest_add_cstring(digest, folder->refs[i].commit);
    }
}

/* Over all that models are made of, before they are. */
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
    for (size_t i = 0; i < s->candidate_count; i++) {
        if (s->candidates[i].entry != NULL)
            continue;
        td_digest_add_cstring(digest, s->candidates[i].path);
        td_digest_add_cstring(digest, s->candidates[i].error);
    }
    return td_digest_finish(digest, snapshot->tag) || td_error_no_memory(s->err);
}

/* Whether models made now would be those that are there already. */
static bool is_unchanged(const struct scan *s)
{
    const struct td_snapshot *now = s->snapshot;
    const struct td_snapshot *before = s->previous;
    return before != NULL && strcmp(before->tag, now->tag) == 0 && before->root == now->root &&
           before->hashed_count == now->hashed_count && before->unsettled_count == 0 &&
           now->unsettled_count == 0 && td_snapshot_has_all_problems(before);
}

/* root may be NULL: of a file by itself. */
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
    const struct td_walk_limits limits = {.max_files = config->max_files,
                                          .max_directories = config->max_directories,
                                          .all_revisions = config->all_revisions};
    bool ok = td_walk_run(&walk, root, config->place, &s.snapshot->arena, &s.snapshot->problems, &limits,
                          &progress->files_found, stop, err) &&
              build_entries(&s) && tag_snapshot(&s);
    bool unchanged = ok && is_unchanged(&s);
    ok = ok && (unchanged || build_models(&s));
    td_walk_fini(&walk);
    free(s.candidates);
    free(s.found);
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

/* Whether a file of this name can be looked at by itself. */
static bool check_name(const char *name, struct td_error *err)
{
    struct td_buffer known;
    switch (td_file_kind_of(name)) {
    case TD_FILE_TENSORS:
        return true;
    case TD_FILE_SHARD_INDEX:
    case TD_FILE_DCP_METADATA:
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "names the files of a sharded checkpoint; inspect its directory");
    case TD_FILE_DCP_PART:
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "is a part of a distributed checkpoint; inspect its directory");
    default:
        break;
    }
    td_buffer_init(&known);
    for (size_t i = 0; td_format_at(i) != NULL; i++)
        for (const char *const *extension = td_format_at(i)->extensions; *extension != NULL; extension++)
            if (td_format_at(i) != &td_format_distcp)
                td_buffer_printf(&known, " %s", *extension);
    const char *list = td_buffer_terminate(&known);
    (void)td_error_set(err, TD_INVALID_ARGUMENT, "no checkpoint file by its name; known are%s",
                       list == NULL ? "" : list);
    td_buffer_fini(&known);
    return false;
}

static bool parse_alone(struct td_file *file, int fd, const struct td_limits *limits, struct td_error *err)
{
    struct td_input input = td_input_descriptor(&fd, file->source.id.size_bytes);
    if (!parse_file(file, file->source.path, &input, limits, err))
        return false;
    file->readable = file->kind != TD_FILE_PLAIN;
    return file->readable ||
           td_error_set(err, TD_INVALID_ARGUMENT,
                        "its bytes are not PyTorch's, HDF5's or GGUF's, which is all that a .bin is read as");
}

/* Makes the file the snapshot's one entry and model. Takes its reference in every case. */
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

bool td_scan_file(const char *path, const struct td_limits *limits, struct td_snapshot **out,
                  struct td_error *err)
{
    const char *name = td_base_name(path);
    struct td_file_id id;
    struct stat st;
    int fd;
    if (stat(path, &st) != 0)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open it");
    if (!check_name(name, err) || !open_by_path(path, &fd, &id, err))
        return false;
    struct td_file *file = file_create(name, name, &id, NULL, limits);
    bool ok = file != NULL ? parse_alone(file, fd, limits, err) : td_error_no_memory(err);
    (void)close(fd);
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
