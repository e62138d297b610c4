#include "catalog/publish/publish_refs.h"

#include "catalog/model/hub_cache.h"
#include "catalog/publish/publish_notes.h"
#include "catalog/publish/publish_tree.h"
#include "core/array.h"
#include "core/digits.h"
#include "core/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REF_PATH_BYTES = TD_REVISION_BYTES + 8, MOST_ITEMS = 100000 };

/* ---- names ----------------------------------------------------------------------------------------------- */

/* Returns whether a part of a revision's name can be used. */
static bool is_part(struct td_text part)
{
    static const char lock[] = ".lock";
    if (part.len == 0 || part.p[0] == '.')
        return false;
    for (size_t i = 0; i < part.len; i++)
        if ((!td_is_letter_or_digit(part.p[i]) && strchr("._-+", part.p[i]) == NULL) ||
            (i > 0 && part.p[i] == '.' && part.p[i - 1] == '.'))
            return false;
    size_t end = sizeof lock - 1;
    return part.len < end || memcmp(part.p + part.len - end, lock, end) != 0;
}

static bool is_any_commit(struct td_text name)
{
    bool ok = name.len == TD_COMMIT_BYTES - 1;
    for (size_t i = 0; ok && i < name.len; i++)
        ok = td_hex_digit(name.p[i]) >= 0;
    return ok;
}

bool td_commit_check_revision(const char *revision, struct td_error *err)
{
    const struct td_text whole = td_text_of(revision);
    struct td_text rest = whole;
    bool ok = whole.len < TD_REVISION_BYTES;
    for (bool is_last = false; ok && !is_last;) {
        is_last = memchr(rest.p, '/', rest.len) == NULL;
        ok = is_part(td_text_take_until(&rest, '/'));
    }
    if (!ok)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "\"%.*s\" cannot name a revision; use at most 200 letters, digits and \"._-+\" in parts "
                            "separated by \"/\"",
                            TD_SHOW(whole, 200));
    if (is_any_commit(whole) || strcmp(revision, "HEAD") == 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "\"%s\" names a commit, so no revision can have this name",
                            revision);
    return true;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

/* Reads the commit id that a file in refs/ holds; empty when the file holds something else. Returns false, with errno,
 * when the file cannot be read. */
static bool read_commit(int at, const char *name, char commit[TD_COMMIT_BYTES])
{
    char text[TD_COMMIT_BYTES + 2];
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : td_read_at(fd, text, sizeof text, 0);
    td_folder_close(fd);
    commit[0] = '\0';
    if (n < 0)
        return false;
    struct td_text found = td_text_trim(td_text_n(text, (size_t)n), " \t\r\n");
    if (td_publish_is_commit(found))
        (void)snprintf(commit, TD_COMMIT_BYTES, "%.*s", (int)found.len, found.p);
    return true;
}

static void name_ref(const char *revision, char out[REF_PATH_BYTES])
{
    (void)snprintf(out, REF_PATH_BYTES, "refs/%s", revision);
}

bool td_publish_resolve(const struct td_publish_repo *repo, const char *revision, char commit[TD_COMMIT_BYTES])
{
    char path[REF_PATH_BYTES];
    const char *name;
    commit[0] = '\0';
    if (repo->fd < 0 || repo->is_new)
        return false;
    if (td_publish_is_commit(td_text_of(revision))) {
        int tree = td_publish_tree_open(repo, revision);
        if (tree < 0)
            return false;
        (void)close(tree);
        memcpy(commit, revision, TD_COMMIT_BYTES);
        return true;
    }
    if (strcmp(revision, "HEAD") == 0)
        revision = "main";
    if (!td_commit_check_revision(revision, NULL))
        return false;
    name_ref(revision, path);
    int at = td_folder_open_parent(repo->fd, path, false, &name);
    if (at < 0)
        return false;
    bool ok = read_commit(at, name, commit);
    (void)close(at);
    return ok && commit[0] != '\0';
}

bool td_publish_find_file(const struct td_publish_repo *repo, const char *revision, const char *path,
                          uint8_t sha256[TD_SHA256_BYTES])
{
    char commit[TD_COMMIT_BYTES];
    char before[TD_COMMIT_BYTES] = "";
    while (td_publish_resolve(repo, revision, commit) && strcmp(commit, before) != 0) {
        if (td_publish_tree_find(repo, commit, path, sha256))
            return true;
        memcpy(before, commit, sizeof before); /* it may have been removed since; then the revision has moved */
    }
    return false;
}

