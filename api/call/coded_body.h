/* Content codings of request bodies (Content-Encoding, RFC 9110 section 8.4): gzip and identity. Handlers get bodies
 * unpacked. */
#ifndef TD_API_CALL_CODED_BODY_H
#define TD_API_CALL_CODED_BODY_H

#include "api/call/call.h"
#include "http/body_sink.h"

#include <stdbool.h>

/* The codings that are known, for Accept-Encoding and messages. */
#define TD_BODY_CODINGS "gzip, identity"

/* Puts the unpacked body into *request, a copy of the call's request, if the request has one in memory that is packed.
 * Sets *unpacked to the memory, which the caller frees after the call; NULL: nothing was unpacked. Returns false after
 * it answered: 400 for damaged bytes, 413, 415 for a coding that is not known (struct td_facade may answer otherwise),
 * 503. */
bool td_coded_body_open(const struct td_call *call, struct td_request *request, char **unpacked);

/* Unpacks the text with td_gunzip_whole, in the room of the call's request. Returns false after it answered: 400, 413,
 * 503. */
bool td_coded_body_unpack(const struct td_call *call, struct td_text packed, char **out, size_t *len);

/* Returns the sink for the body of an upload: the sink of the handler or, if this takes a document and the document is
 * packed, one that unpacks and gives the bytes to that. Takes the sink over. Returns NULL after it answered: 415, 503.
 */
struct td_body_sink *td_coded_body_begin(const struct td_call *call, struct td_body_sink *sink);

/* Puts the handler's sink into *request, a copy of the call's request, in place of one that unpacks. Returns false
 * after it answered 400 for damaged bytes. */
bool td_coded_body_end(const struct td_call *call, struct td_request *request);

#endif
