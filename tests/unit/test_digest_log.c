#include "catalog/digest_log.h"

#include "core/log.h"
#include "tests/kit/tree.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zlib.h>

/* ---- a disk that fails --------------------------------------------------------------------------------- */

/* The n-th call from now fails (1 = the next, 0 = none), and so do all after it. */
struct fault {
    int countdown, sys;
    unsigned calls;
};

static struct fault write_fault, fdatasync_fault, fsync_fault, rename_fault, read_only;
static size_t write_at_most; /* bytes in one call; 0: all */

ssize_t __wrap_write(int fd, const void *bytes, size_t len);
ssize_t __real_write(int fd, const void *bytes, size_t len);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...);
int __real_openat64(int dir_fd, const char *path, int flags, ...);

static bool fails(struct fault *fault)
{
    fault->calls++;
    if (fault->countdown == 0 || fault->calls < (unsigned)fault->countdown)
        return false;
    errno = fault->sys;
    return true;
}

static void arm(struct fault *fault, int countdown, int sys)
{
    *fault = (struct fault){.countdown = countdown, .sys = sys};
}

static void disarm(void)
{
    arm(&write_fault, 0, 0);
    arm(&fdatasync_fault, 0, 0);
    arm(&fsync_fault, 0, 0);
    arm(&rename_fault, 0, 0);
    arm(&read_only, 0, 0);
    write_at_most = 0;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    if (fd <= STDERR_FILENO) /* the log for people */
        return __real_write(fd, bytes, len);
    if (fails(&write_fault))
        return -1;
    return __real_write(fd, bytes, write_at_most > 0 && len > write_at_most ? write_at_most : len);
}

/* Not done: thousands of times it takes long. */
int __wrap_fdatasync(int fd)
{
    (void)fd;
    return fails(&fdatasync_fault) ? -1 : 0;
}

int __wrap_fsync(int fd)
{
    (void)fd;
    return fails(&fsync_fault) ? -1 : 0;
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return fails(&rename_fault) ? -1 : __real_renameat(from_dir, from, to_dir, to);
}

/* A file system that is mounted read-only. */
int __wrap_openat64(int dir_fd, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    if ((flags & O_ACCMODE) != O_RDONLY && fails(&read_only))
        return -1;
    return __real_openat64(dir_fd, path, flags, mode);
}

/* ---- logs ---------------------------------------------------------------------------------------------- */

/* As digest_log.h describes the file. */
enum { HEADER_BYTES = 16, RECORD_BYTES = 88 };

struct place {
    struct tree tree;
    char state[TREE_PATH_BYTES], file[TREE_PATH_BYTES];
};

static void place_open(struct place *place)
{
    disarm();
    tree_open(&place->tree);
    tree_at(&place->tree, "state", place->state);
    tree_at(&place->tree, "state/digests", place->file);
}

static struct td_digest_log *open_log(const struct place *place, enum td_digest_log_mode mode)
{
    struct td_digest_log *log = NULL;
    struct td_error err;
    td_error_init(&err);
    CHECK(td_digest_log_open(place->state, NULL, mode, &log, &err), "%s", err.message);
    return log;
}

static void refused(const char *state, const char *root, enum td_code code, const char *says)
{
    struct td_digest_log *log = NULL;
    struct td_error err;
    td_error_init(&err);
    CHECK(!td_digest_log_open(state, root, TD_DIGEST_LOG_WRITE, &log, &err), "%s is accepted", state);
    CHECK(err.code == code, "%d: %s", err.code, err.message);
    check_says(&err, says, state);
    check_says(&err, "--state-dir", state);
}

