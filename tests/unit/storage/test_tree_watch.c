/* The tree watch over real directories: which changes are reported, which items count as arrivals, and how watches come
 * and go. */
#include "storage/tree_watch.h"

#include "core/clock.h"
#include "core/log.h"
#include "tests/kit/tree.h"
#include "tests/unit/storage/watch_hooks.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

struct place {
    struct tree tree; /* "root" is watched, "out" is not */
    struct td_root *root;
    struct td_tree_watch *watch;
    pthread_t main;
    pthread_mutex_t gate; /* the watch's thread passes it to report a change */
    _Atomic unsigned names, writes;
    _Atomic bool is_held; /* the watch's thread waits at the gate */
};

static bool begins_with_dot(const char *name)
{
    return name[0] == '.';
}

static void on_change(void *context, enum td_tree_change change)
{
    struct place *place = context;
    if (!pthread_equal(pthread_self(), place->main)) {
        place->is_held = true;
        pthread_mutex_lock(&place->gate);
        pthread_mutex_unlock(&place->gate);
        place->is_held = false;
    }
    if (change == TD_TREE_NAMES)
        place->names++;
    else
        place->writes++;
}

static void open_place(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    char path[TREE_PATH_BYTES];
    const struct td_tree_watch_config config = {.ignores = begins_with_dot, .on_change = on_change, .context = place};
    memset(place, 0, sizeof *place);
    place->main = pthread_self();
    assert_int_equal(pthread_mutex_init(&place->gate, NULL), 0);
    tree_open(&place->tree);
    tree_directory(&place->tree, "out");
    tree_text(&place->tree, "root/d/old", "12345");
    tree_at(&place->tree, "root", path);
    assert_true(td_root_create(path, &place->root, &err));
    assert_true(td_tree_watch_create(&config, &place->watch, &err));
}

