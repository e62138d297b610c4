/* cmocka has a SIGBUS handler of its own around every test, so each test installs the guard itself. */
#include "storage/fault_guard.h"

#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8 };

struct mapped {
    struct tree tree;
    int fd;
    uint8_t *bytes;
};

static void map(struct mapped *mapped)
{
    uint8_t content[PAGE * PAGES];
    char path[TREE_PATH_BYTES];
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = tree_data_byte(i, 0);
    tree_open(&mapped->tree);
    tree_write(&mapped->tree, "f", content, sizeof content);
    tree_at(&mapped->tree, "f", path);
    mapped->fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(mapped->fd >= 0);
    mapped->bytes = mmap(NULL, sizeof content, PROT_READ, MAP_SHARED, mapped->fd, 0);
    assert_ptr_not_equal(mapped->bytes, MAP_FAILED);
}

static void unmap(struct mapped *mapped)
{
    assert_int_equal(munmap(mapped->bytes, (size_t)PAGE * PAGES), 0);
    assert_int_equal(close(mapped->fd), 0);
    tree_close(&mapped->tree);
}

FIXTURE(mapped, struct mapped, map, unmap)

static void good_memory_is_copied(void **state)
{
    struct mapped *mapped = *state;
    uint8_t out[PAGE * PAGES];
    assert_true(td_fault_guard_install());
    assert_true(td_fault_guard_copy(out, mapped->bytes, sizeof out));
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(out[i], tree_data_byte(i, 0));
    assert_true(td_fault_guard_copy(out, mapped->bytes + 17, 1));
    assert_int_equal(out[0], tree_data_byte(17, 0));
    assert_true(td_fault_guard_copy(out, mapped->bytes, 0));
}

static void pages_are_touched(void **state)
{
    struct mapped *mapped = *state;
    assert_true(td_fault_guard_install());
    assert_true(td_fault_guard_touch(mapped->bytes, (size_t)PAGE * PAGES));
    assert_true(td_fault_guard_touch(mapped->bytes + 17, 0));
    assert_int_equal(ftruncate(mapped->fd, PAGE + 100), 0);
    assert_true(td_fault_guard_touch(mapped->bytes, PAGE * 2));
    assert_true(td_fault_guard_touch(mapped->bytes + PAGE * 2 - 1, 1));
    assert_false(td_fault_guard_touch(mapped->bytes + PAGE * 2 - 1, 2)); /* the last byte alone is on the page */
    assert_false(td_fault_guard_touch(mapped->bytes, PAGE * 2 + 1));
    assert_false(td_fault_guard_touch(mapped->bytes + 5, PAGE * 2));
}

/* A load past the end of a shrunk file raises SIGBUS; bytes before the end stay readable. */
static void truncated_memory_is_a_false_result(void **state)
{
    struct mapped *mapped = *state;
    uint8_t out[PAGE * PAGES];
    assert_true(td_fault_guard_install());
    assert_int_equal(ftruncate(mapped->fd, PAGE + 100), 0);
    for (int i = 0; i < 100; i++) {
        assert_false(td_fault_guard_copy(out, mapped->bytes, sizeof out));
        assert_false(td_fault_guard_copy(out, mapped->bytes + PAGE * 2, 1));
        assert_false(td_fault_guard_copy(out, mapped->bytes + PAGE * PAGES - 1, 1));
        assert_true(td_fault_guard_copy(out, mapped->bytes, PAGE + 100));
        assert_int_equal(out[PAGE + 99], tree_data_byte(PAGE + 99, 0));
    }
    assert_int_equal(ftruncate(mapped->fd, 0), 0);
    assert_false(td_fault_guard_copy(out, mapped->bytes, 1));
}

