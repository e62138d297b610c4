/* Files that have no writer any more: fcntl(2), "Leases". */
#include "storage/file_system.h"

#include "core/clock.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
    struct tree tree;
    struct td_root *root;
    char path[TREE_PATH_BYTES];
};

static int lease_signal(void)
{
    return SIGRTMIN + 1;
}

static void open_place(struct place *place)
{
    char root[TREE_PATH_BYTES];
    struct td_error err = TD_ERROR_INIT;
    tree_open(&place->tree);
    tree_directory(&place->tree, "root");
    tree_at(&place->tree, "root", root);
    tree_at(&place->tree, "root/f", place->path);
    CHECK(td_root_create(root, &place->root, &err), "%s", err.message);
}

static void close_place(struct place *place)
{
    td_root_unref(place->root);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

static struct td_file_id id_now(const struct place *place)
{
    struct stat st;
    assert_int_equal(stat(place->path, &st), 0);
    return td_file_id_of(&st);
}

static enum td_rest look(const struct place *place)
{
    struct td_file_id id = id_now(place);
    uint64_t wait_ns = 0;
    enum td_rest rest = td_file_at_rest(place->root, "f", &id, lease_signal(), &wait_ns);
    assert_true((rest == TD_REST_SOON) == (wait_ns > 0));
    assert_true(wait_ns <= UINT64_C(80000000));
    return rest;
}

/* Looks after 100 ms, when the file system's clock has moved on. */
static enum td_rest look_later(const struct place *place)
{
    nap_ms(100);
    return look(place);
}

/* shows: security.md file-scan-while-writing */
static void a_finished_file_is_at_rest_a_tick_later(void **state)
{
    struct place *place = *state;
    bool soon = false;
    for (int i = 0; i < 50 && !soon; i++) { /* again if this process was stopped for a clock tick */
        tree_text(&place->tree, "root/f", "x");
        soon = look(place) == TD_REST_SOON;
    }
    assert_true(soon);
    assert_int_equal(look_later(place), TD_REST_YES);
    assert_int_equal(look(place), TD_REST_YES); /* the first look left no lease */
    int fd = open(place->path, O_WRONLY | O_NONBLOCK);
    assert_true(fd >= 0); /* so no writer has to wait */
    (void)close(fd);
}

/* shows: security.md file-scan-while-writing */
static void whoever_may_write_keeps_it_from_rest(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "root/f", "some text");
    int fd = open(place->path, O_RDWR);
    assert_int_equal(look_later(place), TD_REST_WRITTEN);
    void *view = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(view != MAP_FAILED);
    (void)close(fd);
    assert_int_equal(look_later(place), TD_REST_WRITTEN); /* a mapping without a descriptor */
    assert_int_equal(munmap(view, 4096), 0);
    assert_int_equal(look_later(place), TD_REST_YES);
    fd = open(place->path, O_RDONLY); /* readers do not count */
    assert_int_equal(look(place), TD_REST_YES);
    (void)close(fd);
}

static void another_file_than_was_found(void **state)
{
    struct place *place = *state;
    uint64_t wait_ns;
    tree_text(&place->tree, "root/f", "some text");
    struct td_file_id id = id_now(place);
    nap_ms(100);
    tree_text(&place->tree, "root/f", "other one");
    assert_int_equal(td_file_at_rest(place->root, "f", &id, lease_signal(), &wait_ns), TD_REST_WRITTEN);
    tree_remove(&place->tree, "root/f");
    assert_int_equal(td_file_at_rest(place->root, "f", &id, lease_signal(), &wait_ns), TD_REST_WRITTEN);
}

static void where_no_lease_is_to_be_had(void **state)
{
    struct place *place = *state;
    uint64_t wait_ns;
    tree_text(&place->tree, "root/f", "x");
    struct td_file_id id = id_now(place);
    nap_ms(100);
    assert_int_equal(td_file_at_rest(place->root, "f", &id, 0, &wait_ns), TD_REST_UNKNOWN);
    tree_fifo(&place->tree, "root/fifo");
    assert_int_equal(td_file_at_rest(place->root, "fifo", &id, lease_signal(), &wait_ns), TD_REST_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, a_finished_file_is_at_rest_a_tick_later),
        TEST_IN(place, whoever_may_write_keeps_it_from_rest),
        TEST_IN(place, another_file_than_was_found),
        TEST_IN(place, where_no_lease_is_to_be_had),
    };
    sigset_t blocked;
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, lease_signal());
    (void)sigprocmask(SIG_BLOCK, &blocked, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
