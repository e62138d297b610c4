/* Tests for every log of records in the state directory, whatever its records are: restarts, batches, the form of the
 * file, damage, and disks that are full or fail. A test gives a table of functions for its log, and lists
 * LOG_SCENES(&table) among its tests. Entry i of a log can be computed from i. */
#ifndef TD_TESTS_UNIT_CATALOG_LOG_SCENES_H
#define TD_TESTS_UNIT_CATALOG_LOG_SCENES_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

enum { SCENE_PAYLOAD_BYTES = 256 }; /* a payload has at most as many */

struct scene_log {
    const char *name;  /* of the file in the state directory */
    const char *magic; /* 8 characters */
    size_t payload_bytes;

    /* Opens the log for writing. Returns NULL when it is refused. */
    void *(*open)(const char *state_dir, struct td_error *err);
    void (*close)(void *log);
    void (*flush)(void *log);

    /* Adds entry i. */
    void (*add)(void *log, uint64_t i);

    /* Checks that the log has exactly the first `known` of `count` entries. */
    void (*check)(void *log, size_t known, size_t count);

    /* Writes the payload of entry i as the header of the log's module describes it, independently of the program.
     * Returns where it ends. */
    uint8_t *(*write_payload)(uint8_t *at, uint64_t i);
};

void scene_restart(void **state);
void scene_batches_are_written_by_themselves(void **state);
void scene_the_file_is_as_described(void **state);
void scene_every_prefix_is_used_as_far_as_it_goes(void **state);
void scene_no_changed_byte_is_believed(void **state);
void scene_garbage_is_an_empty_log(void **state);
void scene_a_log_that_others_can_write_to_is_refused(void **state);
void scene_a_full_disk_stops_the_log_once(void **state);
void scene_short_writes_are_continued(void **state);
void scene_a_failed_synchronisation_is_not_repeated(void **state);

#define LOG_SCENES(log)                                                                  \
    cmocka_unit_test_prestate(scene_restart, log),                                       \
        cmocka_unit_test_prestate(scene_batches_are_written_by_themselves, log),         \
        cmocka_unit_test_prestate(scene_the_file_is_as_described, log),                  \
        cmocka_unit_test_prestate(scene_every_prefix_is_used_as_far_as_it_goes, log),    \
        cmocka_unit_test_prestate(scene_no_changed_byte_is_believed, log),               \
        cmocka_unit_test_prestate(scene_garbage_is_an_empty_log, log),                   \
        cmocka_unit_test_prestate(scene_a_log_that_others_can_write_to_is_refused, log), \
        cmocka_unit_test_prestate(scene_a_full_disk_stops_the_log_once, log),            \
        cmocka_unit_test_prestate(scene_short_writes_are_continued, log),                \
        cmocka_unit_test_prestate(scene_a_failed_synchronisation_is_not_repeated, log)

/* Writes the value as little-endian bytes, and moves *at behind them. */
void put(uint8_t **at, uint64_t value, size_t bytes);

/* Writes a log of the first `count` entries by hand. Returns its length. */
size_t by_hand(const struct scene_log *log, uint8_t *bytes, size_t count);

#endif
