/* Mappings under read leases: when a writer waits, and many threads on one cache. */
#include "core/clock.h"
#include "tests/unit/storage/file_place.h"
#include "tests/unit/storage/watch_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* Returns whether this file system grants leases. Without leases no blob may count as pinned. Local file systems grant
 * them to a file's owner, as the tests are; TENSORD_TEST_LEASES=no allows others. */
static bool grants_leases(const struct place *place)
{
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[0], path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    bool granted = fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
    assert_int_equal(close(fd), 0);
    const char *wanted = getenv("TENSORD_TEST_LEASES");
    CHECK(granted || (wanted != NULL && strcmp(wanted, "no") == 0), "%s: no lease; TENSORD_TEST_LEASES=no allows that",
          path);
    return granted;
}

struct cuts {
    bool unused;         /* note_cut's answer: no connection sends from the blob's memory */
    size_t count, calls; /* first calls for a blob, and all */
    const struct td_blob *last;
    uint64_t since_ns; /* as in the last call of note_cut */
};

static bool note_cut(void *context, const struct td_blob *blob, bool is_first, uint64_t since_ns)
{
    struct cuts *cuts = context;
    cuts->since_ns = since_ns;
    cuts->count += is_first ? 1 : 0;
    cuts->calls++;
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
    int fd = open(writer->path, O_WRONLY | O_CLOEXEC); /* blocks while there is a lease */
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

/* Under a lease a writer cannot open the file until every blob over it is dropped. */
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
        assert_true(td_blob_pinned(blob)); /* the break was not handled yet */
        uint64_t began_ns = td_clock_ns();
        assert_false(td_mapping_cache_break_leases(&place.cache, note_cut, &cuts));
        assert_int_equal(cuts.count, 1);
        uint64_t since_ns = cuts.since_ns;
        assert_true(since_ns >= began_ns && since_ns <= td_clock_ns());
        assert_ptr_equal(cuts.last, blob);
        assert_false(td_blob_pinned(blob));
        assert_true(td_blob_pinned(other));
        assert_false(is_mapped(&place, 0));
        assert_true(is_mapped(&place, 1));
        assert_false(td_mapping_cache_break_leases(&place.cache, note_cut, &cuts));
        assert_int_equal(cuts.count, 1); /* the first call comes once per lease, others while it lasts */
        assert_int_equal(cuts.calls, 2);
        assert_true(cuts.since_ns == since_ns); /* of the first call */
        nap_ms(150);
        assert_false(atomic_load(&writer.opened));
        assert_true(holds(blob, FILE_BYTES, 0));
        td_blob_unref(blob);
        nap_ms(150);
        assert_false(atomic_load(&writer.opened));
        td_blob_unref(again);
    }
    void *failed;
    uint64_t began_ns = td_clock_ns();
    assert_int_equal(pthread_join(writer.thread, &failed), 0);
    assert_null(failed);
    assert_true(td_clock_ns() - began_ns < UINT64_C(10000000000)); /* the kernel's own limit is 45 s */
    if (!leases) {
        td_blob_unref(blob);
        td_blob_unref(again);
    }
    td_blob_unref(other);
    assert_int_equal(leased_count(&place), leases ? 1 : 0);
    expect_changed(&place, 0, "written under a lease that ended");
    close_place(&place);
}

/* The kernel ends a lease by itself when nobody reacts to a writer, so nothing is pinned after the reacting thread was
 * silent for long. */
/* shows: security.md file-lease-expires */
static void a_lease_is_trusted_for_a_while(void **state)
{
    (void)state;
    struct place place;
    struct cuts cuts = {.unused = true};
    open_place(&place, 1, 8, lease_signal());
    struct td_blob *blob = map(&place, 0);
    bool leases = grants_leases(&place);
    assert_int_equal(td_blob_pinned(blob), leases);
    atomic_store(&place.cache.trusted_ns, 0); /* as after half of fs.lease-break-time */
    assert_false(td_blob_pinned(blob));
    assert_true(td_blob_unchanged(blob));
    assert_true(td_mapping_cache_break_leases(&place.cache, note_cut, &cuts));
    assert_int_equal(td_blob_pinned(blob), leases);
    td_blob_unref(blob);
    close_place(&place);
}

