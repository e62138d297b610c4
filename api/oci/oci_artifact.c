#include "api/oci/oci_artifact.h"

#include "api/oci/oci_digests.h"
#include "api/oci/oci_document.h"
#include "core/digest.h"
#include "core/digits.h"
#include "rank/rank_digest.h"

#include <stdlib.h>
#include <string.h>

/* A file of a view, with its digest. */
struct layer {
    const char *path;       /* in the view */
    const char *media_type; /* static */
    const char *sha256;     /* in hexadecimal */
    uint64_t size_bytes;
};

/* ---- titles -------------------------------------------------------------------------------------------- */

enum { DIGITS = 16, TITLE_MAX = 255 };

/* A title while the list is built. */
struct title {
    const char *path, *text;
    size_t place; /* in the caller's list */
};

static int compare_titles(const void *a, const void *b)
{
    const struct title *x = a;
    const struct title *y = b;
    int order = strcmp(x->text, y->text);
    return order != 0 ? order : strcmp(x->path, y->path);
}

/* Returns the path with "--" for each '/'; NULL for want of memory. */
static const char *replace_slashes(const char *path, struct td_arena *arena)
{
    char *text = td_arena_alloc(arena, 2 * strlen(path) + 1);
    size_t len = 0;
    if (text == NULL)
        return NULL;
    for (size_t i = 0; path[i] != '\0'; i++) {
        text[len++] = path[i] == '/' ? '-' : path[i];
        if (path[i] == '/')
            text[len++] = '-';
    }
    text[len] = '\0';
    return text;
}

/* Returns the text, a title of this path, with the digits of the path's SHA-256 before it. Cuts the beginning of a text
 * that is too long, between characters of UTF-8. NULL for want of memory. */
static const char *add_digits(const char *path, const char *text, struct td_arena *arena)
{
    enum { REST_MAX = TITLE_MAX - DIGITS - 1 };
    char digits[2 * TD_SHA256_BYTES + 1];
    uint8_t sum[TD_SHA256_BYTES];
    size_t len = strlen(text);
    const char *rest = len > REST_MAX ? text + len - REST_MAX : text;
    while (rest > text && ((unsigned char)*rest & 0xC0) == 0x80)
        rest++;
    char *title = td_arena_alloc(arena, DIGITS + 1 + strlen(rest) + 1);
    if (title == NULL)
        return NULL;
    td_sha256(path, strlen(path), sum);
    td_hex_write(sum, sizeof sum, digits);
    memcpy(title, digits, DIGITS);
    title[DIGITS] = '-';
    memcpy(title + DIGITS + 1, rest, strlen(rest) + 1);
    return title;
}

/* Returns the title of a path that no other title equals; NULL for want of memory. */
static const char *make_title(const char *path, struct td_arena *arena)
{
    const char *text = replace_slashes(path, arena);
    return text == NULL || strlen(text) <= TITLE_MAX ? text : add_digits(path, text, arena);
}

/* Puts digits before each title that has a replaced '/' and equals another title. The list is sorted. */
static bool tell_apart(struct title *titles, size_t count, struct td_arena *arena)
{
    for (size_t first = 0, end; first < count; first = end) {
        const char *text = titles[first].text;
        for (end = first + 1; end < count && strcmp(text, titles[end].text) == 0; end++)
            ;
        for (size_t i = first; end - first > 1 && i < end; i++) {
            if (strchr(titles[i].path, '/') == NULL)
                continue;
            const char *replaced = replace_slashes(titles[i].path, arena);
            titles[i].text = replaced == NULL ? NULL : add_digits(titles[i].path, replaced, arena);
            if (titles[i].text == NULL)
                return false;
        }
    }
    return true;
}

