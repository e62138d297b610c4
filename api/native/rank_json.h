/* Rank files and plans as JSON, for people who check and for clients that read the storage themselves. */
#ifndef TD_API_NATIVE_RANK_JSON_H
#define TD_API_NATIVE_RANK_JSON_H

#include "api/call.h"
#include "core/json_build.h"
#include "slicing/rank_file.h"

/* Appends {"model","checkpoint","engine","tp_size","tp_rank","nbytes","header_bytes","etag","tensors":[{"name","dtype",
 * "shape","nbytes","extents":[...]}],"dropped":[...]}; api/openapi.yaml describes the extents. Errors as
 * td_layout_append_output. */
bool td_rank_json_write(const struct td_call *call, const struct td_checkpoint *checkpoint,
                        const struct td_rank_file *file, const struct td_plan *plan, struct td_text engine,
                        const char *tag, struct td_buffer *out, struct td_error *err);

/* Adds "outputs":[{"name","dtype","shape","nbytes"}...] and "dropped":[...] to an object. */
void td_rank_json_add_outputs(const struct td_plan *plan, struct td_json_builder *json);

#endif