static void note_retired(void *context)
{
    *(bool *)context = true;
}

/* A large mapping outlives its last reference for a while, but its lease does not: nobody would give that up. */
static void writer_does_not_wait_for_a_retired_mapping(void **state)
{
    (void)state;
    enum { LARGE_BYTES = 2 * 1024 * 1024 };
    struct place place;
    char path[TREE_PATH_BYTES];
    bool retired = false;
    open_place(&place, 1, 8, lease_signal());
    write_file(&place, 0, LARGE_BYTES, 0);
    look(&place, 0);
    tree_at(&place.tree, place.names[0], path);
    td_mapping_cache_on_retired(&place.cache, note_retired, &retired);
    bool leases = grants_leases(&place);
    struct td_blob *blob = map(&place, 0);
    assert_int_equal(leased_count(&place), leases ? 1 : 0);
    td_file_source_forget(&place.cache, &place.sources[0]);
    assert_false(retired);
    td_blob_unref(blob);
    assert_true(retired);
    assert_int_equal(leased_count(&place), 0);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* fails where others would wait */
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    close_place(&place);
}

/* When no connection sends from the blob's memory, the writer does not wait for copying readers; they notice the
 * write. */
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
        assert_true(td_mapping_cache_break_leases(&place.cache, note_cut, &cuts));
        assert_int_equal(cuts.count, 1);
        assert_true(td_mapping_cache_break_leases(&place.cache, note_cut, &cuts));
        assert_int_equal(cuts.calls, 1); /* the lease has ended */
    }
    void *failed;
    uint64_t began_ns = td_clock_ns();
    assert_int_equal(pthread_join(writer.thread, &failed), 0); /* although the blob is held */
    assert_null(failed);
    assert_true(td_clock_ns() - began_ns < UINT64_C(10000000000));
    put_mtime_back(&place, &before);
    assert_false(td_blob_pinned(blob));
    assert_false(td_blob_unchanged(blob));
    td_blob_unref(blob);
    close_place(&place);
}

/* A file that cannot change is pinned without a lease: on file systems that are read-only by kind, and where the
 * operator says so. An answer then holds the file that it began with, whatever becomes of its name. */
static void immutable_files_need_no_lease(void **state)
{
    (void)state;
    static const unsigned long kinds[] = {SQUASHFS_MAGIC, EROFS_SUPER_MAGIC_V1, ISOFS_SUPER_MAGIC, EXT4_SUPER_MAGIC};
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct place place;
        char path[TREE_PATH_BYTES];
        open_place(&place, 1, 10, 0);
        file_system_is_said = kinds[i];
        place.cache.files_are_immutable = kinds[i] == EXT4_SUPER_MAGIC;
        struct td_blob *blob = map(&place, 0);
        CHECK(leased_count(&place) == 0 && td_blob_pinned(blob), "%#lx", kinds[i]);
        assert_int_equal(td_mapping_cache_count(&place.cache).watched, 0);
        struct td_blob *again = map(&place, 0);
        assert_ptr_equal(again, blob);
        tree_at(&place.tree, place.names[0], path);
        assert_int_equal(unlink(path), 0);
        CHECK(td_blob_unchanged(blob) && holds(blob, FILE_BYTES, 0), "%#lx", kinds[i]);
        file_system_is_said = 0;
        td_blob_unref(again);
        td_blob_unref(blob);
        close_place(&place);
    }
}

/* No lease is used on remote file systems. The kernel grants leases over FUSE, but the host of a virtual machine writes
 * past them. */
/* shows: security.md file-remote-writers */
static void no_lease_where_others_write_unseen(void **state)
{
    (void)state;
    static const unsigned long remote[] = {FUSE_SUPER_MAGIC, NFS_SUPER_MAGIC, V9FS_MAGIC, 0x12345678};
    for (size_t i = 0; i < COUNT_OF(remote); i++) {
        struct place place;
        open_place(&place, 1, 10, lease_signal());
        file_system_is_said = remote[i];
        struct td_blob *blob = map(&place, 0);
        CHECK(leased_count(&place) == 0 && !td_blob_pinned(blob), "%#lx", remote[i]);
        CHECK(td_blob_unchanged(blob), "%#lx", remote[i]);
        struct timespec tick = {.tv_nsec = 20000000}; /* past the file system's clock tick */
        (void)nanosleep(&tick, NULL);
        write_file(&place, 0, FILE_BYTES, 9);
        CHECK(!td_blob_unchanged(blob), "%#lx", remote[i]);
        file_system_is_said = 0;
        td_blob_unref(blob);
        close_place(&place);
    }
}

