/* Uploads that meet at a moment that a test chooses. */
#include "catalog/publish/publish.h"
#include "catalog/publish/publish_upload.h"
#include "core/digits.h"
#include "storage/fetch/fetch_target.h"
#include "tests/unit/tree_fixture.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { SIZE = 3 * TD_FETCH_PIECE_BYTES };

/* While `holds`, the first write waits. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool holds, is_held;

bool __wrap_td_fetch_target_write(const struct td_fetch_target *target, uint64_t off, const void *bytes, size_t len,
                                  struct td_error *err);
bool __real_td_fetch_target_write(const struct td_fetch_target *target, uint64_t off, const void *bytes, size_t len,
                                  struct td_error *err);

bool __wrap_td_fetch_target_write(const struct td_fetch_target *target, uint64_t off, const void *bytes, size_t len,
                                  struct td_error *err)
{
    pthread_mutex_lock(&lock);
    is_held = true;
    (void)pthread_cond_broadcast(&changed);
    while (holds)
        (void)pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return __real_td_fetch_target_write(target, off, bytes, len, err);
}

struct place {
    struct tree tree;
    struct td_publish *publish;
    struct td_publish_name name;
    uint8_t *bytes, sum[TD_SHA256_BYTES];
};

static void place_open(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    tree_open(&place->tree);
    const struct td_publish_config config = {
        .root = place->tree.path, .upload_expires_s = 3600, .keep_commits_s = 3600};
    CHECK(td_publish_open(&config, &place->publish, &err), "%s", err.message);
    assert_true(td_publish_name("org/m", false, &place->name, NULL));
    place->bytes = malloc(SIZE);
    assert_non_null(place->bytes);
    for (size_t i = 0; i < SIZE; i++)
        place->bytes[i] = tree_data_byte(i, (unsigned)(i / TD_FETCH_PIECE_BYTES));
    td_sha256(place->bytes, SIZE, place->sum);
}

static void place_close(struct place *place)
{
    td_publish_close(place->publish);
    tree_close(&place->tree);
    free(place->bytes);
}

FIXTURE(place, struct place, place_open, place_close)

/* A request that sends the whole blob. */
struct request {
    struct place *place;
    pthread_t thread;
    struct td_publish_part *part;
    enum td_publish_end end;
};

static void begin(struct request *request, struct place *place)
{
    const struct td_publish_span span = {.size_bytes = SIZE, .end = SIZE};
    struct td_error err = TD_ERROR_INIT;
    request->place = place;
    CHECK(td_publish_part_begin(place->publish, &place->name, place->sum, &span, &request->part, &err), "%s",
          err.message);
    assert_non_null(request->part);
}

static void *send(void *context)
{
    struct request *request = context;
    struct td_publish_blob blob;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_part_write(request->part, request->place->bytes, SIZE, &err), "%s", err.message);
    CHECK(td_publish_part_end(request->part, &request->end, &blob, &err), "%s", err.message);
    td_publish_blob_fini(&blob);
    return NULL;
}

/* Two requests send the same blob. While the first one writes, the second one has sent all of its bytes: it waits, and
 * ends with the whole blob too. */
static void equal_uploads_at_once_are_both_complete(void **state)
{
    struct place *place = *state;
    struct request first, second;
    struct timespec until;
    holds = true;
    is_held = false;
    begin(&first, place);
    begin(&second, place);
    assert_int_equal(pthread_create(&first.thread, NULL, send, &first), 0);
    pthread_mutex_lock(&lock);
    while (!is_held)
        (void)pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    assert_int_equal(pthread_create(&second.thread, NULL, send, &second), 0);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000000; /* without the wait, it ends in less */
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    bool has_waited = pthread_timedjoin_np(second.thread, NULL, &until) != 0;
    pthread_mutex_lock(&lock);
    holds = false;
    (void)pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (has_waited)
        assert_int_equal(pthread_join(second.thread, NULL), 0);
    assert_int_equal(pthread_join(first.thread, NULL), 0);
    assert_int_equal(first.end, TD_PUBLISH_COMPLETE);
    assert_int_equal(second.end, TD_PUBLISH_COMPLETE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, equal_uploads_at_once_are_both_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
