/* Plan: look() reads and checks, and changes nothing; make() then prepares everything in a stage (publish_stage.h) and
 * moves it to its place: snapshot, note, and last the revision. The last rename is the commit. A failure before it
 * undoes the moves; a kill before it leaves a commit that no revision names, which is collected like any other.
 *
 * A first commit is written into the repository's folder in new/ in the same way, and the rename of that folder is the
 * commit. */
#include "catalog/publish/publish_commit.h"

#include "catalog/publish/publish_stage.h"
#include "catalog/publish/publish_tree.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct committing {
    struct td_publish_repo *repo;
    const struct td_commit_order *order;
    struct td_commit_result *result;
    struct td_error *err;

    char before_id[TD_COMMIT_BYTES]; /* the commit whose files are there before: the revision's, or that of `from` */
    int before_fd;                   /* its snapshot; -1: there is no such snapshot, or it is damaged */
    struct td_commit_list before;    /* its files */
    struct td_commit_list list;      /* the commit's */
    bool has_snapshot;               /* the commit's snapshot is there, and whole */

    struct td_publish_stage stage;
    bool made_snapshot, made_note; /* this call made them, so a failure removes them */
    bool is_shown;                 /* the repository left new/, so nothing is undone */
};

/* ---- what is there before -------------------------------------------------------------------------------- */

/* Sets the result's parent, and before_id. */
static bool find_before(struct committing *c)
{
    const struct td_commit_order *order = c->order;
    if (td_publish_resolve(c->repo, order->revision, c->result->parent)) {
        memcpy(c->before_id, c->result->parent, TD_COMMIT_BYTES);
        return true;
    }
    return order->from == NULL || td_publish_resolve(c->repo, order->from, c->before_id) ||
           td_error_set(c->err, TD_NOT_FOUND, "no revision or commit \"%.200s\"", order->from);
}

/* Reads the files that are there before. A snapshot that was damaged counts as empty, unless files of it are to stay or
 * to be deleted. */
static bool read_before(struct committing *c)
{
    struct td_error why = TD_ERROR_INIT;
    if (c->before_id[0] == '\0')
        return true;
    c->before_fd = td_publish_tree_open(c->repo, c->before_id);
    bool ok = c->before_fd >= 0 ? td_publish_tree_read(c->before_fd, c->before_id, &c->before, &why)
                                : td_error_sys(&why, TD_FAILED_PRECONDITION, errno,
                                               "the snapshot of commit %s cannot be read", c->before_id);
    if (ok)
        return true;
    if (c->order->keep || c->order->deletion_count > 0 || why.code != TD_FAILED_PRECONDITION)
        return td_error_copy(c->err, &why);
    td_log(TD_LOG_WARN, "publish: \"%s\": %s", c->repo->name.path, why.message);
    td_commit_list_fini(&c->before);
    if (c->before_fd >= 0)
        (void)close(c->before_fd);
    c->before_fd = -1;
    return true;
}

/* ---- blobs ----------------------------------------------------------------------------------------------- */

