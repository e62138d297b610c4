/* The header of an answer in libmicrohttpd's response, and a response that a connection uses again for answers that
 * differ only in their bytes and in the values of some fields, such as ranges of one file. Making a response costs
 * about thirty small allocations. One thread at a time. */
#ifndef TD_SERVER_MHD_KEPT_RESPONSE_H
#define TD_SERVER_MHD_KEPT_RESPONSE_H

#include "http/response.h"

#include <microhttpd.h>

/* Adds all fields of the response, with "Connection: close" when response->close is set. Returns false when out of
 * memory. */
bool td_answer_header_add(struct MHD_Response *mhd_response, const struct td_response *response);

/* Adds the trailers. Returns false when out of memory. */
bool td_answer_trailers_add(struct MHD_Response *mhd_response, const struct td_trailers *trailers);

/* Returns the length of the header that libmicrohttpd will send: the status line, Date, Content-Length, the response's
 * own fields, and the empty line. By it the server computes how much of the body a client has received. content_bytes:
 * of the body; TD_BODY_LENGTH_UNKNOWN: it is chunked. */
uint64_t td_answer_header_bytes(const struct td_response *response, uint64_t content_bytes);

enum {
    TD_KEPT_BYTES = 8 * 1024, /* longest copied body; each connection has a buffer of the last one's size */
    TD_KEPT_VALUE_BYTES = 80  /* with a NUL; a response with a longer value of a field is not kept */
};

struct td_kept_response {
    struct MHD_Response *mhd_response; /* one reference; queueing it takes another; NULL: none */
    uint8_t *bytes;                    /* of the body; owned; NULL: td_sender_memory takes its place */
    size_t len;
    uint64_t header_bytes; /* length of the header that libmicrohttpd will send */
    /* the content of `mhd_response`, as in td_response */
    int status;
    const char *content_type, *cache_control, *allow_origin;
    char etag[TD_ETAG_BYTES];
    int64_t last_modified_s;
    bool accept_ranges;
    size_t header_count;
    struct {
        const char *name;
        char value[TD_KEPT_VALUE_BYTES];
    } headers[TD_RESPONSE_HEADERS];
};

/* Returns whether a response can be kept: all its pointers are to static data, the connection stays open after it, and
 * it has no field with the time that it took, since the next one would have to be made again. */
bool td_kept_response_suits(const struct td_response *response);

/* Adapts the kept response, or makes a new one, for a body of len bytes, at least one. by_sender: server/mhd/sender
 * sends the body; else the body has at most TD_KEPT_BYTES, which the caller then writes to kept->bytes. The previous
 * answer must have been sent. Returns false when memory is short. */
bool td_kept_response_prepare(struct td_kept_response *kept, const struct td_response *response, size_t len,
                              bool by_sender);

/* Frees the kept response. NULL is allowed. */
void td_kept_response_destroy(struct td_kept_response *kept);

#endif
