#include "catalog/publish/pushed_manifest.h"

#include "core/digits.h"
#include "core/json/json_document.h"

#include <stdio.h>
#include <string.h>

#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define INDEX_TYPE "application/vnd.oci.image.index.v1+json"
#define PLAIN_LAYER_TYPE "application/vnd.oci.image.layer.v1.tar"

/* A manifest that is being read. */
struct reading {
    struct td_json_document document;
    struct td_text text;
    struct td_arena *arena;
    struct td_pushed_manifest *manifest;
    struct td_error *err;
    size_t ollama_counts[8]; /* of the layers of each kind */
};

static bool no_room(const struct reading *reading)
{
    return td_arena_refuse(reading->arena, "the manifest", reading->err);
}

bool td_pushed_digest_read(struct td_text text, uint8_t sha256[TD_SHA256_BYTES])
{
    static const struct td_text algorithm = TD_TEXT("sha256:");
    if (!td_text_begins(text, algorithm))
        return false;
    struct td_text hex = td_text_skip(text, algorithm.len);
    return td_hex_is_lower(hex) && td_hex_read_bytes(hex, sha256, TD_SHA256_BYTES);
}

/* ---- members --------------------------------------------------------------------------------------------- */

/* Sets *out to a member that is a text; NULL without the member. Errors: TD_INVALID_ARGUMENT for another type. */
static bool read_text(const struct reading *reading, const cJSON *object, const char *key, const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *out = NULL;
    if (item == NULL)
        return true;
    if (!td_json_item_is_string(item))
        return td_json_document_fail(&reading->document, item, "\"%s\" must be a text", key);
    *out = td_json_document_string(&reading->document, item);
    return *out != NULL;
}

/* Sets *out to a member that is an object of texts; NULL without the member. */
static bool read_annotations(const struct reading *reading, const cJSON *object, const cJSON **out)
{
    const cJSON *annotation;
    *out = cJSON_GetObjectItemCaseSensitive(object, "annotations");
    if (*out == NULL || cJSON_IsNull(*out)) {
        *out = NULL;
        return true;
    }
    if (!cJSON_IsObject(*out))
        return td_json_document_fail(&reading->document, *out, "\"annotations\" must be an object");
    cJSON_ArrayForEach(annotation, *out)
    {
        if (!td_json_item_is_string(annotation))
            return td_json_document_fail(&reading->document, annotation, "an annotation must be a text");
    }
    return true;
}

/* Refuses a member twice where readers may differ in which of both counts. */
static bool check_once(const struct reading *reading, const cJSON *object, const char *key)
{
    const cJSON *item;
    bool is_there = false;
    cJSON_ArrayForEach(item, object)
    {
        if (item->string == NULL || strcmp(item->string, key) != 0)
            continue;
        if (is_there)
            return td_json_document_fail_key(&reading->document, item, "the key \"%s\" occurs twice", key);
        is_there = true;
    }
    return true;
}

/* Reads digest, size and media type of a descriptor. */
static bool read_item(const struct reading *reading, const cJSON *object, struct td_pushed_item *item,
                      const char **type)
{
    const char *digest;
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(object, "size");
    if (!cJSON_IsObject(object))
        return td_json_document_fail(&reading->document, object, "a descriptor must be an object");
    if (!check_once(reading, object, "digest") || !check_once(reading, object, "size") ||
        !check_once(reading, object, "mediaType") || !check_once(reading, object, "annotations") ||
        !read_text(reading, object, "digest", &digest) || !read_text(reading, object, "mediaType", type))
        return false;
    if (*type == NULL)
        return td_json_document_fail(&reading->document, object, "a descriptor needs a mediaType");
    if (digest == NULL || !td_pushed_digest_read(td_text_of(digest), item->sha256))
        return td_json_document_fail(&reading->document, object,
                                     "a descriptor needs a digest of sha256: and 64 lower-case hexadecimal digits");
    if (!cJSON_IsRaw(size))
        return td_json_document_fail(&reading->document, object, "a descriptor needs a size");
    if (!td_json_document_u64(&reading->document, size, &item->size_bytes))
        return false;
    return item->size_bytes <= INT64_MAX || td_json_document_fail(&reading->document, size, "no file has this size");
}

