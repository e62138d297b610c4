/* Plan: the files of the repository, sorted by path, are divided into runs. Each run is a layer. The content key of a
 * layer is computed from paths and digests, so the server needs no table of layers. For a blob, the stored documents
 * show the number of the layer. Without them, the server computes the keys of all layers again and looks up their
 * digests in the table of virtual digests. */
#include "api/oci/oci_image.h"

#include "api/oci/oci_digests.h"
#include "api/oci/oci_document.h"
#include "catalog/model/late_file.h"
#include "core/digits.h"
#include "rank/file_answer.h"
#include "rank/tar_layer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const architectures[] = {"amd64", "arm64"};

enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

/* An image that is being built. The call's arena owns the arrays. */
struct image {
    struct td_oci_call *oci;
    const struct td_entry **entries; /* the files from first_listed on, sorted by path */
    struct td_tar_file *files;       /* the same */
    size_t first_listed, file_count; /* file_count: of all files */
    struct td_oci_virtual *layers;   /* NULL: the stored documents have the digests */
    size_t layer_count;
};

/* Returns the number of the layer's first file. The layer ends before the first file of the next layer. */
static size_t first_file(const struct image *image, size_t layer)
{
    return image->file_count * layer / image->layer_count; /* at most 10,000 files and 100 layers */
}

/* Checks that the tar headers do not become too long. */
static bool check_headers(const struct image *image, struct td_error *err)
{
    uint64_t bytes = td_tar_header_bound(image->files, image->file_count);
    return bytes <= TD_OCI_IMAGE_HEADER_BYTES ||
           td_error_set(err, TD_FAILED_PRECONDITION,
                        "the paths of the repository's files are so long and deep that an image needs %" PRIu64
                        " MiB of headers for them, and may have %d",
                        bytes >> 20, TD_OCI_IMAGE_HEADER_BYTES >> 20);
}

/* Returns how many layers an image of the view has. */
static size_t layers_of(const struct td_repo_view *view)
{
    return view->entry_count < TD_OCI_IMAGE_LAYERS ? view->entry_count : TD_OCI_IMAGE_LAYERS;
}

/* Sets *image to the image of a view of files on disk and lists `count` files from `first` on. */
static bool list_files(struct image *image, const struct td_repo_view *view, size_t first, size_t count,
                       struct td_error *err)
{
    enum { EACH = sizeof(struct td_tar_file) + sizeof(void *) };
    struct td_arena *arena = &image->oci->arena;
    if (!td_reserved_take(&image->oci->reserved, count * EACH, err))
        return false;
    const struct td_entry **entries = td_arena_array(arena, count, sizeof *entries);
    struct td_tar_file *files = td_arena_array(arena, count, sizeof *files);
    if (entries == NULL || files == NULL) {
        (void)td_error_no_memory(err);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        entries[i] = &view->snapshot->entries[view->first_entry + first + i];
        files[i] = (struct td_tar_file){.path = entries[i]->path + view->prefix_len,
                                        .size_bytes = entries[i]->file->source.id.size_bytes};
    }
    *image = (struct image){.oci = image->oci,
                            .entries = entries,
                            .files = files,
                            .first_listed = first,
                            .file_count = view->entry_count,
                            .layer_count = layers_of(view)};
    return true;
}

/* Lists all files, and checks that an image can have them. */
static bool list_all_files(struct image *image, const struct td_repo_view *view, struct td_error *err)
{
    const struct td_oci_target target = {.form = TD_OCI_IMAGE};
    if (!td_oci_target_fits(&target, view->entry_count, err) || !list_files(image, view, 0, view->entry_count, err))
        return false;
    for (size_t i = 0; i < image->file_count; i++)
        if (!td_tar_path_check(image->files[i].path, err))
            return false;
    return check_headers(image, err);
}