static void close_place(struct place *place)
{
    td_tree_watch_destroy(place->watch);
    td_root_unref(place->root);
    (void)pthread_mutex_destroy(&place->gate);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

/* Waits until the condition holds; fails after 60 s, which are never needed. */
#define WAIT_UNTIL(condition)                                               \
    do {                                                                    \
        uint64_t give_up_ns = td_clock_ns() + UINT64_C(60000000000);        \
        while (!(condition)) {                                              \
            CHECK(td_clock_ns() < give_up_ns, "%s never came", #condition); \
            nap_ms(1);                                                      \
        }                                                                   \
    } while (0)

/* ---- walks ----------------------------------------------------------------------------------------------- */

static struct td_watched visit(struct place *place, const char *path, const struct td_watched *parent)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_watched watched;
    struct stat st;
    int fd;
    CHECK(td_root_open_directory(place->root, path, &fd, &err), "%s", err.message);
    assert_int_equal(fstat(fd, &st), 0);
    td_tree_watch_visit(place->watch, path, fd, &st, parent, &watched);
    assert_true(watched.device == st.st_dev && watched.inode == st.st_ino);
    assert_int_equal(close(fd), 0);
    return watched;
}

/* Walks the root and "d" in it. Returns "d". */
static struct td_watched walk(struct place *place)
{
    td_tree_watch_begin(place->watch, place->root);
    struct td_watched top = visit(place, "", NULL);
    struct td_watched watched = visit(place, "d", &top);
    td_tree_watch_end(place->watch, true);
    return watched;
}

static bool has_arrived(struct place *place, const char *path, const struct td_watched *directory, const char *name,
                        int64_t *until_ns)
{
    struct td_error err = TD_ERROR_INIT;
    struct stat st;
    int fd;
    assert_true(td_root_open_directory(place->root, path, &fd, &err));
    assert_int_equal(fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    bool arrived = td_tree_watch_arrived(place->watch, directory, fd, name, &st, until_ns);
    assert_int_equal(close(fd), 0);
    return arrived;
}

/* Returns the number of watches that the kernel has for this process (proc(5), fdinfo). */
static int kernel_watches(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fdinfo");
    assert_non_null(dir);
    const struct dirent *item;
    while ((item = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): one thread
        char path[300];
        char line[512];
        (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%s", item->d_name);
        FILE *file = fopen(path, "re");
        while (file != NULL && fgets(line, sizeof line, file) != NULL)
            count += strncmp(line, "inotify wd:", 11) == 0;
        if (file != NULL)
            (void)fclose(file);
    }
    (void)closedir(dir);
    return count;
}

/* Makes the watch's thread wait at the gate, until let_go: no event is heard until then. */
static void hold(struct place *place)
{
    pthread_mutex_lock(&place->gate);
    tree_poke(&place->tree, "root/d/old", 0, "x", 1);
    WAIT_UNTIL(place->is_held);
}

static void let_go(struct place *place)
{
    pthread_mutex_unlock(&place->gate);
    WAIT_UNTIL(!place->is_held);
}

/* ---- changes; `f` is outside at first ------------------------------------------------------------------ */

static void rename_in(const struct place *place)
{
    tree_rename(&place->tree, "out/f", "root/d/f");
}

static void rename_out(const struct place *place)
{
    tree_rename(&place->tree, "root/d/old", "out/old");
}

static void create(const struct place *place)
{
    tree_text(&place->tree, "root/d/f", "in place");
}

static void create_hidden(const struct place *place)
{
    tree_text(&place->tree, "root/d/.f", "in place");
}

static void rename_from_hidden(const struct place *place)
{
    create_hidden(place);
    tree_rename(&place->tree, "root/d/.f", "root/d/f");
}

static void make_directory(const struct place *place)
{
    tree_directory(&place->tree, "root/d/f");
}

static void unlink_old(const struct place *place)
{
    tree_remove(&place->tree, "root/d/old");
}

static void write_old(const struct place *place)
{
    tree_poke(&place->tree, "root/d/old", 0, "x", 1);
}

static void change_mode(const struct place *place)
{
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, "root/d/old", path);
    assert_int_equal(chmod(path, 0600), 0);
}

static void rename_top(const struct place *place)
{
    tree_rename(&place->tree, "root", "moved");
}

static void rename_in_over(const struct place *place)
{
    create(place);
    rename_in(place);
}

static void rename_in_and_write(const struct place *place)
{
    rename_in(place);
    tree_poke(&place->tree, "root/d/f", 0, "x", 1);
}

static void rename_in_and_truncate(const struct place *place)
{
    rename_in(place);
    tree_truncate(&place->tree, "root/d/f", 2);
}

static void rename_in_and_make_anew(const struct place *place)
{
    rename_in(place);
    tree_remove(&place->tree, "root/d/f");
    create(place);
}

static void link_in(const struct place *place)
{
    char from[TREE_PATH_BYTES];
    char to[TREE_PATH_BYTES];
    tree_at(&place->tree, "out/f", from);
    tree_at(&place->tree, "root/d/f", to);
    assert_int_equal(link(from, to), 0);
}

static void changes_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*change)(const struct place *place);
        bool names, writes;
    } rows[] = {
        {"renamed in", rename_in, true, false},
        {"renamed out", rename_out, true, false},
        {"created", create, true, false},
        {"a directory", make_directory, true, false},
        {"unlinked", unlink_old, true, false},
        {"linked", link_in, true, false},
        {"the root itself renamed", rename_top, true, false},
        {"written", write_old, false, true},
        {"another mode", change_mode, false, true},
        {"a name that is ignored", create_hidden, false, false},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct place place;
        open_place(&place);
        tree_text(&place.tree, "out/f", "12345");
        (void)walk(&place);
        rows[i].change(&place);
        if (rows[i].names)
            WAIT_UNTIL(place.names > 0);
        else
            WAIT_UNTIL(td_tree_watch_get_counts(place.watch).events > 0);
        if (!rows[i].names && !rows[i].writes)
            write_old(&place); /* reports of the change come before the report of this write */
        if (!rows[i].names)
            WAIT_UNTIL(place.writes > 0);
        CHECK(rows[i].names || place.names == 0, "%s", rows[i].name);
        close_place(&place);
    }
}

