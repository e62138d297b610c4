/* The Hugging Face Hub as its clients ask for it (HF_ENDPOINT): huggingface_hub, transformers, datasets, vLLM,
 * @huggingface and others. Their source code and recorded requests show which requests they send and which answers they
 * need; tests/clients runs them. */
#ifndef TD_API_HUB_HUB_H
#define TD_API_HUB_HUB_H

#include "http/facade.h"

/* The facade (http/facade.h). On the main port it owns all paths below /api/, and {id}/resolve/... and {id}/raw/...,
 * with or without datasets/ before the id. */
extern const struct td_facade td_hub_facade;

#endif
