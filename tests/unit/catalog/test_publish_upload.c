/* Blobs of published repositories while they arrive: pieces in any order and from many at once, what stays after a cut
 * and a restart, wrong digests, streams, and the bound on bytes. */
#include "catalog/publish/publish_stream.h"
#include "core/clock.h"
#include "tests/unit/catalog/upload_place.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/statvfs.h>

static void blobs_of_any_size_arrive_whole(void **state)
{
    const uint64_t sizes[] = {0, 1, 1000, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1, 5 * PIECE + 17};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint8_t sum[TD_SHA256_BYTES];
        struct td_publish_blob blob;
        uint64_t before = used_bytes(place);
        td_sha256(place->bytes, sizes[i], sum);
        struct td_publish_part *part = begin(place, "org/m", sum, sizes[i], 0, sizes[i]);
        assert_int_equal(used_bytes(place), before + sizes[i]);
        write_part(part, place->bytes, sizes[i], 10007);
        assert_int_equal(end_part(part, &blob), TD_PUBLISH_COMPLETE);
        CHECK(blob.is_complete && blob.size_bytes == sizes[i] && blob.missing == NULL, "size %zu", (size_t)sizes[i]);
        check_file(place, "models--org--m", sum, sizes[i]);
        assert_int_equal(place->notes, i + 1);
        assert_null(begin(place, "org/m", sum, sizes[i], 0, sizes[i])); /* it is here */
        assert_int_equal(used_bytes(place), before + sizes[i]);
    }
}

static void pieces_arrive_in_any_order(void **state)
{
    static const unsigned order[] = {3, 0, 4, 2, 1};
    const uint64_t size = 4 * PIECE + 5;
    struct place *place = *state;
    const struct td_publish_name name = name_of("m");
    struct td_publish_blob blob;
    struct td_error err = TD_ERROR_INIT;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, size, sum);
    assert_false(td_publish_find_blob(place->publish, &name, sum, &blob, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    for (size_t i = 0; i < COUNT_OF(order); i++) {
        uint64_t first = order[i] * PIECE;
        uint64_t end = first + PIECE < size ? first + PIECE : size;
        assert_int_equal(send_span(place, "m", sum, size, first, end),
                         i + 1 < COUNT_OF(order) ? TD_PUBLISH_INCOMPLETE : TD_PUBLISH_COMPLETE);
        if (i == 2) { /* 3, 0 and 4 are here */
            assert_true(td_publish_find_blob(place->publish, &name, sum, &blob, NULL));
            assert_int_equal(blob.missing_count, 1);
            assert_int_equal(blob.missing[0].first, PIECE);
            assert_int_equal(blob.missing[0].last, 3 * PIECE - 1);
            CHECK(!blob.is_complete && blob.size_bytes == size, "the state of the blob");
            td_publish_blob_fini(&blob);
        }
    }
    check_file(place, "models--m", sum, size);
    assert_true(td_publish_find_blob(place->publish, &name, sum, &blob, NULL));
    assert_true(blob.is_complete);
    td_publish_blob_fini(&blob);
}

static void spans_and_sizes_are_checked(void **state)
{
    static const struct {
        uint64_t size, first, end;
    } wrong[] = {{10, 0, 11},
                 {10, 4, 10},
                 {10, 0, 5},
                 {10, 10, 10},
                 {10, 8, 4},
                 {0, 0, 1},
                 {3 * TD_FETCH_PIECE_BYTES, TD_FETCH_PIECE_BYTES, 2 * TD_FETCH_PIECE_BYTES + 1},
                 {UINT64_MAX, 0, UINT64_MAX}};
    struct place *place = *state;
    struct td_error err;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, 10, sum);
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        enum td_code code = begin_fails(place, "m", sum, wrong[i].size, wrong[i].first, wrong[i].end, &err);
        CHECK(code == TD_INVALID_ARGUMENT || (wrong[i].size == UINT64_MAX && code == TD_RESOURCE_EXHAUSTED), "%zu: %s",
              i, err.message);
    }
    assert_int_equal(used_bytes(place), 0);
    td_publish_part_abandon(begin(place, "m", sum, 10, 0, 10));
    assert_int_equal(begin_fails(place, "m", sum, 11, 0, 11, &err), TD_CONFLICT);
    assert_non_null(strstr(err.message, "with 10 bytes has begun, and this one has 11"));
    struct td_publish_part *part = begin(place, "m", sum, 10, 0, 10);
    assert_false(td_publish_part_write(part, place->bytes, 11, &err));
    td_publish_part_abandon(part);
    part = begin(place, "m", sum, 10, 0, 10);
    struct td_publish_blob blob;
    enum td_publish_end end;
    write_part(part, place->bytes, 9, 9);
    td_error_init(&err);
    assert_false(td_publish_part_end(part, &end, &blob, &err));
    assert_non_null(strstr(err.message, "1 bytes before the end"));
}

