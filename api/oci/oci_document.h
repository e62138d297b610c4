/* Writing the documents that manifests and configurations are. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_DOCUMENT_H
#define TD_API_OCI_OCI_DOCUMENT_H

#include "core/json_build.h"
#include "rank/made_document.h"

/* A document while it is written. */
struct td_oci_document {
    struct td_buffer text;
    struct td_json_builder json;
};

/* Begins a document, and returns what writes it, which lives as long as the document. Call td_oci_end_document
 * afterwards. */
struct td_json_builder *td_oci_begin_document(struct td_oci_document *document);

/* Ends a document, all of whose levels were ended, and adds it to the others. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_oci_end_document(struct td_oci_document *document, struct td_made_documents *made, const char *media_type,
                         bool is_manifest, struct td_error *err);

#endif
