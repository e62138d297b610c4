/* Blobs that arrive in several requests: what counts after a cut, a request that takes over, wrong digests, and
 * sessions that nobody continues. */
#include "catalog/publish/publish_session.h"

#include "catalog/publish/publish.h"
#include "core/clock.h"
#include "core/digits.h"
#include "tests/unit/tree_fixture.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK ((size_t)TD_FETCH_BLOCK_BYTES)

static _Atomic uint64_t clock_ahead_ns;

uint64_t __wrap_td_clock_ns(void);
uint64_t __real_td_clock_ns(void);

uint64_t __wrap_td_clock_ns(void)
{
    return __real_td_clock_ns() + clock_ahead_ns;
}

enum { MAX_BYTES = 4 * 1024 * 1024, EXPIRES_S = 3600 };

struct place {
    struct tree tree;
    struct td_publish *publish;
    struct td_publish_config config;
    struct td_publish_name name;
    struct td_publish_session *session;
    uint8_t *bytes;
};

static void open_store(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_open(&place->config, &place->publish, &err), "%s", err.message);
}

static void begin(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_session_begin(place->publish, &place->name, "ci", &place->session, &err), "%s", err.message);
}

static void place_open(struct place *place)
{
    tree_open(&place->tree);
    place->config = (struct td_publish_config){
        .root = place->tree.path, .upload_expires_s = EXPIRES_S, .keep_commits_s = EXPIRES_S};
    place->bytes = malloc(MAX_BYTES);
    assert_non_null(place->bytes);
    for (size_t i = 0; i < MAX_BYTES; i++)
        place->bytes[i] = tree_data_byte(i, (unsigned)(i / BLOCK));
    assert_true(td_publish_name("org/m", false, &place->name, NULL));
    open_store(place);
    begin(place);
}

static void place_close(struct place *place)
{
    td_publish_session_unref(place->session);
    td_publish_close(place->publish);
    tree_close(&place->tree);
    free(place->bytes);
}

FIXTURE(place, struct place, place_open, place_close)

/* Sends bytes [from, from + len) in pieces, and returns their turn. */
static uint64_t send_bytes(struct place *place, size_t from, size_t len)
{
    struct td_error err = TD_ERROR_INIT;
    uint64_t turn = td_publish_session_turn(place->session);
    assert_true(turn > 0);
    for (size_t at = 0; at < len;) {
        size_t n = len - at < 70001 ? len - at : 70001;
        CHECK(td_publish_session_write(place->session, turn, place->bytes + from + at, n, &err), "%s", err.message);
        at += n;
    }
    return turn;
}

static void keep(struct place *place, uint64_t turn, uint64_t bytes)
{
    struct td_error err = TD_ERROR_INIT;
    uint64_t got;
    CHECK(td_publish_session_keep(place->session, turn, &got, &err), "%s", err.message);
    assert_int_equal(got, bytes);
    assert_int_equal(td_publish_session_bytes(place->session), bytes);
}

/* Ends the session as a blob of the first len bytes. */
static void ends_as(struct place *place, uint64_t turn, size_t len)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_sum got;
    uint8_t sum[TD_SHA256_BYTES];
    char name[256] = "models--org--m/blobs/";
    char path[TREE_PATH_BYTES];
    struct stat st;
    td_sha256(place->bytes, len, sum);
    if (turn == 0) /* an empty body */
        turn = td_publish_session_turn(place->session);
    CHECK(td_publish_session_end(place->session, turn, sum, &got, &err), "%zu: %s", len, err.message);
    assert_int_equal(got.size_bytes, len);
    assert_memory_equal(got.sha256, sum, sizeof sum);
    td_hex_write(sum, sizeof sum, name + strlen(name));
    char new_name[300];
    (void)snprintf(new_name, sizeof new_name, ".tensord-publish/new/%s", name);
    tree_at(&place->tree, new_name, path);
    CHECK(stat(path, &st) == 0 && (size_t)st.st_size == len, "%s", path);
    uint8_t *there = malloc(len + 1);
    FILE *file = fopen(path, "rb");
    assert_true(there != NULL && file != NULL && fread(there, 1, len + 1, file) == len);
    (void)fclose(file);
    assert_memory_equal(there, place->bytes, len);
    free(there);
}

