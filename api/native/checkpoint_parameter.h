/* The parameters that choose a checkpoint of a model, checkpoint and partial, and the check that a request's manifest
 * is still the checkpoint's. */
#ifndef TD_API_NATIVE_CHECKPOINT_PARAMETER_H
#define TD_API_NATIVE_CHECKPOINT_PARAMETER_H

#include "api/call/call.h"

/* Returns the checkpoint that ?checkpoint= names, or the default one without it. NULL: a 404 was answered. */
const struct td_checkpoint *td_checkpoint_parameter(const struct td_call *call);

/* Returns the same, or with ?partial=1 an incomplete checkpoint of that id if the model has one. Returns NULL after it
 * answered 400 or 404. */
const struct td_checkpoint *td_checkpoint_parameter_or_part(const struct td_call *call);

/* Checks that the checkpoint's manifest has this tag (its member "etag"), or had it before the files were hashed.
 * tag NULL: the request is not bound. Returns false after it answered 412. */
bool td_native_check_manifest(const struct td_call *call, const struct td_checkpoint *checkpoint, const char *tag);

#endif
