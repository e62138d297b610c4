/* Advice: the things that a reader can do about a problem of a model. */
#ifndef TD_API_HTML_MODEL_ADVICE_H
#define TD_API_HTML_MODEL_ADVICE_H

#include "catalog/model/snapshot.h"
#include "core/buffer.h"

/* Appends the advice for a problem of the model: one sentence or more. */
void td_model_write_advice(const struct td_snapshot *snapshot, const struct td_model *model,
                           const struct td_problem *problem, struct td_buffer *out);

#endif
