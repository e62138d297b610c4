#include "catalog/delta/delta_index.h"

#include "core/json/json.h"

#include <string.h>

enum { FIELD_COUNT = 5 };

/* The members of `metadata` that are read, and where each goes. */
static const char *const names[FIELD_COUNT] = {"version", "base_version", "delta_encoding", "compression_format",
                                               "checksum_format"};

static const char **field_of(struct td_delta_index *index, size_t i)
{
    const char **const fields[FIELD_COUNT] = {&index->version, &index->base_version, &index->encoding,
                                              &index->compression, &index->checksum};
    return fields[i];
}

/* Returns the number of the member that the latest key names, or FIELD_COUNT. */
static size_t find_field(const struct td_json *json)
{
    size_t i = 0;
    while (i < FIELD_COUNT && !td_json_equals(json, names[i]))
        i++;
    return i;
}

/* Reads the value of a member. */
static bool read_field(struct td_json *json, struct td_delta_index *index, size_t i, struct td_error *err)
{
    const char **field = field_of(index, i);
    if (*field != NULL)
        return td_json_fail(json, "metadata holds \"%s\" twice", names[i]);
    enum td_json_token token = td_json_next(json);
    if (token == TD_JSON_ERROR)
        return false;
    if ((token != TD_JSON_STRING && token != TD_JSON_NUMBER) || json->value_len == 0)
        return td_json_fail(json, "metadata \"%s\" must be a text", names[i]);
    char *copy = td_arena_strndup(&index->map.arena, td_json_raw(json));
    size_t len;
    if (copy == NULL)
        return td_error_no_memory(err);
    *field = copy;
    return token == TD_JSON_NUMBER || !json->escaped || td_json_string(json, copy, json->value_len + 1, &len);
}

static bool read_metadata(struct td_json *json, struct td_delta_index *index, struct td_error *err)
{
    enum td_json_token token;
    token = td_json_next(json);
    if (token == TD_JSON_NULL)
        return true;
    if (token != TD_JSON_OBJECT_BEGIN)
        return token != TD_JSON_ERROR && td_json_fail(json, "metadata must be an object");
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        size_t i = find_field(json);
        if (!(i < FIELD_COUNT ? read_field(json, index, i, err) : td_json_skip(json)))
            return false;
    }
    return token == TD_JSON_OBJECT_END;
}

bool td_delta_index_parse(struct td_delta_index *index, struct td_text text, struct td_error *err)
{
    struct td_json json;
    bool has_metadata = false;
    memset(index, 0, sizeof *index);
    if (!td_shard_index_parse(&index->map, TD_SHARD_INDEX_TENSORS, text, err))
        return false;
    td_json_init(&json, text, 0, err);
    (void)td_json_next(&json); /* the text is an object, as it has a weight_map */
    while (td_json_next(&json) == TD_JSON_KEY) {
        if (!td_json_equals(&json, "metadata")) {
            if (!td_json_skip(&json))
                return false;
            continue;
        }
        if (has_metadata)
            return td_json_fail(&json, "metadata is given twice");
        has_metadata = true;
        if (!read_metadata(&json, index, err))
            return false;
    }
    return true;
}

void td_delta_index_fini(struct td_delta_index *index)
{
    td_shard_index_fini(&index->map);
    memset(index, 0, sizeof *index);
}

/* ---- a rewritten index --------------------------------------------------------------------------------- */

/* Appends the latest key, a colon and its value, and a comma before them unless this is the first member. */
static void copy_member(struct td_json *json, bool *is_first, struct td_buffer *out)
{
    size_t start = json->start;
    if (!*is_first)
        td_buffer_putc(out, ',');
    *is_first = false;
    (void)td_json_skip(json);
    td_buffer_append(out, json->text.p + start, json->pos - start);
}

/* Appends the metadata of the new version. json: the reader at the old one's first member; NULL: there is none. */
static void write_metadata(struct td_json *json, const char *version, struct td_buffer *out)
{
    bool is_first = true;
    td_buffer_puts(out, "\"metadata\":{");
    while (json != NULL && td_json_next(json) == TD_JSON_KEY) {
        if (find_field(json) == FIELD_COUNT)
            copy_member(json, &is_first, out);
        else
            (void)td_json_skip(json);
    }
    td_buffer_puts(out, is_first ? "\"version\":" : ",\"version\":");
    td_json_write_cstring(out, version);
    td_buffer_putc(out, '}');
}

void td_delta_index_rewrite(struct td_text text, const char *version, struct td_buffer *out)
{
    struct td_json json;
    bool is_first = true;
    bool has_metadata = false;
    td_json_init(&json, text, 0, NULL);
    (void)td_json_next(&json);
    td_buffer_putc(out, '{');
    while (td_json_next(&json) == TD_JSON_KEY) {
        if (!td_json_equals(&json, "metadata")) {
            copy_member(&json, &is_first, out);
            continue;
        }
        has_metadata = true;
        if (!is_first)
            td_buffer_putc(out, ',');
        is_first = false;
        write_metadata(td_json_next(&json) == TD_JSON_OBJECT_BEGIN ? &json : NULL, version, out);
    }
    if (!has_metadata) {
        td_buffer_putc(out, ','); /* after weight_map */
        write_metadata(NULL, version, out);
    }
    td_buffer_puts(out, "}\n");
}
