/* Rank files: their answers, which the handlers of engines and of registered plans share, and their descriptions as
 * JSON, for people who check and for clients that read the storage themselves. */
#ifndef TD_API_NATIVE_RANKS_H
#define TD_API_NATIVE_RANKS_H

#include "api/call/call.h"
#include "core/message/document.h"
#include "rank/rank_store.h"
#include "slicing/rank_file.h"

enum { TD_PLAN_KEY_BYTES = 2 * TD_TAG_BYTES };

/* Answers with the rank file that file_name names (rank-{r}.safetensors and its other names), for rank-{r}.json with
 * its description, for boxes.bin with the bytes of a plan of boxes, or with an error. name: the engine and the number
 * of ranks; or without an engine the id of a registered plan. */
void td_native_answer_rank(const struct td_call *call, const struct td_rank_name *name, struct td_text file_name);

/* Writes the key under which the plan of this id is stored: on a server without tokens the id. With tokens the key also
 * names the model, so a plan of a model that the sender may not see cannot be used for another model. Returns false for
 * an id that no plan has, and when memory is short. */
bool td_native_plan_key(const struct td_call *call, struct td_text id, char key[TD_PLAN_KEY_BYTES]);

/* Returns the registered plan of this id, a reference for the caller (td_stored_plan_unref). NULL: a 404 was answered.
 */
struct td_stored_plan *td_native_find_plan(const struct td_call *call, struct td_text id);

/* Answers 404 for an unknown engine, with a list of the known ones. */
void td_native_fail_engine(const struct td_call *call, struct td_text engine);

/* Answers with the JSON, or with the error if the buffer failed. Empties the buffer. Its memory counts in the budget of
 * rank files, because the description of a plan may be as large as the plan. */
void td_native_answer_plan_json(const struct td_call *call, struct td_buffer *json);

/* Adds "href": the path of a rank's file, or of a plan's boxes, on this server. */
void td_rank_json_add_href(const struct td_call *call, const struct td_rank_set *set, uint64_t rank,
                           struct td_document *json);

/* Adds "outputs":[{"name","dtype","shape","nbytes"}...] and "dropped":[...] to an object. */
void td_rank_json_add_outputs(const struct td_plan *plan, struct td_document *json);

#endif
