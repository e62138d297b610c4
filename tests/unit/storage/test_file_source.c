/* Mappings of files that change, under a cap, without leases. */
#include "storage/file_source.h"

#include "core/waiting.h"
#include "storage/body.h"
#include "tests/unit/storage/file_place.h"
#include "tests/unit/storage/watch_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

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
    assert_memory_equal(first->bytes, first->bytes, 1); /* the bytes are mapped */
    assert_true(td_blob_unchanged(first));
    assert_false(td_blob_pinned(first)); /* leases are off */
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

/* The least recently used mapping is evicted; mappings in use stay valid. */
static void cap_evicts_the_oldest(void **state)
{
    (void)state;
    struct place place;
    open_place(&place, 5, 3, 0);
    struct td_blob *held = map(&place, 0);
    for (size_t i = 1; i < 3; i++)
        td_blob_unref(map(&place, i));
    td_blob_unref(map(&place, 0)); /* now file 1 is the least recently used */
    td_blob_unref(map(&place, 3));
    assert_true(is_mapped(&place, 0) && !is_mapped(&place, 1) && is_mapped(&place, 2) && is_mapped(&place, 3));
    td_blob_unref(map(&place, 4));
    assert_true(is_mapped(&place, 0) && !is_mapped(&place, 2) && is_mapped(&place, 3) && is_mapped(&place, 4));
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

/* A descriptor that a change leaves open, which must not matter; -1: none. */
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
    bool goes_on; /* a running answer continues: its bytes are still the old ones */
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

/* A changed file is not served under its old identity, mapped before or not. With its new identity it is served. */
/* shows: security.md file-metadata */
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

/* Without a watch a write with the mtime put back looks the same as a link, so both end a running answer. */
/* shows: security.md file-metadata-unwatched */
static void without_a_watch_a_change_is_a_change(void **state)
{
    (void)state;
    add_fails = ENOSPC;
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        struct place place;
        open_place(&place, 1, 8, 0);
        struct td_blob *blob = map(&place, 0);
        assert_true(watched_count(&place) == 0 && td_blob_unchanged(blob));
        nap_ms(20);
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

/* Every mapping without a lease is watched until its last reference is dropped. */
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

/* Reading past the new end of a file is an error, not a signal. */
static void reading_past_a_new_end_fails(void **state)
{
    (void)state;
    struct place place;
    uint8_t out[FILE_BYTES];
    struct td_error err = TD_ERROR_INIT;
    open_place(&place, 1, 8, 0);
    struct td_blob *blob = map(&place, 0);
    tree_truncate(&place.tree, place.names[0], 100);
    assert_false(td_blob_read(blob, 0, out, FILE_BYTES, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    td_error_init(&err);
    assert_true(td_blob_read(blob, 0, out, 100, &err)); /* these bytes are still in the file */
    td_blob_unref(blob);
    close_place(&place);
}

/* Gathers runs of a mapping: short runs are copied, long runs are read from the file. A file that shrank is an error
 * for both. */
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

/* When descriptors run out, the oldest mapping is dropped to make the new one. */
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
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_file_source_map(&place.cache, place.root, &place.sources[6], &blob, &err);
    struct td_blob *all[6] = {NULL};
    for (size_t i = 0; i < 6; i++) /* now all mappings are in use */
        (void)td_file_source_map(&place.cache, place.root, &place.sources[i], &all[i], NULL);
    struct td_blob *none = NULL;
    struct td_error why = TD_ERROR_INIT;
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
    struct td_error err = TD_ERROR_INIT;
    open_place(&place, 1, 8, 0);
    tree_at(&place.tree, place.names[0], path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct td_input input = td_input_descriptor(&fd, FILE_BYTES);
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

enum { LARGE_BYTES = 2 * 1024 * 1024 };

static void count_retired(void *context)
{
    size_t *count = context;
    ++*count;
}

/* Returns whether a page is mapped at this address. */
static bool is_page_mapped(const uint8_t *page)
{
    unsigned char resident;
    return mincore((void *)(uintptr_t)page, 1, &resident) == 0;
}

static size_t open_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
}

/* Opens a place whose first file is large. Mappings are retired, and counted in *retired. */
static void open_place_that_retires(struct place *place, size_t files, size_t *retired)
{
    open_place(place, files, 8, 0);
    write_file(place, 0, LARGE_BYTES, 0);
    look(place, 0);
    td_mapping_cache_on_retired(&place->cache, count_retired, retired);
}

/* To unmap a large file, and to close an unlinked one, takes long. The thread that drops the last reference only hands
 * the mapping to another thread. */
static void large_mappings_are_ended_by_another_thread(void **state)
{
    (void)state;
    struct place place;
    size_t retired = 0;
    open_place_that_retires(&place, 2, &retired);
    size_t before = open_descriptors();
    struct td_blob *large = map(&place, 0);
    struct td_blob *small = map(&place, 1);
    const uint8_t *large_bytes = large->bytes;
    const uint8_t *small_bytes = small->bytes;
    td_file_source_forget(&place.cache, &place.sources[0]);
    td_file_source_forget(&place.cache, &place.sources[1]);
    td_blob_unref(small);
    assert_true(retired == 0 && !is_page_mapped(small_bytes) && is_page_mapped(large_bytes));
    td_blob_unref(large);
    assert_true(retired == 1 && is_page_mapped(large_bytes));
    assert_int_equal(open_descriptors(), before + 1);
    td_mapping_cache_reap(&place.cache);
    assert_true(retired == 1 && !is_page_mapped(large_bytes));
    assert_int_equal(open_descriptors(), before);
    td_blob_unref(map(&place, 0)); /* the cache drops the last reference */
    close_place(&place);
    assert_int_equal(retired, 2);
}

/* Threads that map files do not leave ever more mappings to a thread that has no time. */
static void few_mappings_are_retired(void **state)
{
    (void)state;
    enum { USES = 200, MOST = 64 };
    struct place place;
    size_t retired = 0;
    open_place_that_retires(&place, 1, &retired);
    size_t before = open_descriptors();
    for (int i = 0; i < USES; i++) {
        td_blob_unref(map(&place, 0));
        td_file_source_forget(&place.cache, &place.sources[0]);
        assert_true(open_descriptors() <= before + MOST);
    }
    assert_int_equal(retired, USES);
    close_place(&place);
    assert_true(open_descriptors() <= before);
}

/* A look at a file of NFS or FUSE may wait for another machine or process, so that a thread that must not wait does not
 * look. */
static void files_elsewhere_are_looked_at_by_threads_that_may_wait(void **state)
{
    (void)state;
    static const unsigned long kinds[] = {NFS_SUPER_MAGIC, FUSE_SUPER_MAGIC, EXT4_SUPER_MAGIC};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct place place;
        struct td_blob *blob = NULL;
        bool is_local = kinds[i] == EXT4_SUPER_MAGIC;
        open_place(&place, 1, 8, 0);
        file_system_is_said = kinds[i];
        td_blob_unref(map(&place, 0));
        td_waiting_forbid();
        bool is_found = td_file_source_map(&place.cache, place.root, &place.sources[0], &blob, NULL);
        assert_int_equal(td_waiting_allow(), !is_local);
        file_system_is_said = 0;
        assert_int_equal(is_found, is_local);
        assert_true(is_mapped(&place, 0));
        td_blob_unref(blob);
        close_place(&place);
    }
}

/* A sample shows whether a file has to be read from the disk first. */
static void a_sample_shows_what_is_in_memory(void **state)
{
    (void)state;
    struct place place;
    char path[TREE_PATH_BYTES];
    struct td_body body;
    uint8_t byte;
    open_place(&place, 1, 8, 0);
    write_file(&place, 0, LARGE_BYTES, 0);
    look(&place, 0);
    tree_at(&place.tree, place.names[0], path);
    struct td_blob *blob = map(&place, 0);
    td_body_init(&body);
    assert_true(td_body_append(&body, blob, 0, LARGE_BYTES, NULL));
    assert_true(td_body_is_cached(&body) && td_body_is_resident(&body));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    if (preadv2(fd, &(struct iovec){.iov_base = &byte, .iov_len = 1}, 1, 0, RWF_NOWAIT) < 0) { /* else: a tmpfs */
        assert_false(td_body_is_cached(&body));
        td_body_prefetch(&body, LARGE_BYTES);
        assert_true(td_body_is_cached(&body) && td_body_is_resident(&body));
    }
    assert_int_equal(close(fd), 0);
    td_body_fini(&body);
    td_blob_unref(blob);
    close_place(&place);
}

static bool no_system_calls; /* those by syscall() fail, as under a filter that does not know them */

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __real_syscall(long number, long a, long b, long c, long d, long e, long f);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    errno = EPERM;
    return no_system_calls ? -1 : __real_syscall(number, a, b, c, d, e, f);
}

/* Returns whether each page that holds a byte of the range is in memory. A read, even one that does not wait, would
 * have the kernel fetch those that are not. `file` is a mapping of the file by the test itself. */
static bool is_in_memory(uint8_t *file, uint64_t off, uint64_t len)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char resident;
    for (uint64_t at = off / page * page; at < off + len; at += page) {
        assert_int_equal(mincore(file + at, page, &resident), 0);
        if ((resident & 1) == 0)
            return false;
    }
    return true;
}

/* Drops the pages of the file from memory, and reads those before the middle again, each alone. */
static void read_first_half(int fd)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint8_t byte;
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
    for (uint64_t at = 0; at < LARGE_BYTES / 2; at += page)
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
}