static uint64_t used_bytes(const struct place *place)
{
    struct td_publish_status status;
    td_publish_get_status(place->publish, &status);
    return status.used_bytes;
}

static bool is_listed(struct place *place)
{
    struct td_publish_session *found =
        td_publish_session_find(place->publish, &place->name, td_text_of(td_publish_session_id(place->session)));
    td_publish_session_unref(found);
    return found == place->session;
}

static const size_t sizes[] = {0,         1,         1000,          BLOCK - 1,     BLOCK,
                               BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 7, 5 * BLOCK + 3, MAX_BYTES};

static void bodies_of_any_size_count_when_they_are_whole(void **state)
{
    struct place *place = *state;
    uint64_t bytes = 0;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t half = sizes[i] / 2;
        keep(place, send_bytes(place, 0, half), half);
        assert_true(is_listed(place));
        uint64_t turn = send_bytes(place, half, sizes[i] - half);
        if (i % 2 == 0) {
            keep(place, turn, sizes[i]);
            turn = 0;
        }
        ends_as(place, turn, sizes[i]);
        assert_false(is_listed(place));
        assert_int_equal(td_publish_session_turn(place->session), 0);
        bytes += sizes[i];
        assert_int_equal(used_bytes(place), bytes);
        td_publish_session_unref(place->session);
        begin(place);
    }
}

/* A cut body does not count, wherever it was cut: before and after blocks were written and hashed. */
static void a_cut_body_can_be_sent_again(void **state)
{
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (size_t k = 0; k < COUNT_OF(sizes) && sizes[i] + sizes[k] <= MAX_BYTES; k++) {
            keep(place, send_bytes(place, 0, sizes[i]), sizes[i]);
            uint64_t turn = send_bytes(place, MAX_BYTES - sizes[k], sizes[k]); /* other bytes */
            td_publish_session_drop(place->session, turn);
            assert_int_equal(td_publish_session_bytes(place->session), sizes[i]);
            turn = send_bytes(place, sizes[i], sizes[k]);
            ends_as(place, turn, sizes[i] + sizes[k]);
            td_publish_session_unref(place->session);
            begin(place);
        }
    }
}

