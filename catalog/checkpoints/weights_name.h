/* Names of files with weights, as libraries of Hugging Face write them: STEM.EXTENSION, and STEM.VARIANT.EXTENSION for
 * the same weights in another type or state (model.fp16.safetensors, diffusion_pytorch_model.non_ema.bin); and which
 * GGUF files are models. Pure. */
#ifndef TD_CATALOG_CHECKPOINTS_WEIGHTS_NAME_H
#define TD_CATALOG_CHECKPOINTS_WEIGHTS_NAME_H

#include "core/error.h"
#include "core/text.h"
#include "parser/format/manifest.h"

#include <stdbool.h>
#include <stddef.h>

/* Finds the sets of weights that are variants of other sets. names[i] is the name of the i-th set: its index, or its
 * first file. Sets is_variant[i] to whether the name has a variant and the list also has the name without it. After a
 * stem that from_pretrained looks for (model, pytorch_model, diffusion_pytorch_model, adapter_model), any word is a
 * variant, and PyTorch and safetensors files count as the same weights. After other stems, only words for a dtype or
 * for averaged weights ("fp16", "non_ema") are variants. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_weights_find_variants(const char *const *names, size_t count, bool *is_variant, struct td_error *err);

/* Returns whether trainers give this name to their state: optimizer, scheduler, random number generators. */
bool td_weights_is_trainer_state(const char *file_name);

/* Returns whether a GGUF file of this name and manifest is a model by itself, and not one that belongs to a model (a
 * projector of a vision model, an importance matrix, an adapter, a draft for speculative decoding). It is not if its
 * general.type or general.architecture, a key that only other files have, or a word in its name for which llama.cpp
 * skips a file says otherwise. Source: gguf.md (general.type), and common/download.cpp in ggml-org/llama.cpp. */
bool td_gguf_is_model(const struct td_manifest *manifest, const char *file_name);

/* Returns whether SkyRL's trainer gives this name to a file of changes: delta-rank00000-file000000.safetensors. */
bool td_weights_name_is_skyrl_delta(const char *name);

#endif
