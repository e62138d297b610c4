/* Rank revisions in a registry: their documents and files by digest. A tag names a virtual revision, as
 * "tp8-rank0-vllm"; there are too many to list. The table of virtual digests says which revision a digest is of; that
 * is a hint, so the document or the key is made again and compared. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_RANK_H
#define TD_API_OCI_OCI_RANK_H

#include "api/oci/oci_call.h"
#include "rank/repo_view.h"

/* Has the table of virtual digests know all virtual files that these documents name, and of which revision the
 * documents are, if they are of a virtual one. */
void td_oci_rank_note(const struct td_oci_call *oci, const struct td_made_documents *made);

/* The most revisions that may have equal bytes and are looked at. */
enum { TD_OCI_RANK_ORIGINS = 8 };

/* Writes the commits of the revisions of oci->repo that a document, or else a rank file, with this SHA-256, in
 * hexadecimal, may be of, and sets *count to their number: as the table tells, or the documents that are kept, where
 * the table has dropped what these name. Documents of other repositories are not looked at, so the time of the answer
 * does not tell that they exist. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_oci_rank_commits(const struct td_oci_call *oci, bool is_document, struct td_text sha256,
                         char commits[TD_OCI_RANK_ORIGINS][TD_COMMIT_BYTES], size_t *count, struct td_error *err);

/* Answers the rank file with this SHA-256, in hexadecimal. Returns false, with no answer, when none of the repository
 * is known to have it; *err then is TD_OK. Does not wait for digests, but may plan the file. Errors: as
 * td_repo_item_answer; TD_RESOURCE_EXHAUSTED. */
bool td_oci_rank_answer_file(struct td_oci_call *oci, struct td_text sha256, struct td_error *err);

#endif
