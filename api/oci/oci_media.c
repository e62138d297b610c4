#include "api/oci/oci_media.h"

#include "core/extension.h"

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
