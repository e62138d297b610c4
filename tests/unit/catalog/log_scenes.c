#include "tests/unit/catalog/log_scenes.h"

#include "tests/kit/tree.h"
#include "tests/unit/catalog/disk_hooks.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* From record_log.h: the header of the file, the frame of a record, and how many records wait together. */
enum { HEADER_BYTES = 16, FRAME_BYTES = 16, BATCH = 256 };

/* A state directory for the log under test. */
struct scene {
    const struct scene_log *log;
    struct tree tree;
    char state[TREE_PATH_BYTES], file[TREE_PATH_BYTES];
    char name[64]; /* of the file, in the tree */
};

static void scene_open(struct scene *scene, void **state)
{
    disarm();
    scene->log = *state;
    (void)snprintf(scene->name, sizeof scene->name, "state/%s", scene->log->name);
    tree_open(&scene->tree);
    tree_directory(&scene->tree, "state");
    tree_at(&scene->tree, "state", scene->state);
    tree_at(&scene->tree, scene->name, scene->file);
}

static void *opened(const struct scene *scene)
{
    struct td_error err = TD_ERROR_INIT;
    void *log = scene->log->open(scene->state, &err);
    CHECK(log != NULL, "%s", err.message);
    return log;
}

/* Adds the entries from number `first` up to `end`. */
static void add_up_to(const struct scene *scene, void *log, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        scene->log->add(log, i);
}

static void fill(const struct scene *scene, uint64_t count)
{
    void *log = opened(scene);
    add_up_to(scene, log, 0, count);
    scene->log->close(log);
}

static size_t record_bytes(const struct scene *scene)
{
    return scene->log->payload_bytes + FRAME_BYTES;
}

/* Checks that the file has the length of so many records. */
static void check_length(const struct scene *scene, size_t count)
{
    struct stat st;
    assert_int_equal(stat(scene->file, &st), 0);
    assert_int_equal(st.st_size, HEADER_BYTES + count * record_bytes(scene));
}

/* Returns the number of complete records in the first n bytes of a file. */
static size_t records_in(const struct scene *scene, size_t n)
{
    return n < HEADER_BYTES ? 0 : (n - HEADER_BYTES) / record_bytes(scene);
}

/* Opens an existing log, which must have exactly the first `known` entries, and adds one. The next start must find it
 * and no damage. */
static void check_recovery(const struct scene *scene, size_t known, size_t count)
{
    for (size_t round = 0; round < 2; round++) {
        void *log = opened(scene);
        scene->log->check(log, known + round, count);
        if (round == 0)
            scene->log->add(log, known);
        scene->log->close(log);
        check_length(scene, known + 1);
    }
}

void put(uint8_t **at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(value >> 8 * i);
}

size_t by_hand(const struct scene_log *log, uint8_t *bytes, size_t count)
{
    uint8_t *at = bytes;
    memcpy(at, log->magic, 8);
    at += 8;
    put(&at, 1, 4);
    put(&at, 0x01020304, 4);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = at;
        put(&at, log->payload_bytes + FRAME_BYTES, 4);
        put(&at, 1, 4);
        at = log->write_payload(at, i);
        put(&at, crc32(0, record, (uInt)(at - record)), 4);
        put(&at, 0, 4);
    }
    return (size_t)(at - bytes);
}

/* ---- restarts and batches ------------------------------------------------------------------------------ */