static bool add_ref(void *context, const struct td_folder_item *item, struct td_error *err)
{
    struct td_publish_ref_list *refs = context;
    if (item->kind == S_IFDIR) {
        refs->folder_count++;
        return true;
    }
    if (item->kind != S_IFREG || item->name[0] == '.')
        return true; /* scans take it for no revision */
    if (!TD_ARRAY_GROW(refs->items, refs->count, refs->capacity, err))
        return false;
    struct td_publish_ref *ref = &refs->items[refs->count];
    bool is_ours = td_commit_check_revision(item->path, NULL);
    (void)snprintf(ref->name, sizeof ref->name, "%s", is_ours ? item->path : "");
    if (!read_commit(item->at, item->name, ref->commit))
        return td_error_sys(err, TD_IO, errno, "cannot read \"refs/%.200s\"", item->path);
    refs->count++;
    return true;
}

static int compare_refs(const void *a, const void *b)
{
    return strcmp(((const struct td_publish_ref *)a)->name, ((const struct td_publish_ref *)b)->name);
}

bool td_publish_refs_read(const struct td_publish_repo *repo, struct td_publish_ref_list *refs, struct td_error *err)
{
    if (repo->fd < 0 || repo->is_new)
        return true;
    int fd = td_folder_open(repo->fd, "refs");
    if (fd < 0 && errno == ENOENT)
        return true;
    if (fd < 0)
        return td_publish_fail(&repo->name, "read the revisions of", err);
    bool ok = td_folder_walk(fd, MOST_ITEMS, add_ref, refs, err);
    (void)close(fd);
    if (refs->count > 0)
        qsort(refs->items, refs->count, sizeof *refs->items, compare_refs);
    return ok;
}

bool td_publish_each_ref(const struct td_publish_repo *repo,
                         bool (*visit)(void *context, const char *name, const char *commit), void *context)
{
    struct td_publish_ref_list refs = {.count = 0};
    bool ok = td_publish_refs_read(repo, &refs, NULL);
    for (size_t i = 0; ok && i < refs.count; i++)
        ok = refs.items[i].commit[0] == '\0' || refs.items[i].name[0] == '\0' ||
             visit(context, refs.items[i].name, refs.items[i].commit);
    free(refs.items);
    return ok;
}

/* ---- writing --------------------------------------------------------------------------------------------- */

static size_t count_folders(const char *revision)
{
    size_t count = 0;
    for (; *revision != '\0'; revision++)
        count += *revision == '/' ? 1 : 0;
    return count;
}

bool td_publish_ref_check_new(const struct td_publish_repo *repo, const char *revision, struct td_error *err)
{
    struct td_publish_ref_list refs = {.count = 0};
    bool ok = td_publish_refs_read(repo, &refs, err);
    size_t folders = refs.folder_count + count_folders(revision);
    if (ok && (refs.count + folders >= TD_HUB_CACHE_REFS || folders > TD_HUB_CACHE_REF_FOLDERS))
        ok = td_error_set(err, TD_FAILED_PRECONDITION,
                          "the repository has %zu revisions in %zu folders, the most that can be shown; delete some",
                          refs.count, refs.folder_count);
    for (size_t i = 0; ok && i < refs.count; i++) {
        const char *other = refs.items[i].name;
        size_t len = strlen(other);
        size_t own = strlen(revision);
        if (len == 0)
            continue; /* of another program */
        if ((strncmp(revision, other, len) == 0 && revision[len] == '/') ||
            (strncmp(other, revision, own) == 0 && other[own] == '/'))
            ok = td_error_set(err, TD_CONFLICT, "the revision \"%s\" cannot be beside the revision \"%s\"", revision,
                              other);
    }
    free(refs.items);
    return ok;
}

static bool fail_ref(const struct td_publish_repo *repo, const char *revision, struct td_error *err)
{
    return errno == ENOTDIR || errno == EISDIR || errno == ELOOP
               ? td_error_set(err, TD_CONFLICT, "another revision is in the way of the revision \"%s\"", revision)
               : td_publish_fail(&repo->name, "set a revision of", err);
}

