/* The SHA-256 that manifests and blobs go by: of files on disk, and of layers that do not exist on disk (rank files,
 * and the layers of images). Private to api/oci/. */
#ifndef TD_API_OCI_OCI_DIGESTS_H
#define TD_API_OCI_OCI_DIGESTS_H

#include "api/oci/oci_call.h"

#include <stdint.h>

/* Retry-After of answers that tell how far hashing is lies between these, in seconds: a client that asks later than
 * hashing ends waits for nothing, and each request waits for digests itself. */
enum { TD_OCI_RETRY_LEAST_S = 1, TD_OCI_RETRY_MOST_S = 60 };

/* Returns how long hashing left_bytes takes, in seconds, rounded up and within these limits. The rate is that of
 * hashed_bytes in took_ns, all that was hashed while a request waited; 1 GB/s where that was less than 0.1 s, or
 * nothing was hashed. */
unsigned td_oci_retry_s(double left_bytes, uint64_t hashed_bytes, uint64_t took_ns);

/* Has all these files of the call's snapshot hashed, where oci->until_ns allows to wait. Errors: TD_RESOURCE_EXHAUSTED
 * when a digest is still not known, with a message for the client that says how far hashing is, or what to change where
 * the server hashes nothing; oci->lack tells which, and oci->retry_s when to ask again. TD_CONFLICT for a Git LFS
 * pointer, whose digest is not that of the file that it stands for. */
bool td_oci_know_digests(struct td_oci_call *oci, const struct td_entry *const *entries, size_t count,
                         struct td_error *err);

/* A virtual file whose digest a manifest needs. */
struct td_oci_virtual {
    struct td_virtual_key key;
    uint64_t size_bytes; /* 0: known only while the file is hashed */
    bool is_known;
    struct td_virtual_digest digest; /* when it is known */
};

/* Looks for the digests of these files in the table, and sets what is known. Returns whether all are. */
bool td_oci_look_up(const struct td_oci_call *oci, struct td_oci_virtual *files, size_t count);

/* Keeps these files, whose digests are known, with the documents that name them. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_oci_keep_virtual(struct td_made_documents *made, const struct td_oci_virtual *files, size_t count,
                         struct td_error *err);

/* Has all these files hashed and waits for their digests, where oci->until_ns allows to wait. begin(context, i) has the
 * hasher begin with file i, at_once files before it waits; what is begun goes on when the request is over. Errors:
 * TD_RESOURCE_EXHAUSTED when a digest is still not known, with a message for the client that says how far hashing is,
 * or what to change where the server hashes nothing; oci->lack tells which, and oci->retry_s when to ask again. As
 * `begin` and td_virtual_hasher_wait. */
bool td_oci_know_virtual(struct td_oci_call *oci, struct td_oci_virtual *files, size_t count, size_t at_once,
                         bool (*begin)(void *context, size_t i, struct td_error *err), void *context,
                         struct td_error *err);

#endif