/* Identities that differ in one field at a time. */
static struct td_file_id id_of(uint64_t i)
{
    struct td_file_id id = {.device = 7,
                            .inode = 1000,
                            .size_bytes = 5,
                            .mtime_ns = INT64_C(1700000000123456789),
                            .ctime_ns = INT64_C(1700000001123456789)};
    uint64_t *const fields[] = {&id.device, &id.inode, &id.size_bytes, (uint64_t *)&id.mtime_ns,
                                (uint64_t *)&id.ctime_ns};
    *fields[i % COUNT_OF(fields)] += 1 + i / COUNT_OF(fields);
    return id;
}

static void sum_of(uint64_t i, uint8_t sum[TD_SHA256_BYTES])
{
    for (size_t k = 0; k < TD_SHA256_BYTES; k++)
        sum[k] = (uint8_t)(i * 31 + i / 256 + k * 7 + 1);
}

static void add(struct td_digest_log *log, uint64_t i)
{
    uint8_t sum[TD_SHA256_BYTES];
    struct td_file_id id = id_of(i);
    sum_of(i, sum);
    td_digest_log_add(log, &id, sum);
}

/* Whether the i-th is known; a wrong sum is never returned. */
static bool has(struct td_digest_log *log, uint64_t i)
{
    uint8_t sum[TD_SHA256_BYTES];
    uint8_t wanted[TD_SHA256_BYTES];
    struct td_file_id id = id_of(i);
    sum_of(i, wanted);
    if (!td_digest_log_find(log, &id, sum))
        return false;
    assert_memory_equal(sum, wanted, sizeof sum);
    return true;
}

/* Exactly the first ones are known, of `count`. */
static void knows_the_first(struct td_digest_log *log, size_t known, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(has(log, i) == (i < known), "%zu of %zu, where the first %zu are right", i, count, known);
    assert_int_equal(td_digest_log_count(log), known);
}

static void fill(const struct place *place, size_t count)
{
    struct td_digest_log *log = open_log(place, TD_DIGEST_LOG_WRITE);
    for (size_t i = 0; i < count; i++)
        add(log, i);
    td_digest_log_close(log);
}

static size_t file_bytes(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

static size_t read_file(const char *path, uint8_t *bytes, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, capacity, file);
    assert_true(n < capacity);
    (void)fclose(file);
    return n;
}

/* ---- what it keeps ------------------------------------------------------------------------------------- */

static void a_table_needs_no_directory(void **state)
{
    (void)state;
    struct td_digest_log *log;
    disarm();
    assert_true(td_digest_log_open(NULL, "/", TD_DIGEST_LOG_WRITE, &log, NULL));
    assert_false(td_digest_log_is_stored(log));
    assert_false(has(log, 0));
    for (size_t i = 0; i < 3000; i++)
        add(log, i);
    knows_the_first(log, 3000, 3010);
    td_digest_log_flush(log);
    assert_int_equal(write_fault.calls, 0);
    td_digest_log_close(log);
    td_digest_log_close(NULL);
}

