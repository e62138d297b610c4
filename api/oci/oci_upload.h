/* Blobs that clients push: in one request, or in several of a session (catalog/publish/publish_session.h), or from
 * another repository. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_UPLOAD_H
#define TD_API_OCI_OCI_UPLOAD_H

#include "api/oci/oci_write.h"

/* Begin a body. Return a sink, or NULL after they answered. */
struct td_body_sink *td_oci_upload_begin_post(struct td_oci_write *write);
struct td_body_sink *td_oci_upload_begin_patch(struct td_oci_write *write);
struct td_body_sink *td_oci_upload_begin_put(struct td_oci_write *write);

/* Answer after the body's end. */
void td_oci_upload_end_post(struct td_oci_write *write);
void td_oci_upload_end_patch(struct td_oci_write *write);
void td_oci_upload_end_put(struct td_oci_write *write);

/* Answer how far a session is; end it. */
void td_oci_upload_look(struct td_oci_write *write);
void td_oci_upload_cancel(struct td_oci_write *write);

/* Answers 405: blobs go by themselves. */
void td_oci_upload_delete_blob(struct td_oci_write *write);

#endif
