#include "api/oci/oci_config.h"

#include "core/json_build.h"
#include "parser/metadata.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void td_oci_write_size(uint64_t count, char out[TD_OCI_SIZE_BYTES])
{
    static const struct {
        uint64_t unit;
        char letter;
    } units[] = {
        {UINT64_C(1000000000000000), 'Q'}, {UINT64_C(1000000000000), 'T'}, {UINT64_C(1000000000), 'B'},
        {UINT64_C(1000000), 'M'},          {UINT64_C(1000), 'K'},
    };
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof *units && count < units[i].unit)
        i++;
    uint64_t tenths = count / (units[i].unit / 10); /* cut, not rounded: 999,999 is no million */
    (void)snprintf(out, TD_OCI_SIZE_BYTES, "%" PRIu64 ".%" PRIu64 "%c", tenths / 10, tenths % 10, units[i].letter);
}

/* Returns the specification's word for a type of elements; NULL when it has none. */
static const char *precision_of(const char *dtype)
{
    static const char *const words[][2] = {
        {"F64", "float64"},   {"F32", "float32"},         {"F16", "float16"},
        {"BF16", "bfloat16"}, {"F8_E4M3", "float8_e4m3"}, {"F8_E5M2", "float8_e5m2"},
        {"C64", "complex64"}, {"C128", "complex128"},     {"I8", "int8"},
        {"I16", "int16"},     {"I32", "int32"},           {"I64", "int64"},
        {"U8", "uint8"},      {"U16", "uint16"},          {"U32", "uint32"},
        {"U64", "uint64"},    {"BOOL", "bool"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i][0], dtype) == 0)
            return words[i][1];
    return NULL;
}

/* Adds the number of parameters and their types, in the order of their first files. */
static void add_elements(struct td_json_builder *json, const struct td_checkpoint *checkpoint)
{
    struct td_dtype_count counts[TD_SUM_DTYPES];
    char size[TD_OCI_SIZE_BYTES];
    char precision[512];
    size_t used = 0;
    uint64_t total;
    size_t count = td_checkpoint_sum_elements(checkpoint, counts, &total);
    for (size_t i = 0; i < count; i++) {
        const char *word = precision_of(counts[i].dtype->name);
        if (word != NULL && used + strlen(word) + 2 < sizeof precision)
            used += (size_t)snprintf(precision + used, sizeof precision - used, "%s%s", used > 0 ? "," : "", word);
    }
    td_oci_write_size(total, size);
    td_json_add_string(json, "paramSize", size);
    if (used > 0)
        td_json_add_text(json, "precision", td_text_n(precision, used));
}

/* Returns the default checkpoint of the repository's own directory; NULL when there is none. */
static const struct td_checkpoint *default_checkpoint(const struct td_repo_about *about)
{
    const struct td_repo_models models = td_repo_view_models(about->view);
    const struct td_model *model = td_repo_models_get(&models, 0);
    return model == NULL || model->checkpoint_count == 0 || td_repo_view_directory(about->view, model).len > 0
               ? NULL
               : &model->checkpoints[0];
}

/* Adds "descriptor". */
static void add_descriptor(struct td_json_builder *json, const struct td_repo_about *about, const char *id)
{
    const char *slash = strrchr(id, '/');
    bool has_license = false;
    td_json_begin_object(json, "descriptor");
    if (about->config != NULL && about->config->model_type != NULL)
        td_json_add_string(json, "family", about->config->model_type);
    td_json_add_string(json, "name", slash == NULL ? id : slash + 1);
    for (size_t i = 0; about->card != NULL && i < about->card->tag_count; i++) {
        const char *prefix = td_fact_tag_prefix(&about->card->tags[i], false);
        if (prefix == NULL || strcmp(prefix, "license:") != 0)
            continue;
        if (!has_license)
            td_json_begin_array(json, "licenses");
        has_license = true;
        td_json_add_string(json, NULL, about->card->tags[i].value);
    }
    if (has_license)
        td_json_end(json);
    td_json_end(json);
}

void td_oci_config_begin(struct td_json_builder *json, const struct td_repo_about *about, const char *id)
{
    const struct td_checkpoint *checkpoint = default_checkpoint(about);
    td_json_begin_object(json, NULL);
    add_descriptor(json, about, id);
    td_json_begin_object(json, "config");
    if (about->config != NULL && about->config->architecture != NULL) {
        td_json_add_string(json, "architecture", about->config->architecture);
    } else if (checkpoint != NULL) {
        const char *word = td_metadata_find(checkpoint->metadata, checkpoint->metadata_count, "general.architecture");
        if (word != NULL && word[0] == '"')
            td_json_add_raw(json, "architecture", td_text_of(word));
    }
    if (checkpoint != NULL) {
        const char *format = td_repo_view_format(about->view, checkpoint);
        td_json_add_string(json, "format", strcmp(format, "pytorch") == 0 ? "pt" : format);
        add_elements(json, checkpoint);
    }
    td_json_end(json);
}