/* Computes the keys of all layers. The digests of all files must be known. */
static bool set_layers(struct image *image, struct td_error *err)
{
    for (size_t i = 0; i < image->file_count; i++)
        image->files[i].sha256 = td_file_sha256(image->entries[i]->file);
    image->layers = td_arena_array(&image->oci->arena, image->layer_count, sizeof *image->layers);
    if (image->layers == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < image->layer_count; i++) {
        const struct td_tar_file *files = image->files + first_file(image, i);
        size_t count = first_file(image, i + 1) - first_file(image, i);
        image->layers[i].is_known = false;
        if (!td_tar_layer_key(image->oci->repo->id, files, count, &image->layers[i].key, &image->layers[i].size_bytes,
                              err))
            return false;
    }
    return true;
}

/* ---- the bytes of layers ------------------------------------------------------------------------------- */

/* The files of one layer; all borrowed. */
struct layer {
    struct td_mapping_cache *maps;
    struct td_root *root;
    const struct td_tar_file *files;
    const struct td_entry *const *entries; /* the same */
    size_t count;
    size_t kept; /* the number of the file that an answer keeps open; count: none */
};

static struct layer layer_of(const struct image *image, size_t i)
{
    const struct td_call *call = image->oci->call;
    size_t first = first_file(image, i);
    return (struct layer){.maps = td_catalog_maps(call->api->catalog),
                          .root = call->snapshot->root,
                          .files = image->files + (first - image->first_listed),
                          .entries = image->entries + (first - image->first_listed),
                          .count = first_file(image, i + 1) - first};
}

/* Opens a file of the layer for the hashing thread, which has one layer open at a time. */
static bool open_file(void *context, size_t i, struct td_blob **blob, struct td_error *err)
{
    const struct layer *layer = context;
    return td_file_source_map(layer->maps, layer->root, &layer->entries[i]->file->source, blob, err);
}

/* Opens a file of the layer for an answer. Thousands of answers may have layers open at once, so all files but one are
 * opened late. */
static bool open_late(void *context, size_t i, struct td_blob **blob, struct td_error *err)
{
    const struct layer *layer = context;
    return i == layer->kept ? open_file(context, i, blob, err)
                            : td_late_file(layer->maps, layer->root, layer->entries[i]->file, blob, err);
}

/* Returns the number of the layer's largest file, which is sent without a copy. */
static size_t largest_file(const struct layer *layer)
{
    size_t largest = 0;
    for (size_t i = 1; i < layer->count; i++)
        if (layer->files[i].size_bytes > layer->files[largest].size_bytes)
            largest = i;
    return largest;
}

/* Appends the layer to the body of an answer, which keeps one file open. */
static bool append_layer(const struct image *image, size_t i, struct td_body *body, struct td_error *err)
{
    struct layer layer = layer_of(image, i);
    const struct td_tar_opener opener = {.context = &layer, .open = open_late};
    layer.kept = largest_file(&layer);
    return td_tar_layer_append(layer.files, layer.count, &opener, body, err);
}

/* Opens a layer for the hasher. The recipe's context is a copy of the layer's lists. The snapshot owns the files that
 * they name. */
static bool open_layer(void *context, struct td_body *body, struct td_error *err)
{
    struct layer *layer = context;
    const struct td_tar_opener opener = {.context = layer, .open = open_file};
    return td_tar_layer_append(layer->files, layer->count, &opener, body, err);
}

static void free_layer(void *context)
{
    free(context);
}

/* Sets *recipe to a recipe for layer i: one allocation with the layer and its lists. */
static bool make_recipe(const struct image *image, size_t i, struct td_virtual_recipe *recipe, struct td_error *err)
{
    struct layer layer = layer_of(image, i);
    size_t files_bytes = layer.count * sizeof *layer.files; /* of at most 101 files */
    size_t entries_bytes = layer.count * sizeof(const struct td_entry *);
    char *memory = malloc(sizeof layer + files_bytes + entries_bytes);
    if (memory == NULL)
        return td_error_no_memory(err);
    memcpy(memory + sizeof layer, layer.files, files_bytes);
    memcpy(memory + sizeof layer + files_bytes, layer.entries, entries_bytes);
    layer.files = (const void *)(memory + sizeof layer);
    layer.entries = (const void *)(memory + sizeof layer + files_bytes);
    memcpy(memory, &layer, sizeof layer);
    *recipe = (struct td_virtual_recipe){.context = memory, .open = open_layer, .free = free_layer};
    return true;
}

