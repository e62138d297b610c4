/* Paths of the OCI distribution specification. Pure. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_PATH_H
#define TD_API_OCI_OCI_PATH_H

#include "core/text.h"

#include <stdbool.h>

enum td_oci_endpoint {
    TD_OCI_NONE,      /* no path of the specification */
    TD_OCI_ROOT,      /* /v2/ */
    TD_OCI_CATALOG,   /* /v2/_catalog */
    TD_OCI_TAGS,      /* /v2/{name}/tags/list */
    TD_OCI_MANIFEST,  /* /v2/{name}/manifests/{tag or digest} */
    TD_OCI_BLOB,      /* /v2/{name}/blobs/{digest} */
    TD_OCI_REFERRERS, /* /v2/{name}/referrers/{digest} */
    TD_OCI_UPLOAD,    /* /v2/{name}/blobs/uploads/..., by which clients push */
};

/* The parts of a path, borrowed from it. */
struct td_oci_path {
    enum td_oci_endpoint endpoint;
    struct td_text name;      /* not empty if the endpoint has a name; may break the grammar of names */
    struct td_text reference; /* not empty if the endpoint has a reference */
};

/* Splits a path, decoded or not. Returns false for a path that is not in the specification, and sets the endpoint
 * TD_OCI_NONE. */
bool td_oci_path_parse(struct td_oci_path *path, struct td_text text);

/* Kinds of text where the path has a digest. */
enum td_oci_digest_kind {
    TD_OCI_DIGEST_WRONG,  /* not by the grammar, or not of its algorithm's length */
    TD_OCI_DIGEST_OTHER,  /* of another algorithm than SHA-256: nothing here has it */
    TD_OCI_DIGEST_SHA256, /* "sha256:" and 64 lower-case hexadecimal digits */
};

/* Reads a digest (image-spec, descriptor.md). Sets *hex to the digits of a SHA-256, borrowed. */
enum td_oci_digest_kind td_oci_digest_read(struct td_text text, struct td_text *hex);

/* Returns whether the text is a tag by the grammar of the specification. */
bool td_oci_tag_is_valid(struct td_text text);

#endif
