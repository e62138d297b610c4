/* Rank revisions in a registry: their documents and files by digest. A tag names a virtual revision, as
 * "tp8-rank0-vllm"; there are too many to list. The table of virtual digests names the revision that a digest belongs
 * to. That is only a hint, so the document or the key is built again and compared. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_RANK_H
#define TD_API_OCI_OCI_RANK_H

#include "api/oci/oci_call.h"
#include "rank/repo_view.h"

/* Adds all virtual files that these documents name to the table of virtual digests, and the documents' revision if it
 * is a virtual one. */
void td_oci_rank_note(const struct td_oci_call *oci, const struct td_made_documents *made);

/* The most revisions with equal bytes that are looked at. */
enum { TD_OCI_RANK_ORIGINS = 8 };

/* Looks up the revisions of oci->repo that may have a document (is_document) or a rank file with this SHA-256, in
 * hexadecimal. Writes their commits and sets *count. Asks the table, then the stored documents, in case the table has
 * dropped files that they name. Does not look at documents of other repositories, so the time of the answer does not
 * reveal that they exist. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_oci_rank_commits(const struct td_oci_call *oci, bool is_document, struct td_text sha256,
                         char commits[TD_OCI_RANK_ORIGINS][TD_COMMIT_BYTES], size_t *count, struct td_error *err);

/* Answers the rank file with this SHA-256, in hexadecimal. Returns false, with no answer, when no rank file of the
 * repository is known to have it; *err then is TD_OK. Does not wait for digests, but may plan the file. Errors: as
 * td_repo_item_answer; TD_RESOURCE_EXHAUSTED. */
bool td_oci_rank_answer_file(struct td_oci_call *oci, struct td_text sha256, struct td_error *err);

#endif