/* Returns whether the client asked by digest. The digest may belong to another image, or to nothing. */
static bool is_by_digest(const struct td_oci_call *oci)
{
    struct td_text hex;
    return td_oci_digest_read(oci->path.reference, &hex) != TD_OCI_DIGEST_WRONG;
}

static bool begin_layer(void *context, size_t i, struct td_error *err)
{
    const struct image *image = context;
    struct td_virtual_hasher *hasher = image->oci->call->api->virtual_hasher;
    struct td_virtual_file wanted = {.key = image->layers[i].key,
                                     .size_bytes = image->layers[i].size_bytes,
                                     .owner = td_virtual_owner(image->oci->repo->id),
                                     .client = td_call_client(image->oci->call),
                                     .is_unasked = is_by_digest(image->oci),
                                     .snapshot = image->oci->call->snapshot};
    if (td_virtual_hasher_has(hasher, &wanted.key))
        return true;
    return make_recipe(image, i, &wanted.recipe, err) && td_virtual_hasher_begin(hasher, &wanted, err);
}

/* ---- documents ----------------------------------------------------------------------------------------- */

static void write_sum(const struct td_oci_virtual *layer, char sha256[TD_SHA256_TEXT_BYTES])
{
    td_hex_write(layer->digest.sum, sizeof layer->digest.sum, sha256);
}

/* Adds the configuration of one architecture (image-spec, config.md). A layer is not compressed, so its diff_id is its
 * digest. */
static bool add_config(const struct image *image, const char *architecture, struct td_made_documents *made,
                       struct td_error *err)
{
    struct td_oci_document document;
    char sha256[TD_SHA256_TEXT_BYTES];
    struct td_document *json = td_oci_begin_document(&document);
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "architecture", architecture);
    td_document_add_string(json, "os", "linux");
    td_document_begin_object(json, "config");
    td_document_end(json);
    td_document_begin_object(json, "rootfs");
    td_document_add_string(json, "type", "layers");
    td_document_begin_array(json, "diff_ids");
    for (size_t i = 0; i < image->layer_count; i++) {
        write_sum(&image->layers[i], sha256);
        td_oci_add_sha256(json, NULL, sha256);
    }
    td_document_end(json);
    td_document_end(json);
    td_document_end(json);
    return td_oci_end_document(&document, made, TD_OCI_IMAGE_CONFIG_TYPE, false, err);
}

/* Adds the manifest of the configuration that was added last (image-spec, manifest.md). */
static bool add_manifest(const struct image *image, struct td_made_documents *made, struct td_error *err)
{
    const struct td_made_document *config = &made->items[made->count - 1];
    struct td_oci_document document;
    char sha256[TD_SHA256_TEXT_BYTES];
    struct td_document *json = td_oci_begin_document(&document);
    td_oci_begin_manifest(json, TD_OCI_MANIFEST_TYPE, NULL, config);
    for (size_t i = 0; i < image->layer_count; i++) {
        write_sum(&image->layers[i], sha256);
        td_oci_begin_descriptor(json, NULL, TD_OCI_IMAGE_LAYER_TYPE, sha256, image->layers[i].digest.size_bytes);
        td_document_end(json);
    }
    td_document_end(json);
    td_document_end(json);
    return td_oci_end_document(&document, made, TD_OCI_MANIFEST_TYPE, true, err);
}

/* Adds the index of the manifests that were added, one for each architecture (image-spec, image-index.md). */
static bool add_index(struct td_made_documents *made, struct td_error *err)
{
    struct td_oci_document document;
    struct td_document *json = td_oci_begin_document(&document);
    td_document_begin_object(json, NULL);
    td_document_add_u64(json, "schemaVersion", 2);
    td_document_add_string(json, "mediaType", TD_OCI_INDEX_TYPE);
    td_document_begin_array(json, "manifests");
    for (size_t i = 0; i < ARCHITECTURES; i++) {
        const struct td_made_document *manifest = &made->items[2 * i + 1];
        td_oci_begin_descriptor(json, NULL, manifest->media_type, manifest->sha256, manifest->bytes->len_bytes);
        td_document_begin_object(json, "platform");
        td_document_add_string(json, "architecture", architectures[i]);
        td_document_add_string(json, "os", "linux");
        td_document_end(json);
        td_document_end(json);
    }
    td_document_end(json);
    td_document_end(json);
    return td_oci_end_document(&document, made, TD_OCI_INDEX_TYPE, true, err);
}

