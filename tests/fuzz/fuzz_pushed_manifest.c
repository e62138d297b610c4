/* The input is a manifest that a client pushes. Files must be layers with paths that a commit can have; a manifest that
 * was read must be read alike again; memory is bounded. */
#include "catalog/publish/pushed_manifest.h"
#include "core/json/json.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

enum { ARENA_BYTES = 4 * 1024 * 1024 };

static bool is_item(const struct td_pushed_manifest *manifest, const struct td_commit_file *file)
{
    for (size_t i = 1; i < manifest->item_count; i++)
        if (memcmp(manifest->items[i].sha256, file->sha256, sizeof file->sha256) == 0 &&
            manifest->items[i].size_bytes == file->size_bytes)
            return true;
    return false;
}

static void check_files(const struct td_pushed_manifest *manifest)
{
    FUZZ_CHECK(!manifest->is_index || manifest->file_count == 0);
    FUZZ_CHECK((manifest->commit[0] == '\0') == (manifest->file_count == 0));
    for (size_t i = 0; i < manifest->file_count; i++) {
        const struct td_commit_file *file = &manifest->files[i];
        FUZZ_CHECK(td_commit_check_path(file->path, false, NULL) && file->has_size && is_item(manifest, file));
        for (size_t k = 0; k < i && i < 64; k++)
            FUZZ_CHECK(strcmp(manifest->files[k].path, file->path) != 0);
    }
}

static void check_annotations(const struct td_pushed_manifest *manifest)
{
    struct td_json json;
    struct td_error err = TD_ERROR_INIT;
    if (manifest->annotations.len == 0)
        return;
    td_json_init(&json, manifest->annotations, 0, &err);
    FUZZ_CHECK(td_json_next(&json) == TD_JSON_OBJECT_BEGIN);
    while (td_json_next(&json) == TD_JSON_KEY)
        FUZZ_CHECK(td_json_next(&json) == TD_JSON_STRING);
    FUZZ_CHECK(td_json_next(&json) == TD_JSON_END);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_arena arena;
    struct td_pushed_manifest manifest;
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&arena, ARENA_BYTES);
    if (td_pushed_manifest_read(td_text_n((const char *)data, size), &arena, &manifest, &err)) {
        FUZZ_CHECK(manifest.media_type != NULL && manifest.artifact_type != NULL);
        check_files(&manifest);
        check_annotations(&manifest);
    } else {
        FUZZ_CHECK(err.code == TD_FAILED_PRECONDITION || err.code == TD_INVALID_ARGUMENT);
        FUZZ_CHECK(td_utf8_valid(err.message, strlen(err.message)) && err.message[0] != '\0');
    }
    FUZZ_CHECK(arena.used_bytes <= ARENA_BYTES);
    td_arena_fini(&arena);
    return 0;
}