static void what_was_added_is_known_after_a_restart(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    fill(&place, 1000);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + 1000 * RECORD_BYTES);
    struct stat st;
    assert_int_equal(stat(place.state, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(place.file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_true(td_digest_log_is_stored(log));
    knows_the_first(log, 1000, 1100);
    add(log, 5); /* no news */
    td_digest_log_flush(log);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + 1000 * RECORD_BYTES);
    add(log, 1000);
    td_digest_log_close(log);
    log = open_log(&place, TD_DIGEST_LOG_READ);
    assert_false(td_digest_log_is_stored(log));
    knows_the_first(log, 1001, 1100);
    add(log, 1001); /* for itself */
    knows_the_first(log, 1002, 1100);
    td_digest_log_close(log);
    log = open_log(&place, TD_DIGEST_LOG_READ);
    knows_the_first(log, 1001, 1100);
    td_digest_log_close(log);
    tree_close(&place.tree);
}

static void the_last_digest_of_an_identity_counts(void **state)
{
    (void)state;
    struct place place;
    uint8_t sum[TD_SHA256_BYTES] = {1};
    struct td_file_id id = id_of(1);
    place_open(&place);
    fill(&place, 3);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    td_digest_log_add(log, &id, sum);
    td_digest_log_close(log);
    log = open_log(&place, TD_DIGEST_LOG_WRITE);
    uint8_t found[TD_SHA256_BYTES];
    assert_true(td_digest_log_find(log, &id, found));
    assert_memory_equal(found, sum, sizeof sum);
    assert_int_equal(td_digest_log_count(log), 3);
    td_digest_log_close(log);
    tree_close(&place.tree);
}

/* A full batch is on the disk without anybody asking. */
static void batches_are_written_by_themselves(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    for (size_t i = 0; i < TD_DIGEST_LOG_BATCH; i++) {
        assert_int_equal(file_bytes(place.file), HEADER_BYTES);
        add(log, i);
    }
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + TD_DIGEST_LOG_BATCH * RECORD_BYTES);
    assert_int_equal(fdatasync_fault.calls, 1);
    add(log, TD_DIGEST_LOG_BATCH);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + TD_DIGEST_LOG_BATCH * RECORD_BYTES);
    td_digest_log_flush(log);
    td_digest_log_flush(log);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + (TD_DIGEST_LOG_BATCH + 1) * RECORD_BYTES);
    assert_int_equal(fdatasync_fault.calls, 2);
    td_digest_log_close(log);
    tree_close(&place.tree);
}

static void put(uint8_t **at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(value >> 8 * i);
}

/* The file as its description says, written by hand. */
static size_t by_hand(uint8_t *bytes, size_t count)
{
    uint8_t *at = bytes;
    memcpy(at, "tdigests", 8);
    at += 8;
    put(&at, 1, 4);
    put(&at, 0x01020304, 4);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = at;
        struct td_file_id id = id_of(i);
        put(&at, RECORD_BYTES, 4);
        put(&at, 1, 4);
        put(&at, id.device, 8);
        put(&at, id.inode, 8);
        put(&at, id.size_bytes, 8);
        put(&at, (uint64_t)id.mtime_ns, 8);
        put(&at, (uint64_t)id.ctime_ns, 8);
        sum_of(i, at);
        at += TD_SHA256_BYTES;
        put(&at, crc32(0, record, (uInt)(at - record)), 4);
        put(&at, 0, 4);
    }
    return (size_t)(at - bytes);
}

static void the_file_is_as_described(void **state)
{
    (void)state;
    struct place place;
    uint8_t wanted[1024];
    uint8_t written[1024];
    place_open(&place);
    fill(&place, 5);
    size_t len = by_hand(wanted, 5);
    assert_int_equal(read_file(place.file, written, sizeof written), len);
    assert_memory_equal(written, wanted, len);
    tree_close(&place.tree);
}

/* ---- damage -------------------------------------------------------------------------------------------- */

/* Opens what is there: exactly the first are known. What is added then is there at the next start, and no harm is left. */
static void check_recovery(const struct place *place, size_t known, size_t count)
{
    struct td_digest_log *log = open_log(place, TD_DIGEST_LOG_READ);
    knows_the_first(log, known, count);
    td_digest_log_close(log);
    log = open_log(place, TD_DIGEST_LOG_WRITE);
    assert_true(td_digest_log_is_stored(log));
    knows_the_first(log, known, count);
    add(log, known);
    td_digest_log_close(log);
    assert_int_equal(file_bytes(place->file), HEADER_BYTES + (known + 1) * RECORD_BYTES);
    log = open_log(place, TD_DIGEST_LOG_WRITE);
    knows_the_first(log, known + 1, count);
    td_digest_log_close(log);
}

static void every_prefix_is_used_as_far_as_it_goes(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    struct place place;
    uint8_t bytes[1024];
    place_open(&place);
    tree_directory(&place.tree, "state");
    size_t len = by_hand(bytes, COUNT);
    for (size_t n = 0; n <= len; n++) {
        tree_write(&place.tree, "state/digests", bytes, n);
        check_recovery(&place, n < HEADER_BYTES ? 0 : (n - HEADER_BYTES) / RECORD_BYTES, COUNT + 2);
    }
    tree_close(&place.tree);
}

