#include "storage/blob.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void heap_bytes_are_read_anywhere(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob;
    char *data = malloc(11);
    char out[11];
    assert_non_null(data);
    memcpy(data, "hello world", 11);
    assert_true(td_blob_from_heap(data, 11, &blob, &err));
    assert_true(blob->len_bytes == 11);
    for (size_t off = 0; off <= 11; off++) {
        for (size_t len = 0; len <= 11 - off; len++) {
            memset(out, '?', sizeof out);
            assert_true(td_blob_read(blob, off, out, len, &err));
            assert_memory_equal(out, &"hello world"[off], len);
            assert_true(len == 11 || out[len] == '?');
        }
    }
    assert_true(td_blob_unchanged(blob));
    assert_true(td_blob_pinned(blob));
    td_blob_unref(blob);
    td_blob_unref(NULL);
}

/* The budget gets the memory of the bytes back with the last reference, and when there is no memory for the blob. */
static void budgets_get_it_back(void **state)
{
    (void)state;
    struct td_budget budget;
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    char byte = 0;
    td_budget_init(&budget, 100, "things");
    char *data = malloc(11);
    assert_non_null(data);
    memcpy(data, "hello world", 11);
    assert_true(td_budget_take(&budget, 11));
    assert_true(td_blob_from_budget(data, 11, &budget, &blob, NULL));
    assert_true(td_blob_read(td_blob_ref(blob), 4, &byte, 1, NULL) && byte == 'o');
    td_blob_unref(blob);
    assert_int_equal(td_budget_used(&budget), 11);
    td_blob_unref(blob);
    assert_int_equal(td_budget_used(&budget), 0);
    data = malloc(100);
    assert_non_null(data);
    assert_true(td_budget_take(&budget, 100));
    alloc_fail_at(1);
    assert_false(td_blob_from_budget(data, 100, &budget, &blob, &err));
    alloc_fail_at(0);
    assert_true(err.code == TD_RESOURCE_EXHAUSTED && td_budget_used(&budget) == 0);
}

/* Builds with sanitizers keep the asserts of the program; Release leaves them out. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#ifdef HAS_SANITIZER
static void a_range_past_the_end_fails_an_assert(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob;
    char out[11];
    int status;
    assert_true(td_blob_from_heap(calloc(11, 1), 11, &blob, &err));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        _exit(td_blob_read(blob, 1, out, sizeof out, &err));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    td_blob_unref(blob);
}
#endif

static void empty_blob_needs_no_memory(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob;
    assert_true(td_blob_from_heap(NULL, 0, &blob, &err));
    assert_true(blob->len_bytes == 0);
    assert_true(td_blob_read(blob, 0, NULL, 0, &err));
    td_blob_unref(blob);
}

/* The data is freed even when the blob cannot be created. */
static void data_is_owned_on_failure_too(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob = NULL;
    alloc_count_start();
    char *data = malloc(100);
    assert_non_null(data);
    alloc_fail_at(1);
    assert_false(td_blob_from_heap(data, 100, &blob, &err));
    alloc_fail_at(0);
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

struct counted {
    struct td_blob blob;
    int destroyed;
    bool unchanged, pinned, resident;
    uint64_t asked_off, asked_len; /* by the latest call with a range */
};

static void count_destroy(struct td_blob *blob)
{
    ((struct counted *)(void *)blob)->destroyed++;
}

static bool say_unchanged(struct td_blob *blob)
{
    return ((struct counted *)(void *)blob)->unchanged;
}

static bool say_pinned(struct td_blob *blob)
{
    return ((struct counted *)(void *)blob)->pinned;
}

static void note_range(struct td_blob *blob, uint64_t off, uint64_t len)
{
    ((struct counted *)(void *)blob)->asked_off = off;
    ((struct counted *)(void *)blob)->asked_len = len;
}

static bool say_resident(struct td_blob *blob, uint64_t off, uint64_t len)
{
    note_range(blob, off, len);
    return ((struct counted *)(void *)blob)->resident;
}

static bool refuse_to_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    note_range(blob, off, len);
    return td_error_set(err, TD_IO, for_head ? "head" : "body");
}

static const struct td_blob_class counted_class = {.destroy = count_destroy,
                                                   .unchanged = say_unchanged,
                                                   .pinned = say_pinned,
                                                   .resident = say_resident,
                                                   .prefetch = note_range,
                                                   .prepare = refuse_to_prepare};

static const struct td_blob_class over_class = {.destroy = td_blob_over_destroy,
                                                .unchanged = td_blob_over_unchanged,
                                                .resident = td_blob_over_resident,
                                                .prefetch = td_blob_over_prefetch,
                                                .prepare = td_blob_over_prepare};

