/* Names of files with weights, as the libraries of Hugging Face write them: STEM.EXTENSION, and STEM.VARIANT.EXTENSION
 * for the same weights in another type or state (model.fp16.safetensors, diffusion_pytorch_model.non_ema.bin). Pure. */
#ifndef TD_CATALOG_WEIGHTS_NAME_H
#define TD_CATALOG_WEIGHTS_NAME_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Finds the variants among sets of weights. names[i] is the name of the i-th set: its index, or its first file. Sets
 * is_variant[i] to whether the name has a variant and the list has a set of the plain name too. The variant of a name
 * that from_pretrained looks for (model, pytorch_model, diffusion_pytorch_model, adapter_model) is any word, and files
 * of torch and of safetensors count as the same weights. Of all other names it is a word for a type or for averaged
 * weights ("fp16", "non_ema"). Errors: TD_RESOURCE_EXHAUSTED. */
bool td_weights_find_variants(const char *const *names, size_t count, bool *is_variant, struct td_error *err);

/* Returns whether the name is of what a trainer saves beside the weights: the state of the optimizer, of the scheduler
 * and of random number generators. */
bool td_weights_is_trainer_state(const char *file_name);

#endif
