/* Shared by the tests of digest logs: logs whose i-th entry can be computed, on a disk that may fail. */
#ifndef TD_TESTS_UNIT_CATALOG_DIGEST_LOG_PLACE_H
#define TD_TESTS_UNIT_CATALOG_DIGEST_LOG_PLACE_H

#include "catalog/digests/digest_log.h"
#include "tests/kit/tree.h"
#include "tests/unit/catalog/disk_hooks.h"
#include "tests/unit/unit.h"

#include <sys/stat.h>

/* Sizes in the file, from digest_log.h. */
enum { HEADER_BYTES = 16, RECORD_BYTES = 88 };

struct place {
    struct tree tree;
    char state[TREE_PATH_BYTES], file[TREE_PATH_BYTES];
};

static inline void place_open(struct place *place)
{
    disarm();
    tree_open(&place->tree);
    tree_at(&place->tree, "state", place->state);
    tree_at(&place->tree, "state/digests", place->file);
}

static inline void place_close(struct place *place)
{
    tree_close(&place->tree);
}

FIXTURE(place, struct place, place_open, place_close)

static inline struct td_digest_log *open_log(const struct place *place, enum td_record_log_mode mode)
{
    struct td_digest_log *log = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_digest_log_open(place->state, NULL, mode, &log, &err), "%s", err.message);
    return log;
}

/* Returns identity number i. Identities differ in one field at a time. */
static inline struct td_file_id id_of(uint64_t i)
{
    struct td_file_id id = {.device = 7,
                            .inode = 1000,
                            .size_bytes = 5,
                            .mtime_ns = INT64_C(1700000000123456789),
                            .ctime_ns = INT64_C(1700000001123456789)};
    uint64_t *const fields[] = {&id.device, &id.inode, &id.size_bytes, (uint64_t *)&id.mtime_ns,
                                (uint64_t *)&id.ctime_ns};
    *fields[i % COUNT_OF(fields)] += 1 + i / COUNT_OF(fields);
    return id;
}

static inline void sum_of(uint64_t i, uint8_t sum[TD_SHA256_BYTES])
{
    for (size_t k = 0; k < TD_SHA256_BYTES; k++)
        sum[k] = (uint8_t)(i * 31 + i / 256 + k * 7 + 1);
}

static inline void add(struct td_digest_log *log, uint64_t i)
{
    uint8_t sum[TD_SHA256_BYTES];
    struct td_file_id id = id_of(i);
    sum_of(i, sum);
    td_digest_log_add(log, &id, sum);
}

/* Returns whether the log has the i-th entry. Fails if its digest is wrong. */
static inline bool has(struct td_digest_log *log, uint64_t i)
{
    uint8_t sum[TD_SHA256_BYTES];
    uint8_t wanted[TD_SHA256_BYTES];
    struct td_file_id id = id_of(i);
    sum_of(i, wanted);
    if (!td_digest_log_find(log, &id, sum))
        return false;
    assert_memory_equal(sum, wanted, sizeof sum);
    return true;
}

/* Checks that the log has exactly the first `known` of `count` entries. */
static inline void knows_the_first(struct td_digest_log *log, size_t known, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(has(log, i) == (i < known), "%zu of %zu, where the first %zu are right", i, count, known);
    assert_int_equal(td_digest_log_count(log), known);
}

static inline void fill(const struct place *place, size_t count)
{
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_WRITE);
    for (size_t i = 0; i < count; i++)
        add(log, i);
    td_digest_log_close(log);
}

static inline size_t file_bytes(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

static inline size_t read_file(const char *path, uint8_t *bytes, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, capacity, file);
    assert_true(n < capacity);
    (void)fclose(file);
    return n;
}

/* Opens an existing log, which must have exactly the first `known` entries, and adds entries. The next start must find
 * them and no damage. */
static inline void check_recovery(const struct place *place, size_t known, size_t count)
{
    struct td_digest_log *log = open_log(place, TD_RECORD_LOG_READ);
    knows_the_first(log, known, count);
    td_digest_log_close(log);
    log = open_log(place, TD_RECORD_LOG_WRITE);
    assert_true(td_digest_log_is_stored(log));
    knows_the_first(log, known, count);
    add(log, known);
    td_digest_log_close(log);
    assert_int_equal(file_bytes(place->file), HEADER_BYTES + (known + 1) * RECORD_BYTES);
    log = open_log(place, TD_RECORD_LOG_WRITE);
    knows_the_first(log, known + 1, count);
    td_digest_log_close(log);
}

/* The entries that compacting keeps. */
struct keeper {
    uint64_t below; /* entries below this number are kept */
};

static inline bool is_below(void *context, const struct td_file_id *id)
{
    const struct keeper *keeper = context;
    for (uint64_t i = 0; i < keeper->below; i++) {
        struct td_file_id kept = id_of(i);
        if (td_file_id_equal(&kept, id))
            return true;
    }
    return false;
}

#endif