/* shows: security.md file-written-after-rename */
static void only_renames_arrive(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*change)(const struct place *place);
        bool arrives;
        unsigned long file_system;
    } rows[] = {
        {"renamed in", rename_in, true, 0},
        {"renamed over another", rename_in_over, true, 0},
        {"renamed from a hidden name", rename_from_hidden, true, 0},
        {"renamed in, then written to", rename_in_and_write, false, 0},
        {"renamed in, then truncated", rename_in_and_truncate, false, 0},
        {"renamed in, removed, made again", rename_in_and_make_anew, false, 0},
        {"created in place", create, false, 0},
        {"linked", link_in, false, 0},
        {"on a file system with writers elsewhere", rename_in, false, NFS_SUPER_MAGIC},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct place place;
        int64_t until_ns = 0;
        open_place(&place);
        tree_text(&place.tree, "out/f", "12345");
        file_system_is_said = rows[i].file_system;
        struct td_watched directory = walk(&place);
        rows[i].change(&place);
        WAIT_UNTIL(place.names > 0);
        if (rows[i].arrives)
            WAIT_UNTIL(has_arrived(&place, "d", &directory, "f", &until_ns));
        else
            CHECK(!has_arrived(&place, "d", &directory, "f", &until_ns), "%s", rows[i].name);
        directory = walk(&place); /* began after the rename, so it is forgotten with the end */
        CHECK(!has_arrived(&place, "d", &directory, "f", &until_ns), "%s: after a walk", rows[i].name);
        file_system_is_said = 0;
        close_place(&place);
    }
}

/* A write in the moment between the rename and the answer counts, though nobody has read its event yet. Mostly, the
 * write is in the same tick as the rename, so that the change time does not show it. */
/* shows: security.md file-written-after-rename */
static void a_write_before_the_answer_counts(void **state)
{
    (void)state;
    enum { TRIES = 6 };
    for (int i = 0; i < TRIES; i++) {
        struct place place;
        char path[TREE_PATH_BYTES];
        int64_t until_ns = 0;
        open_place(&place);
        tree_text(&place.tree, "out/f", "12345");
        tree_at(&place.tree, "out/f", path);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        struct td_watched directory = walk(&place);
        pthread_mutex_lock(&place.gate);
        rename_in(&place);
        while (!place.is_held) /* the rename was heard, and nothing more is */
            (void)sched_yield();
        assert_int_equal(write(fd, "x", 1), 1);
        assert_false(has_arrived(&place, "d", &directory, "f", &until_ns));
        assert_int_equal(close(fd), 0);
        let_go(&place);
        close_place(&place);
    }
}

static int64_t change_time(const struct place *place, const char *name)
{
    char path[TREE_PATH_BYTES];
    struct stat st;
    tree_at(&place->tree, name, path);
    assert_int_equal(stat(path, &st), 0);
    return td_file_id_of(&st).ctime_ns;
}

static void files_arrive_with_their_directory(void **state)
{
    struct place *place = *state;
    int64_t until_ns = 0;
    tree_text(&place->tree, "out/m/a", "12345");
    tree_text(&place->tree, "out/m/b", "12345");
    struct td_watched directory = walk(place);
    tree_rename(&place->tree, "out/m", "root/d/m");
    WAIT_UNTIL(place->names > 0);
    nap_ms(30); /* longer than a tick of the file system's clock */
    tree_poke(&place->tree, "root/d/m/b", 0, "x", 1);
    tree_text(&place->tree, "root/d/m/c", "in place"); /* changes the directory's times, too */
    assert_true(has_arrived(place, "d", &directory, "m", &until_ns));
    assert_true(change_time(place, "root/d/m/a") <= until_ns);
    assert_true(change_time(place, "root/d/m/b") > until_ns && change_time(place, "root/d/m/c") > until_ns);
    tree_text(&place->tree, "out/n/a", "12345");
    tree_text(&place->tree, "out/n/b", "12345");
    hold(place); /* the event is read late */
    tree_rename(&place->tree, "out/n", "root/d/n");
    nap_ms(30);
    tree_poke(&place->tree, "root/d/n/b", 0, "x", 1);
    nap_ms(30);
    let_go(place);
    WAIT_UNTIL(has_arrived(place, "d", &directory, "n", &until_ns));
    assert_true(change_time(place, "root/d/n/a") <= until_ns && change_time(place, "root/d/n/b") > until_ns);
}

