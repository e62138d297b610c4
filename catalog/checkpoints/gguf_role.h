/* The role of a GGUF file: a model, or a file that belongs to one (a projector of a vision model, an importance matrix,
 * an adapter, a draft for speculative decoding). Source: gguf.md (general.type), and common/download.cpp in
 * ggml-org/llama.cpp. */
#ifndef TD_CATALOG_CHECKPOINTS_GGUF_ROLE_H
#define TD_CATALOG_CHECKPOINTS_GGUF_ROLE_H

#include "parser/format/manifest.h"

#include <stdbool.h>

/* Returns whether a GGUF file of this name and manifest is a model by itself. It is not if its general.type or
 * general.architecture, a key that only other files have, or a word in its name for which llama.cpp skips a file says
 * otherwise. */
bool td_gguf_is_model(const struct td_manifest *manifest, const char *file_name);

#endif
