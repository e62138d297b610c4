#include "api/oci/oci_artifact.h"

#include "api/oci/oci_config.h"
#include "api/oci/oci_descriptor.h"
#include "api/oci/oci_document.h"
#include "api/oci/oci_layers.h"
#include "api/oci/oci_media.h"
#include "api/oci/oci_titles.h"

#include <string.h>

/* The layers of an artifact, sorted by path; the arrays lie in the call's arena. */
struct files {
    size_t count;
    struct td_oci_layer *layers;
    const char **titles; /* the paths, or titles without '/' */
};

static bool set_titles(struct td_oci_call *oci, bool is_flat, struct files *files, struct td_error *err)
{
    files->titles = td_arena_array(&oci->arena, files->count, sizeof *files->titles);
    if (files->titles == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < files->count; i++)
        files->titles[i] = files->layers[i].path;
    return !is_flat || td_oci_flat_titles(files->titles, files->count, &oci->arena, &files->titles, err);
}

/* Adds the configuration to the documents. */
static bool add_config(const struct td_oci_call *oci, const struct td_repo_view *view, const struct files *files,
                       struct td_made_documents *made, struct td_error *err)
{
    struct td_repo_about about;
    struct td_oci_document document;
    struct td_json_builder *json = td_oci_begin_document(&document);
    td_repo_about_init(&about, view, false, 0);
    td_oci_config_begin(json, &about, oci->repo->id);
    td_json_begin_object(json, "modelfs");
    td_json_add_string(json, "type", "layers");
    td_json_begin_array(json, "diffIds");
    for (size_t i = 0; i < files->count; i++)
        td_oci_add_sha256(json, NULL, files->layers[i].sha256);
    td_json_end(json);
    td_json_end(json);
    td_json_end(json);
    return td_oci_end_document(&document, made, TD_OCI_MODEL_CONFIG_TYPE, false, err);
}

static void add_layer(struct td_json_builder *json, const struct files *files, size_t i)
{
    const struct td_oci_layer *layer = &files->layers[i];
    td_oci_begin_descriptor(json, NULL, layer->media_type, layer->sha256, layer->size_bytes);
    td_json_begin_object(json, "annotations");
    td_json_add_string(json, "org.cncf.model.filepath", layer->path);
    td_json_add_string(json, "org.opencontainers.image.title", files->titles[i]);
    td_json_end(json);
    td_json_end(json);
    td_json_flush(json);
}

/* Checks the length of the manifest, which was added last. */
static bool fits(const struct td_made_documents *made, size_t file_count, struct td_error *err)
{
    return made->items[made->count - 1].bytes->len_bytes <= TD_OCI_MANIFEST_MAX ||
           td_error_set(err, TD_FAILED_PRECONDITION,
                        "the manifest of %zu files is longer than the %d bytes that clients read", file_count,
                        TD_OCI_MANIFEST_MAX);
}

static bool add_manifest(const struct files *files, struct td_made_documents *made, struct td_error *err)
{
    struct td_oci_document document;
    const struct td_made_document *config = &made->items[made->count - 1];
    struct td_json_builder *json = td_oci_begin_document(&document);
    td_oci_begin_manifest(json, TD_OCI_MANIFEST_TYPE, TD_OCI_MODEL_TYPE, config);
    for (size_t i = 0; i < files->count && document.text.len <= TD_OCI_MANIFEST_MAX; i++)
        add_layer(json, files, i);
    td_json_end(json);
    td_json_end(json);
    return td_oci_end_document(&document, made, TD_OCI_MANIFEST_TYPE, true, err) && fits(made, files->count, err);
}

bool td_oci_artifact_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                          struct td_made_documents *made, struct td_error *err)
{
    struct files files = {.count = 0};
    return td_oci_layers(oci, view, made, &files.layers, &files.count, err) &&
           set_titles(oci, target->form == TD_OCI_FLAT, &files, err) && add_config(oci, view, &files, made, err) &&
           add_manifest(&files, made, err);
}
