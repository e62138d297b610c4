/* A registry of OCI artifacts, read-only, by the OCI distribution specification 1.1: for oras, skopeo, podman,
 * container runtimes, and for Ollama and llama.cpp, whose source code shows which requests they send and which answers
 * they need. Every model is an artifact of the ModelPack specification. Its layers are the model's files, byte for
 * byte. */
#ifndef TD_API_OCI_OCI_H
#define TD_API_OCI_OCI_H

#include "http/facade.h"

/* The facade (http/facade.h). On the main port it owns /v2 and all paths below, unless another facade owns them. */
extern const struct td_facade td_oci_facade;

#endif
