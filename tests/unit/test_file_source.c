/* Mappings of files that change, under a cap, from many threads, with and without leases. */
#include "storage/file_source.h"

#include "core/clock.h"
#include "storage/fault_guard.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"
#include "tests/unit/watch_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 100, FILE_BYTES = 10000 };

struct place {
    struct tree tree;
    struct td_root *root;
    struct td_mapping_cache cache;
    char names[FILES][32];
    struct td_file_source sources[FILES];
};

static void write_file(const struct place *place, size_t i, size_t len, unsigned salt)
{
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    for (size_t k = 0; k < len; k++)
        bytes[k] = tree_data_byte(k, salt);
    tree_write(&place->tree, place->names[i], bytes, len);
    free(bytes);
}

/* What a scan would do: takes the identity that the file has now. */
static void look(struct place *place, size_t i)
{
    struct stat st;
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[i], path);
    assert_int_equal(stat(path, &st), 0);
    place->sources[i].path = place->names[i];
    place->sources[i].id = td_file_id_of(&st);
}

static void open_place(struct place *place, size_t files, size_t capacity, int lease_signal)
{
    struct td_error err;
    td_error_init(&err);
    memset(place, 0, sizeof *place);
    assert_true(td_fault_guard_install());
    tree_open(&place->tree);
    for (size_t i = 0; i < files; i++) {
        (void)snprintf(place->names[i], sizeof place->names[i], "file-%zu", i);
        write_file(place, i, FILE_BYTES, (unsigned)i);
        look(place, i);
    }
    assert_true(td_root_create(place->tree.path, &place->root, &err));
    assert_true(td_mapping_cache_init(&place->cache, capacity, lease_signal, &err));
}

static void close_place(struct place *place)
{
    td_mapping_cache_fini(&place->cache);
    td_root_unref(place->root);
    tree_close(&place->tree);
}

static size_t mapped_count(struct place *place)
{
    return td_mapping_cache_count(&place->cache).mapped;
}

static size_t leased_count(struct place *place)
{
    return td_mapping_cache_count(&place->cache).leased;
}

static size_t watched_count(struct place *place)
{
    return td_mapping_cache_count(&place->cache).watched;
}

/* A reference on the file's blob. */
static struct td_blob *map(struct place *place, size_t i)
{
    struct td_blob *blob = NULL;
    struct td_error err;
    td_error_init(&err);
    CHECK(td_file_source_map(&place->cache, place->root, &place->sources[i], &blob, &err), "%s", err.message);
    return blob;
}

static void expect_changed(struct place *place, size_t i, const char *what)
{
    struct td_blob *blob = NULL;
    struct td_error err;
    td_error_init(&err);
    CHECK(!td_file_source_map(&place->cache, place->root, &place->sources[i], &blob, &err), "%s", what);
    CHECK(err.code == TD_UNAVAILABLE, "%s: %s", what, err.message);
    CHECK(strstr(err.message, place->names[i]) != NULL, "%s: %s", what, err.message);
    CHECK(place->sources[i].mapping == NULL, "%s", what);
}

static bool holds(struct td_blob *blob, size_t len, unsigned salt)
{
    uint8_t out[FILE_BYTES];
    struct td_error err;
    td_error_init(&err);
    if (blob->len_bytes != len || !td_blob_read(blob, 0, out, len, &err))
        return false;
    for (size_t i = 0; i < len; i++)
        if (out[i] != tree_data_byte(i, salt))
            return false;
    return true;
}

static void a_file_is_mapped_once(void **state)
{
    (void)state;
    struct place place;
    open_place(&place, 2, 8, 0);
    assert_int_equal(mapped_count(&place), 0);
    struct td_blob *first = map(&place, 0);
    struct td_blob *second = map(&place, 0);
    struct td_blob *other = map(&place, 1);
    assert_ptr_equal(first, second);
    assert_ptr_not_equal(first, other);
    assert_int_equal(mapped_count(&place), 2);
    assert_true(holds(first, FILE_BYTES, 0) && holds(other, FILE_BYTES, 1));
    assert_memory_equal(first->bytes, first->bytes, 1); /* mapped indeed */
    assert_true(td_blob_unchanged(first));
    assert_false(td_blob_pinned(first)); /* no lease was asked for */
    td_blob_unref(first);
    td_blob_unref(second);
    td_blob_unref(other);
    td_file_source_forget(&place.cache, &place.sources[0]);
    td_file_source_forget(&place.cache, &place.sources[0]);
    assert_int_equal(mapped_count(&place), 1);
    close_place(&place);
}

