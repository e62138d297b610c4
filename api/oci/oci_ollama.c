#include "api/oci/oci_ollama.h"

#include "api/oci/oci_digests.h"
#include "api/oci/oci_document.h"
#include "core/checked.h"
#include "parser/format/manifest.h"

#include <assert.h>
#include <string.h>

/* ---- Ollama -------------------------------------------------------------------------------------------- */

/* The layers of a manifest, the model first. */
enum { MOST_LAYERS = 8 };
struct layers {
    size_t count;
    const struct td_entry *entries[MOST_LAYERS];
    const char *types[MOST_LAYERS];
};

static void add_layer(struct layers *layers, const struct td_entry *entry, const char *type)
{
    if (entry == NULL)
        return;
    layers->entries[layers->count] = entry;
    layers->types[layers->count++] = type;
}

/* Adds the small files in the repository's own directory that Ollama knows (the Hub's page on Ollama names them), and
 * its licence. */
static void add_texts(struct layers *layers, const struct td_repo_view *view)
{
    enum { MOST_BYTES = 1024 * 1024 }; /* Ollama reads them whole */
    static const struct {
        const char *name, *type;
    } texts[] = {
        {"template", "application/vnd.ollama.image.template"},   {"system", "application/vnd.ollama.image.system"},
        {"params", "application/vnd.ollama.image.params"},       {"LICENSE", "application/vnd.ollama.image.license"},
        {"LICENSE.txt", "application/vnd.ollama.image.license"}, {"LICENSE.md", "application/vnd.ollama.image.license"},
    };
    static_assert(2 + sizeof texts / sizeof *texts <= MOST_LAYERS, "the model, the image encoder and all texts fit");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct td_entry *entry = td_snapshot_find_in_run(view->snapshot, view->first_entry, view->entry_count,
                                                               view->prefix_len, td_text_of(texts[i].name));
        if (entry != NULL && entry->file->source.id.size_bytes <= MOST_BYTES)
            add_layer(layers, entry, texts[i].type);
    }
}

/* Returns the number of elements of all tensors of the file. */
static uint64_t count_elements(const struct td_file *file)
{
    uint64_t total = 0;
    for (size_t i = 0; i < file->count_count; i++)
        if (!td_add_u64(total, file->counts[i].elems, &total))
            return UINT64_MAX;
    return total;
}

/* Adds the configuration (ollama, types/model/config.go, ConfigV2). */
static bool add_config(const struct td_oci_target *target, const struct layers *layers, struct td_made_documents *made,
                       struct td_error *err)
{
    const struct td_file *file = target->gguf.entry->file;
    const char *family =
        td_metadata_find(file->manifest.metadata, file->manifest.metadata_count, "general.architecture");
    char size[TD_OCI_SIZE_BYTES];
    struct td_oci_document document;
    struct td_document *json = td_oci_begin_document(&document);
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "model_format", "gguf");
    if (family != NULL && family[0] == '"') {
        td_document_add_raw(json, "model_family", td_text_of(family));
        td_document_begin_array(json, "model_families");
        td_document_add_raw(json, NULL, td_text_of(family));
        td_document_end(json);
    }
    td_oci_write_size(count_elements(file), size);
    td_document_add_string(json, "model_type", size);
    td_document_add_string(json, "file_type", target->gguf.name.quant[0] == '\0' ? "unknown" : target->gguf.name.quant);
    td_document_add_string(json, "architecture", "amd64");
    td_document_add_string(json, "os", "linux");
    td_document_begin_object(json, "rootfs");
    td_document_add_string(json, "type", "layers");
    td_document_begin_array(json, "diff_ids");
    for (size_t i = 0; i < layers->count; i++)
        td_oci_add_sha256(json, NULL, td_file_sha256(layers->entries[i]->file));
    td_document_end(json);
    td_document_end(json);
    td_document_end(json);
    return td_oci_end_document(&document, made, TD_OCI_DOCKER_CONFIG_TYPE, false, err);
}

static bool add_manifest(const struct layers *layers, struct td_made_documents *made, struct td_error *err)
{
    const struct td_made_document *config = &made->items[made->count - 1];
    struct td_oci_document document;
    struct td_document *json = td_oci_begin_document(&document);
    td_oci_begin_manifest(json, TD_OCI_DOCKER_MANIFEST_TYPE, NULL, config);
    for (size_t i = 0; i < layers->count; i++) {
        const struct td_file *file = layers->entries[i]->file;
        td_oci_begin_descriptor(json, NULL, layers->types[i], td_file_sha256(file), file->source.id.size_bytes);
        td_document_end(json);
    }
    td_document_end(json);
    td_document_end(json);
    return td_oci_end_document(&document, made, TD_OCI_DOCKER_MANIFEST_TYPE, true, err);
}

bool td_oci_ollama_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                        struct td_made_documents *made, struct td_error *err)
{
    struct layers layers = {.count = 0};
    if (target->gguf.name.is_sharded)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "\"%s\" is one of several shards, and Ollama takes single GGUF files alone: join them with "
                            "llama-gguf-split --merge, or pull the tag main",
                            target->gguf.entry->path + view->prefix_len);
    add_layer(&layers, target->gguf.entry, "application/vnd.ollama.image.model");
    add_layer(&layers, target->projector, "application/vnd.ollama.image.projector");
    add_texts(&layers, view);
    return td_oci_know_digests(oci, layers.entries, layers.count, err) && add_config(target, &layers, made, err) &&
           add_manifest(&layers, made, err);
}

/* ---- llama.cpp ----------------------------------------------------------------------------------------- */

bool td_oci_is_llama_cpp(const struct td_call *call)
{
    const struct td_header *field = td_request_single_header(call->request, "User-Agent");
    return field != NULL && td_text_begins_ignore_case(field->value, "llama-cpp");
}

static void add_file(struct td_document *json, const char *key, const struct td_repo *repo,
                     const struct td_entry *entry)
{
    if (entry == NULL)
        return;
    td_document_begin_object(json, key);
    td_document_add_string(json, "rfilename", td_repo_relative(repo, entry));
    td_document_add_u64(json, "size", entry->file->source.id.size_bytes);
    td_document_end(json);
}

void td_oci_llama_cpp_write(const struct td_oci_call *oci, const struct td_oci_target *target, struct td_buffer *out)
{
    struct td_document json;
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    add_file(&json, "ggufFile", oci->repo, target->gguf.entry);
    add_file(&json, "mmprojFile", oci->repo, target->projector);
    td_document_end(&json);
}
