/* Publishing through the facades, without a socket. */
#include "api/call/publishing.h"

#include "api/native/native.h"
#include "tests/unit/api/publish_api_place.h"

#include <pthread.h>
#include <time.h>

enum { PATIENCE_S = 120 };

/* A question that a thread asks while somebody commits. */
struct question {
    struct publish_api_place *place;
    const char *method, *target, *body; /* body NULL: none */
    int status;                         /* that the answer has */
};

static void *ask_question(void *context)
{
    struct question *question = context;
    struct loopback *loop = &question->place->served.loop;
    struct answer answer;
    if (question->body == NULL)
        loopback_ask(loop, question->method, question->target, NULL, &answer);
    else
        loopback_send(loop, td_main_port, question->method, question->target, "If-None-Match: *",
                      td_text_of(question->body), &answer);
    question->status = answer.response.status;
    answer_fini(&answer);
    return NULL;
}

/* Asks while the repository is open for a commit. Returns the answer's status; 0: the answer waits for the commit. */
static int ask_during_commit(struct publish_api_place *place, const char *id, const struct question *question)
{
    struct td_publish_name name;
    struct td_publish_repo repo;
    struct question asked = *question;
    struct timespec until;
    pthread_t thread;
    asked.place = place;
    assert_true(td_publish_name(id, false, &name, NULL));
    assert_true(td_publish_repo_open(&place->publish->disk, &name, true, &repo, NULL));
    assert_int_equal(pthread_create(&thread, NULL, ask_question, &asked), 0);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    bool in_time = pthread_timedjoin_np(thread, NULL, &until) == 0;
    td_publish_repo_close(&repo);
    if (!in_time)
        assert_int_equal(pthread_join(thread, NULL), 0);
    return in_time ? asked.status : 0;
}

static void readers_do_not_wait_for_a_commit(void **state)
{
    struct publish_api_place *place = *state;
    static const char one[] = "/models/org/m/blobs/"
                              "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    static const struct question questions[] = {
        {.method = "GET", .target = "/models/org/m/commits", .status = 200},
        {.method = "GET", .target = one, .status = 200},
        {.method = "GET", .target = "/api/models/org/m/commits/main", .status = 200},
        {.method = "POST",
         .target = "/api/models/org/m/preupload/main",
         .body = "{\"files\":[{\"path\":\"a.txt\",\"size\":3,\"sample\":\"b25l\"}]}",
         .status = 200},
        {.method = "POST",
         .target = "/org/m.git/info/lfs/objects/batch",
         .body = "{\"operation\":\"upload\",\"objects\":[]}",
         .status = 200},
        {.method = "PUT", .target = "/models/org/m/files/a.txt", .body = "two", .status = 412},
    };
    for (size_t i = 0; i < COUNT_OF(questions); i++) {
        int status = ask_during_commit(place, "org/m", &questions[i]);
        CHECK(status == questions[i].status, "%s %s: %d", questions[i].method, questions[i].target, status);
    }
    send_body(place, "POST", "/api/repos/create", "{\"name\":\"empty\",\"organization\":\"org\"}", 200);
    const struct question empty = {.method = "GET", .target = "/api/models/org/empty"};
    assert_int_equal(ask_during_commit(place, "org/empty", &empty), 200);
}

/* When memory is short, the server passes a request on whose body has no sink: nothing was read, and nothing is done.
 */
static void a_body_that_found_no_sink_is_sent_again(void **state)
{
    struct publish_api_place *place = *state;
    static const char *const targets[] = {"/org/m/a.txt", "/org/m/a.txt?partNumber=1&uploadId=0", "/org/m/b.txt"};
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct loopback_request request;
        struct td_response response;
        loopback_request_init(&request, "PUT", targets[i], NULL);
        request.request.facade = td_api_facade(td_s3_port, request.request.target);
        request.request.body_bytes = 3;
        td_api_handle(&place->served.loop.api, &request.request, &response);
        CHECK(response.status == 503, "%s: %d", targets[i], response.status);
        td_response_fini(&response);
    }
    expect_status(&place->served, "/org/m/resolve/main/a.txt", 200);
    expect_status(&place->served, "/org/m/resolve/main/b.txt", 404);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(publish_api, readers_do_not_wait_for_a_commit),
        TEST_IN(publish_api, a_body_that_found_no_sink_is_sent_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
