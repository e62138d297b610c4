#include "parser/shard_index.h"

#include "core/json/json.h"
#include "parser/format/names.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

static void check_files(const struct td_shard_index *index)
{
    for (size_t i = 0; i < index->file_count; i++) {
        const char *file = index->files[i];
        FUZZ_CHECK(td_is_path_below(td_text_of(file)) && td_utf8_valid(file, strlen(file)));
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

/* Returns whether the latest string without "." components is this path. */
static bool names_file(struct td_json *json, const char *file)
{
    size_t len;
    char *copy = malloc(json->value_len + 1);
    FUZZ_CHECK(copy != NULL && td_json_string(json, copy, json->value_len + 1, &len));
    bool same = td_path_clean(copy) && strcmp(copy, file) == 0;
    free(copy);
    return same;
}

/* Checks that the index has every pair of the text. */
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
            FUZZ_CHECK(file != NULL && td_json_next(&json) == TD_JSON_STRING && names_file(&json, file));
        }
    }
    FUZZ_CHECK(pairs == index->entry_count);
}

/* Checks what the index says of a delta against a second reading of the text. */
static void check_delta(const struct td_shard_index *index, const char *text, size_t size)
{
    struct td_json json;
    bool is_delta = false;
    td_json_init(&json, td_text_n(text, size), 0, NULL);
    FUZZ_CHECK(td_json_next(&json) == TD_JSON_OBJECT_BEGIN);
    while (td_json_next(&json) == TD_JSON_KEY) {
        struct td_json value = json;
        bool is_metadata = td_json_equals(&json, "metadata");
        FUZZ_CHECK(td_json_skip(&json));
        if (!is_metadata)
            continue;
        is_delta = false;
        if (td_json_next(&value) != TD_JSON_OBJECT_BEGIN)
            continue;
        while (td_json_next(&value) == TD_JSON_KEY) {
            struct td_json member = value;
            if (td_json_equals(&value, "delta_encoding"))
                is_delta = td_json_next(&member) != TD_JSON_NULL;
            FUZZ_CHECK(td_json_skip(&value));
        }
    }
    FUZZ_CHECK(index->is_delta == is_delta);
    FUZZ_CHECK(index->base_version == NULL || is_delta);
    size_t len = index->base_version == NULL ? 0 : strlen(index->base_version);
    FUZZ_CHECK(len < TD_SHARD_VERSION_BYTES &&
               td_utf8_valid(index->base_version == NULL ? "" : index->base_version, len));
}

/* Parses the text as a map of groups and checks the index. */
static void check_groups(struct td_text text)
{
    struct td_shard_index index;
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_shard_index_parse(&index, TD_SHARD_INDEX_GROUPS, text, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    FUZZ_CHECK(index.by_group && index.entry_count == 0 && !index.is_delta && index.base_version == NULL);
    if (ok)
        check_files(&index);
    else
        fuzz_check_refusal(&err, text.len);
    td_shard_index_fini(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct td_shard_index index;
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_shard_index_parse(&index, TD_SHARD_INDEX_TENSORS, td_text_n(text, size), &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    if (ok) {
        check_files(&index);
        check_entries(&index);
        check_against_text(&index, text, size);
        check_delta(&index, text, size);
    } else {
        fuzz_check_refusal(&err, size);
    }
    td_shard_index_fini(&index);
    check_groups(td_text_n(text, size));
    return 0;
}
