/* Uploads in numbered parts: what they take, what stays over a restart, full and failing disks, the share of a token.
 */
#include "catalog/publish/publish_parts.h"

#include "catalog/publish/publish.h"
#include "catalog/publish/publish_stream.h"
#include "catalog/publish/publish_xorbs.h"
#include "tests/unit/tree_fixture.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MOST_PARTS = 8 };

static size_t syncs, failing_sync; /* failing_sync: the number of the call that fails; 0: none */
static size_t reservations;
static uint64_t room_bytes; /* that the disk has; UINT64_MAX: as it says */

int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fallocate64(int fd, int mode, off_t off, off_t len);
int __real_fallocate64(int fd, int mode, off_t off, off_t len);
int __wrap_fstatvfs64(int fd, struct statvfs *out);
int __real_fstatvfs64(int fd, struct statvfs *out);

static int sync_or_fail(void)
{
    if (++syncs != failing_sync)
        return 0;
    errno = EIO;
    return -1;
}

int __wrap_fsync(int fd)
{
    (void)fd;
    return sync_or_fail();
}

int __wrap_fdatasync(int fd)
{
    (void)fd;
    return sync_or_fail();
}

int __wrap_fallocate64(int fd, int mode, off_t off, off_t len)
{
    reservations++;
    return __real_fallocate64(fd, mode, off, len);
}

int __wrap_fstatvfs64(int fd, struct statvfs *out)
{
    int result = __real_fstatvfs64(fd, out);
    if (room_bytes != UINT64_MAX) {
        out->f_frsize = 1;
        out->f_bavail = room_bytes;
    }
    return result;
}

struct place {
    struct tree tree;
    struct td_publish *publish;
    struct td_publish_config config;
    struct td_parts_upload upload;
};

static void open_store(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_open(&place->config, &place->publish, &err), "%s", err.message);
}

static void reopen(struct place *place)
{
    td_publish_close(place->publish);
    open_store(place);
}

static bool begin_upload(struct place *place, const char *repo, const char *owner, struct td_parts_upload *upload,
                         struct td_error *err)
{
    *upload = (struct td_parts_upload){.path = "dir/file.bin", .label = "a label"};
    (void)snprintf(upload->repo_id, sizeof upload->repo_id, "%s", repo);
    (void)snprintf(upload->owner, sizeof upload->owner, "%s", owner);
    return td_parts_begin(place->publish, upload, err);
}

static void place_open(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    syncs = failing_sync = 0;
    room_bytes = UINT64_MAX;
    tree_open(&place->tree);
    place->config =
        (struct td_publish_config){.root = place->tree.path, .upload_expires_s = 3600, .keep_commits_s = 3600};
    open_store(place);
    CHECK(begin_upload(place, "org/m", "ci", &place->upload, &err), "%s", err.message);
}

static void place_close(struct place *place)
{
    td_publish_close(place->publish);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, place_open, place_close)

static uint64_t used_bytes(struct place *place)
{
    struct td_publish_status status;
    td_publish_get_status(place->publish, &status);
    return status.used_bytes;
}

static bool send_part(struct place *place, unsigned number, const char *content, struct td_error *err)
{
    struct td_part_writer *writer;
    struct td_part_info info;
    td_error_init(err);
    if (!td_part_begin(place->publish, &place->upload, number, strlen(content), &writer, err))
        return false;
    CHECK(td_part_write(writer, content, strlen(content), err), "%s", err->message);
    if (!td_part_end(writer, "label", &info, err))
        return false;
    assert_int_equal(info.number, number);
    assert_int_equal(info.size_bytes, strlen(content));
    assert_string_equal(info.label, "label");
    return true;
}

static void part_is_sent(struct place *place, unsigned number, const char *content)
{
    struct td_error err;
    CHECK(send_part(place, number, content, &err), "%u: %s", number, err.message);
}

