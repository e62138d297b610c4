/* The digests of layers that do not exist on disk: of rank files, and of the layers of images. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_HASHING_H
#define TD_API_OCI_OCI_HASHING_H

#include "api/oci/oci_call.h"

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
