/* The Hugging Face Hub as its clients ask for it (HF_ENDPOINT): huggingface_hub, transformers, datasets, vLLM,
 * @huggingface and others. What they request and need was read from their sources and from their requests;
 * tests/clients runs them. */
#ifndef TD_API_HUB_HUB_H
#define TD_API_HUB_HUB_H

#include "http/facade.h"

/* The facade (http/facade.h). On the main port it owns all paths below /api/, and {id}/resolve/... and {id}/raw/...,
 * with or without datasets/ before the id. */
extern const struct td_facade td_hub_facade;

#endif
