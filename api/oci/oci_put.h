/* Manifests that clients push and delete. A manifest whose layers are files is a commit of exactly these files. Private
 * to api/oci/. */
#ifndef TD_API_OCI_OCI_PUT_H
#define TD_API_OCI_OCI_PUT_H

#include "api/oci/oci_write.h"

/* Begins the body of a manifest. Returns a sink, or NULL after it answered. */
struct td_body_sink *td_oci_put_begin(struct td_oci_write *write);

/* Keeps the manifest whose body has ended, sets the tag or tags, and makes the commit. */
void td_oci_put_end(struct td_oci_write *write);

/* Deletes a tag with its revision, or a manifest with all of its tags. */
void td_oci_put_delete(struct td_oci_write *write);

#endif
