/* Manifests, and the configurations that they name. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_MAKE_H
#define TD_API_OCI_OCI_MAKE_H

#include "api/oci/oci_target.h"

/* Makes the documents of a target, or takes them from the store; *made has a reference for the caller. The last of them
 * is the one that the tag stands for. Errors: TD_FAILED_PRECONDITION when the form cannot be made of these files; as
 * td_oci_know_digests; TD_RESOURCE_EXHAUSTED. */
bool td_oci_make(struct td_oci_call *oci, const struct td_oci_target *target, struct td_made_documents **made,
                 struct td_error *err);

/* Returns the documents of the repository's image from the store, with a reference for the caller. is_new: makes them
 * if need be and if that needs no waiting. NULL: there are none. */
struct td_made_documents *td_oci_make_image(struct td_oci_call *oci, bool is_new);

/* Finds the document with this SHA-256 (in hexadecimal; empty: nothing has it) among those of all targets and of
 * all revisions, the manifests or the other ones, which are made if need be. *made then has a reference for the caller
 * and owns *document; else *made is NULL. Errors: TD_NOT_FOUND; where digests of files are not known, as
 * td_oci_know_digests. */
bool td_oci_find_document(struct td_oci_call *oci, bool is_manifest, struct td_text sha256,
                          struct td_made_documents **made, const struct td_made_document **document,
                          struct td_error *err);

/* Sets the error for a digest, the path's reference, that nothing has: TD_NOT_FOUND. Returns false. */
bool td_oci_no_document(const struct td_oci_call *oci, struct td_error *err);

#endif