/* The rename comes before the watch on a new directory: what is older than the directory was renamed into it. */
static void renames_before_the_watch(void **state)
{
    struct place *place = *state;
    int64_t until_ns = 0;
    char link_name[TREE_PATH_BYTES];
    char target[TREE_PATH_BYTES];
    tree_text(&place->tree, "out/f", "12345");
    tree_text(&place->tree, "out/late", "12345");
    tree_text(&place->tree, "out/m/a", "12345");
    tree_text(&place->tree, "out/two", "12345");
    (void)walk(place);
    nap_ms(30);
    hold(place);
    tree_directory(&place->tree, "root/d/n");
    nap_ms(30);
    tree_rename(&place->tree, "out/f", "root/d/n/f");
    tree_rename(&place->tree, "out/late", "root/d/n/late");
    tree_rename(&place->tree, "out/m", "root/d/n/m");
    tree_text(&place->tree, "root/d/n/made", "in place");
    tree_at(&place->tree, "out/two", target);
    tree_at(&place->tree, "root/d/n/two", link_name);
    assert_int_equal(link(target, link_name), 0);
    td_tree_watch_begin(place->watch, place->root);
    struct td_watched top = visit(place, "", NULL);
    struct td_watched parent = visit(place, "d", &top);
    struct td_watched made = visit(place, "d/n", &parent);
    assert_true(parent.is_known && parent.born_until_ns == 0 && made.is_known && made.born_until_ns != 0);
    nap_ms(30);
    tree_poke(&place->tree, "root/d/n/late", 0, "x", 1);
    assert_true(has_arrived(place, "d/n", &made, "f", &until_ns));
    assert_true(has_arrived(place, "d/n", &made, "m", &until_ns));
    assert_true(change_time(place, "root/d/n/m/a") <= until_ns);
    assert_false(has_arrived(place, "d/n", &made, "late", &until_ns)); /* was written to since */
    assert_false(has_arrived(place, "d/n", &made, "made", &until_ns));
    assert_false(has_arrived(place, "d/n", &made, "two", &until_ns));
    td_tree_watch_end(place->watch, true);
    td_tree_watch_begin(place->watch, place->root);
    top = visit(place, "", NULL);
    parent = visit(place, "d", &top);
    made = visit(place, "d/n", &parent);
    td_tree_watch_end(place->watch, true);
    assert_true(made.is_known && made.born_until_ns == 0); /* no longer new */
    let_go(place);
}

/* Nothing is known of what happened before the first walk, however young a directory is. */
static void nothing_arrives_with_the_first_walk(void **state)
{
    struct place *place = *state;
    int64_t until_ns = 0;
    tree_text(&place->tree, "out/f", "12345");
    nap_ms(30);
    tree_directory(&place->tree, "root/n");
    tree_rename(&place->tree, "out/f", "root/n/f");
    td_tree_watch_begin(place->watch, place->root);
    struct td_watched top = visit(place, "", NULL);
    struct td_watched made = visit(place, "n", &top);
    assert_false(has_arrived(place, "n", &made, "f", &until_ns));
    td_tree_watch_end(place->watch, true);
}

