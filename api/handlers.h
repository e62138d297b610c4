/* Handlers: each fills a response with the whole representation. Private to api/. */
#ifndef TD_API_HANDLERS_H
#define TD_API_HANDLERS_H

#include "api/api.h"
#include "slicing/plan_spec.h"
#include "slicing/shard_file.h"

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

/* How values of td_api's stores are held. */
extern const struct td_lru_class td_plan_store_class, td_shard_cache_class;

/* Answers 400 and returns false when the query has a parameter that is not in `known` (NULL-terminated). */
bool td_call_check_parameters(const struct td_call *call, const char *const *known);

void td_handle_models(const struct td_call *call);
void td_handle_model(const struct td_call *call);
void td_handle_manifest(const struct td_call *call);
void td_handle_tensor(const struct td_call *call);
void td_handle_file(const struct td_call *call);
void td_handle_read(const struct td_call *call);       /* tensors:read */
void td_handle_plans(const struct td_call *call);      /* plans */
void td_handle_plan(const struct td_call *call);       /* plans/{plan}, plans/{plan}/{file} */
void td_handle_shard(const struct td_call *call);      /* shards/{engine}/tp{n}/{file} */
void td_handle_model_file(const struct td_call *call); /* model.safetensors */
void td_handle_healthz(const struct td_call *call);
void td_handle_readyz(const struct td_call *call);
void td_handle_metrics(const struct td_call *call);
void td_handle_openapi(const struct td_call *call);
void td_handle_version(const struct td_call *call);

/* Answers 503: out of memory. Returns false. */
bool td_call_no_memory(const struct td_call *call);

/* config.json's text (free()) and its length; NULL when the model has none, or one that is too long to be one. False when
 * it cannot be read, or changed meanwhile. */
bool td_call_config(const struct td_call *call, char **text, size_t *len, struct td_error *err);

/* Appends all of a file that lies nowhere to the response's body. */
bool td_call_append_file(const struct td_call *call, const struct td_checkpoint *checkpoint,
                         struct td_shard_file *file, struct td_error *err);

/* Answers 400 for a body that is no JSON of the right kind, with the position; other errors as td_response_fail_error. */
void td_call_fail_json(const struct td_call *call, const struct td_error *err);

/* The checkpoint that ?checkpoint= names, the default one without it. NULL: a 404 was answered. */
const struct td_checkpoint *td_call_checkpoint(const struct td_call *call);

#endif