static void wrong_bytes_are_dropped_and_can_be_sent_again(void **state)
{
    const uint64_t size = 3 * PIECE;
    struct place *place = *state;
    const struct td_publish_name name = name_of("org/m");
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, size, sum);
    assert_int_equal(send_span(place, "org/m", sum, size, 0, PIECE), TD_PUBLISH_INCOMPLETE);
    struct td_publish_part *late = begin(place, "org/m", sum, size, 0, size);
    place->bytes[2 * PIECE] ^= 1;
    assert_int_equal(send_span(place, "org/m", sum, size, PIECE, size), TD_PUBLISH_WRONG);
    place->bytes[2 * PIECE] ^= 1;
    assert_int_equal(place->notes, 0);
    assert_int_equal(used_bytes(place), 0);
    assert_false(td_publish_find_blob(place->publish, &name, sum, &blob, NULL));
    /* a client that still sends gets an error, and its end gives no bytes back again */
    struct td_error err = TD_ERROR_INIT;
    bool ok = true;
    for (uint64_t at = 0; ok && at < size; at += PIECE)
        ok = td_publish_part_write(late, place->bytes + at, PIECE, &err);
    CHECK(!ok && err.code == TD_FAILED_PRECONDITION, "%s", err.message);
    td_publish_part_abandon(late);
    assert_int_equal(send_span(place, "org/m", sum, size, 0, size), TD_PUBLISH_COMPLETE);
    check_file(place, "models--org--m", sum, size);
    assert_int_equal(used_bytes(place), size);
}

static void a_slow_client_holds_up_nobody(void **state)
{
    const uint64_t size = 3 * PIECE + 9;
    struct place *place = *state;
    struct td_publish_status status;
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, size, sum);
    struct td_publish_part *slow = begin(place, "m", sum, size, 0, size);
    write_part(slow, place->bytes, PIECE - 1, PIECE); /* its first piece is not whole */
    assert_int_equal(send_span(place, "m", sum, size, 0, size), TD_PUBLISH_COMPLETE);
    write_part(slow, place->bytes + PIECE - 1, size - PIECE + 1, 5000);
    assert_int_equal(end_part(slow, &blob), TD_PUBLISH_COMPLETE);
    td_publish_blob_fini(&blob);
    check_file(place, "models--m", sum, size);
    td_publish_get_status(place->publish, &status);
    assert_int_equal(status.received_bytes, size); /* no byte was written twice */
    assert_int_equal(status.upload_count, 0);
    assert_int_equal(place->notes, 1);
}

/* A client that sends other bytes for a piece of a small blob than the client whose bytes are hashed from memory. */
static void bytes_of_two_clients_are_hashed_as_they_are_in_the_file(void **state)
{
    const uint64_t size = 2 * PIECE;
    struct place *place = *state;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, size, sum);
    place->bytes[0] ^= 1;
    assert_int_equal(send_span(place, "m", sum, size, 0, PIECE), TD_PUBLISH_INCOMPLETE);
    place->bytes[0] ^= 1;
    assert_int_equal(send_span(place, "m", sum, size, 0, size), TD_PUBLISH_WRONG);
    assert_int_equal(send_span(place, "m", sum, size, 0, size), TD_PUBLISH_COMPLETE);
    check_file(place, "models--m", sum, size);
}