static void empty_file_is_an_empty_blob(void **state)
{
    (void)state;
    struct place place;
    open_place(&place, 1, 8, 0);
    write_file(&place, 0, 0, 0);
    look(&place, 0);
    struct td_blob *blob = map(&place, 0);
    assert_true(blob->len_bytes == 0 && td_blob_unchanged(blob));
    assert_true(td_blob_read(blob, 0, NULL, 0, NULL));
    td_blob_unref(blob);
    close_place(&place);
}

static bool is_mapped(const struct place *place, size_t i)
{
    return place->sources[i].mapping != NULL;
}

/* The least recently used goes, and what is in use stays valid. */
static void cap_evicts_the_oldest(void **state)
{
    (void)state;
    struct place place;
    open_place(&place, 5, 3, 0);
    struct td_blob *held = map(&place, 0);
    for (size_t i = 1; i < 3; i++)
        td_blob_unref(map(&place, i));
    td_blob_unref(map(&place, 0)); /* now 1 is the oldest */
    td_blob_unref(map(&place, 3));
    assert_true(is_mapped(&place, 0) && !is_mapped(&place, 1) && is_mapped(&place, 2) &&
                is_mapped(&place, 3));
    td_blob_unref(map(&place, 4));
    assert_true(is_mapped(&place, 0) && !is_mapped(&place, 2) && is_mapped(&place, 3) &&
                is_mapped(&place, 4));
    td_blob_unref(map(&place, 1));
    assert_true(!is_mapped(&place, 0) && is_mapped(&place, 1));
    assert_int_equal(mapped_count(&place), 3);
    assert_true(holds(held, FILE_BYTES, 0));
    struct td_blob *again = map(&place, 0);
    assert_ptr_not_equal(again, held);
    td_blob_unref(again);
    td_blob_unref(held);
    close_place(&place);
}

static void random_use_keeps_the_cap(void **state)
{
    (void)state;
    enum { CAP = 7, USES = 3000 };
    struct place place;
    size_t recent[CAP]; /* the model: most recent first */
    size_t count = 0;
    uint64_t seed = 5;
    open_place(&place, 20, CAP, 0);
    for (int use = 0; use < USES; use++) {
        size_t i = random_below(&seed, 20);
        size_t at = 0;
        while (at < count && recent[at] != i)
            at++;
        if (random_below(&seed, 20) == 0) {
            td_file_source_forget(&place.cache, &place.sources[i]);
            if (at < count)
                memmove(recent + at, recent + at + 1, (--count - at) * sizeof *recent);
        } else {
            assert_int_equal(is_mapped(&place, i), at < count);
            td_blob_unref(map(&place, i));
            if (at == count && count < CAP)
                count++;
            memmove(recent + 1, recent, (at < count ? at : count - 1) * sizeof *recent);
            recent[0] = i;
        }
        assert_int_equal(mapped_count(&place), count);
    }
    for (size_t i = 0, mapped = 0; i < 20; i++) {
        mapped += is_mapped(&place, i);
        assert_true(i < 19 || mapped == count);
    }
    close_place(&place);
}

static void replace(struct place *place)
{
    uint8_t bytes[FILE_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = tree_data_byte(i, 50);
    tree_write(&place->tree, "new", bytes, sizeof bytes);
    tree_rename(&place->tree, "new", place->names[0]);
}

static void overwrite(struct place *place)
{
    tree_poke(&place->tree, place->names[0], 5000, "x", 1);
}

static void stat_first(const struct place *place, struct stat *st)
{
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[0], path);
    assert_int_equal(stat(path, st), 0);
}

