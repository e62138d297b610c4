/* What a GGUF file is for. Such files lie beside models: projectors of vision models, importance matrices, adapters,
 * and drafts for speculative decoding. Source: gguf.md (general.type), and common/download.cpp in ggml-org/llama.cpp.
 */
#ifndef TD_CATALOG_GGUF_ROLE_H
#define TD_CATALOG_GGUF_ROLE_H

#include "parser/manifest.h"

#include <stdbool.h>

/* Returns whether a GGUF file of this name and manifest is a model by itself: not by its general.type, by keys that
 * only other files have, or by the words for which llama.cpp passes a file over. */
bool td_gguf_is_model(const struct td_manifest *manifest, const char *file_name);

#endif
