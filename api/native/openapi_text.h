/* The contract, api/openapi.yaml, as JSON; embedded by the build. */
#ifndef TD_API_NATIVE_OPENAPI_TEXT_H
#define TD_API_NATIVE_OPENAPI_TEXT_H

#include <stddef.h>

extern const unsigned char td_openapi_json[];
extern const size_t td_openapi_json_len;

#endif
