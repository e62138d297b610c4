/* The parameters that choose a checkpoint of the call's model (checkpoint, partial), and tensors of it (dtype). */
#ifndef TD_API_CALL_CHECKPOINT_CHOICE_H
#define TD_API_CALL_CHECKPOINT_CHOICE_H

#include "api/call/call.h"

/* Returns the checkpoint that ?checkpoint= names, or the default one without it. NULL: a 404 was answered. */
const struct td_checkpoint *td_checkpoint_parameter(const struct td_call *call);

/* Returns the same, or with ?partial=1 an incomplete checkpoint of that id if the model has one. Returns NULL after it
 * answered 400 or 404. */
const struct td_checkpoint *td_checkpoint_parameter_or_part(const struct td_call *call);

/* Answers 422, since the files of a delta, which the call's model is, hold no tensors of a model. */
void td_call_refuse_delta(const struct td_call *call);

/* Reads dtype; sets NULL without the parameter. Returns false after it answered 400 with the known types. */
bool td_dtype_parameter(const struct td_call *call, const struct td_dtype **dtype);

/* Answers 404, since the checkpoint lacks the tensor that the call's path names (call->rest). */
void td_call_fail_tensor(const struct td_call *call, const struct td_checkpoint *checkpoint);

#endif
