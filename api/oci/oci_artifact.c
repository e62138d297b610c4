#include "api/oci/oci_artifact.h"

#include "api/oci/oci_config.h"
#include "api/oci/oci_descriptor.h"
#include "api/oci/oci_digests.h"
#include "api/oci/oci_media.h"
#include "api/oci/oci_titles.h"

#include <string.h>

/* The files of an artifact, sorted by path; all arrays have `count` items and lie in the call's arena. */
struct files {
    size_t count;
    const struct td_entry **entries;
    const char **paths;  /* below the repository */
    const char **titles; /* the paths, or titles without '/' */
};

/* Reserves memory for the list, and for the texts of two documents. */
static bool reserve(struct td_oci_call *oci, const struct td_repo_view *view, struct td_error *err)
{
    enum { EACH = sizeof(struct td_repo_item) + 3 * sizeof(void *) + 1024 };
    if (view->entry_count > TD_OCI_MOST_FILES)
        return td_error_set(err, TD_FAILED_PRECONDITION, "the repository has %zu files, and an artifact at most %d",
                            view->entry_count, TD_OCI_MOST_FILES);
    return td_reserved_take(&oci->reserved, view->entry_count * EACH, err);
}

static bool list_files(struct td_oci_call *oci, const struct td_repo_view *view, bool is_flat, struct files *files,
                       struct td_error *err)
{
    struct td_repo_item *items;
    if (!reserve(oci, view, err) || !td_repo_view_list(view, &oci->arena, &items, &files->count, err))
        return false;
    files->entries = td_arena_array(&oci->arena, files->count, sizeof *files->entries);
    files->paths = td_arena_array(&oci->arena, files->count, sizeof *files->paths);
    if (files->entries == NULL || files->paths == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < files->count; i++) {
        files->entries[i] = items[i].entry;
        files->paths[i] = items[i].path;
    }
    files->titles = files->paths;
    return !is_flat || td_oci_flat_titles(files->paths, files->count, &oci->arena, &files->titles, err);
}

/* Adds the configuration to the documents. */
static bool add_config(const struct td_oci_call *oci, const struct td_repo_view *view, const struct files *files,
                       struct td_made_documents *made, struct td_error *err)
{
    struct td_repo_about about;
    struct td_buffer text;
    struct td_json_builder json;
    td_buffer_init(&text);
    td_json_builder_init(&json, &text);
    td_repo_about_init(&about, view, false, 0);
    td_oci_config_begin(&json, &about, oci->repo->id);
    td_json_begin_object(&json, "modelfs");
    td_json_add_string(&json, "type", "layers");
    td_oci_add_digests(&json, "diffIds", files->entries, files->count);
    td_json_end(&json);
    td_json_end(&json);
    td_json_builder_fini(&json);
    bool ok = td_made_documents_add(made, TD_OCI_MODEL_CONFIG_TYPE, false, &text, err);
    td_buffer_fini(&text);
    return ok;
}

static void add_layer(struct td_json_builder *json, const struct files *files, size_t i)
{
    td_oci_begin_descriptor(json, NULL, td_oci_layer_type(files->entries[i]), td_file_sha256(files->entries[i]->file),
                            files->entries[i]->file->source.id.size_bytes);
    td_json_begin_object(json, "annotations");
    td_json_add_string(json, "org.cncf.model.filepath", files->paths[i]);
    td_json_add_string(json, "org.opencontainers.image.title", files->titles[i]);
    td_json_end(json);
    td_json_end(json);
    td_json_flush(json);
}

static bool add_manifest(const struct files *files, struct td_made_documents *made, struct td_error *err)
{
    struct td_buffer text;
    struct td_json_builder json;
    const struct td_made_document *config = &made->items[made->count - 1];
    td_buffer_init(&text);
    td_json_builder_init(&json, &text);
    td_json_begin_object(&json, NULL);
    td_json_add_u64(&json, "schemaVersion", 2);
    td_json_add_string(&json, "mediaType", TD_OCI_MANIFEST_TYPE);
    td_json_add_string(&json, "artifactType", TD_OCI_MODEL_TYPE);
    td_oci_begin_descriptor(&json, "config", config->media_type, config->sha256, config->bytes->len_bytes);
    td_json_end(&json);
    td_json_begin_array(&json, "layers");
    for (size_t i = 0; i < files->count && text.len <= TD_OCI_MANIFEST_MAX; i++)
        add_layer(&json, files, i);
    td_json_end(&json);
    td_json_end(&json);
    td_json_builder_fini(&json);
    bool fits = text.len <= TD_OCI_MANIFEST_MAX ||
                td_error_set(err, TD_FAILED_PRECONDITION,
                             "the manifest of %zu files is longer than the %d bytes that clients read", files->count,
                             TD_OCI_MANIFEST_MAX);
    bool ok = fits && td_made_documents_add(made, TD_OCI_MANIFEST_TYPE, true, &text, err);
    td_buffer_fini(&text);
    return ok;
}

bool td_oci_artifact_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                          struct td_made_documents *made, struct td_error *err)
{
    struct files files = {.count = 0};
    return list_files(oci, view, target->form == TD_OCI_FLAT, &files, err) &&
           td_oci_know_digests(oci, files.entries, files.count, err) && add_config(oci, view, &files, made, err) &&
           add_manifest(&files, made, err);
}
