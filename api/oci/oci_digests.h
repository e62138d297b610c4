/* The SHA-256 digests that name manifests and blobs: of files on disk, and of layers that do not exist on disk (rank
 * files, and the layers of images). Private to api/oci/. */
#ifndef TD_API_OCI_OCI_DIGESTS_H
#define TD_API_OCI_OCI_DIGESTS_H

#include "api/oci/oci_call.h"

#include <stdint.h>

/* Queues all these files of the call's snapshot for hashing and waits for their digests until oci->until_ns. Errors:
 * TD_RESOURCE_EXHAUSTED when a digest is still not known. The message says how far hashing is, or, if the server does
 * not hash, what to change; oci->lack says which of the two, and oci->retry_s when to retry. TD_CONFLICT for a Git LFS
 * pointer, because its digest is not the digest of the file it stands for. */
bool td_oci_know_digests(struct td_oci_call *oci, const struct td_entry *const *entries, size_t count,
                         struct td_error *err);

/* A virtual file whose digest a manifest needs. */
struct td_oci_virtual {
    struct td_virtual_key key;
    uint64_t size_bytes; /* 0: known only while the file is hashed */
    bool is_known;
    struct td_virtual_digest digest; /* when it is known */
};

/* Looks up the digests of these files in the table of virtual digests and sets those it has. Returns whether it has
 * all. */
bool td_oci_look_up(const struct td_oci_call *oci, struct td_oci_virtual *files, size_t count);

/* Records these files, with their digests, in the documents that name them. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_oci_keep_virtual(struct td_made_documents *made, const struct td_oci_virtual *files, size_t count,
                         struct td_error *err);

/* Hashes all these files and waits for their digests until oci->until_ns. begin(context, i) starts the hashing of file
 * i; at_once files are started before the first wait. Hashing continues after the request is over. Errors:
 * TD_RESOURCE_EXHAUSTED when a digest is still not known, with message, oci->lack and oci->retry_s as
 * td_oci_know_digests sets them; as `begin` and td_virtual_hasher_wait. */
bool td_oci_know_virtual(struct td_oci_call *oci, struct td_oci_virtual *files, size_t count, size_t at_once,
                         bool (*begin)(void *context, size_t i, struct td_error *err), void *context,
                         struct td_error *err);

#endif