static void no_changed_byte_is_believed(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    static const uint8_t changes[] = {0x01, 0x80, 0xff};
    struct place place;
    uint8_t bytes[1024];
    place_open(&place);
    tree_directory(&place.tree, "state");
    size_t len = by_hand(bytes, COUNT);
    for (size_t n = 0; n < len; n++) {
        for (size_t k = 0; k < COUNT_OF(changes); k++) {
            bytes[n] ^= changes[k];
            tree_write(&place.tree, "state/digests", bytes, len);
            check_recovery(&place, n < HEADER_BYTES ? 0 : (n - HEADER_BYTES) / RECORD_BYTES, COUNT + 1);
            bytes[n] ^= changes[k];
        }
    }
    tree_close(&place.tree);
}

static void garbage_is_an_empty_log(void **state)
{
    (void)state;
    static const char zeros[4096];
    static const struct {
        const void *bytes;
        size_t len;
    } cases[] = {{"x", 1}, {zeros, sizeof zeros}, {"tdigests", 8}, {"SQLite format 3", 16}};
    struct place place;
    place_open(&place);
    tree_directory(&place.tree, "state");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        tree_write(&place.tree, "state/digests", cases[i].bytes, cases[i].len);
        check_recovery(&place, 0, 3);
    }
    tree_close(&place.tree);
}

/* ---- directories --------------------------------------------------------------------------------------- */

static void a_directory_that_others_can_write_to_is_refused(void **state)
{
    (void)state;
    static const mode_t bad[] = {0777, 0770, 0720, 0702, 01777};
    static const mode_t good[] = {0700, 0755, 0750};
    struct place place;
    place_open(&place);
    fill(&place, 2);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(chmod(place.state, bad[i]), 0);
        refused(place.state, NULL, TD_PERMISSION_DENIED, "writable by nobody else");
    }
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_int_equal(chmod(place.state, good[i]), 0);
        td_digest_log_close(open_log(&place, TD_DIGEST_LOG_WRITE));
    }
    if (geteuid() == 0)
        assert_int_equal(chown(place.state, 1, 0), 0);
    refused(geteuid() == 0 ? place.state : "/", NULL, TD_PERMISSION_DENIED, "must belong to the user");
    tree_close(&place.tree);
}

static void a_log_that_others_can_write_to_is_refused(void **state)
{
    (void)state;
    struct place place;
    struct td_digest_log *log;
    struct td_error err;
    place_open(&place);
    fill(&place, 2);
    assert_int_equal(chmod(place.file, 0620), 0);
    refused(place.state, NULL, TD_PERMISSION_DENIED, "nobody else can write; remove it");
    td_error_init(&err);
    assert_false(td_digest_log_open(place.state, NULL, TD_DIGEST_LOG_READ, &log, &err));
    assert_int_equal(chmod(place.file, 0644), 0);
    td_digest_log_close(open_log(&place, TD_DIGEST_LOG_READ));
    if (geteuid() == 0) {
        assert_int_equal(chown(place.file, 1, 0), 0);
        refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file that belongs to the user");
    }
    tree_close(&place.tree);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    tree_directory(&place.tree, "state/digests");
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place.tree, "state/digests");
    tree_fifo(&place.tree, "state/digests");
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place.tree, "state/digests");
    tree_text(&place.tree, "elsewhere", "precious");
    tree_symlink(&place.tree, "state/digests", "../elsewhere");
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place.tree, "state/digests");
    tree_symlink(&place.tree, "state/digests", "/dev/full");
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    tree_remove(&place.tree, "state/digests");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_true(strlen(place.file) < sizeof address.sun_path);
    memcpy(address.sun_path, place.file, strlen(place.file));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    refused(place.state, NULL, TD_PERMISSION_DENIED, "must be a file");
    (void)close(fd);
    tree_remove(&place.tree, "state");
    tree_text(&place.tree, "state", "no directory");
    refused(place.state, NULL, TD_IO, "cannot open");
    tree_remove(&place.tree, "state");
    tree_at(&place.tree, "missing/state", place.state);
    refused(place.state, NULL, TD_IO, "cannot create");
    tree_close(&place.tree);
}

