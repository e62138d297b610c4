/* The handlers of the OCI facade, for the table in oci.c. Each fills the response with the whole answer, or with an
 * error. oci->repo is set where the path has a name. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_HANDLERS_H
#define TD_API_OCI_OCI_HANDLERS_H

#include "api/oci/oci_call.h"

void td_oci_answer_manifest(struct td_oci_call *oci);
void td_oci_answer_blob(struct td_oci_call *oci);
void td_oci_answer_catalog(struct td_oci_call *oci);
void td_oci_answer_tags(struct td_oci_call *oci);
void td_oci_answer_referrers(struct td_oci_call *oci);

#endif
