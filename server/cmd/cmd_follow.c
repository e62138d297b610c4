/* `tensord follow`: keeps a directory at the newest version of a model.
 *
 * A version is made in DIR/.tensord-follow, gets a file that says that follow made it, and moves to DIR/VERSION by one
 * rename. So after a kill at any moment DIR has whole versions alone, and the next run continues in
 * DIR/.tensord-follow.
 */
#include "server/cmd/commands.h"

#include "catalog/remote/remote_versions.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/process.h"
#include "server/cmd/apply_versions.h"
#include "server/cmd/pull_model.h"
#include "server/cmd/shared/command_line.h"
#include "server/host/terminal.h"
#include "storage/disk_tree.h"
#include "storage/fetch/fetch_health.h"
#include "storage/own_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KEEP = 2, /* default of --keep */
    MAX_KEEP = 1000000,
    POLL_S = 60, /* the longest wait for another list */
    NAME_BYTES = TD_REMOTE_VERSION_BYTES + 1,
    MARK_BYTES = 2 * NAME_BYTES + 8,
    PATH_BYTES = PATH_MAX + 2 * NAME_MAX,
    EXEC_END_S = 5, /* how long a command may take to end after SIGTERM */
};

static const uint64_t list_pause_ns = TD_NS_PER_S / 2; /* the shortest time between two lists */
static const uint64_t exec_poll_ns = TD_NS_PER_S / 50;

/* Names in DIR, and in each version that follow made. */
#define FOLDER_NAME ".tensord-follow"
#define MARK_NAME ".tensord-follow"
#define LINK_NAME "latest"

/* In the folder: versions that are being made, the deltas of one, and the version for which --exec has run. */
#define NEW_NAME "new"
#define DELTAS_NAME "deltas"
#define EXEC_NAME "exec"

static const char *const children[] = {NEW_NAME, DELTAS_NAME, NULL};
static const struct td_own_folder_rules folder_rules = {.name = FOLDER_NAME,
                                                        .option = "follow",
                                                        .deed = "follows into",
                                                        .when_taken = "one at a time follows into a directory",
                                                        .children = children};

struct arguments {
    struct td_copy_urls urls;
    struct td_copy_options copy;
    const char *model, *directory, *command; /* borrowed from argv */
    bool applies, once;
    uint64_t keep;
};

struct follow {
    const struct arguments *arguments;
    struct td_copying copying;
    struct td_fetch_session *session;
    struct td_remote_versions versions;
    bool has_versions; /* a list has been read */
    bool has_noted;    /* that there is no version yet */
    struct td_own_folder folder;
    uint64_t listed_ns; /* when a list was read last */
    bool has_exec_failed;
    struct td_error failure; /* the latest one, whose reason is printed once; code TD_OK: none */
};

/* How a version came, for the report. */
struct arrival {
    const char *model, *version;
    const char *previous; /* the version before; "": none */
    char directory[PATH_BYTES];
    bool is_new;
    size_t delta_count;     /* deltas that were applied; 0: the version was pulled whole */
    uint64_t fetched_bytes; /* of files and deltas */
    double seconds;
    const struct td_error *failure; /* code TD_OK: none */
};

/* ---- arguments ----------------------------------------------------------------------------------------- */

static const char usage[] = "tensord follow URL[,URL...] MODEL [-o DIR] [options]; see follow --help";

void td_cmd_follow_help(FILE *out)
{
    (void)fputs(
        "tensord follow keeps a directory at the newest version of a model on a server.\n\n"
        "usage:\n"
        "  tensord follow URL[,URL...] MODEL [-o DIR] [--keep N] [--apply] [--exec CMD] [--once] [options]\n\n"
        "  URL                a tensord, such as http://weights:8080; with several, each file comes from all of\n"
        "                     them, and from the others when one fails\n"
        "  MODEL              the id of a model or folder with versions, such as org/run\n"
        "\n"
        "options, defaults in parentheses; TIME is seconds, or a number with ms, s, m, h or d, such as 5m:\n"
        "  -o, --output DIR   the directory (the last part of MODEL): each version is in DIR/VERSION, which appears\n"
        "                     when it is complete, and the symbolic link DIR/latest leads to the newest one. Until\n"
        "                     then files are in DIR/.tensord-follow\n"
        "  --keep N           versions to keep, with the newest one; older ones that follow made are removed (2)\n"
        "  --apply            follow deltas, too: fetch those since the newest version that is there, and apply them\n"
        "  --exec CMD         run CMD by /bin/sh after each new version, with TENSORD_VERSION, TENSORD_DIR (the\n"
        "                     version's directory) and TENSORD_PREVIOUS (the version before, or empty) in its\n"
        "                     environment. A failure is reported, and following continues (not set)\n"
        "  --once             bring DIR to the newest version, and end\n",
        out);
    td_copy_options_help(out, "at once, over all servers",
                         "  --token-file FILE  file with the token to send to all URLs (the variable TENSORD_TOKEN)\n");
    (void)fputs("\n"
                "When a server cannot be reached, or a version cannot be had, the reason is printed and it is tried\n"
                "again. The same command continues where an earlier one ended. With --json there is one object for\n"
                "each new version.\n"
                "\n"
                "exit codes: 0 --once: the newest version is there; 1 it failed, CMD failed with --once, or it was\n"
                "stopped by a signal; 2 wrong usage.\n",
                out);
}