static void new_directories_are_watched_at_once(void **state)
{
    struct place *place = *state;
    int64_t until_ns = 0;
    tree_text(&place->tree, "out/f", "12345");
    (void)walk(place);
    int before = kernel_watches();
    assert_int_equal(before, 2);
    tree_directory(&place->tree, "root/d/.hidden/x");
    tree_directory(&place->tree, "root/d/a/b/c");
    WAIT_UNTIL(kernel_watches() == before + 3);
    tree_rename(&place->tree, "out/f", "root/d/a/b/c/f");
    td_tree_watch_begin(place->watch, place->root);
    struct td_watched top = visit(place, "", NULL);
    struct td_watched parent = visit(place, "d", &top);
    struct td_watched a = visit(place, "d/a", &parent);
    struct td_watched b = visit(place, "d/a/b", &a);
    struct td_watched c = visit(place, "d/a/b/c", &b);
    WAIT_UNTIL(has_arrived(place, "d/a/b/c", &c, "f", &until_ns));
    td_tree_watch_end(place->watch, true);
    assert_true(td_tree_watch_get_counts(place->watch).watched == 5);
}

/* A watch ends with its directory, or when a complete walk does not come by. A directory that moved keeps it. */
static void watches_end(void **state)
{
    (void)state;
    static const char *const names[] = {"d/a", "d/b", "d/c"};
    struct place place;
    open_place(&place);
    int64_t until_ns = 0;
    td_tree_watch_begin(place.watch, place.root);
    struct td_watched top = visit(&place, "", NULL);
    struct td_watched parent = visit(&place, "d", &top);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "root/%s", names[i]);
        tree_directory(&place.tree, name);
        (void)visit(&place, names[i], &parent);
    }
    td_tree_watch_end(place.watch, true);
    assert_int_equal(kernel_watches(), 5);
    tree_remove(&place.tree, "root/d/a");
    WAIT_UNTIL(kernel_watches() == 4);
    tree_rename(&place.tree, "root/d/b", "out/b");
    tree_rename(&place.tree, "root/d/c", "root/e");
    tree_text(&place.tree, "out/f", "12345");
    tree_rename(&place.tree, "out/f", "root/e/f");
    td_tree_watch_begin(place.watch, place.root);
    top = visit(&place, "", NULL);
    td_tree_watch_end(place.watch, false); /* says nothing of the others */
    assert_int_equal(kernel_watches(), 4);
    td_tree_watch_begin(place.watch, place.root);
    top = visit(&place, "", NULL);
    parent = visit(&place, "d", &top);
    struct td_watched moved = visit(&place, "e", &top);
    WAIT_UNTIL(has_arrived(&place, "e", &moved, "f", &until_ns));
    td_tree_watch_end(place.watch, true);
    assert_int_equal(kernel_watches(), 3);
    assert_true(td_tree_watch_get_counts(place.watch).watched == 3);
    close_place(&place);
    assert_int_equal(kernel_watches(), 0);
}

/* The kernel keeps 16,384 events (max_queued_events). Past that it reports only that events were lost. */
/* shows: security.md file-no-watches */
static void lost_events(void **state)
{
    struct place *place = *state;
    char text[32];
    char path[TREE_PATH_BYTES];
    int64_t until_ns = 0;
    FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
    assert_true(file != NULL && fgets(text, sizeof text, file) != NULL && fclose(file) == 0);
    long limit = strtol(text, NULL, 10);
    tree_text(&place->tree, "out/f", "12345");
    struct td_watched directory = walk(place);
    rename_in(place);
    WAIT_UNTIL(place->names > 0);
    assert_true(has_arrived(place, "d", &directory, "f", &until_ns));
    hold(place);
    tree_at(&place->tree, "root/d/x", path);
    for (long i = 0; i <= limit / 2; i++) {
        assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(rmdir(path), 0);
    }
    unsigned names = place->names;
    let_go(place);
    WAIT_UNTIL(td_tree_watch_get_counts(place->watch).overflows == 1 && place->names > names);
    assert_false(has_arrived(place, "d", &directory, "f", &until_ns)); /* perhaps it was written to */
}

/* ---- without watches ------------------------------------------------------------------------------------- */

