/* Answers that describe the present moment: health, metrics, the result of a scan, a signed URL. */
#ifndef TD_API_NATIVE_ANSWER_NOW_H
#define TD_API_NATIVE_ANSWER_NOW_H

#include "api/call.h"

/* Answers with a small text of this media type (static), without ranges and without a validator, and not to be cached.
 * Empties the buffer. Answers 503 when memory is short. */
void td_native_answer_now(const struct td_call *call, const char *type, struct td_buffer *text);

#endif
