/* Sinks of uploads: where the body of a request that publishes goes. */
#ifndef TD_API_CALL_PUBLISH_SINK_H
#define TD_API_CALL_PUBLISH_SINK_H

#include "api/call/call.h"
#include "catalog/publish/publish_stream.h"
#include "catalog/publish/publish_upload.h"
#include "http/body_sink.h"

/* One of the three members takes the body. When the handler ends the part or the stream, it sets the member to NULL;
 * else releasing the sink abandons it. */
struct td_publish_sink {
    struct td_body_sink sink; /* first: on the way back a sink is one of these */
    struct td_publish_part *part;
    struct td_publish_stream *stream;
    struct td_buffer text;
    size_t most_bytes; /* of the text */
    struct td_budget *budget;
    size_t taken_bytes;  /* from the budget */
    struct td_error err; /* why it has failed; TD_OK: it has not */
};

/* Make a sink, which takes over the part or the stream. Return NULL after they answered 503. */
struct td_body_sink *td_publish_sink_part(const struct td_call *call, struct td_publish_part *part);
struct td_body_sink *td_publish_sink_stream(const struct td_call *call, struct td_publish_stream *stream);

/* Begins a blob of the repository of the call's whole body, and makes a sink of it. Returns NULL after it answered: as
 * td_publishing_fail for errors of td_publish_stream_begin; 503. */
struct td_body_sink *td_publish_sink_whole(const struct td_call *call, const struct td_publish_name *name);

/* Stores the blob that td_publish_sink_whole began. Call it when the whole body has arrived. Sets *sum to the digest
 * and the size. expected: the digest that the blob must have; NULL: any. Returns false after an answer: 422 for a body
 * that was cut or has another digest; for other errors as td_publishing_fail. */
bool td_publish_sink_end_whole(const struct td_call *call, const uint8_t *expected, struct td_publish_sum *sum);

/* Makes a sink of a text in memory, of at most most_bytes. The text, and what handlers read from it, take
 * TD_PUBLISH_TEXT_FACTOR times its bytes of the memory that api->commits allows the client. Returns NULL after it
 * answered 503. */
struct td_body_sink *td_publish_sink_text(const struct td_call *call, size_t most_bytes);

enum { TD_PUBLISH_TEXT_FACTOR = 4 };

/* Returns the sink of the call's body, for the handler that answers after the body. */
struct td_publish_sink *td_publish_sink_of(const struct td_call *call);

#endif
