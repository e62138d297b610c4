#include "api/oci/oci_document.h"

struct td_json_builder *td_oci_begin_document(struct td_oci_document *document)
{
    td_buffer_init(&document->text);
    td_json_builder_init(&document->json, &document->text);
    return &document->json;
}

bool td_oci_end_document(struct td_oci_document *document, struct td_made_documents *made, const char *media_type,
                         bool is_manifest, struct td_error *err)
{
    td_json_builder_fini(&document->json);
    bool ok = td_made_documents_add(made, media_type, is_manifest, &document->text, err);
    td_buffer_fini(&document->text);
    return ok;
}
