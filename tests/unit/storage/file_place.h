/* A directory of files with known bytes, and the cache that maps them. */
#ifndef TD_TESTS_UNIT_STORAGE_FILE_PLACE_H
#define TD_TESTS_UNIT_STORAGE_FILE_PLACE_H

#include "storage/fault_guard.h"
#include "storage/file_source.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 100, FILE_BYTES = 10000 };

struct place {
    struct tree tree;
    struct td_root *root;
    struct td_mapping_cache cache;
    char names[FILES][32];
    struct td_file_source sources[FILES];
};

static inline void write_file(const struct place *place, size_t i, size_t len, unsigned salt)
{
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    for (size_t k = 0; k < len; k++)
        bytes[k] = tree_data_byte(k, salt);
    tree_write(&place->tree, place->names[i], bytes, len);
    free(bytes);
}

/* Sets the source's identity to that of the file now, as a scan would. */
static inline void look(struct place *place, size_t i)
{
    struct stat st;
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[i], path);
    assert_int_equal(stat(path, &st), 0);
    place->sources[i].path = place->names[i];
    place->sources[i].id = td_file_id_of(&st);
}

static inline void open_place(struct place *place, size_t files, size_t capacity, int lease_signal)
{
    struct td_error err = TD_ERROR_INIT;
    memset(place, 0, sizeof *place);
    assert_true(td_fault_guard_install());
    tree_open(&place->tree);
    for (size_t i = 0; i < files; i++) {
        (void)snprintf(place->names[i], sizeof place->names[i], "file-%zu", i);
        write_file(place, i, FILE_BYTES, (unsigned)i);
        look(place, i);
    }
    assert_true(td_root_create(place->tree.path, &place->root, &err));
    assert_true(td_mapping_cache_init(&place->cache, capacity, lease_signal, false, &err));
}

static inline void close_place(struct place *place)
{
    td_mapping_cache_fini(&place->cache);
    td_root_unref(place->root);
    tree_close(&place->tree);
}

static inline size_t mapped_count(struct place *place)
{
    return td_mapping_cache_count(&place->cache).mapped;
}

static inline size_t leased_count(struct place *place)
{
    return td_mapping_cache_count(&place->cache).leased;
}

static inline size_t watched_count(struct place *place)
{
    return td_mapping_cache_count(&place->cache).watched;
}

/* Returns a reference to the file's blob. */
static inline struct td_blob *map(struct place *place, size_t i)
{
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_file_source_map(&place->cache, place->root, &place->sources[i], &blob, &err), "%s", err.message);
    return blob;
}

static inline void expect_changed(struct place *place, size_t i, const char *what)
{
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(!td_file_source_map(&place->cache, place->root, &place->sources[i], &blob, &err), "%s", what);
    CHECK(err.code == TD_UNAVAILABLE, "%s: %s", what, err.message);
    CHECK(strstr(err.message, place->names[i]) != NULL, "%s: %s", what, err.message);
    CHECK(place->sources[i].mapping == NULL, "%s", what);
}

static inline bool holds(struct td_blob *blob, size_t len, unsigned salt)
{
    uint8_t out[FILE_BYTES];
    struct td_error err = TD_ERROR_INIT;
    if (blob->len_bytes != len || !td_blob_read(blob, 0, out, len, &err))
        return false;
    for (size_t i = 0; i < len; i++)
        if (out[i] != tree_data_byte(i, salt))
            return false;
    return true;
}

static inline bool is_mapped(const struct place *place, size_t i)
{
    return place->sources[i].mapping != NULL;
}

static inline void stat_first(const struct place *place, struct stat *st)
{
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[0], path);
    assert_int_equal(stat(path, st), 0);
}

/* Sets the mtime back, as `touch -r` and `cp -p` do. */
static inline void put_mtime_back(const struct place *place, const struct stat *before)
{
    char path[TREE_PATH_BYTES];
    struct timespec times[2] = {before->st_atim, before->st_mtim};
    struct stat now;
    tree_at(&place->tree, place->names[0], path);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    stat_first(place, &now);
    assert_true(now.st_mtim.tv_sec == before->st_mtim.tv_sec && now.st_mtim.tv_nsec == before->st_mtim.tv_nsec);
    assert_true(now.st_ctim.tv_sec != before->st_ctim.tv_sec || now.st_ctim.tv_nsec != before->st_ctim.tv_nsec);
}

static inline void change_mode(struct place *place)
{
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[0], path);
    assert_int_equal(chmod(path, 0600), 0);
}

static inline void link_it(struct place *place)
{
    char path[TREE_PATH_BYTES];
    char second[TREE_PATH_BYTES];
    tree_at(&place->tree, place->names[0], path);
    tree_at(&place->tree, "second", second);
    assert_int_equal(link(path, second), 0);
}

static inline void link_and_unlink(struct place *place)
{
    link_it(place);
    tree_remove(&place->tree, "second");
}

#endif
