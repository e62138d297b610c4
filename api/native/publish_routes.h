/* The native interface of publishing: what each method does at each path. Only while api->publish is set. */
#ifndef TD_API_NATIVE_PUBLISH_ROUTES_H
#define TD_API_NATIVE_PUBLISH_ROUTES_H

#include "api/call/call.h"
#include "http/body_sink.h"

/* For td_facade.takes_upload and begin_upload. */
bool td_native_takes_upload(const struct td_request *request);
struct td_body_sink *td_native_begin_upload(struct td_call *call);

/* Answers the call if its path and method are those of publishing. Returns false, and answers nothing, for others. */
bool td_native_publish(struct td_call *call);

#endif
