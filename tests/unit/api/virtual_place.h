/* Shared by tests of the OCI facade: gives virtual files digests without hashing them, as the virtual hasher would. The
 * digests are of other bytes, as nothing here compares them with those of the files. */
#ifndef TD_TESTS_UNIT_API_VIRTUAL_PLACE_H
#define TD_TESTS_UNIT_API_VIRTUAL_PLACE_H

#include "api/call/state.h"
#include "core/digits.h"
#include "rank/rank_digest.h"
#include "rank/tar_layer.h"
#include "tests/unit/unit.h"

/* Writes the SHA-256 that a virtual file gets here: that of its name. */
static inline void virtual_sum(const char *name, uint8_t sum[TD_SHA256_BYTES], char hex[TD_SHA256_TEXT_BYTES])
{
    td_sha256(name, strlen(name), sum);
    td_hex_write(sum, TD_SHA256_BYTES, hex);
}

static inline const struct td_repo *virtual_repo(const struct td_snapshot *snapshot, const char *id)
{
    const struct td_repo *repo = td_repo_find(snapshot, false, td_text_of(id));
    assert_non_null(repo);
    return repo;
}

/* Adds the digests of the layers of a repository's image to the table. Each layer is one file, and its digest is the
 * sum of the file's path in the repository. All files' digests are known. */
static inline void note_layers(struct td_api *api, const char *id)
{
    struct td_snapshot *snapshot = td_catalog_acquire(api->catalog);
    const struct td_repo *repo = virtual_repo(snapshot, id);
    for (size_t i = 0; i < repo->entry_count; i++) {
        const struct td_entry *entry = &snapshot->entries[repo->first_entry + i];
        const struct td_tar_file file = {.path = entry->path + repo->prefix_len,
                                         .size_bytes = entry->file->source.id.size_bytes,
                                         .sha256 = td_file_sha256(entry->file)};
        struct td_virtual_key key;
        struct td_virtual_digest digest = {.origin = {.kind = TD_REVISION_FILES}};
        char hex[TD_SHA256_TEXT_BYTES];
        assert_true(td_tar_layer_key(repo->id, &file, 1, &key, &digest.size_bytes, NULL));
        virtual_sum(file.path, digest.sum, hex);
        td_virtual_digests_add(td_virtual_hasher_digests(api->virtual_hasher), &key, &digest);
    }
    td_snapshot_unref(snapshot);
}

/* Adds the digest of the rank file of a repository with one checkpoint at a virtual revision to the table. The digest
 * is the sum of the revision's name. */
static inline void note_rank_file(struct td_api *api, const char *id, const char *revision)
{
    struct td_snapshot *snapshot = td_catalog_acquire(api->catalog);
    struct td_virtual_digest digest = {.size_bytes = 1};
    struct td_virtual_key key;
    struct td_repo_view view;
    struct td_repo_item item;
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    char hex[TD_SHA256_TEXT_BYTES];
    td_arena_init(&arena, 0);
    assert_true(td_repo_view_open(snapshot, virtual_repo(snapshot, id), td_text_of(revision), &view, &err));
    assert_true(td_repo_view_find(&view, TD_TEXT("model.safetensors"), &arena, &item, &err) && item.entry == NULL);
    assert_true(td_rank_digest_key(&view, &item, &key, &err));
    td_rank_digest_origin(&view, &digest.origin);
    virtual_sum(revision, digest.sum, hex);
    td_virtual_digests_add(td_virtual_hasher_digests(api->virtual_hasher), &key, &digest);
    td_arena_fini(&arena);
    td_snapshot_unref(snapshot);
}

/* Adds so many digests of other large contents that the table drops all small ones like this one. */
static inline void drop_like(struct td_api *api, const struct td_virtual_digest *like)
{
    struct td_virtual_digests *digests = td_virtual_hasher_digests(api->virtual_hasher);
    size_t count = like->is_document                        ? TD_VIRTUAL_DOCUMENTS_MAX
                   : like->origin.kind == TD_REVISION_FILES ? TD_VIRTUAL_LAYERS_MAX
                                                            : TD_VIRTUAL_RANKS_MAX;
    for (uint64_t i = 0; i < count; i++) {
        struct td_virtual_key key = {{0}};
        struct td_virtual_digest digest = *like;
        digest.size_bytes = TD_VIRTUAL_LARGE_BYTES;
        memcpy(key.bytes, &i, sizeof i);
        key.bytes[sizeof i] = like->is_document ? 1 : 0;
        memcpy(digest.sum, &i, sizeof i);
        td_virtual_digests_add(digests, &key, &digest);
    }
}

/* Has the table drop all digests of layers (TD_REVISION_FILES) or of rank files. */
static inline void drop_digests(struct td_api *api, enum td_revision_kind kind)
{
    drop_like(api, &(struct td_virtual_digest){.origin = {.kind = kind, .tp_size = 1, .engine = 2}});
}

/* Makes the table forget the revisions of documents. */
static inline void drop_documents(struct td_api *api)
{
    drop_like(api, &(struct td_virtual_digest){.is_document = true,
                                               .origin = {.kind = TD_REVISION_RANK, .tp_size = 1, .engine = 2}});
}

#endif
