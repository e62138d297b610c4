#include "tests/unit/catalog/hasher_place.h"

#include "tests/unit/unit.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const uint64_t second = 1000000000;

struct disk disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

/* ---- the disk ------------------------------------------------------------------------------------------ */

ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t off);
ssize_t __real_pread64(int fd, void *out, size_t len, off_t off);
int __wrap_sched_setscheduler(pid_t pid, int policy, const struct sched_param *param);

/* Refuses the idle priority: on a machine that has other work, tests of what is nearly done would take long. */
int __wrap_sched_setscheduler(pid_t pid, int policy, const struct sched_param *param)
{
    (void)pid;
    (void)policy;
    (void)param;
    errno = EPERM;
    return -1;
}

ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t off)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    uint64_t size = (uint64_t)st.st_size;
    pthread_mutex_lock(&disk.lock);
    if (off == 0 && disk.begun_count < COUNT_OF(disk.begun))
        disk.begun[disk.begun_count++] = size;
    if ((uint64_t)off >= disk.held_from && disk.waiting < disk.most_held) {
        disk.waiting++;
        while (disk.closed)
            pthread_cond_wait(&disk.opened, &disk.lock);
        disk.waiting--;
    }
    long pause_ms = disk.nap_ms;
    bool bad = disk.bad_size == size;
    pthread_mutex_unlock(&disk.lock);
    if (pause_ms > 0)
        nap_ms(pause_ms);
    if (bad) {
        errno = EIO;
        return -1;
    }
    return __real_pread64(fd, out, len, off);
}

static void disk_reset(void)
{
    pthread_mutex_lock(&disk.lock);
    disk.closed = false;
    disk.held_from = 0;
    disk.most_held = SIZE_MAX;
    disk.nap_ms = 0;
    disk.bad_size = UINT64_MAX;
    disk.begun_count = 0;
    pthread_mutex_unlock(&disk.lock);
}

void disk_close(void)
{
    pthread_mutex_lock(&disk.lock);
    disk.closed = true;
    pthread_mutex_unlock(&disk.lock);
}

void disk_hold(uint64_t from, size_t most)
{
    pthread_mutex_lock(&disk.lock);
    disk.closed = true;
    disk.held_from = from;
    disk.most_held = most;
    pthread_mutex_unlock(&disk.lock);
}

void disk_open(void)
{
    pthread_mutex_lock(&disk.lock);
    disk.closed = false;
    pthread_cond_broadcast(&disk.opened);
    pthread_mutex_unlock(&disk.lock);
}

void disk_make_good(void)
{
    pthread_mutex_lock(&disk.lock);
    disk.bad_size = UINT64_MAX;
    pthread_mutex_unlock(&disk.lock);
}

size_t disk_waiting(void)
{
    pthread_mutex_lock(&disk.lock);
    size_t waiting = disk.closed ? disk.waiting : 0;
    pthread_mutex_unlock(&disk.lock);
    return waiting;
}

size_t times_begun(uint64_t size)
{
    size_t count = 0;
    pthread_mutex_lock(&disk.lock);
    for (size_t i = 0; i < disk.begun_count; i++)
        count += disk.begun[i] == size ? 1 : 0;
    pthread_mutex_unlock(&disk.lock);
    return count;
}

/* ---- a hasher over a tree ------------------------------------------------------------------------------ */

static void on_known(void *context)
{
    ((struct place *)context)->known_calls++;
}

void place_open(struct place *place)
{
    memset(place, 0, sizeof *place);
    disk_reset();
    tree_open(&place->tree);
    tree_directory(&place->tree, "root");
    tree_at(&place->tree, "root", place->root);
    tree_at(&place->tree, "state", place->state);
    struct tree served;
    (void)snprintf(served.path, sizeof served.path, "%.200s/root", place->tree.path);
    scanner_open(&place->scanner, &served);
    place->config =
        (struct td_hasher_config){.root = place->root, .threads = 1, .on_known = on_known, .context = place};
}

void start(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_hasher_create(&place->config, &place->hasher, &err), "%s", err.message);
    place->scanner.config.hasher = place->hasher;
}

void scan(struct place *place)
{
    (void)scanner_scan(&place->scanner);
    td_hasher_set_snapshot(place->hasher, place->scanner.snapshot);
}

void stop(struct place *place)
{
    td_hasher_destroy(place->hasher);
    place->hasher = NULL;
    place->scanner.config.hasher = NULL;
}

void finish(struct place *place)
{
    stop(place);
    scanner_close(&place->scanner);
    tree_close(&place->tree);
}

struct td_hasher_status status_of(const struct place *place)
{
    struct td_hasher_status status;
    td_hasher_get_status(place->hasher, &status);
    return status;
}

struct td_file *file_of(const struct place *place, const char *path)
{
    const struct td_entry *entry = scanner_entry(&place->scanner, path);
    CHECK(entry != NULL, "no %s", path);
    return entry->file;
}

bool is_known(const struct place *place, const char *path)
{
    return td_file_sha256(file_of(place, path)) != NULL;
}

bool wait_for_file(const struct place *place, const char *path, uint64_t ns)
{
    const struct td_digest_wait how = {.until_ns = td_clock_ns() + ns};
    return td_hasher_wait(place->hasher, place->scanner.root, file_of(place, path), &how);
}

void sparse(const struct place *place, const char *name, uint64_t size)
{
    char path[128];
    (void)snprintf(path, sizeof path, "root/%s", name);
    tree_text(&place->tree, path, "");
    tree_truncate(&place->tree, path, size);
}