/* A client whose connection has died, unknown to the server, continues on another one. */
static void a_later_body_takes_over(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_sum sum;
    uint64_t bytes;
    uint64_t first = send_bytes(place, 7, BLOCK + 9);
    uint64_t second = send_bytes(place, 0, 2 * BLOCK);
    assert_false(td_publish_session_write(place->session, first, "x", 1, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    assert_false(td_publish_session_keep(place->session, first, &bytes, NULL));
    td_publish_session_drop(place->session, first);
    assert_false(td_publish_session_end(place->session, first, place->bytes, &sum, NULL));
    assert_false(td_publish_session_end(place->session, 0, place->bytes, &sum, NULL));
    keep(place, second, 2 * BLOCK);
    assert_false(td_publish_session_write(place->session, second, "x", 1, NULL)); /* it has ended */
    ends_as(place, 0, 2 * BLOCK);
}

static void a_wrong_digest_ends_the_session_and_leaves_nothing(void **state)
{
    static const uint8_t other[TD_SHA256_BYTES];
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_sum sum;
    keep(place, send_bytes(place, 0, 3 * BLOCK), 3 * BLOCK);
    assert_false(td_publish_session_end(place->session, td_publish_session_turn(place->session), other, &sum, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_false(is_listed(place));
    assert_int_equal(used_bytes(place), 0);
}

static void sessions_are_known_by_repository_and_name(void **state)
{
    struct place *place = *state;
    struct td_publish_name other;
    const char *id = td_publish_session_id(place->session);
    assert_int_equal(strlen(id), TD_PUBLISH_SESSION_ID_BYTES - 1);
    assert_true(is_listed(place));
    assert_true(td_publish_name("org/other", false, &other, NULL));
    assert_null(td_publish_session_find(place->publish, &other, td_text_of(id)));
    assert_null(td_publish_session_find(place->publish, &place->name, TD_TEXT("")));
    td_publish_session_cancel(place->session);
    assert_false(is_listed(place));
    td_publish_session_cancel(place->session);
}

static void sessions_that_nobody_continues(void **state)
{
    struct place *place = *state;
    const uint64_t now_ns = td_clock_ns();
    keep(place, send_bytes(place, 0, 2 * BLOCK + 5), 2 * BLOCK + 5);
    td_publish_sessions_tidy(place->publish, now_ns + 120 * TD_NS_PER_S); /* gives the thread back */
    assert_true(is_listed(place));
    keep(place, send_bytes(place, 2 * BLOCK + 5, BLOCK), 3 * BLOCK + 5);
    td_publish_sessions_tidy(place->publish, td_clock_ns() + 120 * TD_NS_PER_S);
    ends_as(place, 0, 3 * BLOCK + 5);
    uint64_t used = used_bytes(place);
    td_publish_session_unref(place->session);
    begin(place);
    keep(place, send_bytes(place, 0, 100), 100);
    td_publish_sessions_tidy(place->publish, td_clock_ns() + (EXPIRES_S + 2) * TD_NS_PER_S);
    assert_false(is_listed(place));
    assert_int_equal(td_publish_session_turn(place->session), 0);
    assert_int_equal(used_bytes(place), used);
}

static void begin_fails_now(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    place->session = NULL;
    assert_false(td_publish_session_begin(place->publish, &place->name, "", &place->session, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
}

static void as_many_sessions_as_may_be(void **state)
{
    struct place *place = *state;
    struct td_publish_session *sessions[TD_PUBLISH_SESSIONS];
    struct td_publish_session *more;
    struct td_error err = TD_ERROR_INIT;
    for (size_t i = 1; i < TD_PUBLISH_SESSIONS; i++)
        CHECK(td_publish_session_begin(place->publish, &place->name, "", &sessions[i], &err), "%zu: %s", i,
              err.message);
    assert_false(td_publish_session_begin(place->publish, &place->name, "", &more, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    td_publish_session_cancel(sessions[7]);
    CHECK(td_publish_session_begin(place->publish, &place->name, "", &more, &err), "%s", err.message);
    td_publish_session_unref(more);
    td_publish_session_unref(place->session);
    begin_fails_now(place); /* all were continued just now */
    clock_ahead_ns = 61 * TD_NS_PER_S;
    begin(place); /* in place of the one that rested for the longest time */
    clock_ahead_ns = 0;
    assert_true(is_listed(place));
    assert_false(td_publish_remove(place->publish, &place->name, NULL)); /* it is not there, but for its sessions */
    assert_false(is_listed(place));
    for (size_t i = 1; i < TD_PUBLISH_SESSIONS; i++)
        td_publish_session_unref(sessions[i]);
}

/* One token leaves room for others, also over a restart; when it has its share, its own oldest session makes room. */
static void as_many_sessions_of_a_token_as_may_be(void **state)
{
    struct place *place = *state;
    struct td_publish_session *more;
    struct td_error err = TD_ERROR_INIT;
    for (size_t i = 1; i < TD_PUBLISH_SESSIONS_OF_ONE; i++) { /* and the place's */
        CHECK(td_publish_session_begin(place->publish, &place->name, "ci", &more, &err), "%zu: %s", i, err.message);
        td_publish_session_unref(more);
    }
    for (size_t round = 0; round < 2; round++) {
        assert_false(td_publish_session_begin(place->publish, &place->name, "ci", &more, &err));
        assert_int_equal(err.code, TD_UNAVAILABLE);
        assert_non_null(strstr(err.message, "\"ci\" has as many uploads"));
        td_error_init(&err);
        CHECK(td_publish_session_begin(place->publish, &place->name, "other", &more, &err), "%s", err.message);
        td_publish_session_unref(more);
        td_publish_session_unref(place->session);
        place->session = NULL;
        td_publish_close(place->publish);
        open_store(place);
    }
    clock_ahead_ns = 61 * TD_NS_PER_S;
    begin(place); /* in place of one of the same token */
    clock_ahead_ns = 0;
    assert_int_equal(place->publish->session_count, TD_PUBLISH_SESSIONS_OF_ONE + 2);
}

/* The bound on bytes counts what has arrived, and a session of few bytes does not take room for many. */
static void the_bound_counts_what_arrives(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    td_publish_session_unref(place->session);
    td_publish_close(place->publish);
    place->config.max_bytes = BLOCK;
    open_store(place);
    begin(place);
    assert_int_equal(used_bytes(place), 0);
    keep(place, send_bytes(place, 0, BLOCK), BLOCK);
    uint64_t turn = td_publish_session_turn(place->session);
    assert_false(td_publish_session_write(place->session, turn, "x", 1, &err));
    assert_true(err.code == TD_RESOURCE_EXHAUSTED && err.sys == EDQUOT);
    td_publish_session_drop(place->session, turn);
    ends_as(place, 0, BLOCK);
    assert_int_equal(used_bytes(place), BLOCK);
}

/* Closes the store, as a stop or a kill of the server does, and opens it again. Finds the session, or sets it to NULL.
 */
static void restart(struct place *place)
{
    char id[TD_PUBLISH_SESSION_ID_BYTES];
    (void)snprintf(id, sizeof id, "%s", td_publish_session_id(place->session));
    td_publish_close(place->publish);
    td_publish_session_unref(place->session);
    open_store(place);
    place->session = td_publish_session_find(place->publish, &place->name, td_text_of(id));
}

static size_t count_files(const struct place *place)
{
    char path[TREE_PATH_BYTES];
    size_t count = 0;
    tree_at(&place->tree, ".tensord-publish/sessions", path);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (const struct dirent *item = readdir(directory); item != NULL; item = readdir(directory))
        count += item->d_name[0] == '.' ? 0 : 1;
    (void)closedir(directory);
    return count;
}

/* Whatever was in memory, on disk or hashed, and whatever has arrived of a body that does not count. */
static void what_counts_is_there_after_a_restart(void **state)
{
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (size_t k = 0; k < COUNT_OF(sizes) && sizes[i] + sizes[k] <= MAX_BYTES; k++) {
            uint64_t used = used_bytes(place);
            keep(place, send_bytes(place, 0, sizes[i]), sizes[i]);
            if (k % 3 > 0)
                (void)send_bytes(place, MAX_BYTES - sizes[k], sizes[k]); /* other bytes, not the whole body */
            if (k % 3 == 1)                                              /* the body is cut, and the next one too */
                (void)send_bytes(place, 7, sizes[k]);
            restart(place);
            assert_non_null(place->session);
            assert_int_equal(td_publish_session_bytes(place->session), sizes[i]);
            assert_int_equal(used_bytes(place), used + sizes[i]);
            keep(place, send_bytes(place, sizes[i], sizes[k]), sizes[i] + sizes[k]);
            restart(place);
            ends_as(place, 0, sizes[i] + sizes[k]);
            assert_int_equal(count_files(place), 0);
            td_publish_session_unref(place->session);
            begin(place);
        }
    }
}

/* Writes over the journal from a byte on, and cuts it behind that. */
static void write_journal(const struct place *place, size_t at, const char *text, bool cuts)
{
    char name[128];
    char path[TREE_PATH_BYTES];
    (void)snprintf(name, sizeof name, ".tensord-publish/sessions/%s.journal", td_publish_session_id(place->session));
    tree_at(&place->tree, name, path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t len = (ssize_t)strlen(text);
    assert_true(fd >= 0 && pwrite(fd, text, (size_t)len, (off_t)at) == len);
    assert_true(!cuts || ftruncate(fd, (off_t)at + len) == 0);
    assert_int_equal(close(fd), 0);
}

static void what_ends_a_session_with_the_server(void **state)
{
    struct place *place = *state;
    static const struct {
        size_t at;
        const char *text;
        bool cuts;
    } changes[] = {
        {21, "00000000-0000-0000-0000-000000000000", false}, /* another boot */
        {0, "00000000000000000101\n", false},                /* more than there is */
        {0, "99999999999999999999\n", false},
        {0, "x", false},
        {0, "", true},
        {30, "", true},
        {58, "models--..\n", true},
        {58, "models--org--m/../x\n", true},
    };
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        keep(place, send_bytes(place, 0, 100), 100);
        write_journal(place, changes[i].at, changes[i].text, changes[i].cuts);
        restart(place);
        CHECK(place->session == NULL, "%zu", i);
        assert_true(count_files(place) == 0 && used_bytes(place) == 0);
        begin(place);
    }
    keep(place, send_bytes(place, 0, 100), 100);
    char name[128];
    char path[TREE_PATH_BYTES];
    (void)snprintf(name, sizeof name, ".tensord-publish/sessions/%s.journal", td_publish_session_id(place->session));
    tree_at(&place->tree, name, path);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - EXPIRES_S - 5}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    restart(place);
    assert_non_null(place->session);
    clock_ahead_ns = (EXPIRES_S + 9) * TD_NS_PER_S; /* the machine may run for less than that */
    td_publish_sessions_tidy(place->publish, td_clock_ns());
    clock_ahead_ns = 0;
    assert_false(is_listed(place));
    assert_true(count_files(place) == 0 && used_bytes(place) == 0);
    tree_at(&place->tree, ".tensord-publish/sessions/strange", path);
    assert_int_equal(close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), 0);
    restart(place);
    assert_int_equal(count_files(place), 0);
}

static void *send_and_cut(void *argument)
{
    struct place *place = argument;
    for (int i = 0; i < 50; i++) {
        uint64_t turn = td_publish_session_turn(place->session);
        (void)td_publish_session_write(place->session, turn, place->bytes, 100000, NULL);
        if (i % 3 == 0)
            td_publish_session_drop(place->session, turn);
        td_publish_sessions_tidy(place->publish, td_clock_ns());
        (void)is_listed(place);
    }
    return NULL;
}

/* Many threads at once: the last turn counts, and the others leave nothing of theirs. */
static void many_requests_of_one_session(void **state)
{
    struct place *place = *state;
    pthread_t threads[4];
    keep(place, send_bytes(place, 0, BLOCK + 1), BLOCK + 1);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, send_and_cut, place), 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    ends_as(place, send_bytes(place, BLOCK + 1, BLOCK), 2 * BLOCK + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, bodies_of_any_size_count_when_they_are_whole),
        TEST_IN(place, a_cut_body_can_be_sent_again),
        TEST_IN(place, a_later_body_takes_over),
        TEST_IN(place, a_wrong_digest_ends_the_session_and_leaves_nothing),
        TEST_IN(place, sessions_are_known_by_repository_and_name),
        TEST_IN(place, sessions_that_nobody_continues),
        TEST_IN(place, as_many_sessions_as_may_be),
        TEST_IN(place, as_many_sessions_of_a_token_as_may_be),
        TEST_IN(place, the_bound_counts_what_arrives),
        TEST_IN(place, what_counts_is_there_after_a_restart),
        TEST_IN(place, what_ends_a_session_with_the_server),
        TEST_IN(place, many_requests_of_one_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
