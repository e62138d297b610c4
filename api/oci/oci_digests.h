/* The SHA-256 of files on disk, which manifests and blobs go by. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_DIGESTS_H
#define TD_API_OCI_OCI_DIGESTS_H

#include "api/oci/oci_call.h"

/* Has all these files of the call's snapshot hashed, where oci->until_ns allows to wait. Errors: TD_RESOURCE_EXHAUSTED
 * when a digest is still not known, with a message for the client that says how far hashing is, or what to change where
 * the server hashes nothing; oci->lack tells which, and oci->retry_s when to ask again. TD_CONFLICT for a Git LFS
 * pointer, whose digest is not that of the file that it stands for. */
bool td_oci_know_digests(struct td_oci_call *oci, const struct td_entry *const *entries, size_t count,
                         struct td_error *err);

#endif
