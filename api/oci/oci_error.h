/* Errors in the form of the OCI distribution specification. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_ERROR_H
#define TD_API_OCI_OCI_ERROR_H

#include "http/facade.h"

/* Writes {"errors":[{"code","message","detail"}]}. For td_facade.write_error. */
void td_oci_write_error(struct td_failure *failure, struct td_buffer *out);

#endif