/* Returns the parts of the upload, "1=3 2=4": number and bytes. */
static const char *parts_of(struct place *place)
{
    static char out[256];
    struct td_part_info parts[MOST_PARTS];
    size_t count;
    bool has_more;
    struct td_error err = TD_ERROR_INIT;
    size_t used = 0;
    CHECK(td_parts_list(place->publish, place->upload.id, 0, MOST_PARTS, parts, &count, &has_more, &err), "%s",
          err.message);
    assert_false(has_more);
    out[0] = '\0';
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%u=%d", i > 0 ? " " : "", parts[i].number,
                                 (int)parts[i].size_bytes);
    return out;
}

static void parts_come_in_any_order_and_replace_each_other(void **state)
{
    struct place *place = *state;
    struct td_parts_upload found;
    uint64_t before = used_bytes(place);
    part_is_sent(place, 3, "three");
    part_is_sent(place, 1, "one");
    assert_string_equal(parts_of(place), "1=3 3=5");
    part_is_sent(place, 3, "and more");
    assert_string_equal(parts_of(place), "1=3 3=8");
    uint64_t used = used_bytes(place);
    assert_true(used >= before + 11);
    reopen(place);
    assert_string_equal(parts_of(place), "1=3 3=8");
    assert_int_equal(used_bytes(place), used);
    assert_true(td_parts_find(place->publish, td_text_of(place->upload.id), &found, NULL));
    assert_string_equal(found.repo_id, "org/m");
    assert_string_equal(found.path, "dir/file.bin");
    assert_string_equal(found.label, "a label");
    assert_string_equal(found.owner, "ci");
    assert_true(td_parts_remove(place->publish, place->upload.id, NULL));
    assert_int_equal(used_bytes(place), before);
    assert_false(td_parts_find(place->publish, td_text_of(place->upload.id), &found, NULL));
}

static void an_upload_that_is_done_keeps_no_parts(void **state)
{
    struct place *place = *state;
    struct td_parts_upload found;
    const struct td_publish_sum sum = {.sha256 = {1, 2, 3}, .size_bytes = 8};
    uint64_t before = used_bytes(place);
    part_is_sent(place, 1, "one");
    assert_true(td_parts_finish(place->publish, place->upload.id, &sum, NULL));
    assert_int_equal(used_bytes(place), before);
    reopen(place);
    assert_true(td_parts_find(place->publish, td_text_of(place->upload.id), &found, NULL));
    assert_true(found.is_done);
    assert_int_equal(found.sum.size_bytes, 8);
    assert_memory_equal(found.sum.sha256, sum.sha256, sizeof sum.sha256);
}

