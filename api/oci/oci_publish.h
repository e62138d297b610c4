/* Pushing to the registry: which requests write, and who may. The handlers of blobs are in oci_upload.h, those of
 * manifests in oci_put.h. Only while api->publish is set. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_PUBLISH_H
#define TD_API_OCI_OCI_PUBLISH_H

#include "api/oci/oci_call.h"
#include "http/body_sink.h"

/* For td_facade.takes_upload and begin_upload. */
bool td_oci_takes_upload(const struct td_request *request);
struct td_body_sink *td_oci_begin_upload(struct td_call *call);

/* Answers the call if it writes, or asks about an upload. Returns false, and answers nothing, for others. */
bool td_oci_publish(struct td_call *call);

#endif