void scene_restart(void **state)
{
    struct scene scene;
    struct stat st;
    scene_open(&scene, state);
    fill(&scene, 1000);
    check_length(&scene, 1000);
    assert_int_equal(stat(scene.file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    void *log = opened(&scene);
    scene.log->check(log, 1000, 1100);
    scene.log->add(log, 5); /* already in the log */
    scene.log->flush(log);
    check_length(&scene, 1000);
    scene.log->add(log, 1000);
    scene.log->close(log);
    log = opened(&scene);
    scene.log->check(log, 1001, 1100);
    scene.log->close(log);
    tree_close(&scene.tree);
}

/* A full batch, or a flush, and nothing else brings an entry to the disk. */
void scene_batches_are_written_by_themselves(void **state)
{
    struct scene scene;
    scene_open(&scene, state);
    void *log = opened(&scene);
    for (uint64_t i = 0; i < BATCH; i++) {
        check_length(&scene, 0);
        scene.log->add(log, i);
    }
    check_length(&scene, BATCH);
    assert_int_equal(fdatasync_fault.calls, 1);
    scene.log->add(log, BATCH);
    check_length(&scene, BATCH);
    scene.log->flush(log);
    scene.log->flush(log);
    check_length(&scene, BATCH + 1);
    assert_int_equal(fdatasync_fault.calls, 2);
    scene.log->close(log);
    tree_close(&scene.tree);
}

/* ---- the file, and damage ------------------------------------------------------------------------------ */

enum { FEW = 5, ROOM = HEADER_BYTES + FEW * (SCENE_PAYLOAD_BYTES + FRAME_BYTES) };

void scene_the_file_is_as_described(void **state)
{
    struct scene scene;
    uint8_t wanted[ROOM];
    uint8_t written[ROOM + 1];
    scene_open(&scene, state);
    fill(&scene, FEW);
    size_t len = by_hand(scene.log, wanted, FEW);
    FILE *file = fopen(scene.file, "rb");
    assert_non_null(file);
    assert_int_equal(fread(written, 1, sizeof written, file), len);
    (void)fclose(file);
    assert_memory_equal(written, wanted, len);
    tree_close(&scene.tree);
}

/* shows: security.md digest-damaged-log oci-damaged-log */
void scene_every_prefix_is_used_as_far_as_it_goes(void **state)
{
    enum { COUNT = 4 };
    struct scene scene;
    uint8_t bytes[ROOM];
    scene_open(&scene, state);
    size_t len = by_hand(scene.log, bytes, COUNT);
    for (size_t n = 0; n <= len; n++) {
        tree_write(&scene.tree, scene.name, bytes, n);
        check_recovery(&scene, records_in(&scene, n), COUNT + 2);
    }
    tree_close(&scene.tree);
}

/* shows: security.md digest-damaged-log oci-damaged-log */
void scene_no_changed_byte_is_believed(void **state)
{
    enum { COUNT = 3 };
    static const uint8_t changes[] = {0x01, 0x80, 0xff};
    struct scene scene;
    uint8_t bytes[ROOM];
    scene_open(&scene, state);
    size_t len = by_hand(scene.log, bytes, COUNT);
    for (size_t n = 0; n < len; n++) {
        for (size_t k = 0; k < COUNT_OF(changes); k++) {
            bytes[n] ^= changes[k];
            tree_write(&scene.tree, scene.name, bytes, len);
            check_recovery(&scene, records_in(&scene, n), COUNT + 1);
            bytes[n] ^= changes[k];
        }
    }
    tree_close(&scene.tree);
}

void scene_garbage_is_an_empty_log(void **state)
{
    static const char zeros[4096];
    struct scene scene;
    scene_open(&scene, state);
    const struct {
        const void *bytes;
        size_t len;
    } cases[] = {{"x", 1}, {zeros, sizeof zeros}, {scene.log->magic, 8}, {"SQLite format 3", 16}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        tree_write(&scene.tree, scene.name, cases[i].bytes, cases[i].len);
        check_recovery(&scene, 0, 3);
    }
    tree_close(&scene.tree);
}

void scene_a_log_that_others_can_write_to_is_refused(void **state)
{
    struct scene scene;
    struct td_error err = TD_ERROR_INIT;
    scene_open(&scene, state);
    tree_write(&scene.tree, scene.name, "", 0);
    assert_int_equal(chmod(scene.file, 0666), 0);
    assert_null(scene.log->open(scene.state, &err));
    assert_int_equal(err.code, TD_PERMISSION_DENIED);
    check_says(&err, scene.log->name, "the message");
    tree_close(&scene.tree);
}

/* ---- the disk ------------------------------------------------------------------------------------------ */

/* After a write that stopped anywhere, look-ups work, no write is tried again, and the next start finds the complete
 * records. */
/* shows: security.md digest-disk-full */
void scene_a_full_disk_stops_the_log_once(void **state)
{
    struct scene scene;
    size_t step = 11;
    for (size_t left = 0; left < 3 * (((const struct scene_log *)*state)->payload_bytes + FRAME_BYTES); left += step) {
        scene_open(&scene, state);
        fill(&scene, 2);
        void *log = opened(&scene);
        write_at_most = left > 0 ? left : 1;
        arm(&write_fault, left > 0 ? 2 : 1, ENOSPC);
        add_up_to(&scene, log, 2, 5);
        scene.log->flush(log);
        unsigned calls = write_fault.calls;
        arm(&write_fault, 0, 0); /* the disk has room again */
        add_up_to(&scene, log, 5, 600);
        scene.log->flush(log);
        assert_int_equal(write_fault.calls, 0);
        CHECK(calls == (left > 0 ? 2 : 1), "%u calls", calls);
        scene.log->check(log, 600, 610);
        scene.log->close(log);
        disarm();
        check_recovery(&scene, 2 + left / record_bytes(&scene), 10);
        tree_close(&scene.tree);
    }
}

void scene_short_writes_are_continued(void **state)
{
    struct scene scene;
    scene_open(&scene, state);
    write_at_most = 7;
    fill(&scene, 300);
    void *log = opened(&scene);
    scene.log->check(log, 300, 310);
    scene.log->close(log);
    tree_close(&scene.tree);
}

/* After a failed fdatasync the kernel takes the lost pages for written, so a second call that succeeds would mean
 * nothing. */
/* shows: security.md digest-disk-full */
void scene_a_failed_synchronisation_is_not_repeated(void **state)
{
    struct scene scene;
    scene_open(&scene, state);
    void *log = opened(&scene);
    arm(&fdatasync_fault, 1, EIO);
    scene.log->add(log, 0);
    scene.log->flush(log);
    arm(&write_fault, 0, 0);
    add_up_to(&scene, log, 1, 2000);
    scene.log->flush(log);
    scene.log->check(log, 2000, 2010);
    scene.log->close(log);
    assert_int_equal(fdatasync_fault.calls, 1);
    assert_int_equal(write_fault.calls, 0);
    tree_close(&scene.tree);
}
