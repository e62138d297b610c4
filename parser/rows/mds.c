#include "parser/rows/mds.h"

#include "core/json/json_document.h"
#include "parser/rows/index/row_format.h"
#include "parser/rows/offset_table.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *text_of(const struct td_json_document *document, const cJSON *item)
{
    return cJSON_IsString(item) ? td_json_document_string(document, item) : NULL;
}

/* Adds the columns that the configuration names. Returns whether it names any, in two lists of texts of one length. */
static bool add_columns(const struct td_json_document *document, struct td_buffer *columns)
{
    const cJSON *root = document->root;
    if (document->fault.code != TD_OK || !cJSON_IsObject(root))
        return false;
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(root, "column_names");
    const cJSON *encodings = cJSON_GetObjectItemCaseSensitive(root, "column_encodings");
    if (!cJSON_IsArray(names) || !cJSON_IsArray(encodings))
        return false;
    const cJSON *name = names->child, *encoding = encodings->child;
    for (; name != NULL && encoding != NULL; name = name->next, encoding = encoding->next) {
        const char *name_text = text_of(document, name), *encoding_text = text_of(document, encoding);
        if (name_text == NULL || encoding_text == NULL)
            return false;
        td_row_columns_add(columns, td_text_of(name_text), encoding_text, NULL, 0);
    }
    return name == NULL && encoding == NULL;
}

/* Sets out->columns from the configuration in config[0, len), when it can be read. */
static bool set_columns(struct td_row_index *out, struct td_text config, const struct td_limits *limits,
                        struct td_error *err)
{
    struct td_arena arena;
    struct td_json_document document;
    struct td_buffer columns;
    td_arena_init(&arena, limits->max_memory_bytes);
    td_buffer_init(&columns);
    td_json_document_read(&document, config, &arena, NULL);
    bool ok = document.fault.code != TD_RESOURCE_EXHAUSTED || td_error_copy(err, &document.fault);
    if (ok && add_columns(&document, &columns))
        ok = td_row_columns_end(&columns, out, err);
    else
        td_buffer_fini(&columns);
    td_arena_fini(&arena);
    return ok;
}

static bool index_mds(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    const struct td_input *data = &build->files->data;
    struct td_offset_table table;
    if (!td_offset_table_read(data, "MDS shard", &table, out, err))
        return false;
    if (table.last != data->size_bytes)
        return td_error_at(err, TD_INVALID_ARGUMENT, table.end - 4,
                           "MDS shard: its last row ends at byte %" PRIu64 ", but the file has %" PRIu64, table.last,
                           data->size_bytes);
    uint64_t config_bytes = table.first - table.end;
    if (config_bytes == 0 || config_bytes > TD_MDS_CONFIG_BYTES)
        return true;
    uint8_t *config = td_input_load(data, table.end, config_bytes, TD_MDS_CONFIG_BYTES, err);
    if (config == NULL)
        return false;
    bool ok = set_columns(out, td_text_n((const char *)config, (size_t)config_bytes), build->limits, err);
    free(config);
    return ok;
}

static const char *const extensions[] = {".mds", NULL};

const struct td_row_format td_row_format_mds = {
    .name = "mds", .extensions = extensions, .row_type = "application/octet-stream", .build = index_mds};
