/* Manifests, and the configurations that they name. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_MAKE_H
#define TD_API_OCI_OCI_MAKE_H

#include "api/oci/oci_target.h"

/* Sets *made to the documents of a target, with a reference for the caller: takes them from the store or builds them.
 * The tag stands for the last of them. Errors: TD_FAILED_PRECONDITION when these files cannot have the target's form;
 * as td_oci_know_digests; TD_RESOURCE_EXHAUSTED. */
bool td_oci_make(struct td_oci_call *oci, const struct td_oci_target *target, struct td_made_documents **made,
                 struct td_error *err);

/* Returns the documents of the repository's image from the store, with a reference for the caller. is_new: builds them
 * if the store does not have them and building needs no wait. Returns NULL otherwise. */
struct td_made_documents *td_oci_make_image(struct td_oci_call *oci, bool is_new);

/* Finds the document with this SHA-256 (in hexadecimal; empty: nothing has it) among the documents of all targets and
 * of all revisions: among the manifests or among the other documents. Builds documents that the store does not have.
 * *made then owns *document and has a reference for the caller; on an error *made is NULL. Errors: TD_NOT_FOUND; when
 * digests of files are not known, as td_oci_know_digests. */
bool td_oci_find_document(struct td_oci_call *oci, bool is_manifest, struct td_text sha256,
                          struct td_made_documents **made, const struct td_made_document **document,
                          struct td_error *err);

/* Sets the error TD_NOT_FOUND: nothing has the digest in the path. Returns false. */
bool td_oci_no_document(const struct td_oci_call *oci, struct td_error *err);

#endif
