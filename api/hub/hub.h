/* The Hugging Face Hub as its clients ask for it (HF_ENDPOINT): huggingface_hub, transformers, datasets, vLLM,
 * @huggingface and others. What they request and need was read from their sources and from their requests;
 * tests/clients runs them. */
#ifndef TD_API_HUB_HUB_H
#define TD_API_HUB_HUB_H

#include "api/handlers.h"

/* Whether a path is the facade's: all below /api/, and {id}/resolve/ and {id}/raw/, with datasets/ before the id or
 * not. */
bool td_hub_has_path(struct td_text raw_path);

/* Whether that path is for POST: paths-info. */
bool td_hub_is_post(struct td_text raw_path);

/* Answers a request to the facade. */
void td_handle_hub(const struct td_call *call);

#endif
