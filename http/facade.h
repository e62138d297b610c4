/* A facade: an interface for one kind of client over the same files. Each facade is a constant in its own folder of
 * api/. This header describes facades and knows none of them. */
#ifndef TD_HTTP_FACADE_H
#define TD_HTTP_FACADE_H

#include "core/buffer.h"
#include "core/text.h"
#include "http/request.h"
#include "http/trailers.h"
#include "http/uri.h"

#include <stdbool.h>

struct td_call; /* api/call/call.h */

/* An error on its way to the client. All texts are borrowed. */
struct td_failure {
    int status;       /* write_error may replace a status that the facade's clients do not know */
    int sent_status;  /* set by write_error: the status that is sent in place of this one; 0: this one */
    unsigned form;    /* of the request (choose_form) */
    const char *type; /* the media type of the body: error_type, unless write_error sets another one; static */
    struct td_trailers trailers; /* added by write_error: they are sent in place of a body; owned */
    const char *code;    /* the facade's own word for the error; NULL: write_error derives the word from the status */
    const char *details; /* a JSON object; NULL: {} */
    const char *message; /* UTF-8, for people */
    struct td_text resource; /* the request target without its query, not decoded */
    const char *request_id;  /* empty unless the facade has a request_id_header */
};

/* Any thread may call the functions. Texts are static and NUL-terminated. */
struct td_facade {
    /* Returns whether the facade answers this path on a port that it shares with others. raw_path is not decoded and
     * has no query. NULL: the facade has a port of its own. */
    bool (*owns)(struct td_text raw_path);
    bool speaks_grpc; /* the port of gRPC shares the facade, too */
    /* Returns whether the server reads the body of a request with this method and target into memory. NULL: it never
     * does. */
    bool (*takes_body)(const struct td_request *request);
    /* Returns whether a POST of this target only reads: its body says what. NULL: each may change something. */
    bool (*reads_by_post)(const struct td_request *request);
    /* Returns whether each message of the request is answered by itself, before the request ends, where a protocol lets
     * both sides send at once: the request is then handled for each of its messages, and the bodies of the answers
     * follow one another. NULL: no request is. */
    bool (*answers_each)(const struct td_request *request);
    /* Returns whether the body of a request with this method and target goes to a sink. Asked only while the api takes
     * uploads (struct td_api). NULL, as begin_upload: never. */
    bool (*takes_upload)(const struct td_request *request);
    /* Begins an upload before its body is read, on a thread that may wait. The call is admitted and its target is
     * decoded, as for `answer`. Returns a sink for the body; the server calls `answer` after the body's end, with the
     * sink in the request, and then releases the sink. Returns NULL after it has answered the call: the server then
     * reads no body. */
    struct td_body_sink *(*begin_upload)(struct td_call *call);
    /* Returns whether a GET of this path, which is not decoded and has no query, is answered by a text of the program's
     * own rather than by bytes of files. NULL: no path is. */
    bool (*is_text)(struct td_text raw_path);
    bool posts_texts; /* a POST is answered by such a text, too, where a GET of the path would be */
    /* Returns whether the request must be answered even at the limit of connections. NULL: none must. */
    bool (*is_probe)(const struct td_request *request);
    /* Decides who sent a call to a server that has tokens, and fills in call->caller (api/call/access.h). Returns false
     * after it answered a refusal, in the facade's form. NULL is not allowed for a facade that answers calls. */
    bool (*admit)(struct td_call *call);
    /* Answers a call whose target is decoded, and applies conditions and ranges to the answer. The call has no snapshot
     * yet: td_call_take_snapshot takes one. */
    void (*answer)(struct td_call *call);
    /* Answers a request whose body has a content coding that is not known, or unpacked. NULL: 415. */
    void (*refuse_coding)(const struct td_call *call);
    /* Returns the form of the request's errors, a number of the facade's own. NULL: all have the form 0. */
    unsigned (*choose_form)(const struct td_request *request);
    /* Appends the body of an error answer to `out`; out->failed is set when memory is short. NULL is not allowed. */
    void (*write_error)(struct td_failure *failure, struct td_buffer *out);
    /* Appends the body of an error answer for browsers, in HTML. NULL: browsers get what others get. */
    void (*write_error_page)(const struct td_failure *failure, struct td_buffer *out);
    const char *error_type;           /* the media type of the body that write_error writes */
    enum td_uri_query query;          /* how the query of a target is read */
    const char *etag_end;             /* the end of each entity tag; may be empty, not NULL */
    const char *field_name;           /* of a header field that every answer has, errors as well; NULL: no such field */
    const char *field_value;          /* of that field */
    const char *request_id_header;    /* the field that carries the request's id; NULL: X-Request-Id */
    const char *const *write_methods; /* NULL-terminated. Clients send a body with these methods to any target. The
                                       * server reads none of it, and the facade refuses the request, unless the api
                                       * takes uploads and the facade has begin_upload. NULL: no such methods. */
    /* The body of a 503 when no connection is free, sent without allocating memory. Not NULL for the facade of a port
     * (td_main_port, td_s3_port); no other facade's is used. */
    const char *busy;
    const char *crowded;   /* the body of a 429 for an address with too many connections; NULL: busy */
    const char *not_tls;   /* the body of a 400 for a client that does not speak TLS on a port that does; not NULL where
                            * busy is not */
    const char *is_tls;    /* the body of a 400 for a client that speaks TLS on a port without it; not NULL where busy
                            * is not */
    const char *not_http2; /* the body of a 400 for a client that speaks HTTP/1 on a port for HTTP/2 alone; NULL: the
                            * port speaks HTTP/1 */
};

#endif