/* Writes by Linux AIO, which sends no inotify events. */
static void write_by_aio(int fd, const void *bytes, size_t len)
{
    aio_context_t context = 0;
    struct io_event event;
    struct iocb control = {.aio_lio_opcode = IOCB_CMD_PWRITE,
                           .aio_fildes = (uint32_t)fd,
                           .aio_buf = (uint64_t)(uintptr_t)bytes,
                           .aio_nbytes = len};
    struct iocb *list[] = {&control};
    assert_int_equal(syscall(SYS_io_setup, 1, &context), 0);
    assert_int_equal(syscall(SYS_io_submit, context, 1, list), 1);
    assert_int_equal(syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
    assert_int_equal(event.res, len);
    assert_int_equal(syscall(SYS_io_destroy, context), 0);
}

/* A writer opened the file before it was mapped, writes without inotify events and puts the mtime back. */
/* shows: security.md file-mtime-restored */
static void unheard_writes_are_changes(void **state)
{
    (void)state;
    struct place place;
    struct stat before;
    char path[TREE_PATH_BYTES];
    open_place(&place, 1, 10, lease_signal());
    if (grants_leases(&place)) {
        tree_at(&place.tree, place.names[0], path);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        stat_first(&place, &before);
        struct td_blob *blob = map(&place, 0);
        assert_int_equal(leased_count(&place), 0);
        assert_true(td_blob_unchanged(blob));
        struct timespec tick = {.tv_nsec = 20000000}; /* past the file system's clock tick */
        (void)nanosleep(&tick, NULL);
        write_by_aio(fd, "new", 3);
        put_mtime_back(&place, &before);
        assert_false(td_blob_unchanged(blob));
        td_blob_unref(blob);
        assert_int_equal(close(fd), 0);
    }
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

/* Readers, renames and unlinks break no lease. */
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
    assert_true(td_blob_unchanged(blob) && td_blob_unchanged(second)); /* nor do they end a copying answer */
    assert_int_equal(watched_count(&place), grants_leases(&place) ? 0 : 2);
    td_blob_unref(blob);
    td_blob_unref(second);
    close_place(&place);
}

/* More leases break at once than one round of the breaker handles. */
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
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* breaks the lease without waiting */
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

/* Maps and reads files. A file may be refused because it changed, but a mapping never shows bytes of another file. */
static void *use_files(void *argument)
{
    struct shared *shared = argument;
    struct place *place = shared->place;
    uint64_t seed = (uint64_t)(uintptr_t)&seed | 1;
    while (!atomic_load(&shared->stop)) {
        size_t i = random_below(&seed, shared->files);
        struct td_blob *blob = NULL;
        struct td_error err = TD_ERROR_INIT;
        uint8_t out[64];
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

static bool ignore_cut(void *context, const struct td_blob *blob, bool is_first, uint64_t since_ns)
{
    (void)context;
    (void)blob;
    (void)is_first;
    (void)since_ns;
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
        if (i == 3) { /* a writer that does not wait writes the same bytes to this file */
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
    print_message("%llu reads, %llu refused\n", (unsigned long long)shared.good, (unsigned long long)shared.changed);
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writer_waits_for_the_last_blob),
        cmocka_unit_test(a_lease_is_trusted_for_a_while),
        cmocka_unit_test(writer_does_not_wait_for_copies),
        cmocka_unit_test(immutable_files_need_no_lease),
        cmocka_unit_test(no_lease_where_others_write_unseen),
        cmocka_unit_test(unheard_writes_are_changes),
        cmocka_unit_test(open_writer_means_no_lease),
        cmocka_unit_test(only_writers_break_leases),
        cmocka_unit_test(many_leases_break_at_once),
        cmocka_unit_test(threads_share_the_cache),
        cmocka_unit_test(writer_does_not_wait_for_a_retired_mapping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
