/* Watches over real files: every way to write is noticed, also with the mtime put back, and nothing else is. */
#include "storage/write_watch.h"

#include "tests/kit/tree.h"
#include "tests/unit/storage/watch_hooks.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BYTES = 20000 };

struct place {
    struct tree tree;
    struct td_write_watcher watcher;
    struct td_write_watch watch;
    char path[TREE_PATH_BYTES], other[TREE_PATH_BYTES];
    int fd;
};

static void open_place(struct place *place)
{
    static const char zeros[BYTES];
    struct td_error err = TD_ERROR_INIT;
    memset(place, 0, sizeof *place);
    tree_open(&place->tree);
    tree_write(&place->tree, "file", zeros, sizeof zeros);
    tree_write(&place->tree, "other", "other", 5);
    tree_at(&place->tree, "file", place->path);
    tree_at(&place->tree, "other", place->other);
    place->fd = open(place->path, O_RDONLY | O_CLOEXEC);
    assert_true(place->fd >= 0);
    assert_true(td_write_watcher_init(&place->watcher, &err));
}

static void close_place(struct place *place)
{
    td_write_watch_end(&place->watcher, &place->watch);
    assert_true(td_write_watcher_count(&place->watcher) == 0);
    td_write_watcher_fini(&place->watcher);
    assert_int_equal(close(place->fd), 0);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

static int open_to_write(const struct place *place)
{
    int fd = open(place->path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static bool is_quiet(struct place *place)
{
    return td_write_watch_is_quiet(&place->watcher, &place->watch);
}

/* ---- changes to the file; some leave a descriptor or a mapping open, which the test closes ------------- */

struct left_open {
    int fd; /* -1: none */
    void *map;
};

static void by_write(struct place *place, struct left_open *left)
{
    left->fd = open_to_write(place);
    assert_int_equal(pwrite(left->fd, "x", 1, 77), 1);
}

static void by_writev(struct place *place, struct left_open *left)
{
    struct iovec parts[2] = {{.iov_base = "x", .iov_len = 1}, {.iov_base = "y", .iov_len = 1}};
    left->fd = open_to_write(place);
    assert_int_equal(writev(left->fd, parts, 2), 2);
}

static void by_truncating(struct place *place, struct left_open *left)
{
    (void)left;
    assert_int_equal(truncate(place->path, BYTES / 2), 0);
}

static void by_truncating_and_back(struct place *place, struct left_open *left)
{
    left->fd = open_to_write(place);
    assert_int_equal(ftruncate(left->fd, 1), 0);
    assert_int_equal(ftruncate(left->fd, BYTES), 0);
}

static void by_opening_with_truncation(struct place *place, struct left_open *left)
{
    left->fd = open(place->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(left->fd >= 0);
}

static void by_allocating(struct place *place, struct left_open *left)
{
    left->fd = open_to_write(place);
    assert_int_equal(posix_fallocate(left->fd, BYTES, BYTES), 0);
}

static void by_sendfile(struct place *place, struct left_open *left)
{
    int from = open(place->other, O_RDONLY | O_CLOEXEC);
    left->fd = open_to_write(place);
    assert_int_equal(sendfile(left->fd, from, NULL, 5), 5);
    assert_int_equal(close(from), 0);
}

static void by_copying(struct place *place, struct left_open *left)
{
    int from = open(place->other, O_RDONLY | O_CLOEXEC);
    left->fd = open_to_write(place);
    assert_int_equal(copy_file_range(from, NULL, left->fd, NULL, 5, 0), 5);
    assert_int_equal(close(from), 0);
}

static void by_another_name(struct place *place, struct left_open *left)
{
    char name[TREE_PATH_BYTES];
    tree_at(&place->tree, "second", name);
    assert_int_equal(link(place->path, name), 0);
    left->fd = open(name, O_WRONLY | O_CLOEXEC);
    assert_int_equal(write(left->fd, "x", 1), 1);
}

static void by_a_mapping_that_ends(struct place *place, struct left_open *left)
{
    (void)left;
    int fd = open_to_write(place);
    char *map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    map[5000] = 'x';
    assert_int_equal(munmap(map, BYTES), 0);
    assert_int_equal(close(fd), 0);
}

static void through_a_mapping(struct place *place, struct left_open *left)
{
    left->fd = open_to_write(place);
    left->map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, left->fd, 0);
    assert_true(left->map != MAP_FAILED);
    ((char *)left->map)[5000] = 'x';
}

static void reading(struct place *place, struct left_open *left)
{
    char byte;
    left->fd = open(place->path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(left->fd, &byte, 1, 5), 1);
}

static void changing_the_mode(struct place *place, struct left_open *left)
{
    (void)left;
    assert_int_equal(chmod(place->path, 0600), 0);
}

static void linking(struct place *place, struct left_open *left)
{
    char name[TREE_PATH_BYTES];
    (void)left;
    tree_at(&place->tree, "second", name);
    assert_int_equal(link(place->path, name), 0);
    assert_int_equal(unlink(name), 0);
}

static void renaming(struct place *place, struct left_open *left)
{
    (void)left;
    tree_rename(&place->tree, "file", "second");
}

static void renaming_over(struct place *place, struct left_open *left)
{
    (void)left;
    tree_rename(&place->tree, "other", "file");
}

static void unlinking(struct place *place, struct left_open *left)
{
    (void)left;
    assert_int_equal(unlink(place->path), 0);
}

/* Removes both names. The first stays open by a descriptor of the test, so the event comes with the second. */
static void unlinking_all_names(struct place *place, struct left_open *left)
{
    char name[TREE_PATH_BYTES];
    (void)left;
    tree_at(&place->tree, "second", name);
    assert_int_equal(link(place->path, name), 0);
    assert_int_equal(unlink(place->path), 0);
    assert_int_equal(unlink(name), 0);
}

static void writing_elsewhere(struct place *place, struct left_open *left)
{
    left->fd = open(place->other, O_WRONLY | O_CLOEXEC);
    assert_int_equal(write(left->fd, "x", 1), 1);
}

static const struct {
    const char *name;
    void (*run)(struct place *place, struct left_open *left);
    bool quiet;       /* right after the action */
    bool quiet_after; /* after closing everything */
} actions[] = {
    {"write", by_write, false, false},
    {"writev", by_writev, false, false},
    {"truncate", by_truncating, false, false},
    {"truncate and back", by_truncating_and_back, false, false},
    {"O_TRUNC", by_opening_with_truncation, false, false},
    {"fallocate", by_allocating, false, false},
    {"sendfile", by_sendfile, false, false},
    {"copy_file_range", by_copying, false, false},
    {"another name", by_another_name, false, false},
    {"a mapping that ends", by_a_mapping_that_ends, false, false},
    {"a mapping", through_a_mapping, true, false}, /* as write_watch.h says */
    {"reading", reading, true, true},
    {"mode", changing_the_mode, true, true},
    {"link", linking, true, true},
    {"rename", renaming, true, true},
    {"rename over", renaming_over, true, true},
    {"unlink", unlinking, true, true},
    {"unlink of all names", unlinking_all_names, false, false}, /* as write_watch.h says */
    {"another file", writing_elsewhere, true, true},
};

static void put_mtime_back(const struct place *place, const struct stat *before)
{
    struct timespec times[2] = {before->st_atim, before->st_mtim};
    assert_int_equal(futimens(place->fd, times), 0);
}

/* shows: security.md file-mtime-restored */
static void writes_are_heard_of_and_nothing_else(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(actions); i++) {
        struct place place;
        struct stat before;
        struct left_open left = {.fd = -1};
        open_place(&place);
        assert_int_equal(fstat(place.fd, &before), 0);
        CHECK(td_write_watch_begin(&place.watcher, &place.watch, place.fd), "%s", actions[i].name);
        CHECK(is_quiet(&place) && td_write_watcher_count(&place.watcher) == 1, "%s", actions[i].name);
        actions[i].run(&place, &left);
        put_mtime_back(&place, &before);
        CHECK(is_quiet(&place) == actions[i].quiet, "%s", actions[i].name);
        CHECK(is_quiet(&place) == actions[i].quiet, "%s: asked again", actions[i].name);
        if (left.map != NULL)
            assert_int_equal(munmap(left.map, BYTES), 0);
        if (left.fd >= 0)
            assert_int_equal(close(left.fd), 0);
        CHECK(is_quiet(&place) == actions[i].quiet_after, "%s: after it was closed", actions[i].name);
        close_place(&place);
    }
}

static void poke(const struct place *place)
{
    tree_poke(&place->tree, "file", 5, "x", 1);
}

/* The kernel has one watch for an inode, which all watches of tensord on it share. */
static void watches_of_one_file(void **state)
{
    struct place *place = *state;
    struct td_write_watch second = {.on = false};
    struct td_write_watch third = {.on = false};
    assert_true(td_write_watch_begin(&place->watcher, &place->watch, place->fd));
    assert_true(td_write_watch_begin(&place->watcher, &second, place->fd));
    td_write_watch_end(&place->watcher, &second); /* must not end the first watch */
    td_write_watch_end(&place->watcher, &second);
    assert_false(td_write_watch_is_quiet(&place->watcher, &second));
    poke(place);
    assert_true(td_write_watch_begin(&place->watcher, &third, place->fd)); /* begins after the write, so it is quiet */
    assert_true(td_write_watch_is_quiet(&place->watcher, &third));
    assert_false(is_quiet(place));
    poke(place);
    assert_false(td_write_watch_is_quiet(&place->watcher, &third));
    td_write_watch_end(&place->watcher, &third);
    assert_false(td_write_watch_is_quiet(&place->watcher, &(struct td_write_watch){.on = false}));
}

/* Watches more files than there are buckets: each watch gets its own events. */
static void watches_of_many_files(void **state)
{
    enum { MANY = 2 * TD_WATCH_BUCKETS + 100 };
    static struct td_write_watch watches[MANY];
    struct place *place = *state;
    for (int i = 0; i < MANY; i++) {
        char name[32];
        char path[TREE_PATH_BYTES];
        (void)snprintf(name, sizeof name, "many-%d", i);
        tree_text(&place->tree, name, "x");
        tree_at(&place->tree, name, path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(td_write_watch_begin(&place->watcher, &watches[i], fd));
        assert_int_equal(close(fd), 0);
    }
    for (int i = 0; i < MANY; i += 7) {
        char name[32];
        (void)snprintf(name, sizeof name, "many-%d", i);
        tree_poke(&place->tree, name, 0, "y", 1);
    }
    for (int i = 0; i < MANY; i++)
        CHECK(td_write_watch_is_quiet(&place->watcher, &watches[i]) == (i % 7 != 0), "%d", i);
    assert_true(td_write_watcher_count(&place->watcher) == MANY - (MANY + 6) / 7);
    for (int i = 0; i < MANY; i++)
        td_write_watch_end(&place->watcher, &watches[i]);
}

/* The kernel keeps 16,384 events (max_queued_events). Past that it reports only that events were lost. */
static void a_full_queue_counts_as_written(void **state)
{
    struct place *place = *state;
    char text[32];
    FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    assert_int_equal(fclose(file), 0);
    long limit = strtol(text, NULL, 10);
    assert_true(limit > 0);
    for (long i = 0; i <= limit; i++) /* the end of a watch is an event */
        assert_int_equal(
            inotify_rm_watch(place->watcher.fd, inotify_add_watch(place->watcher.fd, place->other, IN_MODIFY)), 0);
    assert_true(td_write_watch_begin(&place->watcher, &place->watch, place->fd));
    assert_true(is_quiet(place)); /* the overflow came before this watch */
    for (long i = 0; i <= limit; i++)
        assert_int_equal(
            inotify_rm_watch(place->watcher.fd, inotify_add_watch(place->watcher.fd, place->other, IN_MODIFY)), 0);
    assert_false(is_quiet(place));
    assert_true(td_write_watcher_count(&place->watcher) == 0);
    td_write_watch_end(&place->watcher, &place->watch);
    assert_true(td_write_watch_begin(&place->watcher, &place->watch, place->fd));
    assert_true(is_quiet(place));
}

/* A file is never quiet where writes can happen without events. */
/* shows: security.md file-metadata-unwatched */
static void what_cannot_be_watched_is_never_quiet(void **state)
{
    (void)state;
    static const struct {
        int init, add;
        unsigned long file_system;
    } hosts[] = {{.init = EMFILE},
                 {.add = ENOSPC},
                 {.add = EACCES},
                 {.file_system = NFS_SUPER_MAGIC},
                 {.file_system = 0x65735546 /* FUSE */}};
    for (size_t i = 0; i < COUNT_OF(hosts); i++) {
        struct place place;
        init_fails = hosts[i].init;
        add_fails = hosts[i].add;
        file_system_is_said = hosts[i].file_system;
        open_place(&place);
        assert_false(td_write_watch_begin(&place.watcher, &place.watch, place.fd));
        assert_false(is_quiet(&place));
        close_place(&place);
    }
    init_fails = add_fails = 0;
    file_system_is_said = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_are_heard_of_and_nothing_else),
        TEST_IN(place, watches_of_one_file),
        TEST_IN(place, watches_of_many_files),
        TEST_IN(place, a_full_queue_counts_as_written),
        cmocka_unit_test(what_cannot_be_watched_is_never_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
