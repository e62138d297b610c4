/* Handlers: each fills a response with the whole representation. Private to api/. */
#ifndef TD_API_HANDLERS_H
#define TD_API_HANDLERS_H

#include "api/api.h"

/* What a handler works on; everything is borrowed. */
struct td_call {
    struct td_api *api;
    const struct td_request *request;
    const struct td_uri *uri;
    struct td_snapshot *snapshot; /* NULL for system routes */
    const struct td_model *model; /* NULL for /models */
    struct td_text rest;          /* what follows the method's name in the path: a tensor, a file, a plan */
    bool is_post;                 /* the route is for POST, else for GET and HEAD */
    struct td_response *response;
};

/* How registered plans are held in td_api's store of them. */
extern const struct td_lru_class td_plan_store_class;

/* Answers 400 and returns false when the query has a parameter that is not in `known` (NULL-terminated). */
bool td_call_check_parameters(const struct td_call *call, const char *const *known);

/* Answers with an error whose details say what is known (NULL-terminated): {"known": [...]}. */
void td_call_fail_known(const struct td_call *call, int status, const char *const *known, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

void td_handle_models(const struct td_call *call);
void td_handle_model(const struct td_call *call);
void td_handle_manifest(const struct td_call *call);
void td_handle_tensor(const struct td_call *call);
void td_handle_file(const struct td_call *call);       /* files/{path}: a file, or the page of a folder */
void td_handle_files(const struct td_call *call);      /* files/ */
void td_handle_read(const struct td_call *call);       /* tensors:read */
void td_handle_plans(const struct td_call *call);      /* plans */
void td_handle_plan(const struct td_call *call);       /* plans/{plan}, plans/{plan}/{file} */
void td_handle_rank_file(const struct td_call *call);  /* shards/{engine}/tp{n}/{file} */
void td_handle_model_file(const struct td_call *call); /* model.safetensors */
void td_handle_healthz(const struct td_call *call);
void td_handle_readyz(const struct td_call *call);
void td_handle_metrics(const struct td_call *call);
void td_handle_openapi(const struct td_call *call);
void td_handle_version(const struct td_call *call);
void td_handle_rescan(const struct td_call *call);

/* Cuts a whole 200 answer down to what the conditions and ranges of the request leave of it, and says what is left in
 * terms of files. Once, when the handler is done. */
void td_call_finish(const struct td_call *call, bool head);

/* Takes a reference on the current snapshot for the call; false when there is none yet (503 with the reason was
 * answered). */
bool td_call_take_snapshot(struct td_call *call);

/* Answers with JSON that says how things stand at this moment: no validator, not to be kept. The buffer is emptied. */
void td_call_answer_json(const struct td_call *call, struct td_buffer *json);

/* Whether something could be at this path (as it came) on the main port, ours or the Hub's. */
bool td_api_has_path(struct td_text raw_path);

/* Answers 503: out of memory. Returns false. */
bool td_call_no_memory(const struct td_call *call);

/* Answers 400 for a body that is no JSON of the right kind, with the position; other errors as td_response_fail_error.
 */
void td_call_fail_json(const struct td_call *call, const struct td_error *err);

/* The checkpoint that ?checkpoint= names, the default one without it. NULL: a 404 was answered. */
const struct td_checkpoint *td_call_checkpoint(const struct td_call *call);

/* The same, or with ?partial=1 an incomplete one of that id, where there is one. NULL: a 400 or 404 was answered. */
const struct td_checkpoint *td_call_checkpoint_or_part(const struct td_call *call);

#endif