bool td_oci_flat_titles(const char *const *paths, size_t count, struct td_arena *arena, const char ***titles,
                        struct td_error *err)
{
    struct title *list = td_arena_array(arena, count, sizeof *list);
    *titles = td_arena_array(arena, count, sizeof **titles);
    if (list == NULL || *titles == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < count; i++) {
        list[i] = (struct title){.path = paths[i], .text = make_title(paths[i], arena), .place = i};
        if (list[i].text == NULL)
            return td_error_no_memory(err);
    }
    if (count > 0)
        qsort(list, count, sizeof *list, compare_titles);
    if (!tell_apart(list, count, arena))
        return td_error_no_memory(err);
    if (count > 0)
        qsort(list, count, sizeof *list, compare_titles);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(list[i].text, list[i - 1].text) == 0)
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "the files \"%s\" and \"%s\" would have one title without '/': rename one of them",
                                list[i - 1].path, list[i].path);
        (*titles)[list[i].place] = list[i].text;
    }
    return true;
}

/* ---- layers -------------------------------------------------------------------------------------------- */

/* The files of a view while their digests are looked up. */
struct listing {
    struct td_oci_call *oci;
    const struct td_repo_view *view;
    struct td_repo_item *items; /* sorted by path */
    size_t count;
    const struct td_entry **entries; /* the files on disk among them */
    size_t entry_count;
    const struct td_repo_item **rank_files; /* the other files; virtual_files[i] has the digest of rank_files[i] */
    struct td_oci_virtual *virtual_files;
    size_t rank_count;
};

/* Lists the files of the view, those on disk and the others. */
static bool list_files(struct listing *listing, struct td_error *err)
{
    /* the lists, and the texts of two documents */
    enum { EACH = sizeof(struct td_repo_item) + 3 * sizeof(void *) + sizeof(struct layer) + 1024 };
    struct td_arena *arena = &listing->oci->arena;
    if (!td_reserved_take(&listing->oci->reserved, listing->view->entry_count * EACH, err) ||
        !td_repo_view_list(listing->view, arena, &listing->items, &listing->count, err))
        return false;
    for (size_t i = 0; i < listing->count; i++)
        listing->rank_count += listing->items[i].entry == NULL ? 1 : 0;
    listing->entries = td_arena_array(arena, listing->count, sizeof *listing->entries);
    listing->rank_files = td_arena_array(arena, listing->rank_count, sizeof *listing->rank_files);
    listing->virtual_files = td_arena_array(arena, listing->rank_count, sizeof *listing->virtual_files);
    if (listing->entries == NULL || listing->rank_files == NULL || listing->virtual_files == NULL)
        return td_error_no_memory(err);
    size_t rank_count = 0;
    for (size_t i = 0; i < listing->count; i++) {
        if (listing->items[i].entry != NULL)
            listing->entries[listing->entry_count++] = listing->items[i].entry;
        else
            listing->rank_files[rank_count++] = &listing->items[i];
    }
    return true;
}

static bool begin_rank_file(void *context, size_t i, struct td_error *err)
{
    const struct listing *listing = context;
    struct td_api *api = listing->oci->call->api;
    return td_rank_digest_begin(api->virtual_hasher, &api->ranks, listing->view, listing->rank_files[i],
                                &listing->virtual_files[i].key, td_call_client(listing->oci->call), err);
}

/* Has the rank files hashed. */
static bool know_rank_files(struct listing *listing, struct td_error *err)
{
    struct td_virtual_hasher *hasher = listing->oci->call->api->virtual_hasher;
    for (size_t i = 0; i < listing->rank_count; i++) {
        struct td_oci_virtual *file = &listing->virtual_files[i];
        file->size_bytes = 0;
        if (!td_rank_digest_key(listing->view, listing->rank_files[i], &file->key, err) ||
            !td_rank_digest_find(hasher, listing->view, listing->rank_files[i], &file->key, &file->is_known,
                                 &file->digest, err))
            return false;
    }
    return td_oci_know_virtual(listing->oci, listing->virtual_files, listing->rank_count, TD_VIRTUAL_HASHER_RANKS / 2,
                               begin_rank_file, listing, err);
}

/* Fills in the layer of a rank file. Returns false for want of memory. */
static bool set_rank_layer(const struct listing *listing, const struct td_virtual_digest *digest, struct layer *layer)
{
    char *sha256 = td_arena_alloc(&listing->oci->arena, TD_SHA256_TEXT_BYTES);
    if (sha256 == NULL)
        return false;
    td_hex_write(digest->sum, sizeof digest->sum, sha256);
    layer->sha256 = sha256;
    layer->size_bytes = digest->size_bytes;
    layer->media_type = TD_OCI_WEIGHT_TYPE;
    return true;
}

