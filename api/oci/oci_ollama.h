/* GGUF files as Ollama and llama.cpp ask for them. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_OLLAMA_H
#define TD_API_OCI_OCI_OLLAMA_H

#include "api/oci/oci_target.h"
#include "rank/repo_view.h"

/* Builds the manifest and the configuration of a target of the form GGUF as Ollama reads them: a layer for the model,
 * and one layer each for the image encoder and for the files template, system, params and LICENSE if the repository has
 * them. Errors as td_oci_know_digests; TD_FAILED_PRECONDITION for a file in several shards, which Ollama cannot load;
 * TD_RESOURCE_EXHAUSTED. */
bool td_oci_ollama_make(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                        struct td_made_documents *made, struct td_error *err);

/* Returns whether the client is llama.cpp, by its User-Agent, as the Hub decides it. llama.cpp takes another manifest.
 */
bool td_oci_is_llama_cpp(const struct td_call *call);

/* Writes the manifest for llama.cpp: the paths of the target's files in the repository, which it then gets from the
 * paths of the Hub. */
void td_oci_llama_cpp_write(const struct td_oci_call *oci, const struct td_oci_target *target, struct td_buffer *out);

#endif
