/* The parameters that choose a checkpoint of a model: checkpoint and partial. */
#ifndef TD_API_NATIVE_CHECKPOINT_PARAMETER_H
#define TD_API_NATIVE_CHECKPOINT_PARAMETER_H

#include "api/call.h"

/* Returns the checkpoint that ?checkpoint= names, or the default one without it. NULL: a 404 was answered. */
const struct td_checkpoint *td_checkpoint_parameter(const struct td_call *call);

/* Returns the same, or with ?partial=1 an incomplete checkpoint of that id, where there is one. NULL: a 400 or 404 was
 * answered. */
const struct td_checkpoint *td_checkpoint_parameter_or_part(const struct td_call *call);

#endif
