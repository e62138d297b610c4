/* The end of leases, with a registry and a clock that this test plays: how long transfers and unread answers are
 * waited for, each from the moment at which a writer began to wait for its own file. */
#include "server/net/lease_breaks.h"

#include "core/clock.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { FILES = 2 };

/* A file, with the time since when a writer waits for it; since_ns 0: no writer waits. */
struct file {
    struct td_blob blob; /* first */
    uint64_t since_ns;
    bool is_used, was_called;
    size_t unread, cuts, unacknowledged_cuts;
};

static struct file files[FILES];
static uint64_t now_ns;

static struct file *file_of(const struct td_blob *blob)
{
    for (size_t i = 0; i < FILES; i++)
        if (blob == &files[i].blob)
            return &files[i];
    fail();
    return NULL;
}

uint64_t __wrap_td_clock_ns(void);
uint64_t __wrap_td_clock_ns(void)
{
    return now_ns;
}

bool __wrap_td_registry_uses_blob(struct td_registry *registry, const struct td_blob *blob);
bool __wrap_td_registry_uses_blob(struct td_registry *registry, const struct td_blob *blob)
{
    (void)registry;
    return file_of(blob)->is_used;
}

void __wrap_td_registry_cut_blob(struct td_registry *registry, const struct td_blob *blob);
void __wrap_td_registry_cut_blob(struct td_registry *registry, const struct td_blob *blob)
{
    (void)registry;
    file_of(blob)->cuts++;
}

size_t __wrap_td_registry_settle(struct td_registry *registry, const struct td_blob *blob);
size_t __wrap_td_registry_settle(struct td_registry *registry, const struct td_blob *blob)
{
    (void)registry;
    return file_of(blob)->unread;
}

void __wrap_td_registry_cut_unacknowledged(struct td_registry *registry, const struct td_blob *blob);
void __wrap_td_registry_cut_unacknowledged(struct td_registry *registry, const struct td_blob *blob)
{
    (void)registry;
    file_of(blob)->unacknowledged_cuts++;
}

bool __wrap_td_mapping_cache_break_leases(struct td_mapping_cache *cache, td_lease_cut *cut, void *context);
bool __wrap_td_mapping_cache_break_leases(struct td_mapping_cache *cache, td_lease_cut *cut, void *context)
{
    bool all_ended = true;
    (void)cache;
    for (size_t i = 0; i < FILES; i++) {
        struct file *file = &files[i];
        if (file->since_ns == 0)
            continue;
        bool has_ended = cut(context, &file->blob, !file->was_called, file->since_ns);
        file->was_called = true;
        file->since_ns = has_ended ? 0 : file->since_ns;
        all_ended = all_ended && has_ended;
    }
    return all_ended;
}

/* Returns the kernel's time for a writer that waits (proc(5), /proc/sys/fs/lease-break-time). */
static uint64_t kernel_ns(void)
{
    unsigned seconds = 0;
    FILE *file = fopen("/proc/sys/fs/lease-break-time", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%u", &seconds), 1); /* NOLINT(cert-err34-c): the kernel's own number */
    assert_int_equal(fclose(file), 0);
    return seconds * UINT64_C(1000000000);
}

static int begin(void **state)
{
    (void)state;
    memset(files, 0, sizeof files);
    now_ns = 1;
    return 0;
}

/* An answer that its client has not read is left alone for most of the kernel's time, counted from the break of its
 * own file, also while another file's is pending. */
static void each_file_has_its_own_time(void **state)
{
    (void)state;
    struct td_lease_breaks breaks = {.pending = false};
    const uint64_t whole_ns = kernel_ns();
    files[0] = (struct file){.since_ns = now_ns, .unread = 1};
    td_lease_breaks_run(&breaks);
    assert_true(breaks.pending && files[0].unacknowledged_cuts == 0);
    now_ns += whole_ns / 2;
    files[1] = (struct file){.since_ns = now_ns, .unread = 1};
    td_lease_breaks_run(&breaks);
    now_ns += whole_ns / 2; /* the kernel is about to end the first one's lease */
    td_lease_breaks_run(&breaks);
    assert_int_equal(files[0].unacknowledged_cuts, 1);
    assert_int_equal(files[1].unacknowledged_cuts, 0);
    files[0].unread = 0;
    td_lease_breaks_run(&breaks);
    assert_true(breaks.pending && files[0].since_ns == 0 && files[1].unacknowledged_cuts == 0);
    now_ns += whole_ns / 2;
    td_lease_breaks_run(&breaks);
    assert_int_equal(files[1].unacknowledged_cuts, 1);
    files[1].unread = 0;
    td_lease_breaks_run(&breaks);
    assert_false(breaks.pending);
}

/* Transfers that do not end by themselves are cut once; the lease ends after they have ended. */
static void transfers_are_cut_once(void **state)
{
    (void)state;
    struct td_lease_breaks breaks = {.pending = false};
    files[0] = (struct file){.since_ns = now_ns, .is_used = true};
    files[1] = (struct file){.since_ns = now_ns};
    td_lease_breaks_run(&breaks);
    assert_true(breaks.pending && files[0].cuts == 1);
    assert_true(files[1].since_ns == 0 && files[1].cuts == 0); /* nothing uses it */
    td_lease_breaks_run(&breaks);
    assert_true(breaks.pending && files[0].cuts == 1);
    files[0].is_used = false;
    td_lease_breaks_run(&breaks);
    assert_true(!breaks.pending && files[0].unacknowledged_cuts == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_file_has_its_own_time, begin),
        cmocka_unit_test_setup(transfers_are_cut_once, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
