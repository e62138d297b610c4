#include "parser/shard_index.h"

#include "core/json.h"
#include "parser/names.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

static void check_files(const struct td_shard_index *index)
{
    for (size_t i = 0; i < index->file_count; i++) {
        const char *file = index->files[i];
        FUZZ_CHECK(*file != '\0' && strchr(file, '/') == NULL && td_utf8_valid(file, strlen(file)));
        FUZZ_CHECK(strcmp(file, ".") != 0 && strcmp(file, "..") != 0);
        FUZZ_CHECK(i == 0 || strcmp(index->files[i - 1], file) < 0);
    }
}

static void check_entries(const struct td_shard_index *index)
{
    bool *used = calloc(index->file_count + 1, sizeof *used);
    FUZZ_CHECK(used != NULL);
    for (size_t i = 0; i < index->entry_count; i++) {
        const struct td_shard_entry *e = &index->entries[i];
        FUZZ_CHECK(strlen(e->tensor) == e->tensor_len && td_utf8_valid(e->tensor, e->tensor_len));
        FUZZ_CHECK(i == 0 || strcmp(e[-1].tensor, e->tensor) < 0);
        FUZZ_CHECK(e->file < index->file_count);
        used[e->file] = true;
    }
    for (size_t i = 0; i < index->file_count; i++)
        FUZZ_CHECK(used[i]);
    free(used);
}

/* Returns the file of the tensor that the latest key names. */
static const char *file_of(const struct td_shard_index *index, const struct td_json *key)
{
    for (size_t i = 0; i < index->entry_count; i++)
        if (td_json_equals_n(key, td_text_n(index->entries[i].tensor, index->entries[i].tensor_len)))
            return index->files[index->entries[i].file];
    return NULL;
}

/* Checks that the index has every pair of the text as written. */
static void check_against_text(const struct td_shard_index *index, const char *text, size_t size)
{
    struct td_json json;
    size_t pairs = 0;
    td_json_init(&json, td_text_n(text, size), 0, NULL);
    FUZZ_CHECK(td_json_next(&json) == TD_JSON_OBJECT_BEGIN);
    while (td_json_next(&json) == TD_JSON_KEY) {
        if (!td_json_equals(&json, "weight_map")) {
            FUZZ_CHECK(td_json_skip(&json));
            continue;
        }
        FUZZ_CHECK(td_json_next(&json) == TD_JSON_OBJECT_BEGIN);
        for (; td_json_next(&json) == TD_JSON_KEY; pairs++) {
            const char *file = file_of(index, &json);
            FUZZ_CHECK(file != NULL && td_json_next(&json) == TD_JSON_STRING && td_json_equals(&json, file));
        }
    }
    FUZZ_CHECK(pairs == index->entry_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct td_shard_index index;
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_shard_index_parse(&index, td_text_n(text, size), &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    if (ok) {
        check_files(&index);
        check_entries(&index);
        check_against_text(&index, text, size);
    } else {
        fuzz_check_refusal(&err, size);
    }
    td_shard_index_fini(&index);
    return 0;
}