/* As `touch -r` and `cp -p` do. */
static void put_mtime_back(const struct place *place, const struct stat *before)
{
    char path[TREE_PATH_BYTES];
    struct timespec times[2] = {before->st_atim, before->st_mtim};
    struct stat now;
    tree_at(&place->tree, place->names[0], path);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    stat_first(place, &now);
    assert_true(now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
                now.st_mtim.tv_nsec == before->st_mtim.tv_nsec);
    assert_true(now.st_ctim.tv_sec != before->st_ctim.tv_sec ||
                now.st_ctim.tv_nsec != before->st_ctim.tv_nsec);
}

static void overwrite_and_put_mtime_back(struct place *place)
{
    struct stat before;
    stat_first(place, &before);
    overwrite(place);
    put_mtime_back(place, &before);
}

static void rewrite_and_put_mtime_back(struct place *place)
{
    struct stat before;
    stat_first(place, &before);
    write_file(place, 0, FILE_BYTES, 51);
    put_mtime_back(place, &before);
}

/* A descriptor that is still open must not matter. */
static int left_open = -1;

static void overwrite_and_stay(struct place *place)
{
    struct stat before;
    char path[TREE_PATH_BYTES];
    stat_first(place, &before);
    tree_at(&place->tree, place->names[0], path);
    left_open = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(left_open, "x", 1, 5000), 1);
    put_mtime_back(place, &before);
}

static void overwrite_and_unlink(struct place *place)
{
    overwrite_and_put_mtime_back(place);
    tree_remove(&place->tree, place->names[0]);
}

static void overwrite_and_replace(struct place *place)
{
    overwrite_and_put_mtime_back(place);
    replace(place);
}

static void shorten(struct place *place)
{
    tree_truncate(&place->tree, place->names[0], 100);
}

static void lengthen(struct place *place)
{
    tree_truncate(&place->tree, place->names[0], FILE_BYTES + 1);
}

static void unlink_it(struct place *place)
{
    tree_remove(&place->tree, place->names[0]);
}

static void change_mode(struct place *place)
{
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[0], path);
    assert_int_equal(chmod(path, 0600), 0);
}

static void link_it(struct place *place)
{
    char path[TREE_PATH_BYTES];
    char second[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[0], path);
    tree_at(&place->tree, "second", second);
    assert_int_equal(link(path, second), 0);
}

static void link_and_unlink(struct place *place)
{
    link_it(place);
    tree_remove(&place->tree, "second");
}

static void rename_away(struct place *place)
{
    tree_rename(&place->tree, place->names[0], "elsewhere");
}

static void everything_but_writing(struct place *place)
{
    change_mode(place);
    link_and_unlink(place);
    replace(place);
}

static void replace_by_directory(struct place *place)
{
    tree_remove(&place->tree, place->names[0]);
    tree_directory(&place->tree, place->names[0]);
}

static const struct {
    const char *name;
    void (*run)(struct place *place);
    bool goes_on; /* an answer that already runs finishes: its bytes are what they were */
    bool is_there;
} changes[] = {
    {"renamed over", replace, true, true},
    {"overwritten in place", overwrite, false, true},
    {"cut short", shorten, false, true},
    {"made longer", lengthen, false, true},
    {"unlinked", unlink_it, true, false},
    {"mode changed", change_mode, true, true},
    {"now a directory", replace_by_directory, true, false},
    {"linked", link_it, true, true},
    {"linked and unlinked", link_and_unlink, true, true},
    {"renamed away", rename_away, true, false},
    {"everything but writing", everything_but_writing, true, true},
    {"overwritten, mtime put back", overwrite_and_put_mtime_back, false, true},
    {"rewritten, mtime put back", rewrite_and_put_mtime_back, false, true},
    {"overwritten, mtime put back, still open", overwrite_and_stay, false, true},
    {"overwritten, mtime put back, unlinked", overwrite_and_unlink, false, false},
    {"overwritten, mtime put back, renamed over", overwrite_and_replace, false, true},
};

