/* Plan: commits first. Those that no revision names are sorted by when they were left; the old ones and those beyond
 * the bound are renamed into a folder of the trash. Then blobs: the list of all blobs is made first, so memory is
 * bounded by their number; the walk over the snapshots that remain marks those that are named, and rules->more marks
 * others; old ones without a mark go. Nobody adds a blob or a commit, since the caller has opened the
 * repository. */
#include "catalog/publish/publish_collect.h"

#include "catalog/publish/publish_notes.h"
#include "catalog/publish/publish_refs.h"
#include "catalog/publish/publish_tree.h"
#include "core/array.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"
#include "core/mix64.h"
#include "storage/disk_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct old_commit {
    char id[TD_COMMIT_BYTES];
    int64_t left_ns;
};

struct blob {
    uint8_t sha256[TD_SHA256_BYTES];
    bool is_named; /* by a snapshot, or by rules->more */
};

struct collecting {
    struct td_publish_repo *repo;
    const struct td_collect_rules *rules;
    struct td_collected *collected;
    int trash_fd; /* -1: nothing was removed yet */

    struct td_publish_ref_list refs;
    struct old_commit *commits; /* without a revision */
    size_t commit_count, commit_capacity;
    struct blob *blobs; /* sorted */
    size_t blob_count, blob_capacity;
    ino_t *links;                  /* a hash table of inodes of links that were read; 0: a free slot */
    size_t link_count, link_slots; /* link_slots is a power of two, or 0 */
};

/* ---- the trash ------------------------------------------------------------------------------------------- */

/* Opens the folder in the trash. It begins as the repository's stage, so that no other name is needed. */
static bool open_trash(struct collecting *c, struct td_error *err)
{
    struct td_own_folder *own = &c->repo->disk->own;
    struct td_publish_stage stage;
    char name[TD_OWN_NAME_BYTES];
    if (c->trash_fd >= 0)
        return true;
    if (!td_publish_stage_open(&stage, c->repo, err))
        return false;
    (void)snprintf(name, sizeof name, "incoming/%s", c->repo->name.folder);
    bool ok = td_own_folder_trash(own, own->fd, name, c->collected->trash);
    if (ok)
        c->trash_fd = dup(stage.fd);
    int sys = errno;
    if (ok)
        (void)close(stage.fd);
    else
        td_publish_stage_close(&stage);
    if (!ok)
        c->collected->trash[0] = '\0';
    errno = sys;
    return (ok && c->trash_fd >= 0) || td_publish_fail(&c->repo->name, "remove something of", err);
}

/* Moves an item of one of the repository's folders into the trash. */
static bool discard(struct collecting *c, const char *folder, const char *name, struct td_error *err)
{
    if (!open_trash(c, err))
        return false;
    int at = td_folder_open(c->repo->fd, folder);
    bool ok = at >= 0 && renameat(at, name, c->trash_fd, name) == 0;
    td_folder_close(at);
    return ok || td_publish_fail(&c->repo->name, "remove something of", err);
}

/* ---- listing --------------------------------------------------------------------------------------------- */

/* Calls `visit` for each item of a folder of the repository. A folder that is missing has no items. */
static bool each_item(struct collecting *c, const char *folder,
                      bool (*visit)(void *context, int at, const char *name, struct td_error *err),
                      struct td_error *err)
{
    char shown[NAME_MAX + 32];
    int fd = td_folder_open(c->repo->fd, folder);
    if (fd < 0 && errno == ENOENT)
        return true;
    (void)snprintf(shown, sizeof shown, "%s/%s", c->repo->name.folder, folder);
    return td_disk_list(fd, shown, visit, c, err);
}

/* Returns whether something is older than a number of seconds. */
static bool is_older(const struct collecting *c, int64_t since_ns, uint64_t seconds)
{
    int64_t then_s = since_ns / TD_NS_PER_S;
    return c->rules->now_s > then_s && (uint64_t)c->rules->now_s - (uint64_t)then_s > seconds;
}

/* Logs why something of the repository is kept. */
static void keep_all(const struct collecting *c, const char *what, const char *why)
{
    c->collected->next_s = c->rules->now_s; /* the next turn looks again */
    td_log(TD_LOG_WARN, "publish: %s of \"%s\" are kept, whether they are needed or not: %s", what, c->repo->name.path,
           why);
}

/* ---- commits --------------------------------------------------------------------------------------------- */

