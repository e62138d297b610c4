#include "catalog/events/event_ring.h"

#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 8 };

static struct td_event_ring *open_ring(void)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_event_ring *ring;
    assert_true(td_event_ring_create(MOST, &ring, &err));
    return ring;
}

static void add(struct td_event_ring *ring, enum td_event_type type, const char *id)
{
    struct td_event *event = td_event_create(type, false, id, "main", "0123");
    assert_non_null(event);
    td_event_ring_add(ring, &event, 1);
}

/* Returns the number of the event after a position, and checks its id; 0: NONE, UINT64_MAX: LOST. */
static uint64_t look(struct td_event_ring *ring, uint64_t position, const char *id)
{
    struct td_event *event = NULL;
    switch (td_event_ring_next(ring, position, &event)) {
    case TD_EVENT_NONE:
        return 0;
    case TD_EVENT_LOST:
        return UINT64_MAX;
    case TD_EVENT_FOUND:
        break;
    }
    uint64_t number = event->number;
    if (id != NULL)
        assert_string_equal(event->id, id);
    td_event_unref(event);
    return number;
}

static void events_come_in_order(void **state)
{
    (void)state;
    struct td_event_ring *ring = open_ring();
    assert_int_equal(strlen(td_event_ring_boot(ring)), 16);
    assert_int_equal(td_event_ring_newest(ring), 0);
    assert_int_equal(look(ring, 0, NULL), 0);
    add(ring, TD_EVENT_PUBLISHED, "a");
    add(ring, TD_EVENT_REPLACED, "b");
    assert_int_equal(look(ring, 0, "a"), 1);
    assert_int_equal(look(ring, 1, "b"), 2);
    assert_int_equal(look(ring, 2, NULL), 0);
    assert_int_equal(td_event_ring_newest(ring), 2);
    assert_int_equal(td_event_ring_count(ring, TD_EVENT_REPLACED), 1);
    struct td_event *event;
    assert_int_equal(td_event_ring_next(ring, 1, &event), TD_EVENT_FOUND);
    td_event_ring_destroy(ring); /* the reader's reference outlives it */
    assert_true(event->type == TD_EVENT_REPLACED && !event->is_dataset);
    assert_string_equal(event->revision, "main");
    assert_string_equal(event->commit, "0123");
    td_event_unref(event);
    td_event_ring_destroy(NULL);
    td_event_unref(NULL);
}

static void rings_have_different_names(void **state)
{
    (void)state;
    struct td_event_ring *a = open_ring(), *b = open_ring();
    assert_string_not_equal(td_event_ring_boot(a), td_event_ring_boot(b));
    td_event_ring_destroy(a);
    td_event_ring_destroy(b);
}

static void the_oldest_events_make_room(void **state)
{
    (void)state;
    struct td_event_ring *ring = open_ring();
    char id[8];
    for (int i = 1; i <= 3 * MOST + 1; i++) {
        (void)snprintf(id, sizeof id, "%d", i);
        add(ring, TD_EVENT_PUBLISHED, id);
    }
    uint64_t newest = 3 * MOST + 1;
    for (uint64_t position = newest - MOST; position < newest; position++) {
        (void)snprintf(id, sizeof id, "%d", (int)position + 1);
        assert_int_equal(look(ring, position, id), position + 1);
    }
    assert_int_equal(look(ring, newest - MOST - 1, NULL), UINT64_MAX);
    assert_int_equal(look(ring, 0, NULL), UINT64_MAX);
    assert_int_equal(look(ring, newest, NULL), 0);
    assert_int_equal(look(ring, newest + 1, NULL), UINT64_MAX);
    assert_int_equal(look(ring, UINT64_MAX, NULL), UINT64_MAX);
    td_event_ring_destroy(ring);
}

static void lost_events_make_all_positions_old(void **state)
{
    (void)state;
    struct td_event_ring *ring = open_ring();
    td_event_ring_lose(ring); /* also the position of a reader that came before any event */
    assert_int_equal(look(ring, 0, NULL), UINT64_MAX);
    add(ring, TD_EVENT_PUBLISHED, "a");
    uint64_t before = td_event_ring_newest(ring);
    td_event_ring_lose(ring);
    assert_int_equal(look(ring, before - 1, NULL), UINT64_MAX);
    assert_int_equal(look(ring, before, NULL), UINT64_MAX);
    uint64_t now = td_event_ring_newest(ring);
    assert_int_equal(look(ring, now, NULL), 0);
    add(ring, TD_EVENT_REMOVED, "b");
    assert_int_equal(look(ring, now, "b"), now + 1);
    td_event_ring_destroy(ring);
}

enum { ROUNDS = 2000 };

static void *follow(void *context)
{
    struct td_event_ring *ring = context;
    uint64_t position = 0;
    while (position < ROUNDS) {
        struct td_event *event;
        switch (td_event_ring_next(ring, position, &event)) {
        case TD_EVENT_FOUND:
            assert_int_equal(event->number, position + 1);
            position = event->number;
            td_event_unref(event);
            break;
        case TD_EVENT_LOST:
            position = td_event_ring_newest(ring);
            break;
        case TD_EVENT_NONE:
            break;
        }
    }
    return NULL;
}

static void readers_meet_a_writer(void **state)
{
    (void)state;
    struct td_event_ring *ring = open_ring();
    pthread_t readers[3];
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, follow, ring), 0);
    for (int i = 0; i < ROUNDS; i++)
        add(ring, TD_EVENT_REPLACED, "x");
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    td_event_ring_destroy(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_in_order),        cmocka_unit_test(rings_have_different_names),
        cmocka_unit_test(the_oldest_events_make_room), cmocka_unit_test(lost_events_make_all_positions_old),
        cmocka_unit_test(readers_meet_a_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