/* Captures standard error between catch_log and end_catch. */
struct caught {
    int saved, ends[2];
};

static void catch_log(struct caught *caught)
{
    caught->saved = dup(STDERR_FILENO);
    td_log_set_level(TD_LOG_INFO);
    assert_true(pipe2(caught->ends, O_NONBLOCK | O_CLOEXEC) == 0 && dup2(caught->ends[1], STDERR_FILENO) >= 0);
}

/* Returns whether the log has the text, once. */
static bool end_catch(struct caught *caught, const char *wanted)
{
    char text[4096];
    assert_true(dup2(caught->saved, STDERR_FILENO) >= 0);
    (void)close(caught->saved);
    (void)close(caught->ends[1]);
    ssize_t n = read(caught->ends[0], text, sizeof text - 1);
    (void)close(caught->ends[0]);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, wanted);
    return at != NULL && strstr(at + 1, wanted) == NULL;
}

/* shows: security.md file-no-watches */
static void a_user_without_watches(void **state)
{
    static const char wanted[] = "2 of 3 directories are not watched";
    struct place *place = *state;
    struct caught caught;
    int64_t until_ns = 0;
    tree_text(&place->tree, "out/f", "12345");
    tree_directory(&place->tree, "root/e");
    for (int times = 0; times < 2; times++) {
        struct td_watched directory = {0};
        catch_log(&caught);
        for (int i = 0; i < 2; i++) { /* the log says it once */
            td_tree_watch_begin(place->watch, place->root);
            struct td_watched top = visit(place, "", NULL);
            add_fails = ENOSPC;
            directory = visit(place, "d", &top);
            (void)visit(place, "e", &top);
            add_fails = 0;
            td_tree_watch_end(place->watch, true);
        }
        assert_true(end_catch(&caught, times == 0 ? "sysctl fs.inotify.max_user_watches=1048576" : wanted));
        struct td_tree_watch_counts counts = td_tree_watch_get_counts(place->watch);
        assert_true(counts.watched == 1 && counts.unwatched == 2);
        assert_false(directory.is_known);
        if (times == 0)
            rename_in(place);
        assert_false(has_arrived(place, "d", &directory, "f", &until_ns));
        (void)walk(place); /* has watches again */
        assert_true(td_tree_watch_get_counts(place->watch).unwatched == 0);
    }
}

static void a_user_without_instances(void **state)
{
    (void)state;
    struct place place;
    struct caught caught;
    catch_log(&caught);
    init_fails = EMFILE;
    open_place(&place);
    init_fails = 0;
    assert_true(end_catch(&caught, "sysctl fs.inotify.max_user_instances="));
    catch_log(&caught);
    struct td_watched directory = walk(&place);
    assert_false(end_catch(&caught, "directories"));
    assert_true(!directory.is_known && td_tree_watch_get_counts(place.watch).unwatched == 2);
    close_place(&place);
}

static void no_watch_at_all(void **state)
{
    struct place *place = *state;
    int64_t until_ns = 0;
    td_tree_watch_destroy(place->watch);
    place->watch = NULL;
    struct td_watched directory = walk(place);
    assert_false(has_arrived(place, "d", &directory, "old", &until_ns));
    struct td_tree_watch_counts counts = td_tree_watch_get_counts(NULL);
    assert_true(counts.watched == 0 && counts.unwatched == 0 && counts.events == 0 && counts.overflows == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_are_told),
        cmocka_unit_test(only_renames_arrive),
        cmocka_unit_test(a_write_before_the_answer_counts),
        TEST_IN(place, files_arrive_with_their_directory),
        TEST_IN(place, renames_before_the_watch),
        TEST_IN(place, nothing_arrives_with_the_first_walk),
        TEST_IN(place, new_directories_are_watched_at_once),
        cmocka_unit_test(watches_end),
        TEST_IN(place, lost_events),
        TEST_IN(place, a_user_without_watches),
        cmocka_unit_test(a_user_without_instances),
        TEST_IN(place, no_watch_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
