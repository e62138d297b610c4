#include "api/oci/oci_rank.h"

#include "core/digits.h"
#include "rank/rank_digest.h"

#include <string.h>

/* Sets *key to the key of the table's record that the repository has a document with this SHA-256 at this revision. */
static bool document_key(uint64_t owner, const struct td_virtual_digest *digest, struct td_virtual_key *key)
{
    struct td_digest *sum = td_digest_create();
    const struct td_virtual_revision *origin = &digest->origin;
    const uint64_t numbers[] = {owner, origin->kind, origin->engine, origin->tp_size, origin->rank};
    td_digest_add_cstring(sum, "document");
    td_digest_add(sum, digest->sum, sizeof digest->sum);
    td_digest_add(sum, numbers, sizeof numbers);
    return td_digest_finish_binary(sum, key->bytes);
}

void td_oci_rank_note(const struct td_oci_call *oci, const struct td_made_documents *made)
{
    struct td_virtual_digests *digests = td_virtual_hasher_digests(oci->call->api->virtual_hasher);
    struct td_virtual_digest digest = {.is_document = true, .origin = made->origin};
    struct td_virtual_key key;
    td_made_documents_note_virtual(made, digests);
    for (size_t i = 0; made->origin.kind != TD_REVISION_FILES && i < made->count; i++) {
        (void)td_hex_read_bytes(td_text_of(made->items[i].sha256), digest.sum, sizeof digest.sum);
        digest.size_bytes = made->items[i].bytes->len_bytes;
        if (document_key(made->owner, &digest, &key))
            td_virtual_digests_add(digests, &key, &digest);
    }
}

/* A search for a document or a file of a repository's virtual revisions. */
struct sought {
    uint64_t owner;
    uint8_t sum[TD_SHA256_BYTES];
};

static bool names_digest(const void *value, const void *context)
{
    const struct td_made_documents *made = value;
    const struct sought *sought = context;
    return made->owner == sought->owner && made->origin.kind != TD_REVISION_FILES &&
           td_made_documents_know(made, sought->sum);
}

/* Adds to the table again the digests that it has dropped, of stored documents that match the search. */
static void note_kept(const struct td_oci_call *oci, const struct sought *sought)
{
    void *kept[TD_OCI_RANK_ORIGINS];
    size_t count = td_lru_find(&oci->call->api->documents, names_digest, sought, kept, TD_OCI_RANK_ORIGINS);
    for (size_t i = 0; i < count; i++) {
        td_oci_rank_note(oci, kept[i]);
        td_made_documents_unref(kept[i]);
    }
}

/* Writes the revisions that the table has. Those of documents belong to this repository. Returns their number. */
static size_t look_up(const struct td_oci_call *oci, const struct sought *sought, bool is_document,
                      struct td_virtual_revision origins[TD_OCI_RANK_ORIGINS])
{
    struct td_virtual_digests *digests = td_virtual_hasher_digests(oci->call->api->virtual_hasher);
    size_t count = td_virtual_digests_origins(digests, is_document, sought->sum, origins, TD_OCI_RANK_ORIGINS);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct td_virtual_digest digest = {.origin = origins[i]};
        struct td_virtual_key key;
        memcpy(digest.sum, sought->sum, sizeof digest.sum);
        if (!is_document ||
            (document_key(sought->owner, &digest, &key) && td_virtual_digests_find(digests, &key, &digest)))
            origins[kept++] = origins[i];
    }
    return kept;
}

bool td_oci_rank_commits(const struct td_oci_call *oci, bool is_document, struct td_text sha256,
                         char commits[TD_OCI_RANK_ORIGINS][TD_COMMIT_BYTES], size_t *count, struct td_error *err)
{
    struct td_virtual_revision origins[TD_OCI_RANK_ORIGINS];
    struct sought sought = {.owner = td_virtual_owner(oci->repo->id)};
    *count = 0;
    if (!td_hex_read_bytes(sha256, sought.sum, sizeof sought.sum))
        return true;
    *count = look_up(oci, &sought, is_document, origins);
    if (*count == 0) {
        note_kept(oci, &sought);
        *count = look_up(oci, &sought, is_document, origins);
    }
    for (size_t i = 0; i < *count; i++)
        if (!td_virtual_revision_write_commit(&origins[i], oci->repo->commit, commits[i]))
            return td_error_no_memory(err);
    return true;
}

/* Finds the rank file of the view that is known to have this SHA-256. Sets *item to it, or to NULL. Errors:
 * TD_RESOURCE_EXHAUSTED. */
static bool find_item(struct td_oci_call *oci, const struct td_repo_view *view, struct td_text sha256,
                      const struct td_repo_item **item, struct td_error *err)
{
    struct td_repo_item *items;
    struct td_virtual_key key;
    struct td_virtual_digest digest;
    char sum[TD_SHA256_TEXT_BYTES];
    size_t count;
    *item = NULL;
    if (view->entry_count > TD_OCI_MOST_FILES)
        return true;
    if (!td_repo_view_list_rank_files(view, &oci->arena, &items, &count, err))
        return false;
    for (size_t i = 0; *item == NULL && i < count; i++) {
        bool is_known = false;
        if (!td_rank_digest_key(view, &items[i], &key, err) ||
            !td_rank_digest_find(oci->call->api->virtual_hasher, view, &items[i], &key, &is_known, &digest, err))
            return false;
        if (!is_known)
            continue;
        td_hex_write(digest.sum, sizeof digest.sum, sum);
        *item = td_text_equals(sha256, sum) ? &items[i] : NULL;
    }
    return true;
}

/* Opens the view of a revision that may have the file. A digest may also be of a revision of another repository, so
 * that this one has none of that commit: then *item is NULL. Errors: TD_RESOURCE_EXHAUSTED. */
static bool look_at(struct td_oci_call *oci, const char *commit, struct td_text sha256, struct td_repo_view *view,
                    const struct td_repo_item **item, struct td_error *err)
{
    struct td_error own = TD_ERROR_INIT;
    *item = NULL;
    if (td_repo_view_open(oci->call->snapshot, oci->repo, td_text_of(commit), view, &own))
        return find_item(oci, view, sha256, item, err);
    return own.code == TD_NOT_FOUND || td_error_copy(err, &own);
}

bool td_oci_rank_answer_file(struct td_oci_call *oci, struct td_text sha256, struct td_error *err)
{
    char commits[TD_OCI_RANK_ORIGINS][TD_COMMIT_BYTES];
    const struct td_repo_item *item = NULL;
    struct td_repo_view view;
    size_t count;
    if (!td_oci_rank_commits(oci, false, sha256, commits, &count, err))
        return false;
    for (size_t i = 0; item == NULL && i < count; i++)
        if (!look_at(oci, commits[i], sha256, &view, &item, err))
            return false;
    if (item == NULL || !td_repo_item_answer(&oci->call->api->ranks, &view, item, oci->call->response, err))
        return false;
    td_oci_add_digest(oci, sha256, true);
    return true;
}
