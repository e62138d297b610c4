/* Handlers: each fills a response with the whole representation. Private to api/. */
#ifndef TD_API_HANDLERS_H
#define TD_API_HANDLERS_H

#include "api/api.h"

/* What a handler works on; everything is borrowed. */
struct td_call {
    struct td_api *api;
    const struct td_uri *uri;
    struct td_snapshot *snapshot; /* NULL for system routes */
    const struct td_model *model; /* NULL for /models */
    struct td_text rest;          /* tensor name or file path */
    struct td_response *response;
};

/* Answers 400 and returns false when the query has a parameter that is not in `known` (NULL-terminated). */
bool td_call_check_parameters(const struct td_call *call, const char *const *known);

void td_handle_models(const struct td_call *call);
void td_handle_model(const struct td_call *call);
void td_handle_manifest(const struct td_call *call);
void td_handle_tensor(const struct td_call *call);
void td_handle_file(const struct td_call *call);
void td_handle_healthz(const struct td_call *call);
void td_handle_readyz(const struct td_call *call);
void td_handle_metrics(const struct td_call *call);
void td_handle_openapi(const struct td_call *call);
void td_handle_version(const struct td_call *call);

/* Answers 503: out of memory. Returns false. */
bool td_call_no_memory(const struct td_call *call);

/* The checkpoint that ?checkpoint= names, the default one without it. NULL: a 404 was answered. */
const struct td_checkpoint *td_call_checkpoint(const struct td_call *call);

#endif