/* Asks about ranges that begin and end around the middle. Returns how many are in memory. */
static size_t count_resident(struct td_blob *blob, uint8_t *file)
{
    static const uint64_t middle = LARGE_BYTES / 2;
    static const uint64_t steps[] = {0, 1, 4095, 4096, 4097, 65536, 65537, middle};
    enum { STEPS = sizeof steps / sizeof *steps };
    size_t resident = 0;
    for (size_t i = 0; i < STEPS; i++)
        for (size_t k = 0; k < 2 * STEPS; k++) {
            uint64_t begin = middle - steps[i];
            uint64_t end = k < STEPS ? middle + steps[k] : middle - steps[k - STEPS];
            if (end <= begin)
                continue;
            bool is_resident = td_blob_is_resident(blob, begin, end - begin);
            assert_int_equal(is_resident, is_in_memory(file, begin, end - begin));
            resident += is_resident ? 1 : 0;
        }
    return resident;
}

/* By cachestat(2), which older kernels lack, and without it. */
static void every_page_of_a_range_is_in_memory(void **state)
{
    (void)state;
    struct place place;
    char path[TREE_PATH_BYTES];
    open_place(&place, 1, 8, 0);
    write_file(&place, 0, LARGE_BYTES, 0);
    look(&place, 0);
    tree_at(&place.tree, place.names[0], path);
    struct td_blob *blob = map(&place, 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fsync(fd) == 0);
    uint8_t *file = mmap(NULL, LARGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(file != MAP_FAILED);
    size_t all = count_resident(blob, file);
    read_first_half(fd);
    size_t some = count_resident(blob, file);
    assert_true(some > 0 && (some < all || is_in_memory(file, 0, LARGE_BYTES))); /* the latter in a tmpfs */
    no_system_calls = true;
    assert_int_equal(count_resident(blob, file), some);
    no_system_calls = false;
    assert_int_equal(count_resident(blob, file), some);
    assert_int_equal(munmap(file, LARGE_BYTES), 0);
    assert_int_equal(close(fd), 0);
    td_blob_unref(blob);
    close_place(&place);
}

/* A held file is mapped after its last name is gone, with the bytes and the identity that it had; one that was written
 * to is not. */
static void a_held_file_outlives_its_names(void **state)
{
    (void)state;
    struct place place;
    struct td_error err = TD_ERROR_INIT;
    open_place(&place, 4, 8, 0);
    for (size_t i = 0; i < 3; i++)
        assert_true(td_file_source_hold(&place.cache, place.root, &place.sources[i], &err));
    struct td_blob *before = map(&place, 0);
    nap_ms(20); /* a changed ctime differs by then */
    for (size_t i = 0; i < 4; i++)
        tree_remove(&place.tree, place.names[i]);
    assert_true(td_blob_unchanged(before));
    for (size_t i = 0; i < 2; i++) { /* mapped before, and not */
        struct td_blob *blob = map(&place, i);
        assert_true(holds(blob, FILE_BYTES, (unsigned)i) && td_blob_unchanged(blob));
        td_blob_unref(blob);
    }
    expect_changed(&place, 3, "a file that is not held");
    assert_true(td_file_source_hold(&place.cache, place.root, &place.sources[1], &err)); /* once more */
    td_file_source_release(&place.cache, &place.sources[1]);
    td_file_source_forget(&place.cache, &place.sources[1]);
    td_blob_unref(map(&place, 1));
    for (size_t i = 0; i < 3; i++)
        td_file_source_release(&place.cache, &place.sources[i]);
    td_blob_unref(before);
    td_file_source_forget(&place.cache, &place.sources[0]);
    for (size_t i = 0; i < 3; i++)
        td_file_source_forget(&place.cache, &place.sources[i]);
    expect_changed(&place, 0, "a file that is held no more");
    close_place(&place);
}

static void a_held_file_that_is_written_to_is_refused(void **state)
{
    (void)state;
    struct place place;
    struct td_error err = TD_ERROR_INIT;
    open_place(&place, 3, 8, 0);
    for (size_t i = 0; i < 2; i++)
        assert_true(td_file_source_hold(&place.cache, place.root, &place.sources[i], &err));
    nap_ms(20);
    tree_poke(&place.tree, place.names[0], 5, "x", 1); /* it still has its name */
    expect_changed(&place, 0, "written in place");
    char path[TREE_PATH_BYTES];
    tree_at(&place.tree, place.names[1], path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    tree_remove(&place.tree, place.names[1]);
    struct td_blob *blob = map(&place, 1);
    nap_ms(20);
    assert_int_equal(pwrite(fd, "x", 1, 5), 1);
    assert_false(td_blob_unchanged(blob));
    td_blob_unref(blob);
    expect_changed(&place, 1, "written to without a name");
    assert_int_equal(close(fd), 0);
    write_file(&place, 2, FILE_BYTES, 9); /* not the file that was scanned */
    assert_false(td_file_source_hold(&place.cache, place.root, &place.sources[2], &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    for (size_t i = 0; i < 2; i++)
        td_file_source_release(&place.cache, &place.sources[i]);
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_mapped_once),
        cmocka_unit_test(a_held_file_outlives_its_names),
        cmocka_unit_test(a_held_file_that_is_written_to_is_refused),
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
        cmocka_unit_test(large_mappings_are_ended_by_another_thread),
        cmocka_unit_test(few_mappings_are_retired),
        cmocka_unit_test(files_elsewhere_are_looked_at_by_threads_that_may_wait),
        cmocka_unit_test(a_sample_shows_what_is_in_memory),
        cmocka_unit_test(every_page_of_a_range_is_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
