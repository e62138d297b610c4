/* Stays with the pull reader: an index may have 100 MB, and its tree several times as much. */
#include "parser/shard_index.h"

#include "core/array.h"
#include "core/checked.h"
#include "core/json/json.h"
#include "parser/format/names.h"

#include <stdlib.h>
#include <string.h>

struct index_reader {
    struct td_json json;
    struct td_json map;  /* the reader as it was at weight_map's first key, to find positions for errors */
    struct td_json base; /* the reader as it was at the value of base_version */
    struct td_shard_index *index;
    struct td_arena scratch;
    struct td_text *files; /* file names in the order of the entries; a name equal to the one before is not repeated */
    size_t file_count, file_capacity;
    bool has_map;
    struct td_error *err;
};

static bool copy_string(struct index_reader *r, struct td_arena *arena, struct td_text *out)
{
    struct td_json *json = &r->json;
    char *copy = td_arena_strndup(arena, td_json_raw(json));
    if (copy == NULL)
        return td_error_no_memory(r->err);
    *out = td_text_n(copy, json->value_len);
    return !json->escaped || td_json_string(json, copy, json->value_len + 1, &out->len);
}

/* Removes "." components from the file name. Refuses a name that leads out of the index's own directory. */
static bool clean_file_name(struct index_reader *r, struct td_text *file)
{
    if (file->len == 0)
        return td_json_fail(&r->json, "a file name is empty; a shard's file name expected");
    if (td_is_path_below(*file))
        return true;
    char *copy = td_arena_strndup(&r->scratch, *file);
    if (copy == NULL)
        return td_error_no_memory(r->err);
    const char *last = strrchr(copy, '/');
    bool is_directory = last != NULL && (last[1] == '\0' || strcmp(last, "/.") == 0);
    if (is_directory || !td_path_clean(copy))
        return td_json_fail(&r->json, "\"%.96s\" does not lead to a file below the directory of the index", file->p);
    *file = td_text_of(copy);
    return true;
}

static bool push_file(struct index_reader *r, struct td_text file)
{
    if (r->file_count == UINT32_MAX)
        return td_json_fail(&r->json, "more than 2^32-1 files");
    if (!TD_ARRAY_GROW(r->files, r->file_count, r->file_capacity, r->err))
        return false;
    r->files[r->file_count++] = file;
    return true;
}

/* Reads a file name, which is the latest token. Until number_files(), a file's number is its position in the list. */
static bool read_file(struct index_reader *r)
{
    const struct td_text *last = r->file_count > 0 ? &r->files[r->file_count - 1] : NULL;
    struct td_text file = {0};
    return (last != NULL && td_json_equals_n(&r->json, *last)) ||
           (copy_string(r, &r->scratch, &file) && clean_file_name(r, &file) && push_file(r, file));
}

/* Reads an entry. The latest token is the tensor's name. */
static bool read_entry(struct index_reader *r)
{
    struct td_shard_index *index = r->index;
    struct td_text tensor = {0};
    if (!copy_string(r, &index->arena, &tensor))
        return false;
    if (tensor.len > UINT32_MAX)
        return td_json_fail(&r->json, "a tensor name is longer than 2^32-1 bytes");
    enum td_json_token token = td_json_next(&r->json);
    if (token != TD_JSON_STRING)
        return token != TD_JSON_ERROR &&
               td_json_fail(&r->json, "weight_map \"%.96s\" must be a file name in quotes", tensor.p);
    if (!read_file(r))
        return false;
    index->entries[index->entry_count++] = (struct td_shard_entry){
        .tensor = tensor.p,
        .tensor_len = (uint32_t)tensor.len,
        .file = (uint32_t)(r->file_count - 1),
    };
    return true;
}

/* Reads the files of a group. The latest token is the group's name. */
static bool read_group(struct index_reader *r)
{
    enum td_json_token token = td_json_next(&r->json);
    if (token == TD_JSON_STRING)
        return read_file(r);
    bool is_list = token == TD_JSON_ARRAY_BEGIN;
    while (is_list && (token = td_json_next(&r->json)) == TD_JSON_STRING)
        if (!read_file(r))
            return false;
    return (is_list && token == TD_JSON_ARRAY_END) ||
           (token != TD_JSON_ERROR &&
            td_json_fail(&r->json, "a group in weight_map must have a file name in quotes, or a list of them"));
}

/* Reads the map. The latest token is the key "weight_map". */
static bool read_map(struct index_reader *r)
{
    struct td_shard_index *index = r->index;
    if (r->has_map)
        return td_json_fail(&r->json, "weight_map is given twice");
    r->has_map = true;
    enum td_json_token token = td_json_next(&r->json);
    if (token != TD_JSON_OBJECT_BEGIN)
        return token != TD_JSON_ERROR && td_json_fail(&r->json, "weight_map must be an object of file names");
    r->map = r->json;
    size_t count = index->by_group ? 0 : td_json_count_members(r->json);
    index->entries = td_arena_array(&index->arena, count, sizeof *index->entries);
    if (index->entries == NULL)
        return td_error_no_memory(r->err);
    while ((token = td_json_next(&r->json)) == TD_JSON_KEY)
        if (!(index->by_group ? read_group(r) : read_entry(r)))
            return false;
    return token != TD_JSON_ERROR;
}