static void a_part_that_is_cut_or_too_long_leaves_nothing(void **state)
{
    struct place *place = *state;
    struct td_part_writer *writer;
    struct td_part_info info;
    struct td_error err = TD_ERROR_INIT;
    uint64_t before = used_bytes(place);
    assert_true(td_part_begin(place->publish, &place->upload, 1, 4, &writer, NULL));
    assert_true(td_part_write(writer, "abc", 3, NULL));
    assert_false(td_part_write(writer, "de", 2, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_error_init(&err);
    assert_false(td_part_end(writer, "", &info, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    assert_string_equal(parts_of(place), "");
    assert_int_equal(used_bytes(place), before);
}

/* A part that is not durable is not acknowledged. */
static void a_part_that_cannot_be_made_durable_is_none(void **state)
{
    struct place *place = *state;
    struct td_error err;
    uint64_t before = used_bytes(place);
    bool ok = false;
    size_t failed = 0;
    for (size_t nth = 1; !ok; nth++) {
        part_is_sent(place, 1, "first");
        syncs = 0;
        failing_sync = nth;
        ok = send_part(place, 1, "second", &err);
        failing_sync = 0;
        if (ok)
            break;
        failed++;
        assert_int_equal(err.code, TD_IO);
        const char *parts = parts_of(place);
        CHECK(strcmp(parts, "1=5") == 0 || strcmp(parts, "") == 0, "%zu: %s", nth, parts);
        uint64_t used = used_bytes(place);
        reopen(place);
        assert_int_equal(used_bytes(place), used); /* what is counted is what is there */
    }
    CHECK(failed >= 2, "%zu", failed); /* the file, its folder */
    assert_string_equal(parts_of(place), "1=6");
    assert_true(td_parts_remove(place->publish, place->upload.id, NULL));
    assert_int_equal(used_bytes(place), before);
}

/* The disk is asked before it has to reserve the room: a reservation that fails late takes all that is left for a
 * while, so that others fail, too. */
static void what_has_no_room_on_the_disk_is_refused_at_once(void **state)
{
    struct place *place = *state;
    struct td_part_writer *writer;
    struct td_publish_stream *stream;
    struct td_publish_xorb_part *xorb;
    struct td_publish_name name;
    struct td_error errors[3] = {TD_ERROR_INIT, TD_ERROR_INIT, TD_ERROR_INIT};
    uint64_t before = used_bytes(place);
    assert_true(td_publish_name("org/m", false, &name, NULL));
    room_bytes = 1000;
    reservations = 0;
    assert_false(td_part_begin(place->publish, &place->upload, 1, 1001, &writer, &errors[0]));
    assert_false(td_publish_stream_begin(place->publish, &name, 1001, &stream, &errors[1]));
    assert_false(td_publish_xorb_begin(place->publish, 1, 1001, &xorb, &errors[2]));
    for (size_t i = 0; i < COUNT_OF(errors); i++) {
        CHECK(errors[i].code == TD_RESOURCE_EXHAUSTED && errors[i].sys == ENOSPC, "%zu: %s", i, errors[i].message);
        check_says(&errors[i], "1000", "the room that is left");
    }
    assert_int_equal(reservations, 0);
    assert_int_equal(used_bytes(place), before);
    part_is_sent(place, 1, "fits");
}

/* An id in the way of another one is refused here, and not after hours, when the parts are put together. */
static void the_id_is_checked_at_the_beginning(void **state)
{
    struct place *place = *state;
    struct td_parts_upload upload;
    struct td_error err = TD_ERROR_INIT;
    tree_text(&place->tree, "team/notes.txt", "of the operator");
    assert_false(begin_upload(place, "team/x", "", &upload, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    td_error_init(&err);
    assert_false(begin_upload(place, "team", "", &upload, &err));
    assert_int_equal(err.code, TD_CONFLICT);
}

static void a_token_has_a_share_of_the_uploads(void **state)
{
    struct place *place = *state;
    struct td_parts_upload upload;
    struct td_error err = TD_ERROR_INIT;
    const struct td_publish_sum sum = {.size_bytes = 0};
    for (size_t i = 1; i < TD_PARTS_MOST_OF_ONE; i++) /* and the place's */
        CHECK(begin_upload(place, "org/m", "ci", &upload, &err), "%zu: %s", i, err.message);
    assert_false(begin_upload(place, "org/m", "ci", &upload, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    check_says(&err, "\"ci\" has 2500 multipart uploads", "the share");
    td_error_init(&err);
    CHECK(begin_upload(place, "org/m", "other", &upload, &err), "%s", err.message);
    CHECK(begin_upload(place, "org/m", "", &upload, &err), "%s", err.message);
    assert_true(td_parts_finish(place->publish, place->upload.id, &sum, NULL)); /* one that is done does not count */
    CHECK(begin_upload(place, "org/m", "ci", &upload, &err), "%s", err.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, parts_come_in_any_order_and_replace_each_other),
        TEST_IN(place, an_upload_that_is_done_keeps_no_parts),
        TEST_IN(place, a_part_that_is_cut_or_too_long_leaves_nothing),
        TEST_IN(place, a_part_that_cannot_be_made_durable_is_none),
        TEST_IN(place, what_has_no_room_on_the_disk_is_refused_at_once),
        TEST_IN(place, the_id_is_checked_at_the_beginning),
        TEST_IN(place, a_token_has_a_share_of_the_uploads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
