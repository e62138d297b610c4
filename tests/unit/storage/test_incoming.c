/* Incoming blobs: readers wait for their bytes, the end waits for the check, and a failure reaches everybody. */
#include "storage/incoming.h"

#include "core/clock.h"
#include "core/waiting.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LEN = 3 * 1024 * 1024 + 17, OPEN_LEN = LEN - TD_INCOMING_HELD_BYTES };

static const uint64_t long_ns = UINT64_C(60000000000);

static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 131 + (i >> 8) * 17 + (i >> 16));
}

/* Writes [off, off+len) of the file. */
static void write_part(int fd, uint64_t off, size_t len)
{
    uint8_t *bytes = malloc(len);
    for (size_t i = 0; i < len; i++)
        bytes[i] = byte_at(off + i);
    ssize_t n = pwrite(fd, bytes, len, (off_t)off);
    free(bytes);
    assert_int_equal(n, len);
}

struct place {
    struct td_blob *blob;
    int fd; /* of the writer */
};

static struct place place_create(uint64_t stall_ns)
{
    struct place place = {.fd = memfd_create("file", MFD_CLOEXEC)};
    assert_true(place.fd >= 0);
    assert_true(td_incoming_create(LEN, true, stall_ns, &place.blob, NULL));
    td_incoming_attach(place.blob, dup(place.fd));
    return place;
}

static void place_end(struct place *place)
{
    td_blob_unref(place->blob);
    (void)close(place->fd);
}

static void place_open(struct place *place)
{
    *place = place_create(long_ns);
}

FIXTURE(place, struct place, place_open, place_end)

/* A thread that reads one range. */
struct reader {
    struct td_blob *blob;
    uint64_t off;
    size_t len;
    uint8_t *bytes;
    bool ok;
    _Atomic bool is_done;
    struct td_error err;
    pthread_t thread;
};

static void *run_reader(void *argument)
{
    struct reader *reader = argument;
    reader->ok = td_blob_read(reader->blob, reader->off, reader->bytes, reader->len, &reader->err);
    atomic_store(&reader->is_done, true);
    return NULL;
}

static void reader_start(struct reader *reader, struct td_blob *blob, uint64_t off, size_t len)
{
    memset(reader, 0, sizeof *reader);
    td_error_init(&reader->err);
    reader->blob = blob;
    reader->off = off;
    reader->len = len;
    reader->bytes = malloc(len);
    assert_int_equal(pthread_create(&reader->thread, NULL, run_reader, reader), 0);
}

static void reader_end(struct reader *reader)
{
    (void)pthread_join(reader->thread, NULL);
    for (size_t i = 0; reader->ok && i < reader->len; i++)
        CHECK(reader->bytes[i] == byte_at(reader->off + i), "byte %zu after %llu", i, (unsigned long long)reader->off);
    free(reader->bytes);
}

/* Waits until a reader has said that it waits. */
static void await_wanted(struct td_blob *blob)
{
    while (!td_incoming_take_wanted(blob))
        nap_ms(1);
}

static void readers_get_what_has_arrived_and_wait_for_the_rest(void **state)
{
    struct place *place = *state;
    struct reader reader;
    uint8_t bytes[100];
    write_part(place->fd, 0, 1000);
    td_incoming_advance(place->blob, 1000);
    assert_int_equal(td_incoming_arrived(place->blob), 1000);
    assert_true(td_blob_read(place->blob, 900, bytes, sizeof bytes, NULL));
    assert_int_equal(bytes[99], byte_at(999));
    assert_false(td_incoming_take_wanted(place->blob));
    reader_start(&reader, place->blob, 900, 200);
    await_wanted(place->blob);
    write_part(place->fd, 1000, 99);
    td_incoming_advance(place->blob, 1099); /* one byte too few */
    await_wanted(place->blob);
    assert_false(atomic_load(&reader.is_done));
    write_part(place->fd, 1099, 1);
    td_incoming_advance(place->blob, 1100);
    reader_end(&reader);
    assert_true(reader.ok);
    td_incoming_advance(place->blob, 5); /* never goes back */
    assert_int_equal(td_incoming_arrived(place->blob), 1100);
}