/* An odd lock keeps nobody from reading. */
static void a_lock_that_cannot_be_had(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    fill(&place, 2);
    tree_remove(&place.tree, "state/lock");
    tree_directory(&place.tree, "state/lock");
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_false(td_digest_log_is_stored(log));
    knows_the_first(log, 2, 3);
    td_digest_log_close(log);
    tree_close(&place.tree);
}

static void a_directory_in_the_root_is_refused(void **state)
{
    (void)state;
    static const char *const inside[] = {"root", "root/state",  "root/a/b",      "link/state",
                                         "to_a", "to_a/b/../b", "root/../root/a"};
    static const char *const outside[] = {"rootx", "state", "root/out", "."};
    struct place place;
    char root[TREE_PATH_BYTES];
    char path[TREE_PATH_BYTES];
    place_open(&place);
    tree_directory(&place.tree, "root/a/b");
    tree_symlink(&place.tree, "link", "root");
    tree_symlink(&place.tree, "to_a", "root/a");
    tree_symlink(&place.tree, "root/out", "../other");
    tree_directory(&place.tree, "other");
    for (size_t k = 0; k < 2; k++) {
        tree_at(&place.tree, k == 0 ? "root" : "link", root);
        for (size_t i = 0; i < COUNT_OF(inside); i++) {
            tree_at(&place.tree, inside[i], path);
            refused(path, root, TD_FAILED_PRECONDITION, "lies in the served directory");
        }
        tree_at(&place.tree, "root/state", path);
        assert_int_equal(access(path, F_OK), -1); /* nothing is left in there */
        for (size_t i = 0; i < COUNT_OF(outside); i++) {
            struct td_digest_log *log;
            struct td_error err;
            tree_at(&place.tree, outside[i], path);
            td_error_init(&err);
            CHECK(td_digest_log_open(path, root, TD_DIGEST_LOG_WRITE, &log, &err), "%s", err.message);
            td_digest_log_close(log);
        }
    }
    tree_at(&place.tree, "state", path);
    refused(path, "/", TD_FAILED_PRECONDITION, "lies in the served directory");
    tree_at(&place.tree, "no root", root);
    refused(path, root, TD_IO, "cannot look at");
    tree_close(&place.tree);
}

static void a_second_one_only_reads(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    fill(&place, 3);
    struct td_digest_log *first = open_log(&place, TD_DIGEST_LOG_WRITE);
    struct td_digest_log *second = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_true(td_digest_log_is_stored(first));
    assert_false(td_digest_log_is_stored(second));
    knows_the_first(second, 3, 5);
    add(second, 4);
    td_digest_log_flush(second);
    add(first, 3);
    td_digest_log_flush(first);
    struct td_digest_log *reader = open_log(&place, TD_DIGEST_LOG_READ); /* beside them */
    knows_the_first(reader, 4, 5);
    td_digest_log_close(reader);
    td_digest_log_close(second);
    td_digest_log_close(first);
    first = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_true(td_digest_log_is_stored(first));
    knows_the_first(first, 4, 5);
    td_digest_log_close(first);
    tree_close(&place.tree);
}

static void reading_makes_nothing(void **state)
{
    (void)state;
    struct place place;
    struct td_digest_log *log;
    struct td_error err;
    place_open(&place);
    td_error_init(&err);
    assert_false(td_digest_log_open(place.state, NULL, TD_DIGEST_LOG_READ, &log, &err));
    assert_int_equal(access(place.state, F_OK), -1);
    tree_directory(&place.tree, "state");
    log = open_log(&place, TD_DIGEST_LOG_READ);
    assert_int_equal(td_digest_log_count(log), 0);
    td_digest_log_close(log);
    assert_int_equal(access(place.file, F_OK), -1);
    tree_close(&place.tree);
}