/* Reads the base_version of a delta, the next value of `r->base`. */
static bool read_base_version(struct index_reader *r)
{
    struct td_json *json = &r->base;
    struct td_shard_index *index = r->index;
    enum td_json_token token = td_json_next(json);
    if (token == TD_JSON_NULL)
        return true;
    if (token != TD_JSON_STRING && token != TD_JSON_NUMBER)
        return td_json_fail(json, "base_version of a delta must be a text or a number");
    char text[6 * TD_SHARD_VERSION_BYTES]; /* an escaped character has six bytes */
    size_t len = json->value_len;
    if (len < sizeof text && token == TD_JSON_NUMBER)
        memcpy(text, td_json_raw(json).p, len);
    else if (len < sizeof text && !td_json_string(json, text, sizeof text, &len))
        return false;
    if (len >= TD_SHARD_VERSION_BYTES)
        return td_json_fail(json, "base_version is longer than %d bytes", TD_SHARD_VERSION_BYTES - 1);
    index->base_version = td_arena_strndup(&index->arena, td_text_n(text, len));
    return index->base_version != NULL || td_error_no_memory(r->err);
}

/* Reads what the metadata say of a delta. The latest token is the key "metadata". */
static bool read_metadata(struct index_reader *r)
{
    struct td_json *json = &r->json;
    struct td_json value = *json;
    bool has_base = false;
    r->index->is_delta = false;
    r->index->base_version = NULL;
    if (td_json_next(&value) != TD_JSON_OBJECT_BEGIN)
        return td_json_skip(json);
    (void)td_json_next(json);
    enum td_json_token token;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        value = *json;
        if (td_json_equals(json, "delta_encoding")) {
            r->index->is_delta = td_json_next(&value) != TD_JSON_NULL;
        } else if (td_json_equals(json, "base_version")) {
            r->base = value;
            has_base = true;
        }
        if (!td_json_skip(json))
            return false;
    }
    return token != TD_JSON_ERROR && (!has_base || !r->index->is_delta || read_base_version(r));
}

static bool read_member(struct index_reader *r)
{
    if (td_json_equals(&r->json, "weight_map"))
        return read_map(r);
    bool is_metadata = !r->index->by_group && td_json_equals(&r->json, "metadata");
    return is_metadata ? read_metadata(r) : td_json_skip(&r->json);
}

static bool read_root(struct index_reader *r)
{
    if (!td_json_expect(&r->json, TD_JSON_OBJECT_BEGIN, "an object with weight_map"))
        return false;
    enum td_json_token token;
    while ((token = td_json_next(&r->json)) == TD_JSON_KEY)
        if (!read_member(r))
            return false;
    if (token == TD_JSON_ERROR)
        return false;
    if (!r->has_map)
        return td_json_fail(&r->json, "weight_map is missing; it maps tensor names to file names");
    return td_json_expect(&r->json, TD_JSON_END, "the end of the index");
}

static struct td_text file_name(const void *context, size_t i)
{
    const struct td_text *files = context;
    return files[i];
}

/* Numbers the distinct files in byte order, and gives the entries these numbers. */
static bool number_files(struct index_reader *r)
{
    struct td_shard_index *index = r->index;
    struct td_names names = {.count = r->file_count, .context = r->files, .get = file_name};
    uint32_t *number = td_arena_array(&r->scratch, r->file_count, sizeof *number);
    if (number == NULL)
        return td_error_no_memory(r->err);
    if (!td_names_distinct(&names, &index->arena, &index->files, &index->file_count, number, r->err))
        return false;
    for (size_t i = 0; i < index->entry_count; i++)
        index->entries[i].file = number[index->entries[i].file];
    return true;
}

static struct td_text entry_name(const void *context, size_t i)
{
    const struct td_shard_entry *entries = context;
    return td_text_n(entries[i].tensor, entries[i].tensor_len);
}

static bool sort_entries(struct index_reader *r)
{
    struct td_shard_index *index = r->index;
    struct td_names names = {.count = index->entry_count, .context = index->entries, .get = entry_name};
    if (!td_names_sort(&names, index->entries, sizeof *index->entries, r->err))
        return false;
    size_t twice = td_names_duplicate(&names, NULL);
    if (twice == names.count)
        return true;
    struct td_text name = entry_name(index->entries, twice);
    return td_error_at(r->err, TD_INVALID_ARGUMENT, td_json_find_member(r->map, name, 1),
                       "weight_map holds \"%.96s\" twice; names must be unique", name.p);
}

bool td_shard_index_parse(struct td_shard_index *index, enum td_shard_index_kind kind, struct td_text text,
                          struct td_error *err)
{
    memset(index, 0, sizeof *index);
    index->by_group = kind == TD_SHARD_INDEX_GROUPS;
    td_arena_init(&index->arena, 0);
    struct index_reader reader = {.index = index, .err = err};
    td_arena_init(&reader.scratch, 0);
    td_json_init(&reader.json, text, 0, err);
    bool ok = read_root(&reader) && number_files(&reader) && sort_entries(&reader);
    free(reader.files);
    td_arena_fini(&reader.scratch);
    return ok;
}

void td_shard_index_fini(struct td_shard_index *index)
{
    td_arena_fini(&index->arena);
    memset(index, 0, sizeof *index);
}