/* Reads the arguments. Returns false after printing a message; the caller frees the URLs in any case. */
static bool read_arguments(int argc, char **argv, struct arguments *out)
{
    static const struct td_copy_command command = {"follow", "followed",
                                                   "follow takes no revision, but the newest version"};
    struct td_copy_model model = {.directory = NULL};
    const char *keep = NULL;
    const struct td_command_option options[] = {
        {"--output", .value = &model.directory},
        {"-o", .value = &model.directory},
        {"--keep", .value = &keep},
        {"--apply", .flag = &out->applies},
        {"--exec", .value = &out->command},
        {"--once", .flag = &out->once},
        {.name = NULL},
    };
    struct td_command_option shared[TD_COPY_ROWS];
    memset(out, 0, sizeof *out);
    td_copy_options_list(&out->copy, shared);
    const struct td_command_line line = {.options = options, .shared = shared, .usage = usage};
    if (!td_copy_model_read(&command, &line, argc, argv, &model))
        return false;
    out->model = model.model;
    out->directory = model.directory;
    out->keep = KEEP;
    if (keep != NULL && (!td_number_read_strict(td_text_of(keep), MAX_KEEP, &out->keep) || out->keep == 0))
        return td_command_line_refuse(&line, "--keep takes a number from 1 to 1000000, not ", keep);
    return td_copy_options_check(&line, &out->copy) && td_copy_urls_read(&line, model.list, &out->urls);
}

/* ---- the directory ------------------------------------------------------------------------------------- */

/* Writes a path in DIR, without a symbolic link above it. */
static void write_path(const struct follow *follow, const char *below, const char *name, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/%s%s%s", follow->folder.root, below, below[0] == '\0' ? "" : "/", name);
}

/* Writes the text by which follow knows a version of this model: "org/run at step-7". */
static void describe(const struct follow *follow, const char *name, char text[MARK_BYTES])
{
    (void)snprintf(text, MARK_BYTES, "%s at %s", follow->arguments->model, name);
}

/* Reads such a text from a file, and copies the name of the version. Returns false when the file is not there, or names
 * a version of another model. */