/* A changed file is not served under its old identity, mapped before or not; once looked at again it is. */
static void changes_are_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        for (int mapped_before = 0; mapped_before <= 1; mapped_before++) {
            struct place place;
            open_place(&place, 2, 8, 0);
            struct td_blob *blob = mapped_before != 0 ? map(&place, 0) : NULL;
            struct timespec tick = {.tv_nsec = 20000000}; /* past the file system's clock tick */
            (void)nanosleep(&tick, NULL);
            changes[i].run(&place);
            expect_changed(&place, 0, changes[i].name);
            expect_changed(&place, 0, changes[i].name);
            if (blob != NULL) {
                CHECK(td_blob_unchanged(blob) == changes[i].goes_on, "%s", changes[i].name);
                CHECK(!changes[i].goes_on || holds(blob, FILE_BYTES, 0), "%s", changes[i].name);
            }
            td_blob_unref(blob);
            if (changes[i].is_there) {
                look(&place, 0);
                td_blob_unref(map(&place, 0));
            }
            td_blob_unref(map(&place, 1));
            if (left_open >= 0)
                assert_int_equal(close(left_open), 0);
            left_open = -1;
            close_place(&place);
        }
    }
}

/* Without a watch nobody can tell a write whose mtime was put back from a link: an answer that runs is then broken off. */
static void without_a_watch_a_change_is_a_change(void **state)
{
    (void)state;
    add_fails = ENOSPC;
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        struct place place;
        open_place(&place, 1, 8, 0);
        struct td_blob *blob = map(&place, 0);
        assert_true(watched_count(&place) == 0 && td_blob_unchanged(blob));
        struct timespec tick = {.tv_nsec = 20000000};
        (void)nanosleep(&tick, NULL);
        changes[i].run(&place);
        CHECK(!td_blob_unchanged(blob), "%s", changes[i].name);
        td_blob_unref(blob);
        if (left_open >= 0)
            assert_int_equal(close(left_open), 0);
        left_open = -1;
        close_place(&place);
    }
    add_fails = 0;
}

/* Every mapping without a lease is watched, until its last reference goes. */
static void mappings_are_watched(void **state)
{
    (void)state;
    struct place place;
    open_place(&place, 10, 3, 0);
    struct td_blob *held = map(&place, 0);
    for (size_t i = 0; i < 10; i++)
        td_blob_unref(map(&place, i));
    assert_int_equal(watched_count(&place), 4); /* three cached, one only in use */
    td_blob_unref(held);
    assert_int_equal(watched_count(&place), 3);
    change_mode(&place); /* a second identity of one inode, both in use */
    look(&place, 0);
    held = map(&place, 0);
    change_mode(&place);
    look(&place, 0);
    td_file_source_forget(&place.cache, &place.sources[0]);
    struct td_blob *second = map(&place, 0);
    assert_ptr_not_equal(held, second);
    td_blob_unref(second);
    td_file_source_forget(&place.cache, &place.sources[0]);
    assert_true(td_blob_unchanged(held));
    overwrite_and_put_mtime_back(&place);
    assert_false(td_blob_unchanged(held));
    td_blob_unref(held);
    close_place(&place);
}