static void what_has_arrived_stays_after_a_cut_and_a_restart(void **state)
{
    const uint64_t size = 6 * PIECE;
    struct place *place = *state;
    const struct td_publish_name name = name_of("org/m");
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, size, sum);
    struct td_publish_part *part = begin(place, "org/m", sum, size, 0, size);
    write_part(part, place->bytes, 3 * PIECE + 5, 70000); /* three whole pieces */
    td_publish_part_abandon(part);
    for (int i = 0; i < 2; i++) {
        assert_true(td_publish_find_blob(place->publish, &name, sum, &blob, NULL));
        CHECK(blob.missing_count == 1 && blob.missing[0].first == 3 * PIECE && blob.missing[0].last == size - 1,
              "restarted %d times: %zu ranges from %zu", i, blob.missing_count, (size_t)blob.missing[0].first);
        td_publish_blob_fini(&blob);
        assert_int_equal(used_bytes(place), size);
        reopen(place);
    }
    assert_int_equal(send_span(place, "org/m", sum, size, 3 * PIECE, size), TD_PUBLISH_COMPLETE);
    check_file(place, "models--org--m", sum, size);
    reopen(place);
    assert_int_equal(used_bytes(place), size);
    assert_null(begin(place, "org/m", sum, size, 0, size));
}

/* A blob of one piece is here whole or not at all, so nothing of it stays after a cut, a restart or a kill. */
static void a_small_blob_leaves_nothing_unless_it_is_whole(void **state)
{
    const uint64_t size = PIECE - 1;
    struct place *place = *state;
    const struct td_publish_name name = name_of("org/m");
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    char hex[TD_SHA256_TEXT_BYTES];
    char path[TREE_PATH_BYTES];
    char name_of_part[TREE_PATH_BYTES];
    struct stat st;
    td_sha256(place->bytes, size, sum);
    td_hex_write(sum, TD_SHA256_BYTES, hex);
    (void)snprintf(name_of_part, sizeof name_of_part, ".tensord-publish/new/models--org--m/blobs/.%s" TD_FETCH_PART_END,
                   hex);
    tree_at(&place->tree, name_of_part, path);
    struct td_publish_part *part = begin(place, "org/m", sum, size, 0, size);
    write_part(part, place->bytes, 1000, 1000);
    assert_int_equal(used_bytes(place), size);
    assert_int_equal(stat(path, &st), 0);
    td_publish_part_abandon(part);
    td_publish_close_idle(place->publish, NULL, UINT64_MAX);
    assert_int_equal(used_bytes(place), 0);
    assert_int_not_equal(stat(path, &st), 0);
    assert_false(td_publish_find_blob(place->publish, &name, sum, &blob, NULL));
    /* a process that was killed: its file is counted by the next one, until the blob is sent again */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    (void)close(fd);
    reopen(place);
    assert_int_equal(used_bytes(place), size);
    assert_int_equal(send_span(place, "org/m", sum, size, 0, size), TD_PUBLISH_COMPLETE);
    check_file(place, "models--org--m", sum, size);
    assert_int_equal(used_bytes(place), size);
    reopen(place);
    assert_int_equal(used_bytes(place), size);
}

/* Its bytes are returned once, by the removal or by the end of the upload. */
static void a_small_blob_of_a_model_that_is_removed_is_counted_once(void **state)
{
    struct place *place = *state;
    const struct td_publish_name name = name_of("org/m");
    struct td_error err = TD_ERROR_INIT;
    uint8_t sum[TD_SHA256_BYTES];
    uint8_t other[TD_SHA256_BYTES];
    td_sha256(place->bytes, PIECE, sum);
    td_sha256(place->bytes, 2 * PIECE, other);
    assert_int_equal(send_span(place, "org/n", other, 2 * PIECE, 0, 2 * PIECE), TD_PUBLISH_COMPLETE);
    struct td_publish_part *part = begin(place, "org/m", sum, PIECE, 0, PIECE);
    CHECK(td_publish_remove(place->publish, &name, &err), "%s", err.message);
    assert_int_equal(used_bytes(place), 2 * PIECE);
    td_publish_part_abandon(part);
    assert_int_equal(used_bytes(place), 2 * PIECE);
}

