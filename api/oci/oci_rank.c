#include "api/oci/oci_rank.h"

#include "core/digits.h"
#include "rank/rank_digest.h"

#include <stdio.h>

/* Notes that the document with this digest is of the revision. */
static void note(struct td_virtual_digests *digests, const struct td_virtual_digest *digest)
{
    struct td_virtual_key key;
    struct td_digest *sum = td_digest_create();
    const uint64_t numbers[] = {digest->origin.kind, digest->origin.engine, digest->origin.tp_size,
                                digest->origin.rank};
    td_digest_add_cstring(sum, "document");
    td_digest_add(sum, digest->sum, sizeof digest->sum);
    td_digest_add(sum, numbers, sizeof numbers);
    if (td_digest_finish_binary(sum, key.bytes))
        td_virtual_digests_add(digests, &key, digest);
}

void td_oci_rank_note(const struct td_oci_call *oci, const struct td_repo_view *view,
                      const struct td_made_documents *made)
{
    struct td_virtual_digest digest = {.is_document = true};
    td_rank_digest_origin(view, &digest.origin);
    for (size_t i = 0; i < made->count; i++) {
        const struct td_blob *bytes = made->items[i].bytes;
        td_sha256(bytes->bytes, (size_t)bytes->len_bytes, digest.sum);
        digest.size_bytes = bytes->len_bytes;
        note(td_virtual_hasher_digests(oci->call->api->hasher), &digest);
    }
}

size_t td_oci_rank_commits(const struct td_oci_call *oci, struct td_text sha256,
                           char commits[TD_OCI_RANK_ORIGINS][TD_COMMIT_BYTES])
{
    struct td_virtual_revision origins[TD_OCI_RANK_ORIGINS];
    uint8_t sum[TD_SHA256_BYTES];
    size_t written = 0;
    if (!td_hex_read_bytes(sha256, sum, sizeof sum))
        return 0;
    size_t count = td_virtual_digests_origins(td_virtual_hasher_digests(oci->call->api->hasher), sum, origins,
                                              TD_OCI_RANK_ORIGINS);
    for (size_t i = 0; i < count; i++)
        if (td_virtual_revision_write_commit(&origins[i], oci->repo->commit, commits[written]))
            written++;
    return written;
}

/* Finds the rank file of the view that is known to have this SHA-256. */
static const struct td_repo_item *find_item(struct td_oci_call *oci, const struct td_repo_view *view,
                                            struct td_text sha256)
{
    struct td_repo_item *items;
    struct td_virtual_digest digest;
    struct td_error none = TD_ERROR_INIT;
    char sum[TD_SHA256_TEXT_BYTES];
    size_t count;
    if (view->entry_count > TD_OCI_MOST_FILES || !td_repo_view_list(view, &oci->arena, &items, &count, &none))
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (items[i].entry != NULL || !td_rank_digest_find(oci->call->api->hasher, view, &items[i], &digest))
            continue;
        td_hex_write(digest.sum, sizeof digest.sum, sum);
        if (td_text_equals(sha256, sum))
            return &items[i];
    }
    return NULL;
}

bool td_oci_rank_answer_file(struct td_oci_call *oci, struct td_text sha256)
{
    char commits[TD_OCI_RANK_ORIGINS][TD_COMMIT_BYTES];
    struct td_response *response = oci->call->response;
    const struct td_repo_item *item = NULL;
    char sum[TD_SHA256_TEXT_BYTES];
    struct td_repo_view view;
    struct td_error err = TD_ERROR_INIT;
    size_t count = td_oci_rank_commits(oci, sha256, commits);
    for (size_t i = 0; item == NULL && i < count; i++) {
        struct td_error none = TD_ERROR_INIT;
        if (td_repo_view_open(oci->call->snapshot, oci->repo, td_text_of(commits[i]), &view, &none))
            item = find_item(oci, &view, sha256);
    }
    if (item == NULL)
        return false;
    if (!td_repo_item_answer(&oci->call->api->ranks, &view, item, response, &err)) {
        td_response_fail_error(response, &err);
        return true;
    }
    (void)snprintf(sum, sizeof sum, "%.*s", TD_SHOW(sha256, TD_SHA256_TEXT_BYTES));
    td_oci_add_digest(oci, sum, true);
    return true;
}