static void the_end_waits_for_the_check(void **state)
{
    struct place *place = *state;
    struct reader open;
    struct reader held;
    write_part(place->fd, 0, LEN);
    td_incoming_advance(place->blob, LEN);
    reader_start(&open, place->blob, 0, OPEN_LEN);
    reader_end(&open);
    assert_true(open.ok);
    reader_start(&held, place->blob, OPEN_LEN, 1); /* the first byte of the last MiB */
    await_wanted(place->blob);
    assert_false(atomic_load(&held.is_done));
    td_incoming_finish(place->blob);
    reader_end(&held);
    assert_true(held.ok);
    assert_true(td_blob_unchanged(place->blob));
    reader_start(&open, place->blob, 0, LEN);
    reader_end(&open);
    assert_true(open.ok);
}

/* shows: security.md upstream-wrong-digest */
static void a_failure_ends_every_read(void **state)
{
    struct place *place = *state;
    struct reader readers[4];
    struct td_error why = TD_ERROR_INIT;
    struct td_error err = TD_ERROR_INIT;
    uint8_t byte;
    write_part(place->fd, 0, LEN);
    td_incoming_advance(place->blob, LEN);
    for (size_t i = 0; i < COUNT_OF(readers); i++)
        reader_start(&readers[i], place->blob, LEN - 1, 1);
    await_wanted(place->blob);
    (void)td_error_set(&why, TD_UNAVAILABLE, "the digest is another");
    td_incoming_fail(place->blob, &why);
    for (size_t i = 0; i < COUNT_OF(readers); i++) {
        reader_end(&readers[i]);
        assert_false(readers[i].ok);
        check_says(&readers[i].err, "the digest is another", "reader");
    }
    assert_false(td_blob_read(place->blob, 0, &byte, 1, &err)); /* of what has arrived, too */
    check_says(&err, "the digest is another", "later");
    assert_false(td_blob_unchanged(place->blob));
    assert_false(td_blob_prepare(place->blob, 0, 1, true, NULL));
}

/* Returns the end of the body's bytes, up to which reads do not wait. */
static uint64_t open_bytes(const struct td_body *body)
{
    uint64_t open = 0;
    uint8_t byte;
    for (size_t i = 0; i < body->extent_count; i++) {
        const struct td_extent *extent = &body->extents[i];
        if (!td_blob_read(extent->blob, extent->off, &byte, 1, NULL) ||
            !td_blob_read(extent->blob, extent->off + extent->len - 1, &byte, 1, NULL))
            break;
        open += extent->len;
    }
    return open;
}

