/* Commits of single files that join: what each request gets, of a commit that is made, that fails, and that is not
 * shown in time. */
#include "api/call/joint_commit.h"

#include "catalog/publish/publish_stream.h"
#include "tests/unit/api/publish_api_place.h"

#include <pthread.h>

enum { REQUESTS = 8 };

/* Whether the catalog shows what was changed. */
static _Atomic bool is_shown;
static _Atomic unsigned shows;

bool __wrap_td_catalog_show(struct td_catalog *catalog, const _Atomic bool *stop, struct td_error *err);
bool __real_td_catalog_show(struct td_catalog *catalog, const _Atomic bool *stop, struct td_error *err);

bool __wrap_td_catalog_show(struct td_catalog *catalog, const _Atomic bool *stop, struct td_error *err)
{
    shows++;
    return is_shown ? __real_td_catalog_show(catalog, stop, err)
                    : td_error_set(err, TD_UNAVAILABLE, "the scan takes too long");
}

static void open_joint(struct publish_api_place *place)
{
    is_shown = true;
    open_publish_api(place);
}

FIXTURE(joint, struct publish_api_place, open_joint, close_publish_api)

/* A request that makes a file a part of main. */
struct request {
    struct publish_api_place *place;
    char path[TD_COMMIT_PATH_BYTES];
    struct td_publish_name name;
    struct td_publish_sum sum;
    bool may; /* its conditions hold */
    pthread_t thread;

    bool ok;
    int status; /* of the answer; 0: not answered */
    struct td_commit_result result;
};

static void begin(struct publish_api_place *place, struct request *request, const char *path, const char *content)
{
    struct td_publish_stream *stream;
    struct td_error err = TD_ERROR_INIT;
    memset(request, 0, sizeof *request);
    request->place = place;
    request->may = true;
    (void)snprintf(request->path, sizeof request->path, "%s", path);
    assert_true(td_publish_name("org/m", false, &request->name, NULL));
    CHECK(td_publish_stream_begin(place->publish, &request->name, strlen(content), &stream, &err), "%s", err.message);
    assert_true(td_publish_stream_write(stream, content, strlen(content), NULL));
    assert_true(td_publish_stream_end(stream, NULL, &request->sum, NULL));
}

static bool check(void *context, const struct td_publish_repo *repo)
{
    const struct request *request = context;
    assert_true(repo->fd >= 0);
    return request->may;
}

static void *run(void *context)
{
    struct request *request = context;
    struct loopback_request asked;
    struct td_response response;
    loopback_request_init(&asked, "PUT", "/models/org/m/files/x", NULL);
    td_response_init_for(&response, &asked.request);
    const struct td_call call = {
        .api = &request->place->served.loop.api, .request = &asked.request, .response = &response};
    struct td_joint_file file = {
        .name = &request->name, .path = request->path, .sum = &request->sum, .check = check, .context = request};
    request->ok = td_joint_commit(&call, &file, &request->result);
    request->status = request->ok ? 0 : response.status;
    td_response_fini(&response);
    return NULL;
}

/* Runs all requests while the repository is open, so that they gather. */
static void run_together(struct publish_api_place *place, struct request *requests, size_t count)
{
    struct td_publish_repo repo;
    assert_true(td_publish_repo_open(&place->publish->disk, &requests[0].name, false, &repo, NULL));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&requests[i].thread, NULL, run, &requests[i]), 0);
    struct td_api *api = &place->served.loop.api;
    for (size_t waiting = 0; waiting < count;) {
        const struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
        waiting = 0;
        pthread_mutex_lock(&api->joint_lock);
        for (const struct td_joint_file *file = api->joint_files; file != NULL; file = file->next)
            waiting++;
        pthread_mutex_unlock(&api->joint_lock);
    }
    td_publish_repo_close(&repo);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_join(requests[i].thread, NULL), 0);
    assert_null(api->joint_files);
}

static void begin_all(struct publish_api_place *place, struct request requests[REQUESTS])
{
    for (size_t i = 0; i < REQUESTS; i++) {
        char path[32];
        (void)snprintf(path, sizeof path, "f%zu", i);
        begin(place, &requests[i], path, path);
    }
}

static void expect_file(struct publish_api_place *place, const char *path, int status)
{
    char target[128];
    (void)snprintf(target, sizeof target, "/org/m/resolve/main/%s", path);
    expect_status(&place->served, target, status);
}

static void files_share_a_commit(void **state)
{
    struct publish_api_place *place = *state;
    struct request requests[REQUESTS];
    begin_all(place, requests);
    requests[3].may = false;
    unsigned before = shows;
    run_together(place, requests, REQUESTS);
    CHECK(shows - before <= 2, "%u scans for %d files", shows - before, REQUESTS); /* the first one leads alone */
    for (size_t i = 0; i < REQUESTS; i++) {
        CHECK(requests[i].ok == (i != 3), "%zu: %d", i, requests[i].status);
        expect_file(place, requests[i].path, i == 3 ? 404 : 200);
    }
}

/* A file that cannot be beside another one keeps no other out. */
static void a_file_that_is_in_the_way_fails_alone(void **state)
{
    struct publish_api_place *place = *state;
    struct request requests[REQUESTS];
    begin_all(place, requests);
    begin(place, &requests[5], "a.txt/below", "x"); /* a.txt is a file */
    run_together(place, requests, REQUESTS);
    for (size_t i = 0; i < REQUESTS; i++)
        CHECK(requests[i].ok == (i != 5), "%zu: %d", i, requests[i].status);
    assert_int_equal(requests[5].status, 409);
}

/* The commit is made, and each request learns that it is not shown yet; the same request again waits for it. */
static void a_commit_that_is_not_shown_in_time(void **state)
{
    struct publish_api_place *place = *state;
    struct request requests[REQUESTS];
    begin_all(place, requests);
    is_shown = false;
    unsigned before = shows;
    run_together(place, requests, REQUESTS);
    CHECK(shows - before <= 2, "%u waits: none waits again alone", shows - before);
    for (size_t i = 0; i < REQUESTS; i++)
        CHECK(!requests[i].ok && requests[i].status == 503, "%zu: %d", i, requests[i].status);
    is_shown = true;
    run_together(place, requests, REQUESTS);
    for (size_t i = 0; i < REQUESTS; i++) {
        CHECK(requests[i].ok, "%zu: %d", i, requests[i].status);
        assert_int_equal(requests[i].result.verdict, TD_COMMIT_UNCHANGED);
        expect_file(place, requests[i].path, 200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(joint, files_share_a_commit),
        TEST_IN(joint, a_file_that_is_in_the_way_fails_alone),
        TEST_IN(joint, a_commit_that_is_not_shown_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