static void a_blob_over_another_asks_it(void **state)
{
    struct counted source = {.blob = {.class = &counted_class, .refs = 1, .len_bytes = 100}};
    struct td_blob_over *over = malloc(sizeof *over);
    struct td_error err = TD_ERROR_INIT;
    (void)state;
    assert_non_null(over);
    td_blob_over_init(over, &over_class, 20, &source.blob, 70);
    assert_true(over->blob.len_bytes == 20 && over->blob.bytes == NULL && td_blob_is_shared(&source.blob));
    for (int truth = 0; truth < 2; truth++) {
        source.unchanged = source.resident = truth == 1;
        assert_int_equal(td_blob_unchanged(&over->blob), truth);
        assert_int_equal(td_blob_is_resident(&over->blob, 5, 3), truth);
        assert_true(source.asked_off == 75 && source.asked_len == 3);
    }
    td_blob_prefetch(&over->blob, 6, 4);
    assert_true(source.asked_off == 76 && source.asked_len == 4);
    assert_false(td_blob_prepare(&over->blob, 7, 5, true, &err));
    assert_true(source.asked_off == 77 && source.asked_len == 5);
    assert_string_equal(err.message, "head");
    td_blob_unref(&over->blob); /* frees it, and drops its reference */
    assert_int_equal(source.destroyed, 0);
    assert_false(td_blob_is_shared(&source.blob));
}

static void class_answers_are_passed_on(void **state)
{
    (void)state;
    struct counted counted = {.blob = {.class = &counted_class, .refs = 1}};
    assert_false(td_blob_unchanged(&counted.blob));
    assert_false(td_blob_pinned(&counted.blob));
    counted.unchanged = true;
    assert_true(td_blob_unchanged(&counted.blob));
    assert_false(td_blob_pinned(&counted.blob));
    counted.pinned = true;
    assert_true(td_blob_pinned(&counted.blob));
}

/* The bytes that a copy gave, and how many are taken at most. */
struct taken {
    char *bytes;
    size_t len, most;
};

static bool take_bytes(void *context, const void *bytes, size_t len, struct td_error *err)
{
    struct taken *taken = context;
    if (len > taken->most - taken->len)
        return td_error_set(err, TD_IO, "full");
    memcpy(taken->bytes + taken->len, bytes, len);
    taken->len += len;
    return true;
}

static bool read_zeros(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    (void)blob;
    (void)off;
    (void)err;
    memset(out, 0, len);
    return true;
}

static void a_copy_is_the_range_or_an_error(void **state)
{
    (void)state;
    enum { BYTES = 5 * 1024 * 1024 / 2 };
    static const struct td_blob_class changing = {
        .destroy = count_destroy, .read = read_zeros, .unchanged = say_unchanged};
    struct counted counted = {.blob = {.class = &changing, .refs = 1, .len_bytes = 100}};
    struct td_blob *blob;
    struct td_error err = TD_ERROR_INIT;
    char *data = malloc(BYTES);
    struct taken taken = {.bytes = malloc(BYTES), .most = BYTES};
    assert_true(data != NULL && taken.bytes != NULL);
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    assert_true(td_blob_from_heap(data, BYTES, &blob, &err));
    assert_true(td_blob_copy_to(blob, 0, BYTES, take_bytes, &taken, &err));
    assert_true(taken.len == BYTES && memcmp(taken.bytes, data, BYTES) == 0);
    taken.len = 0;
    assert_true(td_blob_copy_to(blob, 7, BYTES - 9, take_bytes, &taken, &err));
    assert_true(taken.len == BYTES - 9 && memcmp(taken.bytes, data + 7, BYTES - 9) == 0);
    taken.len = 0;
    assert_true(td_blob_copy_to(blob, BYTES, 0, take_bytes, &taken, &err) && taken.len == 0);
    taken.most = BYTES / 2;
    assert_false(td_blob_copy_to(blob, 0, BYTES, take_bytes, &taken, &err));
    assert_true(err.code == TD_IO && taken.len <= BYTES / 2);
    td_blob_unref(blob);
    td_error_init(&err);
    taken.len = 0;
    assert_false(td_blob_copy_to(&counted.blob, 0, 100, take_bytes, &taken, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    free(taken.bytes);
}

static void *ref_and_unref(void *argument)
{
    struct td_blob *blob = argument;
    for (int i = 0; i < 10000; i++) {
        td_blob_unref(td_blob_ref(blob));
    }
    td_blob_unref(blob); /* the thread's own reference */
    return NULL;
}

static void last_reference_destroys_once(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    struct counted counted = {.blob = {.class = &counted_class, .refs = 1}};
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ref_and_unref, td_blob_ref(&counted.blob)), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(counted.destroyed, 0);
    td_blob_unref(&counted.blob);
    assert_int_equal(counted.destroyed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_bytes_are_read_anywhere),
        cmocka_unit_test(empty_blob_needs_no_memory),
        cmocka_unit_test(budgets_get_it_back),
        cmocka_unit_test(data_is_owned_on_failure_too),
        cmocka_unit_test(a_blob_over_another_asks_it),
        cmocka_unit_test(a_copy_is_the_range_or_an_error),
        cmocka_unit_test(class_answers_are_passed_on),
        cmocka_unit_test(last_reference_destroys_once),
#ifdef HAS_SANITIZER
        cmocka_unit_test(a_range_past_the_end_fails_an_assert),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
