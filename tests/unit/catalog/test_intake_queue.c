/* The queue of fetches: whose model is next, what one client may ask for, and what is forgotten. */
#include "catalog/upstream/intake_queue.h"

#include "catalog/upstream/upstream_config.h"
#include "core/clock.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct td_intake *begin(struct td_intake_queue *queue, const char *id, uint64_t client)
{
    struct td_intake *intake = NULL;
    enum td_queue_refusal why;
    uint64_t wait_ns;
    CHECK(td_intake_queue_begin(queue, td_text_of(id), "", client, NULL, &intake, &why, &wait_ns), "%s", id);
    return intake;
}

static enum td_queue_refusal refuse(struct td_intake_queue *queue, const char *id, uint64_t client)
{
    struct td_intake *intake = NULL;
    enum td_queue_refusal why = TD_QUEUE_NO_MEMORY;
    uint64_t wait_ns = 0;
    CHECK(!td_intake_queue_begin(queue, td_text_of(id), "", client, NULL, &intake, &why, &wait_ns), "%s", id);
    assert_true(wait_ns > 0);
    return why;
}

/* Gives the next model a place. Returns its id, or "" when none is next. */
static const char *next(struct td_intake_queue *queue)
{
    struct td_intake_job job;
    if (!td_intake_queue_choose(queue, &job))
        return "";
    assert_int_equal(job.file, SIZE_MAX);
    job.intake->phase = TD_INTAKE_LISTING;
    return job.intake->id;
}

/* Ends a model as absent. */
static void end(struct td_intake_queue *queue, const char *id)
{
    struct td_intake *intake = td_intake_queue_find(queue, td_text_of(id));
    intake->phase = TD_INTAKE_ABSENT;
    intake->until_ns = td_clock_ns() + UINT64_C(60000000000);
}

/* shows: security.md upstream-many-models */
static void clients_take_turns(void **state)
{
    struct td_intake_queue queue = {.max_names = 100};
    (void)state;
    for (int i = 0; i < TD_UPSTREAM_CLIENT_QUEUE; i++) {
        char id[8];
        (void)snprintf(id, sizeof id, "a%d", i);
        (void)begin(&queue, id, 1);
    }
    (void)begin(&queue, "b0", 2);
    (void)begin(&queue, "b1", 2);
    (void)begin(&queue, "c0", 3);
    assert_string_equal(next(&queue), "a0");
    assert_string_equal(next(&queue), "b0"); /* although seven of the first client's came before */
    assert_string_equal(next(&queue), "c0");
    assert_string_equal(next(&queue), "a1");
    assert_string_equal(next(&queue), ""); /* all places are taken */
    end(&queue, "c0");
    assert_string_equal(next(&queue), "b1");
    end(&queue, "b0");
    assert_string_equal(next(&queue), "a2"); /* in the order in which they came */
    end(&queue, "b1");
    assert_string_equal(next(&queue), ""); /* one place is for others than the first client */
    (void)begin(&queue, "d0", 4);
    assert_string_equal(next(&queue), "d0");
    td_intake_queue_fini(&queue);
}

/* shows: security.md upstream-many-models */
static void one_client_fills_no_queue(void **state)
{
    struct td_intake_queue queue = {.max_names = 100};
    char id[16];
    (void)state;
    for (int i = 0; i < TD_UPSTREAM_CLIENT_QUEUE; i++) {
        (void)snprintf(id, sizeof id, "a%d", i);
        (void)begin(&queue, id, 1);
    }
    assert_int_equal(refuse(&queue, "one-more", 1), TD_QUEUE_CLIENT_HAS_MANY);
    for (int i = TD_UPSTREAM_CLIENT_QUEUE; i < TD_UPSTREAM_QUEUE; i++) {
        (void)snprintf(id, sizeof id, "b%d", i);
        (void)begin(&queue, id, (uint64_t)i);
    }
    assert_int_equal(td_intake_queue_waiting(&queue), TD_UPSTREAM_QUEUE);
    for (int i = 1; i < TD_UPSTREAM_CLIENT_QUEUE; i++) { /* others take all of its places but one */
        (void)snprintf(id, sizeof id, "c%d", i);
        (void)begin(&queue, id, (uint64_t)(100 + i));
    }
    assert_non_null(td_intake_queue_find(&queue, TD_TEXT("a0")));
    assert_null(td_intake_queue_find(&queue, TD_TEXT("a1")));
    assert_int_equal(refuse(&queue, "one-more", 999), TD_QUEUE_IS_FULL);
    td_intake_queue_fini(&queue);
}

static void new_clients_go_before_nobody_who_waits(void **state)
{
    struct td_intake_queue queue = {.max_names = 1000};
    char id[16];
    (void)state;
    (void)begin(&queue, "old", 7);
    assert_string_equal(next(&queue), "old");
    end(&queue, "old");
    (void)begin(&queue, "again", 7);
    for (int i = 0; i < 2 * TD_CLIENT_TURNS; i++) { /* so many that the client is forgotten */
        (void)snprintf(id, sizeof id, "n%d", i);
        (void)begin(&queue, id, (uint64_t)(100 + i));
        end(&queue, id);
    }
    (void)begin(&queue, "new", 9999);
    assert_string_equal(next(&queue), "again");
    assert_string_equal(next(&queue), "new");
    td_intake_queue_fini(&queue);
}