/* shows: security.md upstream-wrong-digest */
static void the_end_of_an_answer_waits_for_the_check(void **state)
{
    enum { MIB = 1024 * 1024 };
    static const struct {
        uint64_t off, len, then_off, then_len; /* of one or two parts of the file */
        uint64_t open;
    } cases[] = {
        {0, LEN, 0, 0, LEN - MIB}, {5, 2 * MIB, 0, 0, MIB}, {5, MIB + 1, 0, 0, 1}, {5, MIB, 0, 0, 0},
        {5, 1, 0, 0, 0},           {LEN - 1, 1, 0, 0, 0},   {0, 2 * MIB, 5, 1, 0}, {0, 1, 5, MIB + 7, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct place place = place_create(20000000);
        struct td_body body;
        struct td_body_cursor cursor = {.extent = 0};
        size_t len = (size_t)(cases[i].len + cases[i].then_len);
        uint8_t *bytes = malloc(len);
        td_body_init(&body);
        assert_true(td_body_append(&body, place.blob, cases[i].off, cases[i].len, NULL));
        assert_true(td_body_append(&body, place.blob, cases[i].then_off, cases[i].then_len, NULL));
        write_part(place.fd, 0, LEN);
        td_incoming_advance(place.blob, LEN);
        assert_int_equal(td_incoming_worth_of(&body), TD_INCOMING_CHECKABLE);
        assert_true(td_incoming_hold_end(&body, NULL, NULL));
        assert_int_equal(body.total_bytes, len);
        CHECK(open_bytes(&body) == cases[i].open, "case %zu", i);
        td_incoming_finish(place.blob);
        assert_true(td_body_read(&body, &cursor, bytes, len, NULL));
        for (size_t at = 0; at < len; at++) {
            bool is_first = at < cases[i].len;
            uint64_t off = is_first ? cases[i].off + at : cases[i].then_off + at - cases[i].len;
            CHECK(bytes[at] == byte_at(off), "case %zu, byte %zu", i, at);
        }
        free(bytes);
        td_body_fini(&body);
        place_end(&place);
    }
}

static void a_failure_ends_an_answer_that_waits(void **state)
{
    struct place *place = *state;
    struct td_error why = TD_ERROR_INIT;
    struct td_error err = TD_ERROR_INIT;
    struct td_body body;
    uint8_t byte;
    td_body_init(&body);
    assert_true(td_body_append(&body, place->blob, 5, 1, NULL));
    assert_true(td_incoming_hold_end(&body, NULL, NULL));
    struct td_blob *held = body.extents[0].blob;
    assert_ptr_not_equal(held, place->blob);
    assert_true(td_body_prepare(&body, true, NULL)); /* for HEAD, without waiting */
    assert_true(td_body_unchanged(&body));
    assert_false(td_blob_pinned(held) || td_blob_is_resident(held, 5, 1));
    (void)td_error_set(&why, TD_UNAVAILABLE, "the digest is another");
    td_incoming_fail(place->blob, &why);
    assert_false(td_blob_read(held, 5, &byte, 1, &err));
    check_says(&err, "the digest is another", "held");
    assert_false(td_body_unchanged(&body));
    assert_false(td_body_prepare(&body, false, NULL));
    td_body_fini(&body);
}

/* HEAD waits for a small file, too, because the content decides the answer. */
static void head_of_a_small_file_waits(void **state)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_error err = TD_ERROR_INIT;
    (void)state;
    for (uint64_t len = TD_INCOMING_SMALL_BYTES - 1; len <= TD_INCOMING_SMALL_BYTES; len++) {
        const uint64_t wait_ns = 50000000;
        struct td_blob *blob;
        struct td_body body;
        td_body_init(&body);
        assert_true(td_incoming_create(len, true, wait_ns, &blob, NULL));
        assert_true(td_body_append(&body, blob, 0, len, NULL));
        uint64_t begun_ns = td_clock_ns();
        assert_true(td_body_prepare(&body, true, NULL));
        assert_int_equal(td_clock_ns() - begun_ns >= wait_ns, len < TD_INCOMING_SMALL_BYTES);
        assert_int_equal(td_incoming_take_wanted(blob), len < TD_INCOMING_SMALL_BYTES);
        (void)td_error_set(&why, TD_CONFLICT, "another file");
        td_incoming_fail(blob, &why);
        assert_false(td_body_prepare(&body, true, &err));
        assert_int_equal(err.code, TD_CONFLICT);
        td_body_fini(&body);
        td_blob_unref(blob);
        td_error_init(&err);
        td_error_init(&why);
    }
}

static bool is_asked(void *context)
{
    return atomic_load((_Atomic bool *)context);
}

/* The writer continues to write, one byte after the other, so that the limit on time without a byte is never
 * reached. */
/* shows: security.md upstream-slow */
static void an_answer_whose_client_has_gone_waits_no_longer(void **state)
{
    (void)state;
    for (int is_held = 0; is_held < 2; is_held++) {
        struct place place = place_create(long_ns);
        _Atomic bool has_left = false;
        const struct td_cancel cancel = {.is_asked = is_asked, .context = (void *)&has_left};
        struct reader reader;
        struct td_body body;
        uint64_t arrived = 0;
        td_body_init(&body);
        assert_true(td_body_append(&body, place.blob, 5, OPEN_LEN - 5, NULL));
        assert_true(is_held ? td_incoming_hold_end(&body, &cancel, NULL) : td_incoming_end_with(&body, &cancel, NULL));
        assert_true(td_incoming_is_awaited(&body));
        reader_start(&reader, body.extents[body.extent_count - 1].blob, OPEN_LEN - 1, 1);
        await_wanted(place.blob);
        uint64_t begun_ns = td_clock_ns();
        atomic_store(&has_left, true);
        while (!atomic_load(&reader.is_done) && td_clock_ns() - begun_ns < long_ns / 6) {
            td_incoming_advance(place.blob, ++arrived);
            nap_ms(1);
        }
        CHECK(td_clock_ns() - begun_ns < long_ns / 6, "held %d", is_held);
        td_incoming_finish(place.blob); /* lets a reader go that has not noticed */
        reader_end(&reader);
        assert_false(reader.ok);
        assert_int_equal(reader.err.code, TD_UNAVAILABLE);
        assert_false(td_incoming_is_awaited(&body));
        td_body_fini(&body);
        place_end(&place);
    }
}