/* ---- disks --------------------------------------------------------------------------------------------- */

/* After a write that stopped anywhere: lookups go on, nothing is tried again, the next start has what was complete. */
static void a_full_disk_stops_the_log_once(void **state)
{
    (void)state;
    struct place place;
    for (size_t left = 0; left < (size_t)3 * RECORD_BYTES; left += 11) {
        place_open(&place);
        fill(&place, 2);
        struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
        write_at_most = left > 0 ? left : 1;
        arm(&write_fault, left > 0 ? 2 : 1, ENOSPC);
        for (size_t i = 2; i < 5; i++)
            add(log, i);
        td_digest_log_flush(log);
        assert_false(td_digest_log_is_stored(log));
        unsigned calls = write_fault.calls;
        arm(&write_fault, 0, 0); /* there is room again */
        for (size_t i = 5; i < 600; i++)
            add(log, i);
        td_digest_log_flush(log);
        assert_int_equal(write_fault.calls, 0);
        CHECK(calls == (left > 0 ? 2 : 1), "%u calls", calls);
        knows_the_first(log, 600, 610);
        td_digest_log_close(log);
        disarm();
        check_recovery(&place, 2 + left / RECORD_BYTES, 10);
        tree_close(&place.tree);
    }
}

static void short_writes_are_continued(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    write_at_most = 7;
    fill(&place, 300);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    knows_the_first(log, 300, 310);
    td_digest_log_close(log);
    tree_close(&place.tree);
}

/* The kernel takes the lost pages for written: a second synchronisation that succeeds would mean nothing. */
static void a_failed_synchronisation_is_not_repeated(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    arm(&fdatasync_fault, 1, EIO);
    add(log, 0);
    td_digest_log_flush(log);
    assert_false(td_digest_log_is_stored(log));
    arm(&write_fault, 0, 0);
    for (size_t i = 1; i < 2000; i++)
        add(log, i);
    td_digest_log_flush(log);
    knows_the_first(log, 2000, 2010);
    td_digest_log_close(log);
    assert_int_equal(fdatasync_fault.calls, 1);
    assert_int_equal(write_fault.calls, 0);
    tree_close(&place.tree);
}

static void a_disk_that_is_full_from_the_start(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    arm(&write_fault, 1, ENOSPC); /* the header */
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_false(td_digest_log_is_stored(log));
    add(log, 0);
    knows_the_first(log, 1, 2);
    td_digest_log_close(log);
    for (int i = 1; i <= 2; i++) { /* no lock, no log */
        disarm();
        arm(&read_only, i, ENOSPC);
        log = open_log(&place, TD_DIGEST_LOG_WRITE);
        assert_false(td_digest_log_is_stored(log));
        td_digest_log_close(log);
    }
    disarm();
    check_recovery(&place, 0, 2);
    tree_close(&place.tree);
}

static void a_read_only_disk_is_read(void **state)
{
    (void)state;
    struct place place;
    place_open(&place);
    fill(&place, 3);
    arm(&read_only, 1, EROFS);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    assert_false(td_digest_log_is_stored(log));
    knows_the_first(log, 3, 4);
    td_digest_log_close(log);
    disarm();
    tree_close(&place.tree);
}

/* ---- compacting ---------------------------------------------------------------------------------------- */

struct keeper {
    uint64_t below; /* those that are kept */
};

static bool is_below(void *context, const struct td_file_id *id)
{
    const struct keeper *keeper = context;
    for (uint64_t i = 0; i < keeper->below; i++) {
        struct td_file_id kept = id_of(i);
        if (td_file_id_equal(&kept, id))
            return true;
    }
    return false;
}