/* ---- layers ---------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text);
    size_t end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* Returns whether a layer of this type is an archive, which stays as it is. */
static bool is_archive_type(const char *type)
{
    static const char *const ends[] = {".tar", ".tar+gzip", ".tar+zstd", ".tar.gzip", ".tar.zstd"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(type, ends[i]))
            return strcmp(type, PLAIN_LAYER_TYPE) != 0;
    return false;
}

/* Returns whether registries need not have layers of this type (image-spec, layer.md). */
static bool is_elsewhere_type(const char *type)
{
    return strstr(type, ".nondistributable.") != NULL || strstr(type, ".rootfs.foreign.") != NULL;
}

/* Sets *path to the name of a layer of Ollama; NULL for another layer. */
static bool name_ollama(struct reading *reading, const char *type, const char **path)
{
    static const char prefix[] = "application/vnd.ollama.image.";
    static const struct {
        const char *kind, *stem, *extension;
    } kinds[] = {
        {"model", "model", ".gguf"},  {"projector", "mmproj", ".gguf"}, {"adapter", "adapter", ".gguf"},
        {"template", "template", ""}, {"system", "system", ""},         {"params", "params", ""},
        {"license", "LICENSE", ""},   {"messages", "messages", ""},
    };
    char name[64];
    *path = NULL;
    if (strncmp(type, prefix, sizeof prefix - 1) != 0)
        return true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type + sizeof prefix - 1, kinds[i].kind) != 0)
            continue;
        size_t number = ++reading->ollama_counts[i];
        if (number == 1)
            (void)snprintf(name, sizeof name, "%s%s", kinds[i].stem, kinds[i].extension);
        else
            (void)snprintf(name, sizeof name, "%s-%zu%s", kinds[i].stem, number, kinds[i].extension);
        *path = td_arena_strndup(reading->arena, td_text_of(name));
        return *path != NULL || no_room(reading);
    }
    return true;
}

/* Sets *path to the path of the file that a layer stands for; NULL when it stands for none. */
static bool name_layer(struct reading *reading, const cJSON *layer, const char *type, const char **path)
{
    const cJSON *annotations;
    const char *unpack;
    if (!read_annotations(reading, layer, &annotations) || !name_ollama(reading, type, path))
        return false;
    if (*path != NULL || annotations == NULL)
        return true;
    if (!read_text(reading, annotations, "org.cncf.model.filepath", path) ||
        (*path == NULL && !read_text(reading, annotations, "org.opencontainers.image.title", path)) ||
        !read_text(reading, annotations, "io.deis.oras.content.unpack", &unpack))
        return false;
    if (is_archive_type(type) || (unpack != NULL && strcmp(unpack, "true") == 0))
        *path = NULL;
    return true;
}

static bool read_layer(struct reading *reading, const cJSON *layer)
{
    struct td_pushed_manifest *manifest = reading->manifest;
    struct td_pushed_item *item = &manifest->items[manifest->item_count];
    const char *type = NULL;
    const char *path;
    if (!read_item(reading, layer, item, &type) || type == NULL || !name_layer(reading, layer, type, &path))
        return false;
    item->is_elsewhere = is_elsewhere_type(type);
    manifest->item_count++;
    if (path == NULL)
        return true;
    struct td_commit_file *file = &manifest->files[manifest->file_count++];
    *file = (struct td_commit_file){.path = path, .size_bytes = item->size_bytes, .has_size = true};
    memcpy(file->sha256, item->sha256, sizeof file->sha256);
    return true;
}

/* ---- manifests ------------------------------------------------------------------------------------------- */

