/* Items of a repository as the Hub describes them. Private to api/hub/. */
#ifndef TD_API_HUB_HUB_ITEM_H
#define TD_API_HUB_HUB_ITEM_H

#include "api/hub/hub_call.h"

/* HEAD of a file and the lists wait at most this long for digests, 4.5 s: clients give up after 10 s. */
#define TD_HUB_WAIT_NS UINT64_C(4500000000)

/* A list plans rank files for at most this much longer: 2.5 s. */
#define TD_HUB_PLAN_NS UINT64_C(2500000000)

/* Lists all items of the view, sorted by path, in hub->arena, and reserves their memory. Errors as td_repo_view_list
 * and td_reserved_take. */
bool td_hub_list_items(struct td_hub_call *hub, struct td_repo_item **items, size_t *count, struct td_error *err);

/* An item as Git and Git LFS would name its content. */
struct td_hub_blob {
    uint64_t size_bytes;
    char oid[TD_COMMIT_BYTES];         /* Git's name of the LFS pointer; of the item's tag, without a SHA-256 */
    char sha256[TD_SHA256_TEXT_BYTES]; /* empty: not known */
    size_t pointer_bytes;              /* length of the LFS pointer; 0 without a SHA-256 */
};

/* Describes the content of an item. Waits until until_ns (monotonic) for the digest of a file on disk. Sets the digest
 * of a rank file only if the table of virtual digests has it, because the registry's facade has had it hashed. Errors
 * as td_repo_item_stat; TD_RESOURCE_EXHAUSTED for a rank file when until_ns is more than TD_HUB_PLAN_NS ago. */
bool td_hub_blob_of(const struct td_hub_call *hub, const struct td_repo_item *item, uint64_t until_ns,
                    struct td_hub_blob *blob, struct td_error *err);

/* Adds the member "lfs", with the SHA-256 under this key; adds nothing when the SHA-256 is not known. */
void td_hub_add_lfs(struct td_document *json, const char *sha256_key, const struct td_hub_blob *blob);

/* Returns the reason why a file on disk is not what its name says; "" for a good file and for a rank file. Borrowed
 * from the snapshot. */
const char *td_hub_error_of(const struct td_repo_item *item);

/* Adds the member "error" to an object; adds nothing when `error` is "". Clients of the Hub ignore members that they do
 * not know. */
void td_hub_add_error(struct td_document *json, const char *error);

#endif
