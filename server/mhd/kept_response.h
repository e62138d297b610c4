/* A response of libmicrohttpd that a connection uses again, for answers that differ by their bytes and by the values of
 * some fields alone, such as the ranges of one file. To make a response costs some thirty small allocations. For one
 * thread at a time. */
#ifndef TD_SERVER_MHD_KEPT_RESPONSE_H
#define TD_SERVER_MHD_KEPT_RESPONSE_H

#include "http/response.h"

#include <microhttpd.h>

enum {
    TD_KEPT_BYTES = 8 * 1024, /* longest copied body; each connection has a buffer of the last one's size */
    TD_KEPT_VALUE_BYTES = 80  /* with a NUL; a response with a longer value of a field is not kept */
};

struct td_kept_response {
    struct MHD_Response *made; /* one reference, not for whoever queues it; NULL: none */
    uint8_t *bytes;            /* of the body; owned; NULL: td_sender_memory stands for it */
    size_t len;
    uint64_t header_bytes; /* length of the header that libmicrohttpd will send */
    /* what `made` was made from, as in td_response */
    int status;
    const char *content_type, *cache_control;
    char etag[TD_ETAG_BYTES];
    int64_t last_modified_s;
    bool accept_ranges;
    size_t header_count;
    struct {
        const char *name;
        char value[TD_KEPT_VALUE_BYTES];
    } headers[TD_RESPONSE_HEADERS];
};

/* Returns whether a response can be kept: all that it points to is static, and the connection goes on after it. */
bool td_kept_response_suits(const struct td_response *response);

/* Adapts the kept response, or makes a new one, for a body of len bytes. by_sender: bytes that server/mhd/sender
 * sends; else up to TD_KEPT_BYTES, which the caller then writes to kept->bytes. At least one. The answer
 * before must have been sent. Returns false without memory. */
bool td_kept_response_prepare(struct td_kept_response *kept, const struct td_response *response, size_t len,
                              bool by_sender);

/* Frees the kept response. NULL is allowed. */
void td_kept_response_destroy(struct td_kept_response *kept);

#endif
