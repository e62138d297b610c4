/* The SHA-256 of rank files. To compute it, the whole file has to be read and assembled once. So the virtual hasher
 * does that in the background, and stores the digest in its table under a content key, which costs nothing to compute.
 * Thread-safe. */
#ifndef TD_RANK_RANK_DIGEST_H
#define TD_RANK_RANK_DIGEST_H

#include "rank/repo_view.h"
#include "rank/virtual_hasher.h"

/* Computes the content key of a rank file of the view: from the tag, and from the model's id, which the file's header
 * holds. Does not plan the file. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_rank_digest_key(const struct td_repo_view *view, const struct td_repo_item *item, struct td_virtual_key *key,
                        struct td_error *err);

/* Computes the same key from the tag in the item's description (struct td_repo_stat), which need not be computed again.
 */
bool td_rank_digest_key_of_tag(const struct td_repo_item *item, const char *tag, struct td_virtual_key *key,
                               struct td_error *err);

/* Looks for the digest of a rank file of the view, by its key (td_rank_digest_key), in the table. Sets *is_known, and
 * *out when it is known. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_rank_digest_find(struct td_virtual_hasher *hasher, const struct td_repo_view *view,
                         const struct td_repo_item *item, const struct td_virtual_key *key, bool *is_known,
                         struct td_virtual_digest *out, struct td_error *err);

/* Queues a rank file of the view for hashing on behalf of a client. The file's digest is not known. Does nothing if the
 * queue already has the file with this key. The store creates the file if necessary. Errors as td_rank_store_get,
 * td_rank_file_append and td_virtual_hasher_begin. */
bool td_rank_digest_begin(struct td_virtual_hasher *hasher, struct td_rank_store *store,
                          const struct td_repo_view *view, const struct td_repo_item *item,
                          const struct td_virtual_key *key, uint64_t client, struct td_error *err);

/* Sets *out to the virtual revision of a view of SAFETENSORS or RANK. */
void td_rank_digest_origin(const struct td_repo_view *view, struct td_virtual_revision *out);

#endif
