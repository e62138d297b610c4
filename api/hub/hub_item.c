#define OPENSSL_API_COMPAT 0x10101000L /* as core/digest.c says */
#include "api/hub/hub_item.h"

#include "core/checked.h"
#include "core/clock.h"
#include "core/digits.h"
#include "rank/rank_digest.h"

#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

bool td_hub_list_items(struct td_hub_call *hub, struct td_repo_item **items, size_t *count, struct td_error *err)
{
    /* there are no more items than files, as a virtual file replaces a real one; a virtual revision also sorts them */
    size_t each = sizeof **items * (hub->view.kind == TD_REVISION_FILES ? 1 : 2);
    size_t bytes;
    if (!td_mul_size(hub->view.entry_count, each, &bytes))
        return td_error_no_memory(err);
    return td_reserved_take(&hub->reserved, bytes, err) &&
           td_repo_view_list(&hub->view, &hub->arena, items, count, err);
}

/* Computes the name that Git gives a text: the SHA-1 of a blob. */
static void git_blob_name(struct td_text text, char name[TD_COMMIT_BYTES])
{
    char prefix[32];
    uint8_t sum[SHA_DIGEST_LENGTH];
    SHA_CTX sha;
    int prefix_len = snprintf(prefix, sizeof prefix, "blob %zu", text.len);
    (void)SHA1_Init(&sha);
    (void)SHA1_Update(&sha, prefix, (size_t)prefix_len + 1);
    (void)SHA1_Update(&sha, text.p, text.len);
    (void)SHA1_Final(sum, &sha);
    td_hex_write(sum, sizeof sum, name);
}

/* Sets the blob's SHA-256 to that of the rank file with this tag, if the file was hashed before. Does not hash it. */
static bool find_rank_sha256(const struct td_hub_call *hub, const struct td_repo_item *item, const char *tag,
                             struct td_hub_blob *blob, struct td_error *err)
{
    struct td_virtual_key key;
    struct td_virtual_digest digest;
    bool is_known = false;
    if (!td_rank_digest_key_of_tag(item, tag, &key, err) ||
        !td_rank_digest_find(hub->call->api->virtual_hasher, &hub->view, item, &key, &is_known, &digest, err))
        return false;
    if (is_known)
        td_hex_write(digest.sum, sizeof digest.sum, blob->sha256);
    return true;
}

bool td_hub_blob_of(const struct td_hub_call *hub, const struct td_repo_item *item, uint64_t until_ns,
                    struct td_hub_blob *blob, struct td_error *err)
{
    struct td_repo_stat stat;
    const struct td_call *call = hub->call;
    const struct td_digest_wait how = {.until_ns = until_ns, .cancel = call->request->cancel};
    memset(blob, 0, sizeof *blob);
    if (item->entry != NULL)
        (void)td_catalog_wait_digest(call->api->catalog, call->snapshot, item->entry->file, &how);
    else if (td_clock_ns() > until_ns + TD_HUB_PLAN_NS)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                            "planning so many files takes too long for one answer; what was planned is kept "
                            "for a while: try again, or ask for fewer");
    if (!td_repo_item_stat(&call->api->ranks, &hub->view, item, &stat, err))
        return false;
    blob->size_bytes = stat.size_bytes;
    if (stat.is_sha256)
        memcpy(blob->sha256, stat.tag, sizeof blob->sha256);
    else if (item->entry == NULL && !find_rank_sha256(hub, item, stat.tag, blob, err))
        return false;
    if (blob->sha256[0] == '\0') {
        git_blob_name(td_text_of(stat.tag), blob->oid);
        return true;
    }
    char pointer[256];
    int len = snprintf(pointer, sizeof pointer,
                       "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %" PRIu64 "\n", blob->sha256,
                       blob->size_bytes);
    git_blob_name(td_text_n(pointer, (size_t)len), blob->oid);
    blob->pointer_bytes = (size_t)len;
    return true;
}

void td_hub_add_lfs(struct td_document *json, const char *sha256_key, const struct td_hub_blob *blob)
{
    if (blob->sha256[0] == '\0')
        return;
    td_document_begin_object(json, "lfs");
    td_document_add_string(json, sha256_key, blob->sha256);
    td_document_add_u64(json, "size", blob->size_bytes);
    td_document_add_u64(json, "pointerSize", blob->pointer_bytes);
    td_document_end(json);
}

const char *td_hub_error_of(const struct td_repo_item *item)
{
    const char *error = item->entry == NULL ? NULL : item->entry->file->error;
    return error == NULL ? "" : error;
}

void td_hub_add_error(struct td_document *json, const char *error)
{
    if (error[0] != '\0')
        td_document_add_string(json, "error", error);
}