static void the_bound_holds_and_bytes_come_back(void **state)
{
    struct place *place = *state;
    const struct td_publish_name name = name_of("a");
    struct td_error err;
    uint8_t sums[2][TD_SHA256_BYTES];
    td_sha256(place->bytes, PIECE, sums[0]);
    td_sha256(place->bytes, 2 * PIECE, sums[1]);
    place->config.max_bytes = 3 * PIECE - 1;
    reopen(place);
    assert_int_equal(send_span(place, "a", sums[0], PIECE, 0, PIECE), TD_PUBLISH_COMPLETE);
    assert_int_equal(begin_fails(place, "b", sums[1], 2 * PIECE, 0, 2 * PIECE, &err), TD_RESOURCE_EXHAUSTED);
    assert_int_equal(err.sys, EDQUOT);
    assert_non_null(strstr(err.message, "the blob has 524288 bytes, and published models take 262144 of 786431"));
    reopen(place);
    assert_int_equal(used_bytes(place), PIECE);
    td_error_init(&err);
    CHECK(td_publish_remove(place->publish, &name, &err), "%s", err.message);
    assert_int_equal(used_bytes(place), 0);
    assert_int_equal(send_span(place, "b", sums[1], 2 * PIECE, 0, 2 * PIECE), TD_PUBLISH_COMPLETE);
    assert_false(td_publish_remove(place->publish, &name, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
}

static void blobs_are_known_to_their_own_repository_alone(void **state)
{
    struct place *place = *state;
    const struct td_publish_name other = name_of("org/other");
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, 5, sum);
    assert_int_equal(send_span(place, "org/m", sum, 5, 0, 5), TD_PUBLISH_COMPLETE);
    assert_false(td_publish_find_blob(place->publish, &other, sum, &blob, NULL));
    td_publish_part_abandon(begin(place, "org/other", sum, 5, 0, 5));
}

static size_t count_threads(void)
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    while (readdir(tasks) != NULL)
        count++;
    (void)closedir(tasks);
    return count;
}

static void an_upload_without_a_part_has_no_thread(void **state)
{
    const uint64_t size = 8 * PIECE + 1;
    struct place *place = *state;
    uint8_t sum[TD_SHA256_BYTES];
    size_t threads = count_threads();
    td_sha256(place->bytes, size, sum);
    assert_int_equal(send_span(place, "m", sum, size, size - 1, size), TD_PUBLISH_INCOMPLETE);
    for (uint64_t i = 0; i < 7; i++) {
        struct td_publish_part *part = begin(place, "m", sum, size, i * PIECE, (i + 1) * PIECE);
        write_part(part, place->bytes + i * PIECE, PIECE, PIECE);
        assert_int_equal(count_threads(), threads + 1);
        td_publish_part_abandon(part);
        CHECK(count_threads() == threads, "after piece %zu: %zu threads more", (size_t)i, count_threads() - threads);
    }
    assert_int_equal(send_span(place, "m", sum, size, 7 * PIECE, 8 * PIECE), TD_PUBLISH_COMPLETE);
    check_file(place, "models--m", sum, size);
}

/* Begins the upload of the i-th of many blobs. */
static struct td_publish_part *begin_nth(struct place *place, size_t i)
{
    uint8_t sum[TD_SHA256_BYTES] = {(uint8_t)i, (uint8_t)(i >> 8)};
    return begin(place, "m", sum, PIECE, 0, PIECE);
}

/* All pieces of a blob arrive, and the part is cut before its end. */
static void a_blob_that_nobody_ended_lacks_its_last_piece(void **state)
{
    const uint64_t size = 2 * PIECE + 5;
    struct place *place = *state;
    const struct td_publish_name name = name_of("m");
    struct td_publish_blob blob;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(place->bytes, size, sum);
    struct td_publish_part *part = begin(place, "m", sum, size, 0, size);
    write_part(part, place->bytes, size, PIECE);
    td_publish_part_abandon(part);
    for (int i = 0; i < 2; i++) {
        assert_true(td_publish_find_blob(place->publish, &name, sum, &blob, NULL));
        CHECK(!blob.is_complete && blob.missing_count == 1 && blob.missing[0].first == 2 * PIECE &&
                  blob.missing[0].last == size - 1,
              "restarted %d times: %zu ranges", i, blob.missing_count);
        td_publish_blob_fini(&blob);
        reopen(place);
    }
    assert_int_equal(send_span(place, "m", sum, size, 2 * PIECE, size), TD_PUBLISH_COMPLETE);
    check_file(place, "models--m", sum, size);
}

