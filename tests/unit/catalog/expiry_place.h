/* Shared by the tests of what expires: a store with one repository, org/m, and a wall clock that a test sets. A program
 * with this file is linked with --wrap=td_wall_now. */
#ifndef TD_TESTS_UNIT_CATALOG_EXPIRY_PLACE_H
#define TD_TESTS_UNIT_CATALOG_EXPIRY_PLACE_H

#include "catalog/publish/publish.h"
#include "catalog/publish/publish_stream.h"
#include "catalog/publish/publish_upload.h"
#include "core/clock.h"
#include "core/digits.h"
#include "storage/fetch/fetch_target.h"
#include "tests/unit/tree_fixture.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MINUTE INT64_C(60)
#define HOUR INT64_C(3600)
#define DAY INT64_C(86400)

enum { BLOB_PATH_BYTES = 128 };

static _Atomic int64_t clock_ahead_s;

struct td_wall __wrap_td_wall_now(void);
struct td_wall __real_td_wall_now(void);

struct td_wall __wrap_td_wall_now(void)
{
    struct td_wall now = __real_td_wall_now();
    now.seconds += clock_ahead_s;
    return now;
}

struct place {
    struct tree tree;
    struct td_publish *publish;
    struct td_publish_name name;
};

static inline void place_open(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    clock_ahead_s = 0;
    tree_open(&place->tree);
    const struct td_publish_config config = {.root = place->tree.path, .upload_expires_s = DAY, .keep_commits_s = HOUR};
    CHECK(td_publish_open(&config, &place->publish, &err), "%s", err.message);
    assert_true(td_publish_name("org/m", false, &place->name, NULL));
}

static inline void place_close(struct place *place)
{
    td_publish_close(place->publish);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, place_open, place_close)

static inline void send_blob(struct place *place, const char *content)
{
    struct td_publish_stream *stream;
    struct td_publish_sum sum;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_stream_begin(place->publish, &place->name, strlen(content), &stream, &err), "%s", err.message);
    CHECK(td_publish_stream_write(stream, content, strlen(content), &err), "%s", err.message);
    CHECK(td_publish_stream_end(stream, NULL, &sum, &err), "%s", err.message);
}

/* Sends the first one of two pieces of a blob, and closes its upload. Writes the path of the unfinished file in the
 * repository, and the blob's digest. */
static inline void send_first_piece(struct place *place, uint8_t sum[TD_SHA256_BYTES], char path[BLOB_PATH_BYTES])
{
    enum { SIZE = 2 * TD_FETCH_PIECE_BYTES };
    const struct td_publish_span span = {.size_bytes = SIZE, .end = TD_FETCH_PIECE_BYTES};
    struct td_publish_part *part;
    uint8_t *bytes = calloc(1, SIZE);
    char hex[TD_SHA256_TEXT_BYTES];
    assert_non_null(bytes);
    td_sha256(bytes, SIZE, sum);
    assert_true(td_publish_part_begin(place->publish, &place->name, sum, &span, &part, NULL));
    assert_true(td_publish_part_write(part, bytes, TD_FETCH_PIECE_BYTES, NULL));
    td_publish_part_abandon(part);
    free(bytes);
    td_publish_close_idle(place->publish, NULL, UINT64_MAX);
    td_hex_write(sum, TD_SHA256_BYTES, hex);
    (void)snprintf(path, BLOB_PATH_BYTES, "blobs/.%s" TD_FETCH_PART_END, hex);
}

/* Writes the path of a complete blob in the repository. */
static inline void name_blob(const char *content, char path[BLOB_PATH_BYTES])
{
    uint8_t sum[TD_SHA256_BYTES];
    char hex[TD_SHA256_TEXT_BYTES];
    td_sha256(content, strlen(content), sum);
    td_hex_write(sum, sizeof sum, hex);
    (void)snprintf(path, BLOB_PATH_BYTES, "blobs/%s", hex);
}

/* Writes the whole path of a file of the repository. is_new: the repository has no commit yet. */
static inline void path_in(const struct place *place, bool is_new, const char *path, char whole[TREE_PATH_BYTES])
{
    char name[400];
    (void)snprintf(name, sizeof name, "%smodels--org--m/%s", is_new ? ".tensord-publish/new/" : "", path);
    tree_at(&place->tree, name, whole);
}

/* Returns whether the repository has a file at this path. */
static inline bool has(const struct place *place, bool is_new, const char *path)
{
    char whole[TREE_PATH_BYTES];
    struct stat st;
    path_in(place, is_new, path, whole);
    return lstat(whole, &st) == 0;
}

#endif
