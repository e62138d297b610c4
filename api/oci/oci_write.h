/* A call that writes to the registry, and its answers. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_WRITE_H
#define TD_API_OCI_OCI_WRITE_H

#include "api/oci/oci_call.h"
#include "http/body_sink.h"

/* A call that writes to a repository. */
struct td_oci_write {
    struct td_oci_call oci;
    struct td_publish_name name;
};

/* Answers an error of catalog/publish. `precondition` is the code for TD_FAILED_PRECONDITION and for what the client
 * has sent wrongly, both 400. */
void td_oci_write_fail(const struct td_oci_write *write, const struct td_error *err, const char *precondition);

/* Answers with this status and without a body. */
void td_oci_write_done(const struct td_oci_write *write, int status);

/* Answers that a blob with this digest is in the repository now. */
void td_oci_write_made_blob(const struct td_oci_write *write, const uint8_t sha256[TD_SHA256_BYTES]);

#endif