/* Gathers runs of every length that has its own code, and of others. */
static void runs_are_gathered(void **state)
{
    static const size_t lengths[] = {1, 2, 3, 4, 7, 8, 9, 100};
    struct mapped *mapped = *state;
    uint8_t out[PAGE];
    assert_true(td_fault_guard_install());
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        size_t len = lengths[i];
        memset(out, 0, sizeof out);
        assert_true(td_fault_guard_gather(out, mapped->bytes + 13, len, 10, 211));
        for (size_t k = 0; k < 10 * len; k++)
            assert_int_equal(out[k], tree_data_byte(13 + k / len * 211 + k % len, 0));
        assert_int_equal(out[10 * len], 0);
        assert_true(td_fault_guard_gather(out, mapped->bytes, len, 0, 1));
    }
    assert_int_equal(ftruncate(mapped->fd, PAGE), 0);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        assert_false(td_fault_guard_gather(out, mapped->bytes, lengths[i], 3, PAGE));
        assert_true(td_fault_guard_gather(out, mapped->bytes, lengths[i], 3, 1000));
    }
}

struct copier {
    const uint8_t *bytes;
    bool readable;
    int wrong;
};

static void *copy_often(void *argument)
{
    struct copier *copier = argument;
    uint8_t out[PAGE];
    for (int i = 0; i < 2000; i++)
        copier->wrong += td_fault_guard_copy(out, copier->bytes, sizeof out) != copier->readable;
    return NULL;
}

/* A fault in one thread does not affect others. */
static void guard_is_per_thread(void **state)
{
    enum { THREADS = 6 };
    struct mapped *mapped = *state;
    struct copier copiers[THREADS];
    pthread_t threads[THREADS];
    assert_true(td_fault_guard_install());
    assert_int_equal(ftruncate(mapped->fd, (off_t)PAGE * 4), 0);
    for (size_t i = 0; i < THREADS; i++) {
        copiers[i] = (struct copier){.bytes = mapped->bytes + PAGE * (i % 2 == 0 ? 0 : 5), .readable = i % 2 == 0};
        assert_int_equal(pthread_create(&threads[i], NULL, copy_often, &copiers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(copiers[i].wrong, 0);
    }
}

/* Runs the function in a child and returns the signal that ended the child, or 0 when it exited. */
static int signal_of(void (*run)(void *), void *argument)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(20);
        if (!td_fault_guard_install())
            _exit(99);
        run(argument);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static volatile uint8_t sink;

static void load_past_end(void *bytes)
{
    sink = ((volatile uint8_t *)bytes)[PAGE * 5];
}

static void copy_then_load_past_end(void *bytes)
{
    uint8_t out[1];
    if (td_fault_guard_copy(out, (uint8_t *)bytes + PAGE * 5, 1) || !td_fault_guard_copy(out, bytes, 1))
        _exit(98);
    load_past_end(bytes);
}

static void raise_it(void *unused)
{
    (void)unused;
    (void)raise(SIGBUS);
}

static void kill_itself(void *unused)
{
    (void)unused;
    (void)kill(getpid(), SIGBUS);
    struct timespec pause = {.tv_sec = 2};
    (void)nanosleep(&pause, NULL);
}

static void load_nothing(void *unused)
{
    uint8_t out[1];
    (void)unused;
    (void)signal(SIGSEGV, SIG_DFL); /* no sanitizer report */
    volatile uintptr_t none = 8;
    (void)td_fault_guard_copy(out, (const void *)none, 1);
}

static void only_the_guarded_copy_is_forgiven(void **state)
{
    struct mapped *mapped = *state;
    assert_int_equal(ftruncate(mapped->fd, PAGE), 0);
    assert_int_equal(signal_of(load_past_end, mapped->bytes), SIGBUS);
    assert_int_equal(signal_of(copy_then_load_past_end, mapped->bytes), SIGBUS);
    assert_int_equal(signal_of(raise_it, NULL), SIGBUS);
    assert_int_equal(signal_of(kill_itself, NULL), SIGBUS);
    assert_int_equal(signal_of(load_nothing, NULL), SIGSEGV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(mapped, good_memory_is_copied),
        TEST_IN(mapped, pages_are_touched),
        TEST_IN(mapped, truncated_memory_is_a_false_result),
        TEST_IN(mapped, runs_are_gathered),
        TEST_IN(mapped, guard_is_per_thread),
        TEST_IN(mapped, only_the_guarded_copy_is_forgiven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