/* A directory of the operator appears while a blob arrives, so that it cannot get its place. */
static void a_blob_that_gets_no_place_keeps_its_pieces(void **state)
{
    const uint64_t size = 3 * PIECE;
    struct place *place = *state;
    struct td_publish_blob blob;
    enum td_publish_end end;
    char path[TREE_PATH_BYTES];
    uint8_t sum[TD_SHA256_BYTES];
    struct td_error err = TD_ERROR_INIT;
    td_sha256(place->bytes, size, sum);
    assert_int_equal(send_span(place, "m", sum, size, 0, PIECE), TD_PUBLISH_INCOMPLETE);
    struct td_publish_part *part = begin(place, "m", sum, size, PIECE, size);
    write_part(part, place->bytes + PIECE, size - PIECE, PIECE);
    tree_at(&place->tree, "m", path);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_false(td_publish_part_end(part, &end, &blob, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(used_bytes(place), size);
    assert_int_equal(send_span(place, "m", sum, size, 2 * PIECE, size), TD_PUBLISH_COMPLETE);
    check_file(place, "models--m", sum, size);
    assert_int_equal(used_bytes(place), size);
}

static bool send_stream(struct place *place, uint64_t announced, uint64_t len, const uint8_t *expected,
                        struct td_publish_sum *sum, struct td_error *err);

static void a_blob_that_came_another_way_stays(void **state)
{
    const uint64_t size = 3 * PIECE;
    struct place *place = *state;
    struct td_publish_blob blob;
    struct td_publish_sum stream;
    uint8_t sum[TD_SHA256_BYTES];
    struct td_error err;
    td_sha256(place->bytes, size, sum);
    struct td_publish_part *part = begin(place, "org/m", sum, size, 0, size);
    write_part(part, place->bytes, size, PIECE);
    CHECK(send_stream(place, size, size, sum, &stream, &err), "%s", err.message);
    assert_int_equal(used_bytes(place), 2 * size);
    assert_int_equal(end_part(part, &blob), TD_PUBLISH_COMPLETE);
    assert_true(blob.is_complete);
    assert_int_equal(used_bytes(place), size);
    check_file(place, "models--org--m", sum, size); /* the identity that on_blob got is that of the stream's file */
    assert_int_equal(place->notes, 1);
}

static void open_uploads_have_a_bound(void **state)
{
    static const uint8_t more[TD_SHA256_BYTES] = {0xff, 0xff};
    enum { MOST = 256 };
    struct place *place = *state;
    const struct td_publish_name name = name_of("m");
    struct td_publish_part *parts[MOST];
    struct td_publish_status status;
    struct td_publish_blob blob;
    struct td_error err;
    for (size_t i = 0; i < MOST + 4; i++)
        td_publish_part_abandon(begin_nth(place, i));
    td_publish_get_status(place->publish, &status);
    assert_int_equal(status.upload_count, MOST);
    for (size_t i = 0; i < MOST; i++)
        parts[i] = begin_nth(place, i); /* the first ones were closed, and are resumed */
    assert_int_equal(begin_fails(place, "m", more, 1, 0, 1, &err), TD_RESOURCE_EXHAUSTED);
    CHECK(err.sys == 0, "%s", err.message); /* not a full disk */
    for (size_t i = 0; i < MOST; i++)
        td_publish_part_abandon(parts[i]);
    td_publish_part_abandon(begin(place, "m", more, 1, 0, 1));
    CHECK(td_publish_find_blob(place->publish, &name, more, &blob, &err), "%s", err.message);
    td_publish_blob_fini(&blob);
    td_publish_get_status(place->publish, &status);
    assert_int_equal(status.upload_count, MOST);
}

/* The age of the oldest open upload, whichever was used last, and the room of the disk. */
static void the_report_has_what_is_measured(void **state)
{
    struct place *place = *state;
    struct td_publish_status status;
    struct statvfs disk;
    assert_int_equal(statvfs(place->tree.path, &disk), 0);
    td_publish_report(place->publish, &status);
    assert_int_equal(status.oldest_upload_ns, 0);
    assert_int_equal(status.disk_bytes, (uint64_t)disk.f_blocks * disk.f_frsize);
    CHECK(status.free_bytes > 0 && status.free_bytes <= status.disk_bytes, "%ju free", (uintmax_t)status.free_bytes);
    const uint64_t before_ns = td_clock_ns();
    struct td_publish_part *first = begin_nth(place, 0);
    const uint64_t first_ns = td_clock_ns();
    while (td_clock_ns() - first_ns < (uint64_t)TD_NS_PER_S / 50)
        ;
    struct td_publish_part *second = begin_nth(place, 1);
    td_publish_report(place->publish, &status);
    const uint64_t now_ns = td_clock_ns();
    CHECK(status.oldest_upload_ns >= (uint64_t)TD_NS_PER_S / 50 && status.oldest_upload_ns <= now_ns - before_ns,
          "%ju ns", (uintmax_t)status.oldest_upload_ns);
    td_publish_part_abandon(first);
    td_publish_part_abandon(second);
    td_publish_close_idle(place->publish, NULL, UINT64_MAX);
    td_publish_report(place->publish, &status);
    assert_int_equal(status.oldest_upload_ns, 0);
}

/* ---- streams ---------------------------------------------------------------------------------------------- */

static bool send_stream(struct place *place, uint64_t announced, uint64_t len, const uint8_t *expected,
                        struct td_publish_sum *sum, struct td_error *err)
{
    const struct td_publish_name name = name_of("org/m");
    struct td_publish_stream *stream = NULL;
    td_error_init(err);
    if (!td_publish_stream_begin(place->publish, &name, announced, &stream, err))
        return false;
    for (uint64_t at = 0; at < len; at += 100000)
        if (!td_publish_stream_write(stream, place->bytes + at, (size_t)(len - at < 100000 ? len - at : 100000), err)) {
            td_publish_stream_abandon(stream);
            return false;
        }
    return td_publish_stream_end(stream, expected, sum, err);
}

static void streams_of_any_size_arrive_whole(void **state)
{
    const uint64_t sizes[] = {0, 1, 2 * PIECE - 1, 2 * PIECE, 2 * PIECE + 1, MAX_BYTES};
    struct place *place = *state;
    uint64_t bytes = 0;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int known = 0; known < 2; known++) {
            struct td_publish_sum blob;
            struct td_error err;
            uint8_t sum[TD_SHA256_BYTES];
            td_sha256(place->bytes, sizes[i], sum);
            CHECK(send_stream(place, known == 1 ? sizes[i] : TD_FETCH_SIZE_UNKNOWN, sizes[i], known == 1 ? sum : NULL,
                              &blob, &err),
                  "%s", err.message);
            CHECK(blob.size_bytes == sizes[i] && memcmp(blob.sha256, sum, sizeof sum) == 0, "size %zu",
                  (size_t)sizes[i]);
        }
        bytes += sizes[i]; /* the second time it was here */
        assert_int_equal(used_bytes(place), bytes);
        assert_int_equal(place->notes, i + 1);
        uint8_t sum[TD_SHA256_BYTES];
        td_sha256(place->bytes, sizes[i], sum);
        check_file(place, "models--org--m", sum, sizes[i]);
    }
}