/* Sets *layers, in the call's arena, to all files of the view, sorted by path. The view has at most TD_OCI_MOST_FILES
 * files. Waits until oci->until_ns for their digests. Records the rank files in `made`. Errors as td_oci_know_digests
 * and td_oci_know_virtual; as td_rank_store_get; TD_RESOURCE_EXHAUSTED. */
static bool list_layers(struct td_oci_call *oci, const struct td_repo_view *view, struct td_made_documents *made,
                        struct layer **layers, size_t *count, struct td_error *err)
{
    struct listing listing = {.oci = oci, .view = view};
    if (!list_files(&listing, err) || !td_oci_know_digests(oci, listing.entries, listing.entry_count, err) ||
        !know_rank_files(&listing, err) || !td_oci_keep_virtual(made, listing.virtual_files, listing.rank_count, err))
        return false;
    *count = listing.count;
    *layers = td_arena_array(&oci->arena, listing.count, sizeof **layers);
    if (*layers == NULL)
        return td_error_no_memory(err);
    size_t rank_count = 0;
    for (size_t i = 0; i < listing.count; i++) {
        const struct td_entry *entry = listing.items[i].entry;
        struct layer *layer = &(*layers)[i];
        *layer = (struct layer){.path = listing.items[i].path};
        if (entry == NULL && !set_rank_layer(&listing, &listing.virtual_files[rank_count++].digest, layer))
            return td_error_no_memory(err);
        if (entry == NULL)
            continue;
        layer->sha256 = td_file_sha256(entry->file);
        layer->size_bytes = entry->file->source.id.size_bytes;
        layer->media_type = td_oci_layer_type(entry);
    }
    return true;
}

/* ---- manifest and configuration ------------------------------------------------------------------------ */

/* The layers of an artifact, sorted by path. The call's arena owns the arrays. */
struct files {
    size_t count;
    struct layer *layers;
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
    struct td_document *json = td_oci_begin_document(&document);
    td_repo_about_init(&about, view, false, 0);
    td_oci_config_begin(json, &about, oci->repo->id);
    td_document_begin_object(json, "modelfs");
    td_document_add_string(json, "type", "layers");
    td_document_begin_array(json, "diffIds");
    for (size_t i = 0; i < files->count; i++)
        td_oci_add_sha256(json, NULL, files->layers[i].sha256);
    td_document_end(json);
    td_document_end(json);
    td_document_end(json);
    return td_oci_end_document(&document, made, TD_OCI_MODEL_CONFIG_TYPE, false, err);
}

static void add_layer(struct td_document *json, const struct files *files, size_t i)
{
    const struct layer *layer = &files->layers[i];
    td_oci_begin_descriptor(json, NULL, layer->media_type, layer->sha256, layer->size_bytes);
    td_document_begin_object(json, "annotations");
    td_document_add_string(json, "org.cncf.model.filepath", layer->path);
    td_document_add_string(json, "org.opencontainers.image.title", files->titles[i]);
    td_document_end(json);
    td_document_end(json);
}

/* Checks the length of the manifest, which was added last. */
static bool manifest_fits(const struct td_made_documents *made, size_t file_count, struct td_error *err)
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
    struct td_document *json = td_oci_begin_document(&document);
    td_oci_begin_manifest(json, TD_OCI_MANIFEST_TYPE, TD_OCI_MODEL_TYPE, config);
    for (size_t i = 0; i < files->count && document.text.len <= TD_OCI_MANIFEST_MAX; i++)
        add_layer(json, files, i);
    td_document_end(json);
    td_document_end(json);
    return td_oci_end_document(&document, made, TD_OCI_MANIFEST_TYPE, true, err) &&
           manifest_fits(made, files->count, err);
}

bool td_oci_artifact_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                          struct td_made_documents *made, struct td_error *err)
{
    struct files files = {.count = 0};
    return list_layers(oci, view, made, &files.layers, &files.count, err) &&
           set_titles(oci, target->form == TD_OCI_FLAT, &files, err) && add_config(oci, view, &files, made, err) &&
           add_manifest(&files, made, err);
}