bool td_oci_image_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                       struct td_made_documents *made, struct td_error *err)
{
    struct image image = {.oci = oci};
    (void)target;
    bool ok =
        list_all_files(&image, view, err) && td_oci_know_digests(oci, image.entries, image.file_count, err) &&
        set_layers(&image, err) &&
        td_oci_know_virtual(oci, image.layers, image.layer_count, TD_OCI_IMAGE_LAYERS, begin_layer, &image, err) &&
        td_oci_keep_virtual(made, image.layers, image.layer_count, err);
    for (size_t i = 0; ok && i < ARCHITECTURES; i++)
        ok = add_config(&image, architectures[i], made, err) && add_manifest(&image, made, err);
    return ok && add_index(made, err);
}

/* ---- blobs --------------------------------------------------------------------------------------------- */

/* Returns whether the digests of all files are known. */
static bool knows_files(const struct image *image)
{
    for (size_t i = 0; i < image->file_count; i++)
        if (td_file_sha256(image->entries[i]->file) == NULL)
            return false;
    return true;
}

/* Returns the number of the layer that is known to have this SHA-256, or the number of layers. */
static size_t find_known(const struct image *image, struct td_text sha256)
{
    char sum[TD_SHA256_TEXT_BYTES];
    (void)td_oci_look_up(image->oci, image->layers, image->layer_count);
    for (size_t layer = 0; layer < image->layer_count; layer++) {
        if (!image->layers[layer].is_known)
            continue;
        write_sum(&image->layers[layer], sum);
        if (td_text_equals(sha256, sum))
            return layer;
    }
    return image->layer_count;
}

/* Appends the layer with this SHA-256, found by its content key among those of all layers. Returns false, and leaves
 * *err alone, when no layer has it. If the files cannot form an image, no client can know the digest of a layer. */
static bool append_by_key(struct image *image, const struct td_repo_view *view, struct td_text sha256,
                          struct td_body *body, struct td_error *err)
{
    struct td_error own = TD_ERROR_INIT;
    bool ok = list_all_files(image, view, &own);
    if (ok && !knows_files(image))
        return false;
    if (!ok || !set_layers(image, &own))
        return own.code == TD_RESOURCE_EXHAUSTED && td_error_copy(err, &own);
    size_t layer = find_known(image, sha256);
    return layer < image->layer_count && append_layer(image, layer, body, err);
}

/* Does the same with stored documents, which name exactly the layers, in order. Lists the files of that layer alone. */
static bool append_kept(struct image *image, const struct td_repo_view *view, const struct td_made_documents *kept,
                        struct td_text sha256, struct td_body *body, struct td_error *err)
{
    size_t layer = td_made_documents_find_virtual(kept, sha256);
    image->file_count = view->entry_count;
    image->layer_count = layers_of(view);
    if (layer >= image->layer_count)
        return false;
    size_t first = first_file(image, layer);
    return list_files(image, view, first, first_file(image, layer + 1) - first, err) &&
           append_layer(image, layer, body, err);
}

bool td_oci_image_answer_layer(struct td_oci_call *oci, const struct td_made_documents *kept, struct td_text sha256,
                               struct td_error *err)
{
    struct td_response *response = oci->call->response;
    struct image image = {.oci = oci};
    struct td_repo_view view;
    if (!td_repo_view_open(oci->call->snapshot, oci->repo, TD_TEXT("main"), &view, err))
        return false;
    if (!td_note_read(oci->call->api->catalog, oci->call->snapshot, oci->repo->id, response, err) ||
        !(kept != NULL ? append_kept(&image, &view, kept, sha256, &response->body, err)
                       : append_by_key(&image, &view, sha256, &response->body, err)))
        return false;
    td_response_describe_bytes(response, TD_OCI_BLOB_TYPE);
    td_oci_add_digest(oci, sha256, true);
    return true;
}