static void wrong_streams_leave_nothing(void **state)
{
    static const struct {
        uint64_t announced, len;
        bool is_wrong;
        enum td_code code;
        const char *message;
    } cases[] = {{1000, 999, false, TD_INVALID_ARGUMENT, "the body ended 1 bytes before its announced end"},
                 {1000, 1001, false, TD_INVALID_ARGUMENT, "more than the 1000 bytes that it announced"},
                 {3 * TD_FETCH_PIECE_BYTES, 3 * TD_FETCH_PIECE_BYTES, true, TD_FAILED_PRECONDITION, "another digest"},
                 {TD_FETCH_SIZE_UNKNOWN, 10, true, TD_FAILED_PRECONDITION, "another digest"},
                 {UINT64_C(1) << 63, 0, false, TD_INVALID_ARGUMENT, "no file has 9223372036854775808 bytes"},
                 {UINT64_C(1) << 62, 0, false, TD_RESOURCE_EXHAUSTED, "it needs 4611686018427387904 more bytes"}};
    static const uint8_t other[TD_SHA256_BYTES];
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_publish_sum blob;
        struct td_error err;
        bool ok = send_stream(place, cases[i].announced, cases[i].len, cases[i].is_wrong ? other : NULL, &blob, &err);
        CHECK(!ok && err.code == cases[i].code && strstr(err.message, cases[i].message) != NULL, "%zu: %d %s", i,
              (int)err.code, err.message);
        assert_int_equal(used_bytes(place), 0);
        assert_int_equal(place->notes, 0);
    }
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, ".tensord-publish/incoming", path);
    assert_int_equal(rmdir(path), 0); /* it is empty */
}