/* What is gone can not be read any more: an error, no signal. */
static void reading_past_a_new_end_fails(void **state)
{
    (void)state;
    struct place place;
    uint8_t out[FILE_BYTES];
    struct td_error err;
    open_place(&place, 1, 8, 0);
    struct td_blob *blob = map(&place, 0);
    tree_truncate(&place.tree, place.names[0], 100);
    td_error_init(&err);
    assert_false(td_blob_read(blob, 0, out, FILE_BYTES, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    td_error_init(&err);
    assert_true(td_blob_read(blob, 0, out, 100, &err)); /* the page is still there */
    td_blob_unref(blob);
    close_place(&place);
}

/* Runs of a mapping in one go: short ones are copied from it, long ones are read from the file. A file that shrank is an
 * error for both. */
static void runs_of_a_mapping_are_gathered(void **state)
{
    (void)state;
    enum { LEN = 400 * 1024, COUNT = 5, STRIDE = 70000 };
    static const uint64_t lens[] = {1, 8, 1536, 32 * 1024 - 1, 32 * 1024, 40000};
    static uint8_t out[COUNT * 40000 + 1];
    struct place place;
    struct td_error err;
    open_place(&place, 1, 8, 0);
    write_file(&place, 0, LEN, 3);
    look(&place, 0);
    struct td_blob *blob = map(&place, 0);
    for (size_t i = 0; i < COUNT_OF(lens); i++) {
        memset(out, 0x5a, sizeof out);
        assert_true(td_blob_gather(blob, 11, lens[i], COUNT, STRIDE, out, NULL));
        for (uint64_t k = 0; k < COUNT * lens[i]; k++)
            assert_int_equal(out[k], tree_data_byte(11 + k / lens[i] * STRIDE + k % lens[i], 3));
        assert_int_equal(out[COUNT * lens[i]], 0x5a);
    }
    tree_truncate(&place.tree, place.names[0], 3 * STRIDE);
    for (size_t i = 0; i < COUNT_OF(lens); i++) {
        td_error_init(&err);
        assert_false(td_blob_gather(blob, 11, lens[i], COUNT, STRIDE, out, &err));
        assert_int_equal(err.code, TD_UNAVAILABLE);
        assert_true(td_blob_gather(blob, 11, lens[i], 2, STRIDE, out, NULL));
    }
    td_blob_unref(blob);
    close_place(&place);
}

/* Without descriptors the oldest mapping is let go, and the new one made. */
static void descriptors_are_taken_from_the_oldest(void **state)
{
    (void)state;
    struct place place;
    struct rlimit old;
    open_place(&place, 10, 64, 0);
    for (size_t i = 0; i < 6; i++)
        td_blob_unref(map(&place, i));
    int next = dup(0);
    assert_true(next > 0);
    assert_int_equal(close(next), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    struct rlimit few = {.rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct td_blob *blob = NULL;
    struct td_error err;
    td_error_init(&err);
    bool ok = td_file_source_map(&place.cache, place.root, &place.sources[6], &blob, &err);
    struct td_blob *all[6] = {NULL};
    for (size_t i = 0; i < 6; i++) /* now everything is in use */
        (void)td_file_source_map(&place.cache, place.root, &place.sources[i], &all[i], NULL);
    struct td_blob *none = NULL;
    struct td_error why;
    td_error_init(&why);
    bool more = td_file_source_map(&place.cache, place.root, &place.sources[7], &none, &why);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_true(ok);
    assert_true(holds(blob, FILE_BYTES, 6));
    assert_false(more);
    assert_int_equal(why.code, TD_RESOURCE_EXHAUSTED);
    td_blob_unref(blob);
    for (size_t i = 0; i < 6; i++)
        td_blob_unref(all[i]);
    td_blob_unref(map(&place, 7));
    close_place(&place);
}

static void descriptors_are_inputs(void **state)
{
    (void)state;
    struct place place;
    char path[TREE_PATH_BYTES];
    uint8_t out[FILE_BYTES];
    struct td_error err;
    open_place(&place, 1, 8, 0);
    tree_at(&place.tree, place.names[0], path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct td_input input = td_input_descriptor(&fd, FILE_BYTES);
    td_error_init(&err);
    assert_true(td_input_read(&input, 10, out, FILE_BYTES - 10, &err));
    for (size_t i = 10; i < FILE_BYTES; i++)
        assert_int_equal(out[i - 10], tree_data_byte(i, 0));
    assert_false(td_input_read(&input, FILE_BYTES - 1, out, 2, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    tree_truncate(&place.tree, place.names[0], 100);
    td_error_init(&err);
    assert_false(td_input_read(&input, 50, out, 100, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    assert_true(err.pos == 100);
    assert_int_equal(close(fd), 0);
    td_error_init(&err);
    assert_false(td_input_read(&input, 0, out, 1, &err));
    assert_int_equal(err.code, TD_IO);
    assert_int_equal(err.sys, EBADF);
    close_place(&place);
}

/* ---- leases -------------------------------------------------------------------------------------------- */

static int lease_signal(void)
{
    sigset_t set;
    int number = SIGRTMIN + 1;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, number);
    (void)sigaddset(&set, SIGIO);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    return number;
}

/* Whether this file system gives leases at all: some do not, and then nothing may count as pinned. */
static bool grants_leases(const struct place *place)
{
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[0], path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    bool granted = fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
    assert_int_equal(close(fd), 0);
    if (!granted)
        print_message("no leases on this file system\n");
    return granted;
}

struct cuts {
    bool unused; /* what is answered: nobody sends straight from the blob */
    size_t count;
    const struct td_blob *last;
};

static bool note_cut(void *context, const struct td_blob *blob)
{
    struct cuts *cuts = context;
    cuts->count++;
    cuts->last = blob;
    return cuts->unused;
}

static bool lease_signal_came(int number)
{
    sigset_t set;
    struct timespec wait = {.tv_sec = 10};
    (void)sigemptyset(&set);
    (void)sigaddset(&set, number);
    return sigtimedwait(&set, NULL, &wait) == number;
}

struct writer {
    char path[TREE_PATH_BYTES];
    _Atomic bool opened;
    pthread_t thread;
};

static void *open_and_write(void *argument)
{
    struct writer *writer = argument;
    int fd = open(writer->path, O_WRONLY | O_CLOEXEC); /* waits while there is a lease */
    atomic_store(&writer->opened, true);
    if (fd < 0 || pwrite(fd, "written", 7, 0) != 7 || close(fd) != 0)
        return writer;
    return NULL;
}

static void start_writer(struct writer *writer, const struct place *place, size_t i)
{
    tree_at(&place->tree, place->names[i], writer->path);
    atomic_init(&writer->opened, false);
    assert_int_equal(pthread_create(&writer->thread, NULL, open_and_write, writer), 0);
}

static void wait_a_little(void)
{
    struct timespec pause = {.tv_nsec = 150000000};
    (void)nanosleep(&pause, NULL);
}

/* Under a lease nobody can open the file for writing until every blob over it is dropped. */
static void writer_waits_for_the_last_blob(void **state)
{
    (void)state;
    struct place place;
    struct writer writer;
    struct cuts cuts = {0};
    int number = lease_signal();
    open_place(&place, 2, 8, number);
    struct td_blob *blob = map(&place, 0);
    struct td_blob *again = map(&place, 0);
    struct td_blob *other = map(&place, 1);
    bool leases = grants_leases(&place);
    assert_int_equal(td_blob_pinned(blob), leases);
    assert_int_equal(leased_count(&place), leases ? 2 : 0);
    start_writer(&writer, &place, 0);
    if (leases) {
        assert_true(lease_signal_came(number));
        assert_false(atomic_load(&writer.opened));
        assert_true(td_blob_pinned(blob)); /* nobody has said yet that it is over */
        td_mapping_cache_break_leases(&place.cache, note_cut, &cuts);
        assert_int_equal(cuts.count, 1);
        assert_ptr_equal(cuts.last, blob);
        assert_false(td_blob_pinned(blob));
        assert_true(td_blob_pinned(other));
        assert_false(is_mapped(&place, 0));
        assert_true(is_mapped(&place, 1));
        td_mapping_cache_break_leases(&place.cache, note_cut, &cuts);
        assert_int_equal(cuts.count, 1); /* once per lease */
        wait_a_little();
        assert_false(atomic_load(&writer.opened));
        assert_true(holds(blob, FILE_BYTES, 0));
        td_blob_unref(blob);
        wait_a_little();
        assert_false(atomic_load(&writer.opened));
        td_blob_unref(again);
    }
    void *failed;
    uint64_t began_ns = td_clock_ns();
    assert_int_equal(pthread_join(writer.thread, &failed), 0);
    assert_null(failed);
    assert_true(td_clock_ns() - began_ns < UINT64_C(10000000000)); /* the kernel alone would take 45 s */
    if (!leases) {
        td_blob_unref(blob);
        td_blob_unref(again);
    }
    td_blob_unref(other);
    assert_int_equal(leased_count(&place), leases ? 1 : 0);
    expect_changed(&place, 0, "written under a lease that ended");
    close_place(&place);
}

/* When nobody sends straight from the blob, the writer does not wait for those that copy; they notice the write. */
static void writer_does_not_wait_for_copies(void **state)
{
    (void)state;
    struct place place;
    struct writer writer;
    struct stat before;
    struct cuts cuts = {.unused = true};
    int number = lease_signal();
    open_place(&place, 1, 8, number);
    bool leases = grants_leases(&place);
    struct td_blob *blob = map(&place, 0);
    stat_first(&place, &before);
    start_writer(&writer, &place, 0);
    if (leases) {
        assert_true(lease_signal_came(number));
        td_mapping_cache_break_leases(&place.cache, note_cut, &cuts);
        assert_int_equal(cuts.count, 1);
    }
    void *failed;
    uint64_t began_ns = td_clock_ns();
    assert_int_equal(pthread_join(writer.thread, &failed), 0); /* while the blob is held */
    assert_null(failed);
    assert_true(td_clock_ns() - began_ns < UINT64_C(10000000000));
    put_mtime_back(&place, &before);
    assert_false(td_blob_pinned(blob));
    assert_false(td_blob_unchanged(blob));
    td_blob_unref(blob);
    close_place(&place);
}

static void open_writer_means_no_lease(void **state)
{
    (void)state;
    struct place place;
    char path[TREE_PATH_BYTES];
    open_place(&place, 1, 8, lease_signal());
    tree_at(&place.tree, place.names[0], path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    struct td_blob *blob = map(&place, 0);
    assert_false(td_blob_pinned(blob));
    assert_true(holds(blob, FILE_BYTES, 0) && td_blob_unchanged(blob));
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    assert_false(td_blob_unchanged(blob));
    td_blob_unref(blob);
    expect_changed(&place, 0, "written by an old descriptor");
    assert_int_equal(close(fd), 0);
    look(&place, 0);
    blob = map(&place, 0);
    assert_int_equal(td_blob_pinned(blob), grants_leases(&place));
    td_blob_unref(blob);
    close_place(&place);
}

/* Readers, renames and unlinks need no lease to end. */
static void only_writers_break_leases(void **state)
{
    (void)state;
    struct place place;
    struct cuts cuts = {0};
    char path[TREE_PATH_BYTES];
    open_place(&place, 3, 8, lease_signal());
    struct td_blob *blob = map(&place, 0);
    struct td_blob *second = map(&place, 1);
    tree_at(&place.tree, place.names[0], path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    tree_rename(&place.tree, place.names[2], place.names[1]);
    change_mode(&place);
    link_and_unlink(&place);
    td_mapping_cache_break_leases(&place.cache, note_cut, &cuts);
    assert_int_equal(cuts.count, 0);
    assert_true(holds(blob, FILE_BYTES, 0) && holds(second, FILE_BYTES, 1));
    assert_true(td_blob_unchanged(blob) &&
                td_blob_unchanged(second)); /* ... nor do they end an answer that copies */
    assert_int_equal(watched_count(&place), grants_leases(&place) ? 0 : 2);
    td_blob_unref(blob);
    td_blob_unref(second);
    close_place(&place);
}

/* More leases broken at once than one round of the breaker takes. */
static void many_leases_break_at_once(void **state)
{
    (void)state;
    struct place place;
    struct cuts cuts = {0};
    struct td_blob *blobs[FILES];
    char path[TREE_PATH_BYTES];
    int number = lease_signal();
    open_place(&place, FILES, FILES, number);
    bool leases = grants_leases(&place);
    for (size_t i = 0; i < FILES; i++)
        blobs[i] = map(&place, i);
    for (size_t i = 0; i < FILES; i++) {
        tree_at(&place.tree, place.names[i], path);
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* asks for the break and does not wait */
        assert_int_equal(fd < 0, leases);
        assert_true(!leases || errno == EWOULDBLOCK);
        if (fd >= 0)
            assert_int_equal(close(fd), 0);
    }
    td_mapping_cache_break_leases(&place.cache, note_cut, &cuts);
    assert_int_equal(cuts.count, leases ? FILES : 0);
    assert_int_equal(mapped_count(&place), leases ? 0 : FILES);
    for (size_t i = 0; i < FILES; i++)
        td_blob_unref(blobs[i]);
    for (size_t i = 0; i < FILES; i++) {
        tree_at(&place.tree, place.names[i], path);
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(close(fd), 0);
    }
    close_place(&place);
    while (leases && lease_signal_came(number))
        if (--cuts.count == 0)
            break;
}

/* ---- threads ------------------------------------------------------------------------------------------- */

struct shared {
    struct place *place;
    size_t files;
    _Atomic bool stop;
    _Atomic uint64_t good, changed, wrong;
};

/* Maps and reads; a file may be refused because it changed, but never shows bytes that are not its own. */
static void *use_files(void *argument)
{
    struct shared *shared = argument;
    struct place *place = shared->place;
    uint64_t seed = (uint64_t)(uintptr_t)&seed | 1;
    while (!atomic_load(&shared->stop)) {
        size_t i = random_below(&seed, shared->files);
        struct td_blob *blob = NULL;
        struct td_error err;
        uint8_t out[64];
        td_error_init(&err);
        if (!td_file_source_map(&place->cache, place->root, &place->sources[i], &blob, &err)) {
            atomic_fetch_add(err.code == TD_UNAVAILABLE ? &shared->changed : &shared->wrong, 1);
            continue;
        }
        uint64_t off = random_below(&seed, FILE_BYTES - sizeof out);
        bool ok = td_blob_read(blob, off, out, sizeof out, &err);
        ok = ok && td_blob_unchanged(blob);
        for (size_t k = 0; ok && k < sizeof out; k++)
            if (out[k] != tree_data_byte(off + k, (unsigned)i))
                atomic_fetch_add(&shared->wrong, 1);
        atomic_fetch_add(ok ? &shared->good : &shared->changed, 1);
        td_blob_unref(blob);
    }
    return NULL;
}

static bool ignore_cut(void *context, const struct td_blob *blob)
{
    (void)context;
    (void)blob;
    return false;
}

static void threads_share_the_cache(void **state)
{
    (void)state;
    enum { READERS = 4, SHARED = 12 };
    struct place place;
    pthread_t readers[READERS];
    uint64_t seed = 9;
    open_place(&place, SHARED, 5, lease_signal());
    struct shared shared = {.place = &place, .files = SHARED};
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, use_files, &shared), 0);
    uint64_t until_ns = td_clock_ns() + UINT64_C(1500000000);
    while (td_clock_ns() < until_ns) {
        size_t i = random_below(&seed, SHARED);
        char path[TREE_PATH_BYTES];
        td_file_source_forget(&place.cache, &place.sources[i]);
        if (i == 3) { /* this one is touched by a writer who does not wait, and writes what was there */
            tree_at(&place.tree, place.names[i], path);
            int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
            uint8_t same = tree_data_byte(0, 3);
            if (fd >= 0 && (pwrite(fd, &same, 1, 0) != 1 || close(fd) != 0))
                atomic_fetch_add(&shared.wrong, 1);
        }
        td_mapping_cache_break_leases(&place.cache, ignore_cut, NULL);
        struct timespec pause = {.tv_nsec = 200000};
        (void)nanosleep(&pause, NULL);
    }
    atomic_store(&shared.stop, true);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_true(shared.wrong == 0);
    assert_true(shared.good > 100);
    assert_true(mapped_count(&place) <= 5);
    print_message("%llu reads, %llu refused\n", (unsigned long long)shared.good,
                  (unsigned long long)shared.changed);
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_mapped_once),
        cmocka_unit_test(empty_file_is_an_empty_blob),
        cmocka_unit_test(cap_evicts_the_oldest),
        cmocka_unit_test(random_use_keeps_the_cap),
        cmocka_unit_test(changes_are_noticed),
        cmocka_unit_test(without_a_watch_a_change_is_a_change),
        cmocka_unit_test(mappings_are_watched),
        cmocka_unit_test(reading_past_a_new_end_fails),
        cmocka_unit_test(runs_of_a_mapping_are_gathered),
        cmocka_unit_test(descriptors_are_taken_from_the_oldest),
        cmocka_unit_test(descriptors_are_inputs),
        cmocka_unit_test(writer_waits_for_the_last_blob),
        cmocka_unit_test(writer_does_not_wait_for_copies),
        cmocka_unit_test(open_writer_means_no_lease),
        cmocka_unit_test(only_writers_break_leases),
        cmocka_unit_test(many_leases_break_at_once),
        cmocka_unit_test(threads_share_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