/* Sets the entry's size to that of its blob. Returns false, with errno, when no regular file is there. */
static bool look_at_blob(int blobs, struct td_commit_entry *entry)
{
    char name[TD_SHA256_TEXT_BYTES];
    struct stat st;
    td_hex_write(entry->sha256, TD_SHA256_BYTES, name);
    if (fstatat(blobs, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    entry->bytes = (uint64_t)st.st_size;
    errno = ENOENT;
    return S_ISREG(st.st_mode);
}

/* Handles an entry without a blob: notes it as missing, or fails if it was there before. */
static bool lack_blob(struct committing *c, const struct td_commit_entry *entry)
{
    if (errno != ENOENT)
        return td_publish_fail(&c->repo->name, "look at a blob of", c->err);
    if (entry->number != SIZE_MAX) {
        c->result->missing[c->result->missing_count++] = entry->number;
        return true;
    }
    return td_error_set(c->err, TD_FAILED_PRECONDITION,
                        "the content of \"%.200s\", which is to stay, is missing on disk; send this file again",
                        entry->path);
}

/* Checks the size that the order gives a file. */
static bool check_size(struct committing *c, const struct td_commit_entry *entry)
{
    const struct td_commit_file *file = entry->number == SIZE_MAX ? NULL : &c->order->files[entry->number];
    return file == NULL || !file->has_size || file->size_bytes == entry->bytes ||
           td_error_set(c->err, TD_INVALID_ARGUMENT,
                        "\"%.200s\" has %" PRIu64 " bytes by the commit, and its content has %" PRIu64, entry->path,
                        file->size_bytes, entry->bytes);
}

static int compare_numbers(const void *a, const void *b)
{
    size_t x = *(const size_t *)a;
    size_t y = *(const size_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

static int compare_digests(const void *a, const void *b, void *context)
{
    const struct td_commit_file *files = context;
    int order = memcmp(files[*(const size_t *)a].sha256, files[*(const size_t *)b].sha256, TD_SHA256_BYTES);
    return order != 0 ? order : compare_numbers(a, b);
}

/* Keeps one number for each digest that is missing: the lowest. */
static void drop_repeated(struct committing *c)
{
    const struct td_commit_file *files = c->order->files;
    size_t *missing = c->result->missing;
    size_t kept = 0;
    qsort_r(missing, c->result->missing_count, sizeof *missing, compare_digests,
            (void *)(uintptr_t)files); /* which is only read */
    for (size_t i = 0; i < c->result->missing_count; i++)
        if (i == 0 || memcmp(files[missing[i]].sha256, files[missing[i - 1]].sha256, TD_SHA256_BYTES) != 0)
            missing[kept++] = missing[i];
    c->result->missing_count = kept;
    qsort(missing, kept, sizeof *missing, compare_numbers);
}

/* Keeps the blobs that are here for the same commit, which comes again when the missing ones have arrived. */
static void keep_blobs(const struct committing *c)
{
    for (size_t i = 0; i < c->list.count; i++) {
        const struct td_commit_entry *entry = &c->list.entries[i];
        if (entry->has_blob && entry->number != SIZE_MAX)
            (void)td_publish_lease(&c->repo->disk->leases, c->repo->name.folder, entry->sha256);
    }
}

/* Checks that all blobs of the list are there, and counts their bytes. */
static bool check_blobs(struct committing *c)
{
    bool ok = true;
    c->result->missing = calloc(c->order->file_count + 1, sizeof *c->result->missing);
    if (c->result->missing == NULL)
        return td_error_no_memory(c->err);
    int blobs = td_folder_open(c->repo->fd, "blobs");
    if (blobs < 0)
        return td_publish_fail(&c->repo->name, "open the blobs of", c->err);
    for (size_t i = 0; ok && i < c->list.count; i++) {
        struct td_commit_entry *entry = &c->list.entries[i];
        entry->has_blob = look_at_blob(blobs, entry);
        ok = entry->has_blob ? check_size(c, entry) : lack_blob(c, entry);
        c->result->file_bytes += entry->has_blob ? entry->bytes : 0;
    }
    (void)close(blobs);
    if (ok && c->result->missing_count > 0) {
        c->result->verdict = TD_COMMIT_LACKS_BLOBS;
        c->result->file_bytes = 0;
        drop_repeated(c);
        keep_blobs(c);
    }
    return ok;
}

/* ---- looking --------------------------------------------------------------------------------------------- */

/* Sets c->has_snapshot. A snapshot that was damaged does not count. */
static bool find_snapshot(struct committing *c)
{
    struct td_commit_list found = {.count = 0};
    struct td_error why = TD_ERROR_INIT;
    c->has_snapshot = c->before_fd >= 0 && strcmp(c->before_id, c->result->commit) == 0; /* read_before checked it */
    int fd = c->has_snapshot || c->repo->is_new ? -1 : td_publish_tree_open(c->repo, c->result->commit);
    if (fd < 0)
        return true;
    bool ok = td_publish_tree_read(fd, c->result->commit, &found, &why);
    c->has_snapshot = ok && td_commit_list_equal(&found, &c->list);
    td_commit_list_fini(&found);
    (void)close(fd);
    return ok || why.code == TD_FAILED_PRECONDITION || td_error_copy(c->err, &why);
}

/* Decides the verdict, and all that make() needs, without a change. */
static bool look(struct committing *c)
{
    const char *parent = c->order->parent;
    struct td_commit_result *result = c->result;
    if (c->repo->fd < 0)
        return td_error_set(c->err, TD_NOT_FOUND, "no model of this name was published");
    if (!td_commit_check_revision(c->order->revision, c->err) || !find_before(c))
        return false;
    if (parent != NULL && strcmp(parent, result->parent) != 0) {
        result->verdict = TD_COMMIT_WRONG_PARENT;
        return true;
    }
    if (!read_before(c) || !td_commit_list_make(&c->before, c->order, &c->list, &result->is_too_large, c->err) ||
        !check_blobs(c))
        return false;
    if (result->verdict == TD_COMMIT_LACKS_BLOBS)
        return true;
    result->file_count = c->list.count;
    if (!td_commit_list_id(&c->list, result->commit, c->err))
        return false;
    if (strcmp(result->commit, result->parent) == 0)
        result->verdict = TD_COMMIT_UNCHANGED;
    if (!find_snapshot(c))
        return false;
    return result->parent[0] != '\0' || td_publish_ref_check_new(c->repo, c->order->revision, c->err);
}

/* ---- making ---------------------------------------------------------------------------------------------- */

/* Empties the folders of a repository in new/: a first commit that failed or was killed may have filled them. */
static bool empty_new(struct committing *c)
{
    static const char *const parts[] = {"snapshots", "refs", "commits"};
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof parts / sizeof *parts; i++) {
        char path[TD_OWN_NAME_BYTES];
        (void)snprintf(path, sizeof path, "new/%s/%s", c->repo->name.folder, parts[i]);
        if (unlinkat(c->repo->fd, parts[i], AT_REMOVEDIR) != 0 && errno != ENOENT)
            td_own_folder_remove(&c->repo->disk->own, path);
        ok = mkdirat(c->repo->fd, parts[i], 0755) == 0;
    }
    return ok || td_publish_fail(&c->repo->name, "make a folder for", c->err);
}

static void name_snapshot(const struct committing *c, char out[TD_COMMIT_BYTES + 16])
{
    (void)snprintf(out, TD_COMMIT_BYTES + 16, "snapshots/%s", c->result->commit);
}

/* Moves the commit's snapshot, which is damaged, or which a failure undoes, out of the way. */
static void drop_snapshot(struct committing *c)
{
    char path[TD_COMMIT_BYTES + 16];
    char trash[TD_OWN_NAME_BYTES];
    name_snapshot(c, path);
    if (td_own_folder_trash(&c->repo->disk->own, c->repo->fd, path, trash))
        td_own_folder_remove(&c->repo->disk->own, trash);
}

/* Makes the commit's snapshot. */
static bool make_snapshot(struct committing *c)
{
    char path[TD_COMMIT_BYTES + 16];
    if (!td_publish_tree_write(&c->stage, "tree", &c->list, c->before_fd, c->err))
        return false;
    name_snapshot(c, path);
    int fd = td_publish_tree_open(c->repo, c->result->commit);
    if (fd >= 0) {
        (void)close(fd);
        td_log(TD_LOG_WARN, "publish: the damaged snapshot %s of \"%s\" is replaced", c->result->commit,
               c->repo->name.path);
        drop_snapshot(c);
    }
    c->made_snapshot = renameat2(c->stage.fd, "tree", c->repo->fd, path, RENAME_NOREPLACE) == 0;
    return (c->made_snapshot && td_folder_sync(c->repo->fd, "snapshots")) ||
           td_publish_fail(&c->repo->name, "add a snapshot to", c->err);
}

/* Lets links of files that are written again have the time of now in a snapshot that was there. */
static void renew_times(struct committing *c)
{
    int fd = td_publish_tree_open(c->repo, c->result->commit);
    if (fd < 0)
        return;
    td_publish_tree_touch(fd, &c->list);
    (void)close(fd);
}

/* Writes the note of the commit, unless it has one. */
static bool make_note(struct committing *c)
{
    struct td_arena arena;
    struct td_commit_note note;
    struct td_error why = TD_ERROR_INIT;
    const struct td_wall now = td_wall_now();
    td_arena_init(&arena, 0);
    bool exists = td_publish_note_read(c->repo, c->result->commit, &arena, &note, &why);
    td_arena_fini(&arena);
    if (exists)
        return true;
    if (why.code != TD_NOT_FOUND && why.code != TD_FAILED_PRECONDITION)
        return td_error_copy(c->err, &why);
    note = (struct td_commit_note){.message = c->order->message == NULL ? "" : c->order->message,
                                   .token = c->order->token == NULL ? "" : c->order->token,
                                   .time_s = now.seconds,
                                   .time_ns = now.nanoseconds};
    memcpy(note.commit, c->result->commit, TD_COMMIT_BYTES);
    if (strcmp(c->before_id, note.commit) != 0)
        memcpy(note.parent, c->before_id, TD_COMMIT_BYTES);
    c->made_note = td_publish_note_write(&c->stage, &note, c->err);
    return c->made_note;
}

/* Makes the revision name the commit, and the repository visible. */
static bool move_revision(struct committing *c)
{
    if (c->result->parent[0] != '\0')
        td_publish_note_left(c->repo, c->result->parent);
    else
        td_publish_squash_copy(c->repo, c->order->from == NULL ? "" : c->order->from, c->order->revision);
    if (!td_publish_ref_write(&c->stage, c->order->revision, c->result->commit, c->err))
        return false;
    if (!c->repo->is_new)
        return true;
    if (fsync(c->repo->fd) != 0)
        return td_publish_fail(&c->repo->name, "write the folder of", c->err);
    bool ok = td_publish_repo_show(c->repo, c->err);
    c->is_shown = !c->repo->is_new;
    return ok;
}

/* Removes what a failed commit has made. */
static void undo(struct committing *c)
{
    if (c->repo->is_new) {
        (void)empty_new(c);
        return;
    }
    if (c->is_shown)
        return;
    if (c->made_note)
        td_publish_note_remove(c->repo, c->result->commit);
    if (c->made_snapshot && c->result->verdict == TD_COMMIT_MOVED)
        drop_snapshot(c);
}

static bool make(struct committing *c)
{
    bool is_unchanged = c->result->verdict == TD_COMMIT_UNCHANGED;
    if (!td_publish_blobs_sync(c->repo, c->err))
        return false;
    if (is_unchanged && c->has_snapshot) {
        renew_times(c);
        return true;
    }
    if (!td_publish_stage_open(&c->stage, c->repo, c->err) || (c->repo->is_new && !empty_new(c)))
        return false;
    if (c->has_snapshot)
        renew_times(c);
    bool ok = (c->has_snapshot || make_snapshot(c)) && make_note(c);
    if (ok && c->order->on_snapshot != NULL)
        c->order->on_snapshot(c->order->context, c->result->commit);
    ok = ok && (is_unchanged || move_revision(c));
    if (!ok)
        undo(c);
    return ok;
}

bool td_publish_commit(struct td_publish_repo *repo, const struct td_commit_order *order,
                       struct td_commit_result *result, struct td_error *err)
{
    struct committing c = {
        .repo = repo, .order = order, .result = result, .err = err, .before_fd = -1, .stage = {.repo = repo, .fd = -1}};
    *result = (struct td_commit_result){.verdict = TD_COMMIT_MOVED};
    bool ok = look(&c);
    if (ok && !order->is_dry_run && (result->verdict == TD_COMMIT_MOVED || result->verdict == TD_COMMIT_UNCHANGED))
        ok = make(&c);
    td_publish_stage_close(&c.stage);
    if (c.before_fd >= 0)
        (void)close(c.before_fd);
    td_commit_list_fini(&c.list);
    td_commit_list_fini(&c.before);
    return ok;
}

void td_commit_result_fini(struct td_commit_result *result)
{
    free(result->missing);
    result->missing = NULL;
}

/* Returns whether the history of a revision has the commit. */
static bool is_in_history(const struct td_publish_repo *repo, const struct td_publish_ref *ref, const char *commit)
{
    enum { MOST_STEPS = 1024 }; /* a revision may come back to a commit */
    struct td_commit_note note;
    char at[TD_COMMIT_BYTES];
    bool found = false;
    memcpy(at, ref->commit, sizeof at);
    for (size_t i = 0; !found && at[0] != '\0' && i < MOST_STEPS; i++) {
        struct td_arena arena;
        td_arena_init(&arena, 0);
        found = strcmp(at, commit) == 0;
        bool ok = td_publish_note_read_in(repo, ref->name, at, &arena, &note, NULL);
        memcpy(at, ok ? note.parent : "", ok ? sizeof at : 1);
        td_arena_fini(&arena);
    }
    return found;
}

/* Sets *is to whether the history of another revision has the commit. */
static bool is_shared(const struct td_publish_repo *repo, const char *revision, const char *commit, bool *is,
                      struct td_error *err)
{
    struct td_publish_ref_list refs = {.count = 0};
    bool ok = td_publish_refs_read(repo, &refs, err);
    *is = false;
    for (size_t i = 0; ok && !*is && i < refs.count; i++)
        *is = strcmp(refs.items[i].name, revision) != 0 && is_in_history(repo, &refs.items[i], commit);
    free(refs.items);
    return ok;
}

bool td_publish_squash(struct td_publish_repo *repo, const char *revision, const char *message, const char *token,
                       struct td_error *err)
{
    struct td_publish_stage stage;
    const struct td_wall now = td_wall_now();
    struct td_commit_note note = {
        .message = message, .token = token, .time_s = now.seconds, .time_ns = now.nanoseconds};
    bool has_others;
    if (strcmp(revision, "HEAD") == 0)
        revision = "main";
    if (!td_commit_check_revision(revision, NULL) || !td_publish_resolve(repo, revision, note.commit))
        return td_error_set(err, TD_NOT_FOUND, "no revision \"%.200s\"", revision);
    if (!is_shared(repo, revision, note.commit, &has_others, err))
        return false;
    bool ok =
        td_publish_stage_open(&stage, repo, err) && (has_others ? td_publish_squash_write(&stage, revision, &note, err)
                                                                : td_publish_note_write(&stage, &note, err));
    td_publish_stage_close(&stage);
    if (ok && !has_others)
        td_publish_squash_remove(repo, revision);
    return ok;
}
