/* Reads of what clients have pushed to the registry (catalog/publish/publish_manifests.h): manifests, byte for byte, by
 * tag and by digest, blobs that are no files of a commit, tags, and referrers. The functions look at oci->pushed, and
 * may wait for the disk. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_PUSHED_H
#define TD_API_OCI_OCI_PUSHED_H

#include "api/oci/oci_call.h"
#include "api/oci/oci_target.h"

/* Answers the manifest that was pushed under this tag, or by this digest (in hexadecimal). Returns false, with no
 * answer, when there is none. */
bool td_oci_pushed_answer_tag(struct td_oci_call *oci, struct td_text tag);
bool td_oci_pushed_answer_digest(struct td_oci_call *oci, struct td_text hex);

/* Answers the bytes of a blob with this SHA-256. Returns false, with no answer, when it is not here. */
bool td_oci_pushed_answer_blob(struct td_oci_call *oci, struct td_text hex);

/* Sets *out to the bytes of a blob with this SHA-256, with a reference for the caller. oci->pushed is open, and the
 * call has a snapshot. Errors: TD_NOT_FOUND; as td_file_source_map. */
bool td_oci_pushed_map_blob(const struct td_oci_call *oci, struct td_text hex, struct td_blob **out,
                            struct td_error *err);

/* Returns whether a manifest has this tag. */
bool td_oci_pushed_has_tag(const struct td_oci_call *oci, const char *tag);

/* Adds the tags that were pushed to the list, and sorts it. Reads none of them, since there may be thousands: those for
 * which td_oci_pushed_has_tag returns false are no tags any more. Errors: TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_oci_pushed_add_tags(struct td_oci_call *oci, struct td_oci_target_list *list, struct td_error *err);

/* Answers the list of manifests whose subject is this one; without any, an empty list. */
void td_oci_pushed_answer_referrers(struct td_oci_call *oci, struct td_text hex);

#endif
