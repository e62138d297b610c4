#include "api/oci/oci_layers.h"

#include "api/oci/oci_digests.h"
#include "api/oci/oci_hashing.h"
#include "api/oci/oci_media.h"
#include "core/digits.h"
#include "rank/rank_digest.h"

/* The files of a view, while their digests are looked for. */
struct listing {
    struct td_oci_call *oci;
    const struct td_repo_view *view;
    struct td_repo_item *items; /* sorted by path */
    size_t count;
    const struct td_entry **entries; /* the files on disk among them */
    size_t entry_count;
    const struct td_repo_item **rank_files; /* the others, and what is known of each */
    struct td_oci_virtual *virtual_files;
    size_t rank_count;
};

/* Lists the files of the view, those on disk and the others. */
static bool list(struct listing *listing, struct td_error *err)
{
    /* the lists, and the texts of two documents */
    enum { EACH = sizeof(struct td_repo_item) + 3 * sizeof(void *) + sizeof(struct td_oci_layer) + 1024 };
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
static bool set_rank_layer(const struct listing *listing, const struct td_virtual_digest *digest,
                           struct td_oci_layer *layer)
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

bool td_oci_layers(struct td_oci_call *oci, const struct td_repo_view *view, struct td_made_documents *made,
                   struct td_oci_layer **layers, size_t *count, struct td_error *err)
{
    struct listing listing = {.oci = oci, .view = view};
    if (!list(&listing, err) || !td_oci_know_digests(oci, listing.entries, listing.entry_count, err) ||
        !know_rank_files(&listing, err) || !td_oci_keep_virtual(made, listing.virtual_files, listing.rank_count, err))
        return false;
    *count = listing.count;
    *layers = td_arena_array(&oci->arena, listing.count, sizeof **layers);
    if (*layers == NULL)
        return td_error_no_memory(err);
    size_t rank_count = 0;
    for (size_t i = 0; i < listing.count; i++) {
        const struct td_entry *entry = listing.items[i].entry;
        struct td_oci_layer *layer = &(*layers)[i];
        *layer = (struct td_oci_layer){.path = listing.items[i].path};
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
