#include "api/oci/oci_write.h"

#include "api/call/publishing.h"
#include "core/digits.h"

#include <stdio.h>

void td_oci_write_fail(const struct td_oci_write *write, const struct td_error *err, const char *precondition)
{
    if (err->code == TD_CONFLICT)
        (void)td_oci_fail(&write->oci, 409, "DENIED", "%s", err->message);
    else if (err->code == TD_FAILED_PRECONDITION || err->code == TD_INVALID_ARGUMENT)
        (void)td_oci_fail(&write->oci, 400, precondition, "%s", err->message);
    else
        td_publishing_fail(write->oci.call, err, 400);
}

void td_oci_write_done(const struct td_oci_write *write, int status)
{
    struct td_response *response = write->oci.call->response;
    response->status = status;
    response->content_type = NULL;
    response->cache_control = "no-store";
}

void td_oci_write_made_blob(const struct td_oci_write *write, const uint8_t sha256[TD_SHA256_BYTES])
{
    char hex[TD_SHA256_TEXT_BYTES];
    char path[TD_SHA256_TEXT_BYTES + 16];
    td_hex_write(sha256, TD_SHA256_BYTES, hex);
    (void)snprintf(path, sizeof path, "blobs/sha256:%s", hex);
    td_oci_write_done(write, 201);
    td_oci_add_location(&write->oci, path);
    td_response_add_header(write->oci.call->response, "Docker-Content-Digest", "sha256:%s", hex);
}