static void who_has_nothing_in_a_full_queue_displaces_the_latest_of_who_has_most(void **state)
{
    struct td_intake_queue queue = {.max_names = 100};
    char id[16];
    (void)state;
    for (int i = 0; i < TD_UPSTREAM_QUEUE; i++) {
        int client = i / TD_UPSTREAM_CLIENT_QUEUE;
        (void)snprintf(id, sizeof id, "%c%d", 'a' + client, i % TD_UPSTREAM_CLIENT_QUEUE);
        (void)begin(&queue, id, (uint64_t)client);
    }
    assert_int_equal(td_intake_queue_waiting(&queue), TD_UPSTREAM_QUEUE);
    (void)begin(&queue, "e0", 5);
    assert_int_equal(refuse(&queue, "one-more", 5), TD_QUEUE_IS_FULL);
    assert_null(
        td_intake_queue_find(&queue, TD_TEXT("d7"))); /* the latest of all, whose client has as many as others */
    (void)begin(&queue, "f0", 6);
    assert_null(td_intake_queue_find(&queue, TD_TEXT("c7")));
    assert_non_null(td_intake_queue_find(&queue, TD_TEXT("e0")));
    assert_int_equal(td_intake_queue_waiting(&queue), TD_UPSTREAM_QUEUE);
    td_intake_queue_fini(&queue);
}

static void one_client_may_not_ask_for_ever_more_names(void **state)
{
    struct td_intake_queue queue = {.max_names = 1000};
    char id[16];
    (void)state;
    enum td_queue_refusal why = TD_QUEUE_IS_FULL;
    uint64_t begun_ns = td_clock_ns();
    uint64_t wait_ns;
    size_t count = 0;
    struct td_intake *intake = NULL;
    for (;; count++) {
        (void)snprintf(id, sizeof id, "a%zu", count);
        if (!td_intake_queue_begin(&queue, td_text_of(id), "", 1, NULL, &intake, &why, &wait_ns))
            break;
        end(&queue, id);
    }
    uint64_t names_back = (td_clock_ns() - begun_ns) / (TD_CLIENT_NAME_MS * UINT64_C(1000000)) + 1;
    assert_int_equal(why, TD_QUEUE_CLIENT_HAS_MANY);
    assert_true(count >= TD_CLIENT_NAMES && count <= TD_CLIENT_NAMES + names_back);
    (void)begin(&queue, "one-more", 2);
    td_intake_queue_fini(&queue);
}

static void the_table_is_bounded(void **state)
{
    enum { NAMES = 20 };
    struct td_intake_queue queue = {.max_names = NAMES};
    char id[16];
    (void)state;
    for (int i = 0; i < 5 * NAMES; i++) {
        (void)snprintf(id, sizeof id, "a%d", i);
        (void)begin(&queue, id, (uint64_t)i);
        end(&queue, id);
    }
    assert_int_equal(queue.count, NAMES);
    assert_non_null(td_intake_queue_find(&queue, td_text_of(id)));
    assert_null(td_intake_queue_find(&queue, TD_TEXT("a0"))); /* the answer that would have ended first */
    for (int i = 0; i < NAMES; i++)
        queue.intakes[i]->until_ns = 1;
    td_intake_queue_drop_old(&queue);
    assert_int_equal(queue.count, 0);
    td_intake_queue_fini(&queue);
}

/* shows: security.md upstream-patience */
static void nothing_is_listed_while_the_upstream_asks_for_patience(void **state)
{
    struct td_intake_queue queue = {.max_names = 10};
    (void)state;
    (void)begin(&queue, "a", 1);
    queue.paused_until_ns = td_clock_ns() + UINT64_C(60000000000);
    assert_string_equal(next(&queue), "");
    queue.paused_until_ns = td_clock_ns();
    assert_string_equal(next(&queue), "a");
    td_intake_queue_fini(&queue);
}

static bool is_b(const void *context, const struct td_intake *intake)
{
    (void)context;
    return strcmp(intake->id, "b") == 0;
}

static void what_is_published_leaves_when_it_is_found(void **state)
{
    struct td_intake_queue queue = {.max_names = 10};
    (void)state;
    for (const char *id = "abc"; *id != '\0'; id++) {
        const char name[2] = {*id, '\0'};
        begin(&queue, name, 1)->file_count = 7;
    }
    td_intake_queue_find(&queue, TD_TEXT("a"))->phase = TD_INTAKE_PUBLISHED;
    td_intake_queue_find(&queue, TD_TEXT("b"))->phase = TD_INTAKE_PUBLISHED;
    assert_int_equal(td_intake_queue_files(&queue), 21);
    assert_true(td_intake_queue_drop_found(&queue, is_b, NULL));
    assert_int_equal(td_intake_queue_files(&queue), 14);
    assert_null(td_intake_queue_find(&queue, TD_TEXT("b")));
    td_intake_queue_find(&queue, TD_TEXT("a"))->phase = TD_INTAKE_ABSENT;
    assert_false(td_intake_queue_drop_found(&queue, is_b, NULL));
    td_intake_queue_fini(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(one_client_fills_no_queue),
        cmocka_unit_test(new_clients_go_before_nobody_who_waits),
        cmocka_unit_test(who_has_nothing_in_a_full_queue_displaces_the_latest_of_who_has_most),
        cmocka_unit_test(one_client_may_not_ask_for_ever_more_names),
        cmocka_unit_test(the_table_is_bounded),
        cmocka_unit_test(nothing_is_listed_while_the_upstream_asks_for_patience),
        cmocka_unit_test(what_is_published_leaves_when_it_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
