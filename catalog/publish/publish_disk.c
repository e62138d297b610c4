#include "catalog/publish/publish_disk.h"

#include "catalog/model/hub_cache.h"
#include "catalog/model/split_name.h"
#include "catalog/publish/publish_folder.h"
#include "catalog/scan/walk.h"
#include "core/text.h"
#include "core/utf8.h"
#include "storage/disk_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ID_BYTES = 200 };

static const char *const children[] = {"incoming", "new", "parts", "sessions", NULL};

static const struct td_own_folder_rules publish_folder = {
    .name = TD_PUBLISH_FOLDER,
    .option = "--publish",
    .deed = "serves",
    .when_taken = "one at a time publishes to a directory, and others serve it without this option",
    .children = children};

/* ---- opening --------------------------------------------------------------------------------------------- */

bool td_publish_disk_open(struct td_publish_disk *disk, const char *root, struct td_error *err)
{
    disk->own.trash_number = 0;
    if (!td_own_folder_open(&disk->own, &publish_folder, root, err) || !td_own_folder_empty(&disk->own, "trash", err) ||
        !td_own_folder_empty(&disk->own, "incoming", err)) {
        td_own_folder_close(&disk->own);
        return false;
    }
    for (size_t i = 0; i < TD_PUBLISH_LOCKS; i++)
        (void)pthread_mutex_init(&disk->locks[i], NULL); /* cannot fail without attributes (glibc) */
    (void)pthread_mutex_init(&disk->naming, NULL);
    td_publish_leases_init(&disk->leases);
    td_publish_quiet_init(&disk->quiet);
    return true;
}

void td_publish_disk_close(struct td_publish_disk *disk)
{
    for (size_t i = 0; i < TD_PUBLISH_LOCKS; i++)
        (void)pthread_mutex_destroy(&disk->locks[i]);
    (void)pthread_mutex_destroy(&disk->naming);
    td_publish_leases_fini(&disk->leases);
    td_publish_quiet_fini(&disk->quiet);
    td_own_folder_close(&disk->own);
}

/* ---- names ----------------------------------------------------------------------------------------------- */

/* Returns why a segment of an id cannot be used; NULL when it can. */
static const char *refuse_segment(struct td_text segment)
{
    if (segment.len == 0)
        return "an empty part";
    if (segment.p[0] == '.')
        return "a part that begins with a dot";
    for (size_t i = 0; i < segment.len; i++) {
        if ((unsigned char)segment.p[i] < ' ' || segment.p[i] == 0x7f)
            return "a control character";
        if (segment.p[i] == '\\')
            return "a backslash";
        if (segment.p[i] == '@')
            return "an \"@\", after which a commit would be named";
        if (i > 0 && segment.p[i] == '-' && segment.p[i - 1] == '-')
            return "\"--\", which separates the parts of a folder's name";
        if (i > 0 && segment.p[i] == '.' && segment.p[i - 1] == '.')
            return "\"..\"";
    }
    return segment.p[0] == '-' || segment.p[segment.len - 1] == '-' ? "a \"-\" at the beginning or end of a part"
                                                                    : NULL;
}

/* Returns whether the id's last part is a word that follows an id in paths of the native interface. */
static bool is_word(struct td_text last, bool is_dataset)
{
    static const char *const words[] = {"files", "blobs", "commits"};
    static const char *const of_models[] = {"tensors", "tensors:read",     "plans", "shards", "versions",
                                            "changes", "model.safetensors"};
    bool is = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is = is || td_text_equals(last, words[i]);
    for (size_t i = 0; !is_dataset && i < sizeof of_models / sizeof *of_models; i++)
        is = is || td_text_equals(last, of_models[i]);
    return is;
}