static void only_bytes_that_were_read_too_early_are_given(void **state)
{
    struct place *place = *state;
    struct td_body body;
    uint8_t byte;
    td_body_init(&body);
    write_part(place->fd, 0, LEN);
    td_incoming_advance(place->blob, 10);
    assert_true(td_body_append(&body, place->blob, 0, 1, NULL));
    assert_true(td_body_prepare(&body, false, NULL));
    assert_false(td_incoming_has_given(place->blob));
    assert_true(td_blob_read(place->blob, 9, &byte, 1, NULL));
    assert_true(td_incoming_has_given(place->blob));
    td_body_fini(&body);
    place_end(place);
    *place = place_create(long_ns);
    write_part(place->fd, 0, LEN);
    td_incoming_finish(place->blob);
    assert_true(td_blob_read(place->blob, 9, &byte, 1, NULL));
    assert_false(td_incoming_has_given(place->blob));
}

static void an_answer_is_worth_its_worst_bytes(void **state)
{
    struct place *place = *state;
    struct td_blob *nameless;
    struct td_body body;
    td_body_init(&body);
    assert_int_equal(td_incoming_worth_of(&body), TD_INCOMING_CHECKED);
    assert_true(td_body_append_heap(&body, strdup("text"), 4, NULL));
    assert_int_equal(td_incoming_worth_of(&body), TD_INCOMING_CHECKED);
    assert_true(td_body_append(&body, place->blob, 0, 1, NULL));
    assert_int_equal(td_incoming_worth_of(&body), TD_INCOMING_CHECKABLE);
    assert_true(td_incoming_create(9, false, long_ns, &nameless, NULL));
    assert_true(td_body_append(&body, nameless, 0, 1, NULL));
    assert_int_equal(td_incoming_worth_of(&body), TD_INCOMING_UNCHECKED);
    td_incoming_attach(nameless, dup(place->fd));
    td_incoming_finish(nameless);
    assert_int_equal(td_incoming_worth_of(&body), TD_INCOMING_CHECKABLE);
    td_incoming_finish(place->blob);
    assert_int_equal(td_incoming_worth_of(&body), TD_INCOMING_CHECKED);
    td_body_fini(&body);
    td_blob_unref(nameless);
}

static void a_file_that_is_finished_cannot_fail(void **state)
{
    struct place *place = *state;
    struct td_error why = TD_ERROR_INIT;
    uint8_t byte;
    write_part(place->fd, 0, LEN);
    td_incoming_finish(place->blob);
    (void)td_error_set(&why, TD_UNAVAILABLE, "too late");
    td_incoming_fail(place->blob, &why);
    assert_true(td_blob_read(place->blob, LEN - 1, &byte, 1, NULL));
    assert_int_equal(byte, byte_at(LEN - 1));
}