/* ---- many at once ------------------------------------------------------------------------------------------ */

struct sender {
    struct place *place;
    const uint8_t *sum;
    uint64_t size;
    unsigned number;
    _Atomic unsigned *complete;
};

/* Sends the blob piece by piece, from a place of its own on, until it is complete. */
static void *send_pieces(void *argument)
{
    struct sender *sender = argument;
    uint64_t pieces = td_fetch_piece_count(sender->size);
    enum td_publish_end end = TD_PUBLISH_INCOMPLETE;
    for (uint64_t i = 0; end == TD_PUBLISH_INCOMPLETE && i < 4 * pieces; i++) {
        uint64_t first = (i * 3 + sender->number * 7) % pieces * PIECE;
        uint64_t last = first + PIECE < sender->size ? first + PIECE : sender->size;
        end = send_span(sender->place, "org/m", sender->sum, sender->size, first, last);
    }
    *sender->complete += end == TD_PUBLISH_COMPLETE ? 1 : 0;
    return NULL;
}

static void many_senders_complete_one_blob(void **state)
{
    enum { SENDERS = 6, ROUNDS = 10 };
    struct place *place = *state;
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t size = 19 * PIECE + (uint64_t)round;
        struct sender senders[SENDERS];
        pthread_t threads[SENDERS];
        _Atomic unsigned complete = 0;
        struct td_publish_status status;
        uint8_t sum[TD_SHA256_BYTES];
        td_sha256(place->bytes, size, sum);
        for (unsigned i = 0; i < SENDERS; i++) {
            senders[i] = (struct sender){.place = place, .sum = sum, .size = size, .number = i, .complete = &complete};
            assert_int_equal(pthread_create(&threads[i], NULL, send_pieces, &senders[i]), 0);
        }
        for (unsigned i = 0; i < SENDERS; i++)
            (void)pthread_join(threads[i], NULL);
        assert_int_equal(complete, SENDERS);
        check_file(place, "models--org--m", sum, size);
        td_publish_get_status(place->publish, &status);
        assert_int_equal(status.upload_count, 0);
        assert_int_equal(status.blob_count, round + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, blobs_of_any_size_arrive_whole),
        TEST_IN(place, pieces_arrive_in_any_order),
        TEST_IN(place, spans_and_sizes_are_checked),
        TEST_IN(place, wrong_bytes_are_dropped_and_can_be_sent_again),
        TEST_IN(place, a_slow_client_holds_up_nobody),
        TEST_IN(place, bytes_of_two_clients_are_hashed_as_they_are_in_the_file),
        TEST_IN(place, what_has_arrived_stays_after_a_cut_and_a_restart),
        TEST_IN(place, a_small_blob_leaves_nothing_unless_it_is_whole),
        TEST_IN(place, a_small_blob_of_a_model_that_is_removed_is_counted_once),
        TEST_IN(place, the_bound_holds_and_bytes_come_back),
        TEST_IN(place, blobs_are_known_to_their_own_repository_alone),
        TEST_IN(place, an_upload_without_a_part_has_no_thread),
        TEST_IN(place, open_uploads_have_a_bound),
        TEST_IN(place, the_report_has_what_is_measured),
        TEST_IN(place, a_blob_that_nobody_ended_lacks_its_last_piece),
        TEST_IN(place, a_blob_that_gets_no_place_keeps_its_pieces),
        TEST_IN(place, a_blob_that_came_another_way_stays),
        TEST_IN(place, streams_of_any_size_arrive_whole),
        TEST_IN(place, wrong_streams_leave_nothing),
        TEST_IN(place, many_senders_complete_one_blob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