bool td_publish_name(const char *id, bool is_dataset, struct td_publish_name *name, struct td_error *err)
{
    struct td_text rest = td_text_of(id);
    const char *why = rest.len > ID_BYTES                ? "more than 200 bytes"
                      : !td_utf8_valid(rest.p, rest.len) ? "bytes that are not UTF-8"
                                                         : NULL;
    struct td_text first = td_text_take_until(&rest, '/');
    if (why == NULL)
        why = refuse_segment(first);
    if (why == NULL && id[first.len] == '/')
        why = memchr(rest.p, '/', rest.len) != NULL ? "more than two parts" : refuse_segment(rest);
    if (why == NULL && !is_dataset && td_text_equals(first, "datasets"))
        why = "a first part that stands for datasets";
    if (why == NULL && is_word(rest.len > 0 ? rest : first, is_dataset))
        why = "a last part that means something else in paths";
    if (why != NULL)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the id \"%.200s\" has %s; use \"name\" or \"org/name\"", id,
                            why);
    name->is_dataset = is_dataset;
    (void)snprintf(name->folder, sizeof name->folder, "%s--%.*s%s%.*s", is_dataset ? "datasets" : "models",
                   TD_SHOW(first, ID_BYTES), rest.len > 0 ? "--" : "", TD_SHOW(rest, ID_BYTES));
    (void)snprintf(name->path, sizeof name->path, "%s%s", is_dataset ? "datasets/" : "", id);
    return true;
}

bool td_publish_name_of_folder(const char *folder, struct td_publish_name *name)
{
    static const char datasets[] = "datasets/";
    char id[NAME_MAX + 1];
    if (!td_hub_cache_id(folder, id, sizeof id))
        return false;
    bool is_dataset = strncmp(folder, datasets, sizeof datasets - 2) == 0;
    return td_publish_name(id + (is_dataset ? sizeof datasets - 1 : 0), is_dataset, name, NULL) &&
           strcmp(name->folder, folder) == 0;
}

/* The search for published repositories in a directory. */
struct listing {
    bool is_new; /* it is new/, in which everything is ours, even what a killed process has begun to make */
    bool (*visit)(void *context, const struct td_publish_name *name, struct td_error *err);
    void *context;
};

/* Visits the repository of a folder's name, if it is one that was published or is in new/. */
static bool visit_folder(void *context, int at, const char *folder, struct td_error *err)
{
    const struct listing *listing = context;
    char path[NAME_MAX + 16];
    struct stat st;
    struct td_publish_name name;
    (void)snprintf(path, sizeof path, "%s/commits", folder);
    if (!td_publish_name_of_folder(folder, &name) ||
        (!listing->is_new && (fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))))
        return true;
    return listing->visit(listing->context, &name, err);
}

bool td_publish_disk_each(struct td_publish_disk *disk,
                          bool (*visit)(void *context, const struct td_publish_name *name, struct td_error *err),
                          void *context, struct td_error *err)
{
    struct listing all = {.visit = visit, .context = context};
    struct listing new = {.is_new = true, .visit = visit, .context = context};
    return td_disk_list(td_folder_open(disk->own.root_fd, "."), disk->own.root, visit_folder, &all, err) &&
           td_disk_list(td_folder_open(disk->own.fd, "new"), TD_PUBLISH_FOLDER "/new", visit_folder, &new, err);
}

/* ---- repositories ---------------------------------------------------------------------------------------- */

size_t td_publish_name_slot(const struct td_publish_name *name)
{
    unsigned sum = 0;
    for (const char *c = name->folder; *c != '\0'; c++)
        sum = sum * 31 + (unsigned char)*c;
    return sum % TD_PUBLISH_LOCKS;
}

static pthread_mutex_t *lock_of(struct td_publish_repo *repo)
{
    return &repo->disk->locks[td_publish_name_slot(&repo->name)];
}