/* Makes room for the items that the array names, and for `more`. */
static bool make_room(struct reading *reading, const cJSON *array, size_t more)
{
    struct td_pushed_manifest *manifest = reading->manifest;
    size_t count = (size_t)cJSON_GetArraySize(array);
    manifest->items = td_arena_array(reading->arena, count + more, sizeof *manifest->items);
    manifest->files = td_arena_array(reading->arena, count, sizeof *manifest->files);
    if (manifest->items == NULL || manifest->files == NULL)
        return no_room(reading);
    memset(manifest->items, 0, (count + more) * sizeof *manifest->items);
    return true;
}

static bool read_index(struct reading *reading, const cJSON *manifests)
{
    struct td_pushed_manifest *manifest = reading->manifest;
    const cJSON *item;
    const char *type;
    if (cJSON_IsNull(manifests))
        return true;
    if (!cJSON_IsArray(manifests))
        return td_json_document_fail(&reading->document, manifests, "\"manifests\" must be an array");
    if (!make_room(reading, manifests, 0))
        return false;
    cJSON_ArrayForEach(item, manifests)
    {
        if (!read_item(reading, item, &manifest->items[manifest->item_count], &type))
            return false;
        manifest->item_count++;
    }
    return true;
}

/* Reads configuration and layers. Sets *config_type to the configuration's media type. */
static bool read_layers(struct reading *reading, const cJSON *root, const char **config_type)
{
    struct td_pushed_manifest *manifest = reading->manifest;
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(root, "config");
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(root, "layers");
    const cJSON *layer;
    if (config == NULL || (!cJSON_IsArray(layers) && !cJSON_IsNull(layers)))
        return td_json_document_fail(&reading->document, root,
                                     "a manifest needs \"config\" and \"layers\", or \"manifests\"");
    if (!make_room(reading, layers, 1) || !read_item(reading, config, &manifest->items[0], config_type))
        return false;
    manifest->item_count = 1;
    cJSON_ArrayForEach(layer, layers)
    {
        if (!read_layer(reading, layer))
            return false;
    }
    return true;
}

static bool read_subject(struct reading *reading, const cJSON *root)
{
    const cJSON *subject = cJSON_GetObjectItemCaseSensitive(root, "subject");
    if (subject == NULL || cJSON_IsNull(subject))
        return true;
    struct td_pushed_item item;
    const char *type;
    if (!read_item(reading, subject, &item, &type))
        return false;
    return read_text(reading, subject, "digest", &reading->manifest->subject);
}

/* Returns whether a manifest can be sent as this type: JSON, and nothing that a browser would run. */
static bool is_json_type(const char *type)
{
    static const char application[] = "application/";
    size_t len = strlen(type);
    if (len > 200 || strncmp(type, application, sizeof application - 1) != 0 || !ends_with(type, "json"))
        return false;
    for (size_t i = sizeof application - 1; i < len; i++)
        if (!td_is_letter_or_digit(type[i]) && strchr(".+-_", type[i]) == NULL)
            return false;
    return true;
}

/* Checks that a media type that is known fits the members: a text that two clients could read as different things is
 * refused. */
static bool check_type(const struct reading *reading, const cJSON *root, const char *type)
{
    static const struct {
        const char *type;
        bool is_index;
    } known[] = {
        {MANIFEST_TYPE, false},
        {INDEX_TYPE, true},
        {"application/vnd.docker.distribution.manifest.v2+json", false},
        {"application/vnd.docker.distribution.manifest.list.v2+json", true},
    };
    if (!is_json_type(type))
        return td_json_document_fail(&reading->document, root,
                                     "the mediaType of a manifest is of the form application/...json");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(type, known[i].type) == 0 && known[i].is_index != reading->manifest->is_index)
            return td_json_document_fail(&reading->document, root, "a manifest of the type %s has other members", type);
    return true;
}

