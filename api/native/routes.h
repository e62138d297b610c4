/* The handlers of the native interface. Each fills the response with the whole representation, or with an error. */
#ifndef TD_API_NATIVE_ROUTES_H
#define TD_API_NATIVE_ROUTES_H

#include "api/call/call.h"

/* The query parameters that td_handle_model and td_handle_dataset take; NULL ends them. */
extern const char *const td_model_parameters[];
extern const char *const td_dataset_parameters[];

void td_handle_models(const struct td_call *call);
void td_handle_model(const struct td_call *call);
void td_handle_changes(const struct td_call *call);  /* changes */
void td_handle_versions(const struct td_call *call); /* versions; the model may be NULL, and then there is a family */
void td_handle_manifest(const struct td_call *call);
void td_handle_tensor(const struct td_call *call);
void td_handle_file(const struct td_call *call);       /* files/{path}: a file, or the page of a folder */
void td_handle_files(const struct td_call *call);      /* files/ */
void td_handle_read(const struct td_call *call);       /* tensors:read */
void td_handle_plans(const struct td_call *call);      /* plans */
void td_handle_plan(const struct td_call *call);       /* plans/{plan}, plans/{plan}/{file} */
void td_handle_rank_file(const struct td_call *call);  /* shards/{engine}/tp{n}/{file} */
void td_handle_model_file(const struct td_call *call); /* model.safetensors */
void td_handle_datasets(const struct td_call *call);
void td_handle_dataset(const struct td_call *call);
void td_handle_rows(const struct td_call *call);       /* rows */
void td_handle_row(const struct td_call *call);        /* rows/{number} */
void td_handle_row_table(const struct td_call *call);  /* index */
void td_handle_rows_batch(const struct td_call *call); /* rows:batchGet */
void td_handle_healthz(const struct td_call *call);
void td_handle_readyz(const struct td_call *call);
void td_handle_metrics(const struct td_call *call);
void td_handle_openapi(const struct td_call *call);
void td_handle_schema(const struct td_call *call);
void td_handle_status(const struct td_call *call);
void td_handle_version(const struct td_call *call);
void td_handle_start(const struct td_call *call); /* the path / for programs */
void td_handle_rescan(const struct td_call *call);
void td_handle_sign(const struct td_call *call);
void td_handle_events(const struct td_call *call);

#endif
