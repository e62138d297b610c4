/* Shared by the tests of the store of kept models: a store in a tree, and models of one or two small files. */
#ifndef TD_TESTS_UNIT_CATALOG_STORE_PLACE_H
#define TD_TESTS_UNIT_CATALOG_STORE_PLACE_H

#include "catalog/upstream/upstream_store.h"
#include "core/digest.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static inline struct td_upstream_store *open_store(const struct tree *tree, uint64_t max_bytes)
{
    struct td_upstream_store *store = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_upstream_store_open(tree->path, max_bytes, &store, &err), "%s", err.message);
    return store;
}

static inline bool exists(const struct tree *tree, const char *name)
{
    char path[TREE_PATH_BYTES];
    struct stat st;
    tree_at(tree, name, path);
    return lstat(path, &st) == 0;
}

/* Writes a file into a directory. */
static inline void put(int directory, const char *name, const char *text)
{
    int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

/* Begins a model, with one file in it. */
static inline void begin(struct td_upstream_store *store, const char *id, uint64_t bytes)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    CHECK(td_upstream_store_begin(store, id, bytes, &folder, &began_s, &evicted, &err), "%s", err.message);
    put(folder->fd, "config.json", "{}");
    td_root_unref(folder);
}

static inline bool is_config(void *context, const char *path)
{
    (void)context;
    return strcmp(path, "config.json") == 0 || strcmp(path, "d/config.json") == 0;
}

static inline void publish(struct td_upstream_store *store, const char *id)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_upstream_store_publish(store, id, true, is_config, NULL, &err), "%s", err.message);
}

static inline void keep(struct td_upstream_store *store, const char *id, uint64_t bytes)
{
    begin(store, id, bytes);
    publish(store, id);
}

/* As keep, with a directory in the model and a file in that: config.json and d/config.json, both "{}". */
static inline void keep_deep(struct td_upstream_store *store, const char *id, uint64_t bytes)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    CHECK(td_upstream_store_begin(store, id, bytes, &folder, &began_s, &evicted, &err), "%s", err.message);
    put(folder->fd, "config.json", "{}");
    assert_int_equal(mkdirat(folder->fd, "d", 0755), 0);
    put(folder->fd, "d/config.json", "{}");
    td_root_unref(folder);
    publish(store, id);
}

/* Writes the name of something in the store that is called by a model's key: "records/KEY" for "records/%s". */
static inline void name_in_store(const char *format, const char *id, char out[128])
{
    char key[TD_TAG_BYTES];
    const char *mark = strstr(format, "%s");
    assert_true(td_digest_tag(id, strlen(id), key));
    (void)snprintf(out, 128, ".tensord-upstream/%.*s%s%s", (int)(mark - format), format, key, mark + 2);
}

/* Sets when a record was last read, as the store keeps it. */
static inline void set_read(const struct tree *tree, const char *id, int64_t seconds)
{
    char name[128];
    char path[TREE_PATH_BYTES];
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    name_in_store("records/%s", id, name);
    tree_at(tree, name, path);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

#endif