static bool check_version(const struct reading *reading, const cJSON *root)
{
    uint64_t version = 0;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "schemaVersion");
    if (item == NULL)
        return td_json_document_fail(&reading->document, root, "a manifest needs \"schemaVersion\": 2");
    if (cJSON_IsRaw(item) && !td_json_document_u64(&reading->document, item, &version))
        return false;
    return version == 2 || td_json_document_fail(&reading->document, item, "\"schemaVersion\" must be 2");
}

static bool check_members(const struct reading *reading, const cJSON *root)
{
    static const char *const once[] = {"mediaType", "artifactType", "config",     "layers",
                                       "manifests", "subject",      "annotations"};
    for (size_t i = 0; i < sizeof once / sizeof *once; i++)
        if (!check_once(reading, root, once[i]))
            return false;
    const cJSON *manifests = cJSON_GetObjectItemCaseSensitive(root, "manifests");
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(root, "layers");
    if (manifests != NULL && layers != NULL)
        return td_json_document_fail_key(&reading->document, manifests,
                                         "a manifest has \"layers\" or \"manifests\", and not both");
    reading->manifest->is_index = manifests != NULL;
    return true;
}

static bool read_root(struct reading *reading, const cJSON *root)
{
    struct td_pushed_manifest *manifest = reading->manifest;
    const char *type;
    const char *artifact_type;
    const char *config_type = NULL;
    const cJSON *annotations;
    if (!check_version(reading, root) || !check_members(reading, root) ||
        !read_text(reading, root, "mediaType", &type) || !read_text(reading, root, "artifactType", &artifact_type) ||
        !read_annotations(reading, root, &annotations))
        return false;
    bool ok = manifest->is_index ? read_index(reading, cJSON_GetObjectItemCaseSensitive(root, "manifests"))
                                 : read_layers(reading, root, &config_type);
    if (!ok || !read_subject(reading, root) || (type != NULL && !check_type(reading, root, type)))
        return false;
    if (annotations != NULL) {
        manifest->annotations = td_json_document_spelled(&reading->document, annotations);
        manifest->annotations_at = (uint64_t)(manifest->annotations.p - reading->text.p);
    }
    manifest->media_type = type != NULL ? type : manifest->is_index ? INDEX_TYPE : MANIFEST_TYPE;
    if (artifact_type == NULL || artifact_type[0] == '\0')
        artifact_type = config_type;
    manifest->artifact_type = artifact_type == NULL ? "" : artifact_type;
    return strlen(manifest->artifact_type) <= TD_PUSHED_TYPE_MOST ||
           td_json_document_fail(&reading->document, root, "an artifactType has at most %d bytes", TD_PUSHED_TYPE_MOST);
}

/* Checks the files together, and sets the commit's id. */
static bool name_commit(struct td_pushed_manifest *manifest, struct td_error *err)
{
    const struct td_commit_list before = {.count = 0};
    const struct td_commit_order order = {
        .revision = "main", .files = manifest->files, .file_count = manifest->file_count};
    struct td_commit_list list = {.count = 0};
    bool is_too_large = false;
    bool ok = td_commit_list_make(&before, &order, &list, &is_too_large, err) &&
              td_commit_list_id(&list, manifest->commit, err);
    td_commit_list_fini(&list);
    if (!ok && err != NULL && err->code == TD_CONFLICT)
        err->code = TD_INVALID_ARGUMENT;
    return ok;
}

bool td_pushed_manifest_read(struct td_text text, struct td_arena *arena, struct td_pushed_manifest *manifest,
                             struct td_error *err)
{
    struct reading reading = {.text = text, .arena = arena, .manifest = manifest, .err = err};
    *manifest = (struct td_pushed_manifest){.media_type = "", .size_bytes = text.len};
    td_json_document_read(&reading.document, text, arena, err);
    const cJSON *root = td_json_document_object(&reading.document, "a manifest, an object,");
    if (root == NULL || !read_root(&reading, root) || !td_json_document_end(&reading.document))
        return false;
    return manifest->file_count == 0 || name_commit(manifest, err);
}