static void a_writer_that_stands_still_ends_the_read(void **state)
{
    (void)state;
    struct place place = place_create(50000000);
    struct td_error err = TD_ERROR_INIT;
    uint8_t byte;
    assert_false(td_blob_read(place.blob, 5, &byte, 1, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    write_part(place.fd, 0, 10);
    td_incoming_advance(place.blob, 10);
    assert_true(td_blob_read(place.blob, 5, &byte, 1, NULL)); /* the blob itself has not failed */
    place_end(&place);
}

static void a_file_that_is_cut_is_an_error(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    uint8_t byte;
    td_incoming_advance(place->blob, 10); /* which nobody has written */
    assert_false(td_blob_read(place->blob, 5, &byte, 1, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
}

static void a_thread_that_may_not_wait_is_refused(void **state)
{
    struct place *place = *state;
    uint8_t byte;
    td_waiting_forbid();
    assert_false(td_blob_read(place->blob, 0, &byte, 1, NULL));
    assert_true(td_waiting_allow());
    assert_false(td_blob_is_resident(place->blob, 0, 1));
    assert_false(td_blob_pinned(place->blob));
}

static void preparing_waits_only_a_little(void **state)
{
    (void)state;
    const uint64_t stall_ns = 50000000;
    struct place place = place_create(stall_ns);
    assert_true(td_blob_prepare(place.blob, 0, LEN, true, NULL)); /* for HEAD, not at all */
    assert_false(td_incoming_take_wanted(place.blob));
    uint64_t begun_ns = td_clock_ns();
    assert_true(td_blob_prepare(place.blob, 0, LEN, false, NULL)); /* nothing has come, and that is no error */
    assert_true(td_clock_ns() - begun_ns >= stall_ns);
    place_end(&place);
    place = place_create(long_ns); /* a writer that may take long holds up no answer for as long */
    begun_ns = td_clock_ns();
    assert_true(td_blob_prepare(place.blob, 0, LEN, false, NULL));
    uint64_t took_ns = td_clock_ns() - begun_ns;
    assert_true(took_ns >= TD_INCOMING_PREPARE_NS && took_ns < long_ns / 2);
    place_end(&place);
}

static void many_read_while_one_writes(void **state)
{
    enum { READERS = 8, STEP = 64 * 1024 };
    struct place *place = *state;
    struct reader readers[READERS];
    for (size_t i = 0; i < READERS; i++)
        reader_start(&readers[i], place->blob, i * 4096, LEN - i * 4096);
    for (uint64_t off = 0; off < LEN; off += STEP) {
        write_part(place->fd, off, LEN - off < STEP ? (size_t)(LEN - off) : STEP);
        td_incoming_advance(place->blob, LEN - off < STEP ? LEN : off + STEP);
    }
    td_incoming_finish(place->blob);
    for (size_t i = 0; i < READERS; i++) {
        reader_end(&readers[i]);
        assert_true(readers[i].ok);
    }
}

static void memory_may_be_short(void **state)
{
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    alloc_count_start();
    alloc_fail_at(1);
    assert_false(td_incoming_create(1, true, long_ns, &blob, &err));
    alloc_fail_at(0);
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    struct place *place = *state;
    struct td_body body;
    td_body_init(&body);
    assert_true(td_body_append(&body, place->blob, 0, LEN, NULL));
    size_t before = alloc_count_get().live_bytes;
    bool ok = false;
    for (size_t k = 1; !ok; k++) {
        assert_int_equal(alloc_count_get().live_bytes, before);
        alloc_fail_at(k);
        ok = td_incoming_hold_end(&body, NULL, NULL);
        alloc_fail_at(0);
        assert_int_equal(body.total_bytes, LEN);
        assert_true(ok || (body.extent_count == 1 && k < 10));
    }
    td_body_fini(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, readers_get_what_has_arrived_and_wait_for_the_rest),
        TEST_IN(place, the_end_waits_for_the_check),
        TEST_IN(place, a_failure_ends_every_read),
        cmocka_unit_test(the_end_of_an_answer_waits_for_the_check),
        TEST_IN(place, a_failure_ends_an_answer_that_waits),
        cmocka_unit_test(head_of_a_small_file_waits),
        cmocka_unit_test(an_answer_whose_client_has_gone_waits_no_longer),
        TEST_IN(place, only_bytes_that_were_read_too_early_are_given),
        TEST_IN(place, an_answer_is_worth_its_worst_bytes),
        TEST_IN(place, a_file_that_is_finished_cannot_fail),
        cmocka_unit_test(a_writer_that_stands_still_ends_the_read),
        TEST_IN(place, a_file_that_is_cut_is_an_error),
        TEST_IN(place, a_thread_that_may_not_wait_is_refused),
        cmocka_unit_test(preparing_waits_only_a_little),
        TEST_IN(place, many_read_while_one_writes),
        TEST_IN(place, memory_may_be_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