/* Moves the stage's file `ref` to its place in the directory `at`. */
static bool move_ref(const struct td_publish_stage *stage, int at, const char *name, struct td_error *err)
{
    (void)unlinkat(at, name, AT_REMOVEDIR); /* an empty folder, whose revisions were deleted */
    return td_publish_stage_place(stage, "ref", at, name, err) || fail_ref(stage->repo, name, err);
}

bool td_publish_ref_write(const struct td_publish_stage *stage, const char *revision, const char *commit,
                          struct td_error *err)
{
    char path[REF_PATH_BYTES];
    const char *name;
    if (!td_publish_stage_write(stage, "ref", td_text_of(commit), err))
        return false;
    name_ref(revision, path);
    int at = td_folder_open_parent(stage->repo->fd, path, true, &name);
    if (at < 0)
        return fail_ref(stage->repo, revision, err);
    bool ok = move_ref(stage, at, name, err);
    (void)close(at);
    return ok;
}

bool td_publish_set_ref(struct td_publish_repo *repo, const char *revision, const char *target, bool moves,
                        struct td_error *err)
{
    char commit[TD_COMMIT_BYTES];
    char before[TD_COMMIT_BYTES];
    struct td_publish_stage stage;
    if (!td_commit_check_revision(revision, err))
        return false;
    if (!td_publish_resolve(repo, target, commit))
        return td_error_set(err, TD_NOT_FOUND, "no revision or commit \"%.200s\"", target);
    bool exists = td_publish_resolve(repo, revision, before);
    if (exists && !moves)
        return td_error_set(err, TD_CONFLICT, "the revision \"%s\" exists", revision);
    if (exists && strcmp(before, commit) == 0)
        return true;
    if (!exists && !td_publish_ref_check_new(repo, revision, err))
        return false;
    if (exists)
        td_publish_note_left(repo, before);
    if (!exists)
        td_publish_squash_copy(repo, strcmp(target, "HEAD") == 0 ? "main" : target, revision);
    bool ok = td_publish_stage_open(&stage, repo, err) && td_publish_ref_write(&stage, revision, commit, err);
    td_publish_stage_close(&stage);
    return ok;
}

/* Removes the folders of refs/ that a deleted revision was in, as far as they are empty. */
static void remove_empty_folders(const struct td_publish_repo *repo, char path[REF_PATH_BYTES])
{
    char *slash = strrchr(path, '/');
    while (slash != NULL && slash != strchr(path, '/')) {
        const char *name;
        *slash = '\0';
        int at = td_folder_open_parent(repo->fd, path, false, &name);
        bool ok = at >= 0 && unlinkat(at, name, AT_REMOVEDIR) == 0;
        if (at >= 0)
            (void)close(at);
        slash = ok ? strrchr(path, '/') : NULL;
    }
}

bool td_publish_delete_ref(struct td_publish_repo *repo, const char *revision, struct td_error *err)
{
    char path[REF_PATH_BYTES];
    char commit[TD_COMMIT_BYTES];
    const char *name;
    if (strcmp(revision, "main") == 0)
        return td_error_set(err, TD_FAILED_PRECONDITION, "the revision \"main\" cannot be deleted");
    if (!td_commit_check_revision(revision, err))
        return false;
    bool names_commit = td_publish_resolve(repo, revision, commit);
    name_ref(revision, path);
    int at = repo->fd < 0 || repo->is_new ? -1 : td_folder_open_parent(repo->fd, path, false, &name);
    if (at < 0)
        return td_error_set(err, TD_NOT_FOUND, "no revision \"%s\"", revision);
    if (names_commit)
        td_publish_note_left(repo, commit);
    bool ok = unlinkat(at, name, 0) == 0;
    bool is_missing = !ok && (errno == ENOENT || errno == EISDIR);
    ok = ok && fsync(at) == 0;
    int sys = errno;
    (void)close(at);
    if (ok) {
        remove_empty_folders(repo, path);
        td_publish_squash_remove(repo, revision);
    }
    errno = sys;
    return ok || (is_missing ? td_error_set(err, TD_NOT_FOUND, "no revision \"%s\"", revision)
                             : td_publish_fail(&repo->name, "delete a revision of", err));
}