/* Returns whether the revisions are known, so that commits can be collected. */
static bool knows_revisions(const struct collecting *c)
{
    if (c->refs.count == 0) {
        keep_all(c, "commits", "no revision is there");
        return false;
    }
    for (size_t i = 0; i < c->refs.count; i++)
        if (c->refs.items[i].commit[0] == '\0') {
            keep_all(c, "commits", "the file of a revision holds no commit");
            return false;
        }
    return true;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int compare_ref_commits(const void *a, const void *b)
{
    return strcmp(((const struct td_publish_ref *)a)->commit, ((const struct td_publish_ref *)b)->commit);
}

static int compare_ref_commit(const void *commit, const void *ref)
{
    return compare_texts(commit, ((const struct td_publish_ref *)ref)->commit);
}

static bool is_named(const struct collecting *c, const char *commit)
{
    return bsearch(commit, c->refs.items, c->refs.count, sizeof *c->refs.items, compare_ref_commit) != NULL;
}

static bool add_commit(void *context, int at, const char *name, struct td_error *err)
{
    struct collecting *c = context;
    (void)at;
    if (!td_publish_is_commit(td_text_of(name)) || is_named(c, name))
        return true;
    if (!TD_ARRAY_GROW(c->commits, c->commit_count, c->commit_capacity, err))
        return false;
    struct old_commit *commit = &c->commits[c->commit_count++];
    memcpy(commit->id, name, TD_COMMIT_BYTES);
    commit->left_ns = td_publish_note_left_ns(c->repo, name);
    return true;
}

/* Those that were left last come first. */
static int compare_commits(const void *a, const void *b)
{
    const struct old_commit *x = a;
    const struct old_commit *y = b;
    if (x->left_ns != y->left_ns)
        return x->left_ns > y->left_ns ? -1 : 1;
    return strcmp(x->id, y->id);
}

/* Removes the note of a commit that has no snapshot. */
static bool drop_note(void *context, int at, const char *name, struct td_error *err)
{
    const struct collecting *c = context;
    (void)err;
    int fd = td_publish_is_commit(td_text_of(name)) ? td_publish_tree_open(c->repo, name) : -1;
    if (fd >= 0)
        (void)close(fd);
    else if (errno == ENOENT && td_publish_is_commit(td_text_of(name)))
        (void)unlinkat(at, name, 0);
    return true;
}

static bool collect_commits(struct collecting *c, struct td_error *err)
{
    if (!td_publish_refs_read(c->repo, &c->refs, err))
        return false;
    if (!knows_revisions(c))
        return true;
    qsort(c->refs.items, c->refs.count, sizeof *c->refs.items, compare_ref_commits);
    if (!each_item(c, "snapshots", add_commit, err))
        return false;
    if (c->commit_count > 0)
        qsort(c->commits, c->commit_count, sizeof *c->commits, compare_commits);
    for (size_t i = 0; i < c->commit_count; i++) {
        const struct old_commit *commit = &c->commits[i];
        if (i < TD_PUBLISH_KEPT_COMMITS && !is_older(c, commit->left_ns, c->rules->keep_commits_s)) {
            td_publish_quiet_lower(&c->collected->next_s, commit->left_ns / TD_NS_PER_S, c->rules->keep_commits_s);
            continue;
        }
        if (!discard(c, "snapshots", commit->id, err))
            return false;
        td_publish_note_remove(c->repo, commit->id);
        c->collected->commits++;
    }
    return each_item(c, "commits", drop_note, err);
}

/* ---- blobs ----------------------------------------------------------------------------------------------- */

static bool add_blob(void *context, int at, const char *name, struct td_error *err)
{
    struct collecting *c = context;
    uint8_t sha256[TD_SHA256_BYTES];
    (void)at;
    if (!td_hex_read_bytes(td_text_of(name), sha256, sizeof sha256))
        return true;
    if (!TD_ARRAY_GROW(c->blobs, c->blob_count, c->blob_capacity, err))
        return false;
    struct blob *blob = &c->blobs[c->blob_count++];
    memcpy(blob->sha256, sha256, sizeof sha256);
    blob->is_named = false;
    return true;
}

static int compare_blobs(const void *a, const void *b)
{
    return memcmp(((const struct blob *)a)->sha256, ((const struct blob *)b)->sha256, TD_SHA256_BYTES);
}

/* Returns the slot of a table that has the inode, or the free one for it. */
static ino_t *find_slot(ino_t *links, size_t slots, ino_t inode)
{
    size_t at = (size_t)td_mix64((uint64_t)inode) & (slots - 1);
    while (links[at] != 0 && links[at] != inode)
        at = (at + 1) & (slots - 1);
    return &links[at];
}

/* Doubles the table of inodes. Returns false, and changes nothing, when memory is short. */
static bool grow_links(struct collecting *c)
{
    size_t slots = c->link_slots == 0 ? 1024 : 2 * c->link_slots;
    ino_t *links = calloc(slots, sizeof *links);
    if (links == NULL)
        return false;
    for (size_t i = 0; i < c->link_slots; i++)
        if (c->links[i] != 0)
            *find_slot(links, slots, c->links[i]) = c->links[i];
    free(c->links);
    c->links = links;
    c->link_slots = slots;
    return true;
}

/* Returns whether the link was read before, under another name. */
static bool was_read(const struct collecting *c, ino_t inode)
{
    return c->link_slots > 0 && *find_slot(c->links, c->link_slots, inode) == inode;
}

/* Notes that the link was read. Without memory it is read again, at its next name. */
static void note_read(struct collecting *c, ino_t inode)
{
    if (inode == 0 || (2 * c->link_count >= c->link_slots && !grow_links(c)))
        return;
    *find_slot(c->links, c->link_slots, inode) = inode;
    c->link_count++;
}

static bool mark_blob(void *context, const struct td_folder_item *item, struct td_error *err)
{
    struct collecting *c = context;
    struct blob key = {.is_named = false};
    if (item->kind == S_IFDIR || (item->kind == S_IFLNK && item->inode != 0 && was_read(c, item->inode)))
        return true;
    if (!td_publish_link_read(item, 1, key.sha256))
        return td_error_set(err, TD_FAILED_PRECONDITION, "\"snapshots/%.200s\" is no link to a blob", item->path);
    struct blob *blob = bsearch(&key, c->blobs, c->blob_count, sizeof key, compare_blobs);
    if (blob != NULL)
        blob->is_named = true;
    note_read(c, item->inode);
    return true;
}

/* Marks a blob that is needed, though no snapshot names it. */
static void mark_more(void *context, const uint8_t sha256[TD_SHA256_BYTES])
{
    struct collecting *c = context;
    struct blob key = {.is_named = false};
    memcpy(key.sha256, sha256, sizeof key.sha256);
    struct blob *blob = bsearch(&key, c->blobs, c->blob_count, sizeof key, compare_blobs);
    if (blob != NULL)
        blob->is_named = true;
}

/* Marks the blobs that are needed. Returns false, and logs why, when they cannot be known. */
static bool mark_blobs(struct collecting *c)
{
    struct td_error why = TD_ERROR_INIT;
    int fd = td_folder_open(c->repo->fd, "snapshots");
    bool ok = fd >= 0 ? td_folder_walk(fd, SIZE_MAX, mark_blob, c, &why)
                      : c->repo->is_new || td_publish_fail(&c->repo->name, "list the snapshots of", &why);
    if (fd >= 0)
        (void)close(fd);
    ok = ok && (c->rules->more == NULL || c->rules->more(c->repo, c->rules->now_s, c->rules->keep_commits_s, mark_more,
                                                         c, &c->collected->next_s, &why));
    if (!ok)
        keep_all(c, "blobs", why.message);
    return ok;
}

/* Sets *arrived_ns and *bytes to the time and size of a blob. Returns false without one. */
static bool find_arrival(int at, const char *name, int64_t *arrived_ns, uint64_t *bytes)
{
    struct stat st;
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return false;
    const struct td_file_id id = td_file_id_of(&st);
    *arrived_ns = id.mtime_ns > id.ctime_ns ? id.mtime_ns : id.ctime_ns;
    *bytes = id.size_bytes;
    return true;
}

/* Removes a blob if it is old, and so is its lease. */
static bool collect_blob(struct collecting *c, int at, const struct blob *blob, struct td_error *err)
{
    char name[TD_SHA256_TEXT_BYTES];
    int64_t arrived_ns;
    uint64_t bytes;
    td_hex_write(blob->sha256, TD_SHA256_BYTES, name);
    struct td_publish_leases *leases = &c->repo->disk->leases;
    uint64_t expires_s = c->rules->upload_expires_s;
    if (!find_arrival(at, name, &arrived_ns, &bytes))
        return true;
    if (!is_older(c, arrived_ns, expires_s)) {
        td_publish_quiet_lower(&c->collected->next_s, arrived_ns / TD_NS_PER_S, expires_s);
        return true;
    }
    int64_t renewed_s;
    if (!td_publish_lease_begin_end(leases, c->repo->name.folder, blob->sha256, td_collect_expired_s(c->rules),
                                    &renewed_s)) {
        td_publish_quiet_lower(&c->collected->next_s, renewed_s, expires_s);
        return true;
    }
    bool ok = discard(c, "blobs", name, err);
    td_publish_lease_end(leases);
    c->collected->blobs += ok ? 1 : 0;
    c->collected->blob_bytes += ok ? bytes : 0;
    return ok;
}

static bool collect_blobs(struct collecting *c, struct td_error *err)
{
    if (!each_item(c, "blobs", add_blob, err))
        return false;
    if (c->blob_count == 0)
        return true;
    qsort(c->blobs, c->blob_count, sizeof *c->blobs, compare_blobs);
    if (!mark_blobs(c))
        return true;
    int at = td_folder_open(c->repo->fd, "blobs");
    bool ok = at >= 0 || td_publish_fail(&c->repo->name, "list a folder of", err);
    for (size_t i = 0; ok && i < c->blob_count; i++)
        ok = c->blobs[i].is_named || collect_blob(c, at, &c->blobs[i], err);
    if (at >= 0)
        (void)close(at);
    return ok;
}

/* ---- repositories in new/ -------------------------------------------------------------------------------- */

static bool stop_at_item(void *context, int at, const char *name, struct td_error *err)
{
    (void)context;
    (void)at;
    (void)name;
    (void)err;
    return false;
}

/* Removes a repository in new/ without blobs if nothing was added to it, or removed from it, for long. */
static bool collect_new(struct collecting *c, int64_t changed_ns, struct td_error *err)
{
    struct td_error ignored = TD_ERROR_INIT;
    if (!c->repo->is_new || !each_item(c, "blobs", stop_at_item, &ignored))
        return true;
    if (!is_older(c, changed_ns, c->rules->upload_expires_s)) {
        td_publish_quiet_lower(&c->collected->next_s, changed_ns / TD_NS_PER_S, c->rules->upload_expires_s);
        return true;
    }
    if (c->trash_fd >= 0)
        td_own_folder_remove(&c->repo->disk->own, c->collected->trash);
    return td_publish_repo_remove(c->repo, c->collected->trash, err);
}

/* Returns when an item was last added to the repository's folder, or to its blobs. */
static int64_t changed_ns_of(const struct td_publish_repo *repo)
{
    struct stat own = {.st_size = 0};
    struct stat blobs = {.st_size = 0};
    if (fstat(repo->fd, &own) != 0 || (fstatat(repo->fd, "blobs", &blobs, AT_SYMLINK_NOFOLLOW) != 0 && errno != ENOENT))
        return INT64_MAX;
    int64_t own_ns = td_file_id_of(&own).mtime_ns;
    int64_t blobs_ns = td_file_id_of(&blobs).mtime_ns;
    return own_ns > blobs_ns ? own_ns : blobs_ns;
}

/* Returns whether each blob that nothing names is old. */
static bool are_old(const struct collecting *c, int at)
{
    bool ok = true;
    for (size_t i = 0; ok && i < c->blob_count; i++) {
        char name[TD_SHA256_TEXT_BYTES];
        int64_t arrived_ns;
        uint64_t bytes;
        td_hex_write(c->blobs[i].sha256, TD_SHA256_BYTES, name);
        ok = c->blobs[i].is_named || !find_arrival(at, name, &arrived_ns, &bytes) ||
             (is_older(c, arrived_ns, c->rules->upload_expires_s) &&
              td_publish_lease_renewed_s(&c->repo->disk->leases, c->repo->name.folder, c->blobs[i].sha256) <
                  td_collect_expired_s(c->rules));
    }
    return ok;
}

int64_t td_collect_expired_s(const struct td_collect_rules *rules)
{
    return rules->now_s - (rules->upload_expires_s < INT32_MAX ? (int64_t)rules->upload_expires_s : INT32_MAX);
}

bool td_publish_has_young_blob(struct td_publish_repo *repo, const struct td_collect_rules *rules)
{
    struct td_collected unused = {.next_s = 0};
    struct collecting c = {.repo = repo, .rules = rules, .collected = &unused, .trash_fd = -1};
    struct td_error ignored = TD_ERROR_INIT;
    int at = td_folder_open(repo->fd, "blobs");
    bool ok = at >= 0 && each_item(&c, "blobs", add_blob, &ignored);
    if (ok && c.blob_count > 0) {
        qsort(c.blobs, c.blob_count, sizeof *c.blobs, compare_blobs);
        ok = mark_blobs(&c) && are_old(&c, at);
    }
    td_folder_close(at);
    free(c.blobs);
    free(c.links);
    return !ok;
}

bool td_publish_collect(struct td_publish_repo *repo, const struct td_collect_rules *rules,
                        struct td_collected *collected, struct td_error *err)
{
    struct collecting c = {.repo = repo, .rules = rules, .collected = collected, .trash_fd = -1};
    *collected = (struct td_collected){.next_s = INT64_MAX};
    if (repo->fd < 0)
        return true;
    int64_t changed_ns = changed_ns_of(repo); /* before blobs are removed */
    bool ok = (repo->is_new || collect_commits(&c, err)) && collect_blobs(&c, err) && collect_new(&c, changed_ns, err);
    if (c.trash_fd >= 0)
        (void)close(c.trash_fd);
    free(c.refs.items);
    free(c.commits);
    free(c.blobs);
    free(c.links);
    return ok;
}
