/* Shared by the tests of uploads: a store on a tree, and a blob of bytes that tests send in parts. */
#ifndef TD_TESTS_UNIT_CATALOG_UPLOAD_PLACE_H
#define TD_TESTS_UNIT_CATALOG_UPLOAD_PLACE_H

#include "catalog/publish/publish.h"
#include "catalog/publish/publish_upload.h"
#include "core/digits.h"
#include "storage/fetch/fetch_target.h"
#include "tests/unit/tree_fixture.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((uint64_t)TD_FETCH_PIECE_BYTES)

enum { MAX_BYTES = 8 * 1024 * 1024 };

/* A store on a tree, with what on_blob reported last. */
struct place {
    struct tree tree;
    struct td_publish *publish;
    struct td_publish_config config;
    struct td_file_id id;
    uint8_t noted[TD_SHA256_BYTES];
    unsigned notes;
    uint8_t *bytes; /* of the blob that tests send */
};

static inline void note(void *context, const struct td_file_id *id, const uint8_t sha256[TD_SHA256_BYTES])
{
    struct place *place = context;
    place->id = *id;
    memcpy(place->noted, sha256, TD_SHA256_BYTES);
    place->notes++;
}

static inline void reopen(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    td_publish_close(place->publish);
    place->publish = NULL;
    CHECK(td_publish_open(&place->config, &place->publish, &err), "%s", err.message);
}

static inline void place_open(struct place *place)
{
    tree_open(&place->tree);
    place->config = (struct td_publish_config){
        .root = place->tree.path, .upload_expires_s = 3600, .keep_commits_s = 3600, .on_blob = note, .context = place};
    place->bytes = malloc(MAX_BYTES);
    assert_non_null(place->bytes);
    for (size_t i = 0; i < MAX_BYTES; i++)
        place->bytes[i] = tree_data_byte(i, (unsigned)(i / TD_FETCH_PIECE_BYTES));
    reopen(place);
}

static inline void place_close(struct place *place)
{
    td_publish_close(place->publish);
    tree_close(&place->tree);
    free(place->bytes);
}

FIXTURE(place, struct place, place_open, place_close)

static inline struct td_publish_name name_of(const char *id)
{
    struct td_publish_name name;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_name(id, false, &name, &err), "%s", err.message);
    return name;
}

static inline uint64_t used_bytes(struct place *place)
{
    struct td_publish_status status;
    td_publish_get_status(place->publish, &status);
    return status.used_bytes;
}

static inline struct td_publish_part *begin(struct place *place, const char *id, const uint8_t *sum, uint64_t size,
                                            uint64_t first, uint64_t end)
{
    const struct td_publish_name name = name_of(id);
    const struct td_publish_span span = {.size_bytes = size, .first = first, .end = end};
    struct td_publish_part *part = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_part_begin(place->publish, &name, sum, &span, &part, &err), "%s", err.message);
    return part;
}

static inline enum td_code begin_fails(struct place *place, const char *id, const uint8_t *sum, uint64_t size,
                                       uint64_t first, uint64_t end, struct td_error *err)
{
    const struct td_publish_name name = name_of(id);
    const struct td_publish_span span = {.size_bytes = size, .first = first, .end = end};
    struct td_publish_part *part = NULL;
    td_error_init(err);
    assert_false(td_publish_part_begin(place->publish, &name, sum, &span, &part, err));
    assert_null(part);
    return err->code;
}

/* Writes bytes of a part, `step` at a time. */
static inline void write_part(struct td_publish_part *part, const uint8_t *bytes, uint64_t len, size_t step)
{
    struct td_error err = TD_ERROR_INIT;
    for (uint64_t at = 0; at < len; at += step)
        CHECK(td_publish_part_write(part, bytes + at, (size_t)(len - at < step ? len - at : step), &err), "%s",
              err.message);
}

static inline enum td_publish_end end_part(struct td_publish_part *part, struct td_publish_blob *blob)
{
    enum td_publish_end end = TD_PUBLISH_WRONG;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_part_end(part, &end, blob, &err), "%s", err.message);
    return end;
}

/* Sends [first, end) of the blob at once. */
static inline enum td_publish_end send_span(struct place *place, const char *id, const uint8_t *sum, uint64_t size,
                                            uint64_t first, uint64_t end)
{
    struct td_publish_blob blob;
    struct td_publish_part *part = begin(place, id, sum, size, first, end);
    if (part == NULL)
        return TD_PUBLISH_COMPLETE;
    write_part(part, place->bytes + first, end - first, 100000);
    enum td_publish_end result = end_part(part, &blob);
    td_publish_blob_fini(&blob);
    return result;
}

/* Checks that the file of the blob is in the repository's folder (below .tensord-publish/new until a commit), whole. */
static inline void check_file(struct place *place, const char *folder, const uint8_t *sum, uint64_t size)
{
    char name[TREE_PATH_BYTES];
    char path[TREE_PATH_BYTES];
    char hex[TD_SHA256_TEXT_BYTES];
    struct stat st;
    td_hex_write(sum, TD_SHA256_BYTES, hex);
    (void)snprintf(name, sizeof name, ".tensord-publish/new/%s/blobs/%s", folder, hex);
    tree_at(&place->tree, name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(st.st_size, size);
    uint8_t *found = malloc(size + 1);
    assert_int_equal(read(fd, found, size + 1), size);
    assert_memory_equal(found, place->bytes, size);
    free(found);
    (void)close(fd);
    struct td_file_id id = td_file_id_of(&st);
    CHECK(td_file_id_equal(&id, &place->id), "on_blob got another identity than the file has");
    assert_memory_equal(place->noted, sum, TD_SHA256_BYTES);
}

#endif
