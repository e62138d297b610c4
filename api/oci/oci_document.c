#include "api/oci/oci_document.h"

#include "core/text.h"
#include "parser/format/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- media types --------------------------------------------------------------------------------------- */

/* Extensions of a kind of files; NULL ends the list. */
static const char *const weights[] = {".safetensors", ".bin",     ".pt",     ".pth",       ".ckpt",   ".gguf",
                                      ".ggml",        ".onnx",    ".h5",     ".hdf5",      ".keras",  ".npz",
                                      ".npy",         ".msgpack", ".tflite", ".pb",        ".distcp", ".pdiparams",
                                      ".mlmodel",     ".engine",  ".plan",   ".onnx_data", NULL};
static const char *const documents[] = {".md", ".rst", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", NULL};
static const char *const code[] = {".py", ".ipynb", ".sh", ".c",  ".cc", ".cpp", ".h",
                                   ".cu", ".js",    ".ts", ".rs", ".go", NULL};
static const char *const data[] = {".parquet", ".arrow", ".csv", ".tsv", ".jsonl", NULL};
static const char *const configs[] = {".json", ".txt", ".model", ".yaml", ".yml", ".toml", ".jinja", ".tiktoken", NULL};

static bool has_one_of(const char *name, const char *const *extensions)
{
    for (; *extensions != NULL; extensions++)
        if (td_has_extension_any_case(name, *extensions))
            return true;
    return false;
}

/* Returns whether the name is one of a document whatever its extension: LICENSE, README.txt. */
static bool is_document(const char *name)
{
    static const char *const begins[] = {"LICENSE", "LICENCE", "README", "NOTICE", "USE_POLICY", "COPYING"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (td_text_begins_ignore_case(td_text_of(name), begins[i]))
            return true;
    return false;
}

const char *td_oci_layer_type(const struct td_entry *entry)
{
    enum { WEIGHT_BYTES = 16 * 1024 * 1024 };
    const char *name = td_base_name(entry->path);
    if (is_document(name) || has_one_of(name, documents))
        return "application/vnd.cncf.model.doc.v1.raw";
    if (has_one_of(name, code))
        return "application/vnd.cncf.model.code.v1.raw";
    if (has_one_of(name, data))
        return "application/vnd.cncf.model.dataset.v1.raw";
    bool is_config = has_one_of(name, configs);
    bool is_large = entry->file->source.id.size_bytes >= WEIGHT_BYTES;
    return has_one_of(name, weights) || (is_large && !is_config) ? TD_OCI_WEIGHT_TYPE
                                                                 : "application/vnd.cncf.model.weight.config.v1.raw";
}

/* ---- documents ----------------------------------------------------------------------------------------- */

struct td_document *td_oci_begin_document(struct td_oci_document *document)
{
    td_buffer_init(&document->text);
    td_document_init(&document->json, &document->text);
    return &document->json;
}

bool td_oci_end_document(struct td_oci_document *document, struct td_made_documents *made, const char *media_type,
                         bool is_manifest, struct td_error *err)
{
    bool ok = td_made_documents_add(made, media_type, is_manifest, &document->text, err);
    td_buffer_fini(&document->text);
    return ok;
}

/* ---- descriptors --------------------------------------------------------------------------------------- */

enum { DIGEST_BYTES = 7 + TD_SHA256_TEXT_BYTES };

void td_oci_add_sha256(struct td_document *json, const char *key, const char *sha256)
{
    char digest[DIGEST_BYTES];
    (void)snprintf(digest, sizeof digest, "sha256:%s", sha256);
    td_document_add_string(json, key, digest);
}

void td_oci_begin_descriptor(struct td_document *json, const char *key, const char *media_type, const char *sha256,
                             uint64_t size_bytes)
{
    td_document_begin_object(json, key);
    td_document_add_string(json, "mediaType", media_type);
    td_oci_add_sha256(json, "digest", sha256);
    td_document_add_u64(json, "size", size_bytes);
}

void td_oci_begin_manifest(struct td_document *json, const char *media_type, const char *artifact_type,
                           const struct td_made_document *config)
{
    td_document_begin_object(json, NULL);
    td_document_add_u64(json, "schemaVersion", 2);
    td_document_add_string(json, "mediaType", media_type);
    if (artifact_type != NULL)
        td_document_add_string(json, "artifactType", artifact_type);
    td_oci_begin_descriptor(json, "config", config->media_type, config->sha256, config->bytes->len_bytes);
    td_document_end(json);
    td_document_begin_array(json, "layers");
}

/* ---- configuration ------------------------------------------------------------------------------------- */

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
static void add_elements(struct td_document *json, const struct td_checkpoint *checkpoint)
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
    td_document_add_string(json, "paramSize", size);
    if (used > 0)
        td_document_add_text(json, "precision", td_text_n(precision, used));
}

/* Returns the default checkpoint of the repository's own directory, or NULL. */
static const struct td_checkpoint *default_checkpoint(const struct td_repo_about *about)
{
    const struct td_repo_models models = td_repo_view_models(about->view);
    const struct td_model *model = td_repo_models_get(&models, 0);
    return model == NULL || model->checkpoint_count == 0 || td_repo_view_directory(about->view, model).len > 0
               ? NULL
               : &model->checkpoints[0];
}

/* Adds "descriptor". */
static void add_descriptor(struct td_document *json, const struct td_repo_about *about, const char *id)
{
    const char *slash = strrchr(id, '/');
    bool has_license = false;
    td_document_begin_object(json, "descriptor");
    if (about->config != NULL && about->config->model_type != NULL)
        td_document_add_string(json, "family", about->config->model_type);
    td_document_add_string(json, "name", slash == NULL ? id : slash + 1);
    for (size_t i = 0; about->card != NULL && i < about->card->tag_count; i++) {
        const char *prefix = td_fact_tag_prefix(&about->card->tags[i], false);
        if (prefix == NULL || strcmp(prefix, "license:") != 0)
            continue;
        if (!has_license)
            td_document_begin_array(json, "licenses");
        has_license = true;
        td_document_add_string(json, NULL, about->card->tags[i].value);
    }
    if (has_license)
        td_document_end(json);
    td_document_end(json);
}

void td_oci_config_begin(struct td_document *json, const struct td_repo_about *about, const char *id)
{
    const struct td_checkpoint *checkpoint = default_checkpoint(about);
    td_document_begin_object(json, NULL);
    add_descriptor(json, about, id);
    td_document_begin_object(json, "config");
    if (about->config != NULL && about->config->architecture != NULL) {
        td_document_add_string(json, "architecture", about->config->architecture);
    } else if (checkpoint != NULL) {
        const char *word = td_metadata_find(checkpoint->metadata, checkpoint->metadata_count, "general.architecture");
        if (word != NULL && word[0] == '"')
            td_document_add_raw(json, "architecture", td_text_of(word));
    }
    if (checkpoint != NULL) {
        const char *format = td_repo_view_format(about->view, checkpoint);
        td_document_add_string(json, "format", strcmp(format, "pytorch") == 0 ? "pt" : format);
        add_elements(json, checkpoint);
    }
    td_document_end(json);
}
