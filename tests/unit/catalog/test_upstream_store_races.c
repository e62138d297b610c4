/* The store of kept models where threads meet. Nothing here depends on how long something takes: removals are held up,
 * and the test sees when another thread begins to wait. */
#include "catalog/upstream/upstream_store.h"

#include "catalog/upstream/kept_disk.h"
#include "core/clock.h"
#include "tests/unit/catalog/store_place.h"
#include "tests/unit/tree_fixture.h"

#include <pthread.h>
#include <sys/statvfs.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* of the next two lines */
static bool is_held;                                      /* removals wait */
static int removals, waits, ends; /* removals of models that have begun; waits of threads for the store; threads that
                                     have ended */

static struct td_upstream_store *looked_at; /* by these threads, while they look at the disk; NULL: not */
static bool is_looking;

bool __wrap_td_kept_disk_remove_published(struct td_own_folder *disk, const struct td_kept_note *note, const char *key);
bool __real_td_kept_disk_remove_published(struct td_own_folder *disk, const struct td_kept_note *note, const char *key);
bool __wrap_td_kept_disk_is_in_place(const struct td_own_folder *disk, const struct td_kept_note *note);
bool __real_td_kept_disk_is_in_place(const struct td_own_folder *disk, const struct td_kept_note *note);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_fstatvfs64(int fd, struct statvfs *fs);
int __real_fstatvfs64(int fd, struct statvfs *fs);

bool __wrap_td_kept_disk_remove_published(struct td_own_folder *disk, const struct td_kept_note *note, const char *key)
{
    pthread_mutex_lock(&lock);
    removals++;
    pthread_cond_broadcast(&changed);
    while (is_held)
        (void)__real_pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return __real_td_kept_disk_remove_published(disk, note, key);
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    pthread_mutex_lock(&lock);
    waits++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return __real_pthread_cond_wait(condition, mutex);
}

/* While the store checks the disk, another thread finds that the model is gone, and begins to fetch it again. */
bool __wrap_td_kept_disk_is_in_place(const struct td_own_folder *disk, const struct td_kept_note *note)
{
    struct td_upstream_store *store = looked_at;
    bool ok = __real_td_kept_disk_is_in_place(disk, note);
    looked_at = NULL;
    if (store != NULL) {
        assert_false(td_upstream_store_is_there(store, td_text_of(note->id)));
        begin(store, note->id, 20);
    }
    return ok;
}

/* Checks that another thread could use the store during the call. */
int __wrap_fstatvfs64(int fd, struct statvfs *fs)
{
    size_t count;
    if (looked_at != NULL) {
        is_looking = true;
        (void)td_upstream_store_bytes(looked_at, &count);
    }
    return __real_fstatvfs64(fd, fs);
}

static void hold(bool holds)
{
    pthread_mutex_lock(&lock);
    is_held = holds;
    removals = holds ? 0 : removals;
    waits = holds ? 0 : waits;
    ends = holds ? 0 : ends;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Waits until so many threads have come as far as they can: to a removal, to a wait, or to their end. */
static void await(int count)
{
    pthread_mutex_lock(&lock);
    while (removals + waits + ends < count)
        (void)__real_pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* A thread that begins a model. */
struct beginner {
    struct td_upstream_store *store;
    const char *id;
    uint64_t bytes, evicted;
    bool ok;
    struct td_error err;
    pthread_t thread;
};

static void *beginner_main(void *argument)
{
    struct beginner *beginner = argument;
    struct td_root *folder = NULL;
    int64_t began_s;
    beginner->ok = td_upstream_store_begin(beginner->store, beginner->id, beginner->bytes, &folder, &began_s,
                                           &beginner->evicted, &beginner->err);
    td_root_unref(folder);
    pthread_mutex_lock(&lock);
    ends++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void beginner_start(struct beginner *beginner)
{
    td_error_init(&beginner->err);
    assert_int_equal(pthread_create(&beginner->thread, NULL, beginner_main, beginner), 0);
}

static void beginner_end(struct beginner *beginner)
{
    assert_int_equal(pthread_join(beginner->thread, NULL), 0);
    CHECK(beginner->ok, "%s: %s", beginner->id, beginner->err.message);
}

/* shows: security.md upstream-eviction-races */
static void a_model_that_is_leaving_can_be_asked_for(void **state)
{
    struct tree *tree = *state;
    size_t count;
    struct td_upstream_store *store = open_store(tree, 100);
    struct beginner other = {.store = store, .id = "other", .bytes = 60};
    struct beginner same = {.store = store, .id = "a", .bytes = 30};
    keep(store, "a", 60);
    hold(true);
    beginner_start(&other);
    await(1); /* "a" is being removed */
    beginner_start(&same);
    await(2); /* it waits until "a" is removed */
    hold(false);
    beginner_end(&other);
    beginner_end(&same);
    assert_int_equal(other.evicted, 1);
    assert_int_equal(same.evicted, 0);
    assert_false(exists(tree, "a"));
    assert_int_equal(td_upstream_store_bytes(store, &count), 90);
    publish(store, "a");
    td_upstream_store_close(store);
}

/* shows: security.md upstream-eviction-races */
static void two_fetches_at_once_make_room_for_two_and_no_more(void **state)
{
    struct tree *tree = *state;
    size_t count;
    struct td_upstream_store *store = open_store(tree, 100);
    struct beginner first = {.store = store, .id = "first", .bytes = 20};
    struct beginner second = {.store = store, .id = "second", .bytes = 30};
    keep(store, "a", 50);
    keep(store, "b", 25);
    keep(store, "c", 25);
    hold(true);
    beginner_start(&first);
    await(1); /* "a" is leaving, and makes room for both */
    beginner_start(&second);
    await(2);
    assert_int_equal(removals, 1);
    hold(false);
    beginner_end(&first);
    beginner_end(&second);
    assert_int_equal(first.evicted + second.evicted, 1);
    assert_true(exists(tree, "b/config.json") && exists(tree, "c/config.json"));
    assert_int_equal(td_upstream_store_bytes(store, &count), 100);
    td_upstream_store_close(store);
}

static void a_model_that_was_begun_anew_keeps_its_row(void **state)
{
    struct tree *tree = *state;
    size_t count;
    struct td_upstream_store *store = open_store(tree, 100);
    keep(store, "a", 10);
    tree_remove(tree, "a");
    looked_at = store;
    assert_false(td_upstream_store_is_there(store, TD_TEXT("a")));
    assert_int_equal(td_upstream_store_bytes(store, &count), 20);
    publish(store, "a"); /* of the row that is FETCHED */
    assert_true(td_upstream_store_is_there(store, TD_TEXT("a")));
    td_upstream_store_close(store);
}

static void nobody_waits_while_the_store_looks_at_the_disk(void **state)
{
    struct tree *tree = *state;
    struct td_upstream_store *store = open_store(tree, 0);
    looked_at = store;
    is_looking = false;
    (void)alarm(30); /* a lock that is held makes this test wait for itself */
    begin(store, "a", 10);
    (void)alarm(0);
    looked_at = NULL;
    assert_true(is_looking);
    td_upstream_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(tree, a_model_that_is_leaving_can_be_asked_for),
        TEST_IN(tree, two_fetches_at_once_make_room_for_two_and_no_more),
        TEST_IN(tree, a_model_that_was_begun_anew_keeps_its_row),
        TEST_IN(tree, nobody_waits_while_the_store_looks_at_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