bool td_publish_fail(const struct td_publish_name *name, const char *what, struct td_error *err)
{
    int sys = errno;
    bool is_full = sys == ENOSPC || sys == EDQUOT || sys == EFBIG;
    bool is_short = sys == ENOMEM || sys == EMFILE || sys == ENFILE;
    bool is_refused = sys == EACCES || sys == EPERM || sys == EROFS;
    enum td_code code = is_full || is_short ? TD_RESOURCE_EXHAUSTED : is_refused ? TD_PERMISSION_DENIED : TD_IO;
    return td_error_sys(err, code, sys, "cannot %s \"%s\"", what, name->folder);
}

/* Checks that the name belongs to nothing of the operator: neither a directory org/name, nor a cache's folder without
 * commits/. */
static bool check_owner(const struct td_publish_repo *repo, struct td_error *err)
{
    const struct td_own_folder *own = &repo->disk->own;
    struct stat st;
    if (fstatat(own->root_fd, repo->name.path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return td_error_set(err, TD_CONFLICT,
                            "\"%s\" was not published and stays as it is; choose another name, or move it away",
                            repo->name.path);
    if (repo->is_new || repo->fd < 0 ||
        (fstatat(repo->fd, "commits", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)))
        return true;
    return td_error_set(err, TD_CONFLICT,
                        "\"%s\" was downloaded by another program and stays as it is; choose another name, or move it "
                        "away",
                        repo->name.folder);
}

/* A folder's name, and that of a folder that is not in its way. */
struct neighbour {
    const char *folder, *except;
};

/* Stops at a folder whose name begins with the repository's and "--". */
static bool is_no_child(void *context, int at, const char *folder, struct td_error *err)
{
    const struct neighbour *own = context;
    size_t len = strlen(own->folder);
    (void)at;
    return strncmp(folder, own->folder, len) != 0 || strncmp(folder + len, "--", 2) != 0 ||
           strcmp(folder, own->except) == 0 ||
           td_error_set(err, TD_CONFLICT,
                        "this id is the first part of another one in the directory; choose another id");
}

/* Stops at an item that makes the directory, which is the first part of an id, a repository of its own
 * (catalog/names/repo.h): a file that lists show, or a folder for the rows of a split. */
static bool is_no_content(void *context, int at, const char *name, struct td_error *err)
{
    struct stat st;
    (void)context;
    bool is_content = !td_walk_ignores(name) && fstatat(at, name, &st, 0) == 0 &&
                      (S_ISREG(st.st_mode) || (S_ISDIR(st.st_mode) && td_split_is_folder(td_text_of(name))));
    return !is_content || td_error_set(err, TD_CONFLICT,
                                       "the first part of the id is a directory with files that were not published, "
                                       "and stays as it is; choose another name");
}

/* Checks that a directory of the operator with the name of the id's first part, if there is one, has no content. */
static bool check_org(const struct td_publish_disk *disk, const struct td_publish_name *name, struct td_error *err)
{
    static const char datasets[] = "datasets/";
    char org[sizeof name->path];
    const char *rest = name->path + (name->is_dataset ? sizeof datasets - 1 : 0);
    const char *slash = strchr(rest, '/');
    if (slash == NULL)
        return true;
    (void)snprintf(org, sizeof org, "%.*s", (int)(slash - name->path), name->path);
    const char *last;
    int at = td_folder_open_parent(disk->own.root_fd, org, false, &last);
    int fd = at < 0 ? -1 : td_folder_open(at, last);
    td_folder_close(at);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || td_publish_fail(name, "look beside", err);
    return td_disk_list(fd, org, is_no_content, NULL, err);
}

/* Checks that the id is not the beginning of another repository's id, and that none is the beginning of it, nor a
 * directory with files: a scan would show one of the two alone, or one as a part of the other. The folder `except` does
 * not count. */
static bool check_neighbours(const struct td_publish_disk *disk, const struct td_publish_name *name, const char *except,
                             struct td_error *err)
{
    char folder[NAME_MAX + 1];
    struct stat st;
    struct neighbour own = {.folder = folder, .except = except};
    (void)snprintf(folder, sizeof folder, "%s", name->folder);
    char *kind_end = strstr(folder, "--");
    char *org_end = kind_end == NULL ? NULL : strstr(kind_end + 2, "--");
    if (org_end == NULL)
        return td_disk_list(td_folder_open(disk->own.root_fd, "."), disk->own.root, is_no_child, &own, err);
    *org_end = '\0';
    if (strcmp(folder, except) != 0 && fstatat(disk->own.root_fd, folder, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return td_error_set(err, TD_CONFLICT,
                            "the first part of this id is another id in the directory; choose another id");
    return check_org(disk, name, err);
}

/* Makes the repository's folder in new/, if there is none, and the folders in it that are missing: a process may have
 * been killed while it made them. */
static bool make_new(struct td_publish_repo *repo, const char *path, struct td_error *err)
{
    static const char *const parts[] = {"blobs", "snapshots", "refs", "commits"};
    if (repo->fd < 0) {
        if (!check_neighbours(repo->disk, &repo->name, "", err))
            return false;
        if (!td_own_folder_make(&repo->disk->own, path))
            return td_publish_fail(&repo->name, "make a folder for", err);
        repo->fd = td_folder_open(repo->disk->own.fd, path);
    }
    bool ok = repo->fd >= 0;
    for (size_t i = 0; ok && i < sizeof parts / sizeof *parts; i++)
        ok = mkdirat(repo->fd, parts[i], 0755) == 0 || errno == EEXIST;
    return ok || td_publish_fail(&repo->name, "make a folder for", err);
}

/* Opens the directory. The lock is held. */
static bool open_locked(struct td_publish_repo *repo, bool create, struct td_error *err)
{
    const struct td_own_folder *own = &repo->disk->own;
    char path[TD_OWN_NAME_BYTES];
    td_publish_quiet_end(&repo->disk->quiet, repo->name.folder);
    if (!td_own_folder_check(own, err))
        return false;
    repo->fd = td_folder_open(own->root_fd, repo->name.folder);
    if (repo->fd < 0 && errno != ENOENT)
        return errno == ENOTDIR || errno == ELOOP
                   ? td_error_set(err, TD_CONFLICT, "\"%s\" is no directory; move it away", repo->name.folder)
                   : td_publish_fail(&repo->name, "open", err);
    (void)snprintf(path, sizeof path, "new/%s", repo->name.folder);
    if (repo->fd < 0) {
        repo->is_new = true;
        repo->fd = td_folder_open(own->fd, path);
        if (repo->fd < 0 && errno != ENOENT)
            return td_publish_fail(&repo->name, "open", err);
    }
    return check_owner(repo, err) && (!create || !repo->is_new || make_new(repo, path, err));
}

bool td_publish_repo_open(struct td_publish_disk *disk, const struct td_publish_name *name, bool create,
                          struct td_publish_repo *repo, struct td_error *err)
{
    *repo = (struct td_publish_repo){.disk = disk, .name = *name, .fd = -1};
    pthread_mutex_lock(lock_of(repo));
    if (open_locked(repo, create, err))
        return true;
    td_publish_repo_close(repo);
    return false;
}

bool td_publish_repo_open_to_move(struct td_publish_disk *disk, const struct td_publish_name *from,
                                  const struct td_publish_name *to, struct td_publish_repo *repo, struct td_error *err)
{
    size_t own = td_publish_name_slot(from);
    size_t other = td_publish_name_slot(to);
    *repo = (struct td_publish_repo){.disk = disk, .name = *from, .fd = -1};
    repo->other_lock = own == other ? NULL : &disk->locks[other];
    pthread_mutex_lock(&disk->locks[own < other ? own : other]);
    if (own != other)
        pthread_mutex_lock(&disk->locks[own < other ? other : own]);
    if (open_locked(repo, false, err))
        return true;
    td_publish_repo_close(repo);
    return false;
}

void td_publish_repo_close(struct td_publish_repo *repo)
{
    if (repo->fd >= 0)
        (void)close(repo->fd);
    repo->fd = -1;
    if (repo->other_lock != NULL)
        pthread_mutex_unlock(repo->other_lock);
    repo->other_lock = NULL;
    pthread_mutex_unlock(lock_of(repo));
}

bool td_publish_repo_look(struct td_publish_disk *disk, const struct td_publish_name *name,
                          struct td_publish_repo *repo, struct td_error *err)
{
    const struct td_own_folder *own = &disk->own;
    char path[TD_OWN_NAME_BYTES];
    *repo = (struct td_publish_repo){.disk = disk, .name = *name};
    (void)snprintf(path, sizeof path, "new/%s", name->folder);
    repo->fd = td_folder_open(own->fd, path);
    repo->is_new = repo->fd >= 0;
    if (repo->fd < 0) /* after new/, since a first commit may move it */
        repo->fd = td_folder_open(own->root_fd, name->folder);
    if (repo->fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || td_publish_fail(name, "open", err);
    if (!check_owner(repo, NULL))
        td_publish_repo_look_end(repo);
    return true;
}

void td_publish_repo_look_end(struct td_publish_repo *repo)
{
    if (repo->fd >= 0)
        (void)close(repo->fd);
    repo->fd = -1;
}

bool td_publish_blobs_sync(const struct td_publish_repo *repo, struct td_error *err)
{
    return td_folder_sync(repo->fd, "blobs") || td_publish_fail(&repo->name, "write the names of the blobs of", err);
}

/* Returns whether the id has two parts. Only then its neighbours are found without a list of the whole directory: for
 * one part they are listed when the folder is made, and at the first commit. */
static bool has_org(const struct td_publish_name *name)
{
    const char *kind_end = strstr(name->folder, "--");
    return kind_end != NULL && strstr(kind_end + 2, "--") != NULL;
}

bool td_publish_check_name(struct td_publish_disk *disk, const struct td_publish_name *name, struct td_error *err)
{
    struct td_publish_repo repo;
    if (!td_publish_repo_look(disk, name, &repo, err))
        return false;
    bool is_shown = repo.fd >= 0 && !repo.is_new;
    td_publish_repo_look_end(&repo);
    if (is_shown)
        return true;
    if (!td_publish_repo_open(disk, name, false, &repo, err))
        return false;
    bool was_checked = repo.fd >= 0 && (!repo.is_new || !has_org(name));
    bool ok = was_checked || check_neighbours(disk, name, "", err);
    td_publish_repo_close(&repo);
    return ok;
}

/* Renames a folder back, after its new name could not be made durable. Keeps errno. Returns whether it has its old
 * name.
 */
static bool move_back(int at, const char *name, int to, const char *old_name)
{
    int sys = errno;
    bool ok = renameat2(at, name, to, old_name, RENAME_NOREPLACE) == 0;
    errno = sys;
    return ok;
}

/* Renames the repository's folder. Nobody else gives a folder its name until then. */
static bool show_alone(struct td_publish_repo *repo, struct td_error *err)
{
    const struct td_own_folder *own = &repo->disk->own;
    char path[TD_OWN_NAME_BYTES];
    (void)snprintf(path, sizeof path, "new/%s", repo->name.folder);
    if (!check_owner(repo, err) || !check_neighbours(repo->disk, &repo->name, "", err))
        return false;
    if (renameat2(own->fd, path, own->root_fd, repo->name.folder, RENAME_NOREPLACE) == 0) {
        repo->is_new = false;
        if (fsync(own->root_fd) == 0)
            return true;
        repo->is_new = move_back(own->root_fd, repo->name.folder, own->fd, path);
        return td_publish_fail(&repo->name, "write the folder of", err);
    }
    return errno == EEXIST ? td_error_set(err, TD_CONFLICT, "\"%s\" has appeared and stays as it is", repo->name.folder)
                           : td_publish_fail(&repo->name, "publish", err);
}

bool td_publish_repo_show(struct td_publish_repo *repo, struct td_error *err)
{
    pthread_mutex_lock(&repo->disk->naming);
    bool ok = show_alone(repo, err);
    pthread_mutex_unlock(&repo->disk->naming);
    return ok;
}

/* Makes the names of repositories durable. */
static bool sync_names(const struct td_own_folder *own, bool are_new)
{
    return are_new ? td_folder_sync(own->fd, "new") : fsync(own->root_fd) == 0;
}

bool td_publish_repo_remove(struct td_publish_repo *repo, char trash[TD_OWN_NAME_BYTES], struct td_error *err)
{
    struct td_own_folder *own = &repo->disk->own;
    char path[TD_OWN_NAME_BYTES];
    if (repo->fd < 0)
        return td_error_set(err, TD_NOT_FOUND, "no model of this name was published");
    (void)snprintf(path, sizeof path, "%s%s", repo->is_new ? "new/" : "", repo->name.folder);
    int at = repo->is_new ? own->fd : own->root_fd;
    if (!td_own_folder_trash(own, at, path, trash))
        return td_publish_fail(&repo->name, "remove", err);
    bool ok = sync_names(own, repo->is_new);
    if (!ok) {
        (void)td_publish_fail(&repo->name, "remove", err);
        if (move_back(own->fd, trash, at, path)) {
            trash[0] = '\0';
            return false;
        }
    }
    (void)close(repo->fd);
    repo->fd = -1;
    return ok;
}

/* Checks that nothing has this name, neither a repository nor a directory of the operator, and that no id is in its
 * way. */
static bool check_free(const struct td_publish_repo *repo, const struct td_publish_name *name, struct td_error *err)
{
    const struct td_own_folder *own = &repo->disk->own;
    const struct td_publish_repo other = {.disk = repo->disk, .name = *name, .fd = -1, .is_new = true};
    char path[TD_OWN_NAME_BYTES];
    struct stat st;
    (void)snprintf(path, sizeof path, "new/%s", name->folder);
    if (fstatat(own->root_fd, name->folder, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
        fstatat(own->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return td_error_set(err, TD_CONFLICT, "there is a model \"%s\" already", name->path);
    return check_owner(&other, err) && check_neighbours(repo->disk, name, repo->name.folder, err);
}

/* Renames the repository's folder. Nobody else gives a folder its name until then. */
static bool move_alone(struct td_publish_repo *repo, const struct td_publish_name *to, struct td_error *err)
{
    const struct td_own_folder *own = &repo->disk->own;
    char from_path[TD_OWN_NAME_BYTES];
    char to_path[TD_OWN_NAME_BYTES];
    const char *folder = repo->is_new ? "new/" : "";
    int at = repo->is_new ? own->fd : own->root_fd;
    if (!check_free(repo, to, err))
        return false;
    (void)snprintf(from_path, sizeof from_path, "%s%s", folder, repo->name.folder);
    (void)snprintf(to_path, sizeof to_path, "%s%s", folder, to->folder);
    if (renameat2(at, from_path, at, to_path, RENAME_NOREPLACE) != 0)
        return errno == EEXIST ? td_error_set(err, TD_CONFLICT, "there is a model \"%s\" already", to->path)
                               : td_publish_fail(&repo->name, "move", err);
    if (sync_names(own, repo->is_new))
        return true;
    (void)move_back(at, to_path, at, from_path);
    return td_publish_fail(&repo->name, "move", err);
}

bool td_publish_repo_move(struct td_publish_repo *repo, const struct td_publish_name *to, struct td_error *err)
{
    if (repo->fd < 0)
        return td_error_set(err, TD_NOT_FOUND, "no model of this name was published");
    td_publish_quiet_end(&repo->disk->quiet, to->folder);
    pthread_mutex_lock(&repo->disk->naming);
    bool ok = move_alone(repo, to, err);
    pthread_mutex_unlock(&repo->disk->naming);
    return ok;
}