static void compacting_drops_what_is_not_kept(void **state)
{
    (void)state;
    struct place place;
    struct keeper keeper = {.below = 300};
    place_open(&place);
    fill(&place, 1000);
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    add(log, 1000); /* not written yet, and never */
    td_digest_log_compact(log, is_below, &keeper);
    assert_true(td_digest_log_is_stored(log));
    knows_the_first(log, 300, 1010);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + 300 * RECORD_BYTES);
    struct stat st;
    assert_int_equal(stat(place.file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    add(log, 300); /* to the new one */
    td_digest_log_close(log);
    assert_int_equal(file_bytes(place.file), HEADER_BYTES + 301 * RECORD_BYTES);
    log = open_log(&place, TD_DIGEST_LOG_WRITE);
    knows_the_first(log, 301, 1010);
    keeper.below = 0;
    td_digest_log_compact(log, is_below, &keeper);
    td_digest_log_close(log);
    check_recovery(&place, 0, 10);
    tree_close(&place.tree);
}

static void compacting_a_table_alone(void **state)
{
    (void)state;
    struct td_digest_log *log;
    struct keeper keeper = {.below = 10};
    disarm();
    assert_true(td_digest_log_open(NULL, NULL, TD_DIGEST_LOG_READ, &log, NULL));
    for (size_t i = 0; i < 40; i++)
        add(log, i);
    td_digest_log_compact(log, is_below, &keeper);
    knows_the_first(log, 10, 50);
    td_digest_log_close(log);
}

/* Whichever step fails, the file is the old one or the new one, the log is given up, and nothing else is left behind. */
static void compacting_may_fail_anywhere(void **state)
{
    (void)state;
    static const struct {
        struct fault *fault;
        int countdown;
    } cases[] = {{&read_only, 1},   {&write_fault, 1},  {&write_fault, 2},
                 {&fsync_fault, 1}, {&rename_fault, 1}, {&fsync_fault, 2}};
    struct place place;
    struct keeper keeper = {.below = 5};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        place_open(&place);
        fill(&place, 9);
        struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
        arm(cases[i].fault, cases[i].countdown, EIO);
        td_digest_log_compact(log, is_below, &keeper);
        disarm();
        assert_false(td_digest_log_is_stored(log));
        knows_the_first(log, 5, 10);
        td_digest_log_close(log);
        char left[TREE_PATH_BYTES];
        tree_at(&place.tree, "state/digests.new", left);
        assert_int_equal(access(left, F_OK), -1);
        check_recovery(&place, i + 1 == COUNT_OF(cases) ? 5 : 9, 12);
        tree_close(&place.tree);
    }
}

