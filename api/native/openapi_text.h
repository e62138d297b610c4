/* The contract, api/openapi.yaml, as JSON in a zlib stream (RFC 1950); embedded by the build. Compressed, it takes a
 * sixth of its length of JSON. */
#ifndef TD_API_NATIVE_OPENAPI_TEXT_H
#define TD_API_NATIVE_OPENAPI_TEXT_H

#include <stddef.h>

extern const unsigned char td_openapi_packed[];
extern const size_t td_openapi_packed_len;
extern const size_t td_openapi_json_len; /* after decompression */

#endif