static bool read_name(const struct follow *follow, int at, const char *path, char name[NAME_BYTES])
{
    char begin[MARK_BYTES];
    char text[MARK_BYTES];
    int fd = openat(at, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (fd >= 0)
        (void)close(fd);
    describe(follow, "", begin);
    size_t len = strlen(begin);
    if (n < (ssize_t)len || n >= (ssize_t)(len + NAME_BYTES) || n >= MARK_BYTES || memcmp(text, begin, len) != 0)
        return false;
    (void)snprintf(name, NAME_BYTES, "%.*s", (int)((size_t)n - len), text + len);
    return true;
}

/* Writes such a file. */
static bool write_name(const struct follow *follow, const char *path, const char *name, struct td_error *err)
{
    char text[MARK_BYTES];
    describe(follow, name, text);
    int fd = openat(follow->folder.fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fsync(fd) == 0;
    int sys = errno;
    if (fd >= 0)
        (void)close(fd);
    return ok || td_error_sys(err, TD_IO, sys, "cannot write \"%s/%s/%s\"", follow->folder.root, FOLDER_NAME, path);
}

/* Returns whether DIR has a directory of this name that follow made for this model. Then it is a whole version. Sets
 * *when_ns, unless it is NULL, to the time at which it came. */
static bool is_own(const struct follow *follow, const char *name, int64_t *when_ns)
{
    char mark[2 * NAME_MAX];
    char text[NAME_BYTES];
    struct stat st;
    int at = follow->folder.root_fd;
    (void)snprintf(mark, sizeof mark, "%s/%s", name, MARK_NAME);
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode) ||
        !read_name(follow, at, mark, text) || strcmp(text, name) != 0 ||
        fstatat(at, mark, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (when_ns != NULL)
        *when_ns = td_file_id_of(&st).mtime_ns;
    return true;
}

/* Copies the name of the version that DIR/latest leads to; "" when it leads to none that follow made. */
static void read_link(const struct follow *follow, char name[NAME_BYTES])
{
    struct td_error ignored = TD_ERROR_INIT;
    ssize_t n = readlinkat(follow->folder.root_fd, LINK_NAME, name, NAME_BYTES);
    name[n < 0 || n >= NAME_BYTES ? 0 : n] = '\0';
    if (!td_remote_version_check(td_text_of(name), &ignored) || !is_own(follow, name, NULL))
        name[0] = '\0';
}

/* Makes the link lead to the version, by one rename. */
static bool set_link(const struct follow *follow, const char *name, struct td_error *err)
{
    static const char staged[] = "link";
    int fd = follow->folder.fd;
    if ((unlinkat(fd, staged, 0) == 0 || errno == ENOENT) && symlinkat(name, fd, staged) == 0 &&
        renameat(fd, staged, follow->folder.root_fd, LINK_NAME) == 0) {
        (void)fsync(follow->folder.root_fd);
        return true;
    }
    return td_error_sys(err, TD_IO, errno, "cannot make \"%s/%s\" lead to %s", follow->folder.root, LINK_NAME, name);
}

/* Refuses a version whose name is taken in DIR. */
static bool check_free(const struct follow *follow, const char *name, struct td_error *err)
{
    struct stat st;
    return fstatat(follow->folder.root_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
           td_error_set(
               err, TD_FAILED_PRECONDITION,
               "\"%s/%s\" is there, but follow has not made it for this model: move it away, or give another -o",
               follow->folder.root, name);
}

/* Moves a whole version from the folder to DIR, with the file that says that follow made it. */
static bool publish(const struct follow *follow, const char *name, struct td_error *err)
{
    char path[TD_OWN_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s/%s", NEW_NAME, name, MARK_NAME);
    if (!write_name(follow, path, name, err))
        return false;
    (void)snprintf(path, sizeof path, "%s/%s", NEW_NAME, name);
    if (renameat2(follow->folder.fd, path, follow->folder.root_fd, name, RENAME_NOREPLACE) == 0) {
        (void)fsync(follow->folder.root_fd);
        return true;
    }
    return errno == EEXIST ? check_free(follow, name, err)
                           : td_error_sys(err, TD_IO, errno, "cannot make \"%s/%s\"", follow->folder.root, name);
}

/* The versions that may remain in a folder of DIR/.tensord-follow. */
struct cleaning {
    const struct follow *follow;
    const char *child;
    const char *kept; /* the name of a version */
};

/* Removes what belongs to another version: neither its directory nor one in which it is made. */
static bool clean_item(void *context, const char *name, struct td_error *err)
{
    const struct cleaning *cleaning = context;
    char path[TD_OWN_NAME_BYTES];
    size_t len = strlen(cleaning->kept);
    (void)err;
    bool is_staging = name[0] == '.' && strncmp(name + 1, cleaning->kept, len) == 0 &&
                      strcmp(name + 1 + len, TD_FETCH_STAGING_END) == 0;
    if (is_staging || strcmp(name, cleaning->kept) == 0)
        return true;
    (void)snprintf(path, sizeof path, "%s/%s", cleaning->child, name);
    td_own_folder_remove(&cleaning->follow->folder, path);
    return true;
}

/* Removes unfinished versions other than this one. */
static bool clean_new(const struct follow *follow, const char *kept, struct td_error *err)
{
    struct cleaning cleaning = {.follow = follow, .child = NEW_NAME, .kept = kept};
    return td_own_folder_each(&follow->folder, NEW_NAME, clean_item, &cleaning, err);
}

/* Opens DIR and the folder in it, and makes them. */
static bool open_directory(struct follow *follow, struct td_error *err)
{
    struct stat st;
    const char *directory = follow->arguments->directory;
    if (!td_directories_make(directory, err) || !td_own_folder_open(&follow->folder, &folder_rules, directory, err) ||
        !td_own_folder_empty(&follow->folder, "trash", err))
        return false;
    return fstatat(follow->folder.root_fd, LINK_NAME, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISLNK(st.st_mode) ||
           td_error_set(err, TD_FAILED_PRECONDITION, "\"%s/%s\" is no symbolic link: move it away, or give another -o",
                        follow->folder.root, LINK_NAME);
}

/* ---- older versions ------------------------------------------------------------------------------------ */

struct older {
    const struct follow *follow;
    const char *newest;
    char (*names)[NAME_BYTES]; /* of versions that follow made, but for the newest; owned */
    int64_t *when_ns;          /* of each; owned */
    size_t count, capacity;
};

/* Adds a version, so that the one that came last is the first. */
static bool add_older(void *context, int at, const char *name, struct td_error *err)
{
    struct older *older = context;
    int64_t when_ns;
    (void)at;
    if (strlen(name) >= NAME_BYTES || strcmp(name, older->newest) == 0 || !is_own(older->follow, name, &when_ns))
        return true;
    if (older->count == older->capacity) {
        size_t capacity = older->capacity == 0 ? 16 : 2 * older->capacity;
        void *names = realloc(older->names, capacity * sizeof *older->names);
        older->names = names == NULL ? older->names : names;
        void *times = names == NULL ? NULL : realloc(older->when_ns, capacity * sizeof *older->when_ns);
        if (times == NULL)
            return td_error_no_memory(err);
        older->when_ns = times;
        older->capacity = capacity;
    }
    size_t i = older->count++;
    for (; i > 0 && (older->when_ns[i - 1] < when_ns ||
                     (older->when_ns[i - 1] == when_ns && strcmp(older->names[i - 1], name) < 0));
         i--) {
        memcpy(older->names[i], older->names[i - 1], NAME_BYTES);
        older->when_ns[i] = older->when_ns[i - 1];
    }
    (void)snprintf(older->names[i], NAME_BYTES, "%s", name);
    older->when_ns[i] = when_ns;
    return true;
}

/* Removes the versions that follow made, but for the newest and those that came last before it. */
static bool remove_older(struct follow *follow, const char *newest, struct td_error *err)
{
    struct older older = {.follow = follow, .newest = newest};
    char trash[TD_OWN_NAME_BYTES];
    bool ok = td_disk_list(openat(follow->folder.root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), follow->folder.root,
                           add_older, &older, err);
    for (size_t i = (size_t)follow->arguments->keep - 1; ok && i < older.count; i++) {
        ok = td_own_folder_trash(&follow->folder, follow->folder.root_fd, older.names[i], trash) ||
             td_error_sys(err, TD_IO, errno, "cannot remove \"%s/%s\"", follow->folder.root, older.names[i]);
        if (ok)
            td_own_folder_remove(&follow->folder, trash);
    }
    free(older.names);
    free(older.when_ns);
    return ok;
}

/* ---- one version --------------------------------------------------------------------------------------- */

/* Prepares the counts and the signs of a failure for another copy. */
static void begin_copy(struct follow *follow)
{
    atomic_store(&follow->copying.has_failed, false);
    atomic_store(&follow->copying.done_bytes, 0);
    atomic_store(&follow->copying.total_bytes, 0);
}

/* Pulls a version into a folder of DIR/.tensord-follow, and adds its bytes to *fetched_bytes. */
static bool pull_version(struct follow *follow, const char *child, const char *name, uint64_t *fetched_bytes,
                         struct td_error *err)
{
    char path[PATH_BYTES];
    char below[NAME_MAX];
    struct td_pull pull;
    struct td_pull_wanted wanted = {.model = follow->arguments->model, .directory = path};
    (void)snprintf(below, sizeof below, "%s/%s", FOLDER_NAME, child);
    write_path(follow, below, name, path);
    (void)snprintf(wanted.revision, sizeof wanted.revision, "%s", name);
    begin_copy(follow);
    td_pull_init(&pull, &wanted, &follow->copying);
    bool ok = td_pull_model(&pull, err);
    for (size_t i = 0; i < pull.list.count; i++)
        *fetched_bytes += pull.list.files[i].older_bytes + pull.list.files[i].outcome.fetched_bytes;
    td_pull_fini(&pull);
    return ok;
}

/* Pulls a whole version into DIR. */
static bool bring_whole(struct follow *follow, const char *name, uint64_t *fetched_bytes, struct td_error *err)
{
    return check_free(follow, name, err) && clean_new(follow, name, err) &&
           pull_version(follow, NEW_NAME, name, fetched_bytes, err) && publish(follow, name, err);
}

/* The deltas that lead to a version. */
struct chain {
    const struct td_remote_version **deltas; /* the last one first; owned */
    size_t count;
    const struct td_remote_version *base;
};

static const struct td_remote_version *find_version(const struct td_remote_versions *versions, const char *name)
{
    for (size_t i = 0; name != NULL && i < versions->count; i++)
        if (strcmp(versions->items[i].name, name) == 0)
            return &versions->items[i];
    return NULL;
}

/* Finds the deltas from a version that is in DIR, or a whole one on the server, to this one. */
static bool find_chain(const struct follow *follow, const struct td_remote_version *version, struct chain *chain,
                       struct td_error *err)
{
    const struct td_remote_versions *versions = &follow->versions;
    chain->deltas = calloc(versions->count + 1, sizeof *chain->deltas);
    if (chain->deltas == NULL)
        return td_error_no_memory(err);
    while (version->is_delta && (chain->count == 0 || !is_own(follow, version->name, NULL))) {
        const struct td_remote_version *base = find_version(versions, version->base);
        if (base == NULL || chain->count == versions->count)
            return td_error_set(err, TD_FAILED_PRECONDITION, "%s changes %s%.100s%s, which %s", version->name,
                                version->base == NULL ? "a version" : "\"", version->base == NULL ? "" : version->base,
                                version->base == NULL ? "" : "\"",
                                version->base == NULL ? "it does not name"
                                : base == NULL        ? "the server does not list"
                                                      : "changes it in turn");
        chain->deltas[chain->count++] = version;
        version = base;
    }
    chain->base = version;
    return true;
}

/* Applies the deltas, which are in the folder, to the base, which is in DIR. `directories` has room for the paths of
 * all, and `paths` for their bytes. */
static bool apply_directories(struct follow *follow, const struct chain *chain, const char **directories,
                              char (*paths)[PATH_BYTES], struct td_error *err)
{
    struct td_apply apply;
    char output[PATH_BYTES];
    char below[TD_OWN_NAME_BYTES];
    const char *name = chain->deltas[0]->name;
    const struct td_apply_wanted wanted = {.output = output, .directories = directories, .count = chain->count + 1};
    write_path(follow, "", chain->base->name, paths[0]);
    directories[0] = paths[0];
    for (size_t i = 1; i < wanted.count; i++) {
        write_path(follow, FOLDER_NAME "/" DELTAS_NAME, chain->deltas[chain->count - i]->name, paths[i]);
        directories[i] = paths[i];
    }
    write_path(follow, FOLDER_NAME "/" NEW_NAME, name, output);
    (void)snprintf(below, sizeof below, "%s/%s", NEW_NAME, name);
    td_own_folder_remove(&follow->folder, below); /* of a run that was killed before it could publish */
    begin_copy(follow);
    td_apply_init(&apply, &wanted, &follow->copying);
    bool ok = td_apply_versions(&apply, err);
    td_apply_fini(&apply);
    return ok;
}

static bool apply_chain(struct follow *follow, const struct chain *chain, struct td_error *err)
{
    char(*paths)[PATH_BYTES] = calloc(chain->count + 1, sizeof *paths);
    const char **directories = calloc(chain->count + 1, sizeof *directories);
    bool ok = paths != NULL && directories != NULL ? apply_directories(follow, chain, directories, paths, err)
                                                   : td_error_no_memory(err);
    free(directories);
    free(paths);
    return ok;
}

/* Makes a version of a delta in DIR: from a version that is there or is pulled first, and the deltas since. */
static bool bring_deltas(struct follow *follow, const struct td_remote_version *version, size_t *delta_count,
                         uint64_t *fetched_bytes, struct td_error *err)
{
    struct chain chain = {0};
    bool ok = check_free(follow, version->name, err) && find_chain(follow, version, &chain, err);
    if (ok && !is_own(follow, chain.base->name, NULL))
        ok = bring_whole(follow, chain.base->name, fetched_bytes, err);
    for (size_t i = chain.count; ok && i > 0; i--)
        ok = pull_version(follow, DELTAS_NAME, chain.deltas[i - 1]->name, fetched_bytes, err);
    ok = ok && clean_new(follow, version->name, err) && apply_chain(follow, &chain, err) &&
         publish(follow, version->name, err) && td_own_folder_empty(&follow->folder, DELTAS_NAME, err);
    *delta_count = chain.count;
    free(chain.deltas);
    return ok;
}

/* ---- the command of --exec ----------------------------------------------------------------------------- */

/* Makes the environment of the command: this one, with three variables. The caller frees the result alone. */
static char **make_environment(char *const own[3])
{
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **out = calloc(count + 4, sizeof *out);
    size_t n = 0;
    for (size_t i = 0; out != NULL && i < count; i++) {
        bool is_replaced = false;
        for (size_t k = 0; k < 3; k++)
            is_replaced |= strncmp(environ[i], own[k], (size_t)(strchr(own[k], '=') - own[k]) + 1) == 0;
        if (!is_replaced)
            out[n++] = environ[i];
    }
    for (size_t k = 0; out != NULL && k < 3; k++)
        out[n++] = own[k];
    return out;
}

/* Starts the command, as td_process_start says. Its output goes to standard error, since standard output has the
 * report. Returns 0 or an errno value. */
static int start_command(const char *command, char **environment, pid_t *pid)
{
    char shell[] = "sh";
    char option[] = "-c";
    char *const arguments[] = {shell, option, (char *)(uintptr_t)command, NULL};
    posix_spawn_file_actions_t actions;
    int sys = posix_spawn_file_actions_init(&actions);
    if (sys != 0)
        return sys;
    sys = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (sys == 0)
        sys = posix_spawn_file_actions_adddup2(&actions, fileno(stderr), STDOUT_FILENO);
    if (sys == 0)
        sys = td_process_start("/bin/sh", arguments, environment, &actions, pid);
    (void)posix_spawn_file_actions_destroy(&actions);
    return sys;
}

/* Waits until the command ends, and ends it when a signal stops the program. Returns the status of waitpid; 0 when it
 * is not known. */
static int wait_for_command(pid_t pid)
{
    int status = 0;
    pid_t ended;
    uint64_t kill_ns = UINT64_MAX; /* when SIGKILL comes after SIGTERM */
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        uint64_t now = td_clock_ns();
        if (kill_ns == UINT64_MAX && td_copying_has_signal()) {
            (void)kill(-pid, SIGTERM);
            kill_ns = now + EXEC_END_S * TD_NS_PER_S;
        } else if (now >= kill_ns) {
            (void)kill(-pid, SIGKILL);
        }
        const struct timespec pause = td_clock_timespec(exec_poll_ns);
        (void)nanosleep(&pause, NULL);
    }
    return ended < 0 ? 0 : status;
}

/* Runs the command of --exec for the version that the link leads to, unless it has run for it, and notes that it ran.
 * So it runs again if the program was killed before the note. */
static bool run_command(struct follow *follow, const char *name, struct td_error *err)
{
    char previous[NAME_BYTES] = "";
    char path[PATH_BYTES];
    char text[3][PATH_BYTES + 32];
    char *const own[3] = {text[0], text[1], text[2]};
    pid_t pid = 0;
    if (follow->arguments->command == NULL)
        return true;
    if (!read_name(follow, follow->folder.fd, EXEC_NAME, previous))
        previous[0] = '\0';
    if (strcmp(previous, name) == 0)
        return true;
    write_path(follow, "", name, path);
    (void)snprintf(text[0], sizeof text[0], "TENSORD_VERSION=%s", name);
    (void)snprintf(text[1], sizeof text[1], "TENSORD_DIR=%s", path);
    (void)snprintf(text[2], sizeof text[2], "TENSORD_PREVIOUS=%s", previous);
    char **environment = make_environment(own);
    if (environment == NULL)
        return td_error_no_memory(err);
    int sys = start_command(follow->arguments->command, environment, &pid);
    free(environment);
    int status = sys == 0 ? wait_for_command(pid) : 0;
    if (td_copying_has_signal())
        return td_error_set(err, TD_CONFLICT, "stopped");
    follow->has_exec_failed = sys != 0 || status != 0;
    if (sys != 0)
        td_terminal_complain("cannot run the command of --exec: %s", strerror(sys));
    else if (WIFSIGNALED(status))
        td_terminal_complain("the command of --exec for %s was ended by signal %d", name, WTERMSIG(status));
    else if (status != 0)
        td_terminal_complain("the command of --exec for %s ended with status %d", name, WEXITSTATUS(status));
    return write_name(follow, EXEC_NAME, name, err);
}

/* ---- the report ---------------------------------------------------------------------------------------- */

static void add_report(struct td_document *json, const void *context)
{
    const struct arrival *arrival = context;
    bool has_failed = arrival->failure->code != TD_OK;
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "model", arrival->model);
    td_document_add_bool(json, "complete", !has_failed);
    if (has_failed) {
        td_document_add_string(json, "error", arrival->failure->message);
    } else {
        td_document_add_string(json, "version", arrival->version);
        td_document_add_string(json, "previous", arrival->previous);
        td_document_add_string(json, "directory", arrival->directory);
        td_document_add_bool(json, "new", arrival->is_new);
        td_document_add_u64(json, "deltas", arrival->delta_count);
        td_document_add_u64(json, "fetched_bytes", arrival->fetched_bytes);
        td_document_add_seconds(json, "seconds", arrival->seconds);
    }
    td_document_end(json);
}

static void print_line(const void *context)
{
    const struct arrival *arrival = context;
    char deltas[64] = "";
    if (arrival->delta_count > 0)
        (void)snprintf(deltas, sizeof deltas, ", by %zu delta%s", arrival->delta_count,
                       td_plural(arrival->delta_count));
    if (arrival->is_new)
        td_terminal_line(stdout, "%s: version %s in %s%s; fetched %s in %.1f s", arrival->model, arrival->version,
                         arrival->directory, deltas, td_terminal_size(arrival->fetched_bytes).text, arrival->seconds);
    else
        td_terminal_line(stdout, "%s: version %s in %s is the newest", arrival->model, arrival->version,
                         arrival->directory);
}

/* Prints the report at once. Returns the exit code. */
static int report(const struct follow *follow, const struct arrival *arrival)
{
    struct td_error err = TD_ERROR_INIT;
    int status = td_copying_finish(&follow->copying, &(struct td_copying_report){add_report, print_line, arrival},
                                   arrival->failure->code != TD_OK);
    if (td_output_flush(&err))
        return status;
    td_terminal_complain("%s", err.message);
    return TD_EXIT_FAILED;
}

/* ---- following ----------------------------------------------------------------------------------------- */

/* Returns the version that DIR should have: the latest whole one, or with --apply a delta that the list has after it;
 * NULL: there is none. */
static const char *choose_newest(const struct follow *follow, const struct td_remote_version **delta)
{
    const struct td_remote_versions *versions = &follow->versions;
    *delta = NULL;
    for (size_t i = versions->count; i > 0; i--) {
        const struct td_remote_version *version = &versions->items[i - 1];
        if (versions->latest != NULL && strcmp(version->name, versions->latest) == 0)
            break;
        if (version->is_delta) {
            *delta = version;
            return version->name;
        }
    }
    return versions->latest;
}

/* Brings DIR to the newest version of the list. */
static bool bring_newest(struct follow *follow, struct td_error *err)
{
    const struct td_error none = TD_ERROR_INIT;
    const struct td_remote_version *delta;
    char previous[NAME_BYTES];
    uint64_t begin_ns = td_clock_ns();
    struct arrival arrival = {.model = follow->arguments->model, .previous = previous, .failure = &none};
    const char *name = arrival.version = choose_newest(follow, &delta);
    if (name == NULL && follow->arguments->once)
        return td_error_set(err, TD_NOT_FOUND, "%s has no version", follow->arguments->model);
    if (name == NULL) {
        if (!follow->has_noted)
            td_copying_note(&follow->copying, "there is no version yet: waiting for one");
        follow->has_noted = true;
        return true;
    }
    read_link(follow, previous);
    arrival.is_new = strcmp(previous, name) != 0;
    if (arrival.is_new) {
        bool ok = is_own(follow, name, NULL) ||
                  (delta != NULL ? bring_deltas(follow, delta, &arrival.delta_count, &arrival.fetched_bytes, err)
                                 : bring_whole(follow, name, &arrival.fetched_bytes, err));
        if (!ok || !set_link(follow, name, err))
            return false;
    }
    arrival.seconds = (double)(td_clock_ns() - begin_ns) / 1e9;
    write_path(follow, "", name, arrival.directory);
    if ((arrival.is_new || follow->arguments->once) && report(follow, &arrival) != TD_EXIT_OK)
        return td_error_set(err, TD_IO, "cannot write the report");
    return run_command(follow, name, err) && remove_older(follow, name, err);
}

/* Gets the list, after a wait for a change if there is nothing to do before. */
static bool get_list(struct follow *follow, bool waits, struct td_error *err)
{
    const struct arguments *arguments = follow->arguments;
    unsigned stall_s = (unsigned)arguments->copy.stall_s; /* a longer wait would count as a broken connection */
    bool has_changed;
    const struct td_remote_versions_query query = {.id = arguments->model,
                                                   .waits = waits,
                                                   .tag = follow->versions.tag,
                                                   .timeout_s = stall_s / 2 < POLL_S ? stall_s / 2 : POLL_S,
                                                   .all = arguments->applies};
    atomic_store(&follow->copying.has_failed, false);
    if (!td_fetch_session_wait(follow->session, follow->listed_ns))
        return td_error_set(err, TD_CONFLICT, "stopped");
    follow->listed_ns = td_clock_ns() + list_pause_ns;
    return td_remote_versions_get(follow->session, &query, &follow->versions, &has_changed, err);
}

/* Returns whether following ends by this error: before the first list has come, an error that does not pass. */
static bool is_final(const struct follow *follow, const struct td_error *why)
{
    return follow->arguments->once ||
           (!follow->has_versions && why->code != TD_UNAVAILABLE && why->code != TD_NOT_FOUND);
}

/* Prints why a try has failed, unless the one before has failed for the same reason, and puts off the next one. */
static void wait_after(struct follow *follow, const struct td_error *why, unsigned failures)
{
    uint64_t now = td_clock_ns();
    if (strcmp(follow->failure.message, why->message) != 0)
        td_copying_complain(&follow->copying, why, NULL);
    (void)td_error_copy(&follow->failure, why);
    follow->listed_ns = now + td_fetch_backoff_ns(failures, 0, now);
}

/* Follows until a signal comes, or once. */
static bool follow_versions(struct follow *follow, struct td_error *err)
{
    unsigned failures = 0;
    for (bool waits = false;;) {
        struct td_error why = TD_ERROR_INIT;
        bool is_listed = get_list(follow, waits, &why);
        follow->has_versions |= is_listed;
        bool ok = is_listed && bring_newest(follow, &why);
        if (td_copying_has_signal())
            return td_error_set(err, TD_CONFLICT, "stopped");
        if (ok && follow->arguments->once)
            return true;
        if (!ok && is_final(follow, &why))
            return td_error_copy(err, &why);
        failures = ok ? 0 : failures + 1;
        waits = ok;
        if (!ok)
            wait_after(follow, &why, failures);
        else
            td_error_init(&follow->failure);
    }
}

static bool run(struct follow *follow, struct td_error *err)
{
    const struct arguments *arguments = follow->arguments;
    struct td_copying *copying = &follow->copying;
    return td_copying_connect(copying, arguments->urls.items, arguments->urls.count, err) &&
           td_fetch_session_create(copying->client, &copying->cancel, &copying->notes, &follow->session, err) &&
           open_directory(follow, err) && follow_versions(follow, err);
}

int td_cmd_follow(int argc, char **argv)
{
    struct arguments arguments;
    struct td_error err = TD_ERROR_INIT;
    int status = TD_EXIT_USAGE;
    if (read_arguments(argc, argv, &arguments)) {
        struct follow follow = {
            .arguments = &arguments, .failure = TD_ERROR_INIT, .folder = {.root_fd = -1, .fd = -1, .lock_fd = -1}};
        const struct arrival arrival = {.model = arguments.model, .failure = &err};
        td_copying_begin(&follow.copying, &arguments.copy);
        td_remote_versions_init(&follow.versions);
        bool ok = run(&follow, &err);
        if (!ok) {
            td_copying_complain(&follow.copying, &err, NULL);
            (void)report(&follow, &arrival);
        }
        status = ok && !follow.has_exec_failed ? TD_EXIT_OK : TD_EXIT_FAILED;
        td_own_folder_close(&follow.folder);
        td_remote_versions_fini(&follow.versions);
        td_fetch_session_destroy(follow.session);
        td_copying_end(&follow.copying);
    }
    td_copy_urls_fini(&arguments.urls);
    return status;
}