/* What a crash in the middle of compacting leaves. */
static void a_half_written_new_log_is_ignored(void **state)
{
    (void)state;
    struct place place;
    struct keeper keeper = {.below = 2};
    place_open(&place);
    fill(&place, 4);
    tree_text(&place.tree, "state/digests.new", "tdige");
    struct td_digest_log *log = open_log(&place, TD_DIGEST_LOG_WRITE);
    knows_the_first(log, 4, 5);
    td_digest_log_compact(log, is_below, &keeper);
    assert_true(td_digest_log_is_stored(log));
    td_digest_log_close(log);
    check_recovery(&place, 2, 5);
    tree_close(&place.tree);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Opens, adds past a growth of the table, compacts. False when it could not be opened. */
static bool exercise(const struct place *place, size_t *known)
{
    struct td_digest_log *log;
    struct td_error err;
    struct keeper keeper = {.below = 20};
    td_error_init(&err);
    if (!td_digest_log_open(place->state, NULL, TD_DIGEST_LOG_WRITE, &log, &err)) {
        assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
        return false;
    }
    for (size_t i = 0; i < 1200; i++)
        add(log, i);
    *known = 0;
    for (size_t i = 0; i < 1200; i++)
        *known += has(log, i) ? 1 : 0;
    td_digest_log_compact(log, is_below, &keeper);
    td_digest_log_close(log);
    return true;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct place place;
    size_t known = 0;
    place_open(&place);
    fill(&place, 900); /* the table grows while this is read */
    uint8_t bytes[128 * 1024];
    size_t len = read_file(place.file, bytes, sizeof bytes);
    alloc_count_start();
    assert_true(exercise(&place, &known));
    assert_int_equal(known, 1200);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    size_t calls = alloc_count_get().calls;
    assert_true(calls >= 4);
    for (size_t k = 1; k <= calls; k++) {
        tree_write(&place.tree, "state/digests", bytes, len);
        assert_int_equal(chmod(place.file, 0600), 0);
        alloc_count_start();
        alloc_fail_at(k);
        if (exercise(&place, &known))
            assert_true(known >= 900);
        alloc_fail_at(0);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
    tree_close(&place.tree);
}

static void the_table_is_bounded(void **state)
{
    (void)state;
    struct td_digest_log *log;
    uint8_t sum[TD_SHA256_BYTES] = {1};
    disarm();
    assert_true(td_digest_log_open(NULL, NULL, TD_DIGEST_LOG_READ, &log, NULL));
    alloc_count_start();
    for (uint64_t i = 0; i < TD_DIGEST_LOG_MAX_RECORDS + 10; i++) {
        const struct td_file_id id = {.inode = i};
        td_digest_log_add(log, &id, sum);
    }
    assert_int_equal(td_digest_log_count(log), TD_DIGEST_LOG_MAX_RECORDS);
    assert_true(alloc_count_get().peak_bytes <= UINT64_C(1024) * 1024 * 1024);
    const struct td_file_id last = {.inode = TD_DIGEST_LOG_MAX_RECORDS - 1};
    const struct td_file_id beyond = {.inode = TD_DIGEST_LOG_MAX_RECORDS};
    assert_true(td_digest_log_find(log, &last, sum));
    assert_false(td_digest_log_find(log, &beyond, sum));
    sum[0] = 2; /* what is in it can still be corrected */
    td_digest_log_add(log, &last, sum);
    sum[0] = 0;
    assert_true(td_digest_log_find(log, &last, sum) && sum[0] == 2);
    td_digest_log_close(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_needs_no_directory),
        cmocka_unit_test(what_was_added_is_known_after_a_restart),
        cmocka_unit_test(the_last_digest_of_an_identity_counts),
        cmocka_unit_test(batches_are_written_by_themselves),
        cmocka_unit_test(the_file_is_as_described),
        cmocka_unit_test(every_prefix_is_used_as_far_as_it_goes),
        cmocka_unit_test(no_changed_byte_is_believed),
        cmocka_unit_test(garbage_is_an_empty_log),
        cmocka_unit_test(a_directory_that_others_can_write_to_is_refused),
        cmocka_unit_test(a_log_that_others_can_write_to_is_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(a_lock_that_cannot_be_had),
        cmocka_unit_test(a_directory_in_the_root_is_refused),
        cmocka_unit_test(a_second_one_only_reads),
        cmocka_unit_test(reading_makes_nothing),
        cmocka_unit_test(a_full_disk_stops_the_log_once),
        cmocka_unit_test(short_writes_are_continued),
        cmocka_unit_test(a_failed_synchronisation_is_not_repeated),
        cmocka_unit_test(a_disk_that_is_full_from_the_start),
        cmocka_unit_test(a_read_only_disk_is_read),
        cmocka_unit_test(compacting_drops_what_is_not_kept),
        cmocka_unit_test(compacting_a_table_alone),
        cmocka_unit_test(compacting_may_fail_anywhere),
        cmocka_unit_test(a_half_written_new_log_is_ignored),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(the_table_is_bounded),
    };
    td_log_set_level(TD_LOG_ERROR); /* warnings are expected, thousands of them */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
