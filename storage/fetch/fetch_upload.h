/* The body of a request, from memory or from a file, for libcurl: its bytes, and whether the server still takes them.
 * Used by one thread. */
#ifndef TD_STORAGE_FETCH_FETCH_UPLOAD_H
#define TD_STORAGE_FETCH_FETCH_UPLOAD_H

#include "core/error.h"
#include "core/text.h"
#include "storage/fetch/fetch_client.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_FETCH_FIELDS = 2, /* the most fields of one request besides the client's */
    TD_FETCH_COUNTS = 3, /* the most counters of the bytes that are sent */
    /* An answer that begins later after the body has failed: the server may have to hash and sync a large file, or to
     * scan many. */
    TD_FETCH_SEND_ANSWER_S = 600,
};

/* A request with a body. All is borrowed. */
struct td_fetch_request {
    const char *method;                  /* "PUT", "POST" */
    const char *path;                    /* percent-encoded, with its query, beginning with '/' */
    const char *fields[TD_FETCH_FIELDS]; /* of the header, as "Content-Range: bytes 0-9/10"; NULL: none */
    struct td_text text;                 /* the body, if fd is -1 */
    int fd;                              /* a file whose bytes [off, off+len) are the body; or -1 */
    uint64_t off, len;
    _Atomic uint64_t *sent[TD_FETCH_COUNTS]; /* each counts the bytes of the body while it is sent, also those that are
                                                sent again; NULL: none */
};

/* The state while a body is sent. */
struct td_fetch_upload {
    const struct td_fetch_request *request;
    uint64_t at;                 /* the next byte of the body that libcurl gets */
    uint64_t mark_ns, mark_sent; /* the beginning of a time in which the server must take some bytes */
    unsigned stall_s;
    struct td_error fault;            /* why it ended: the file, or a server that takes nothing */
    void *fields[TD_FETCH_FIELDS][2]; /* nodes of libcurl's list of fields */
};

/* Returns the length of the request's body. */
uint64_t td_fetch_request_bytes(const struct td_fetch_request *request);

/* Prepares a handle (CURL *) of the client for the request: method, fields, body. No redirect is followed, since the
 * token and the body are for this server. Returns false when libcurl refuses an option. */
bool td_fetch_upload_begin(struct td_fetch_upload *upload, const struct td_fetch_client *client, void *easy,
                           const struct td_fetch_request *request);

/* Prepares the handle for GET again. */
bool td_fetch_upload_end(const struct td_fetch_client *client, void *easy);

/* Returns whether the server is too slow, after it has taken `sent` bytes of the body: fewer than TD_FETCH_STALL_BYTES
 * for each second of the client's stall_s; or no answer for TD_FETCH_SEND_ANSWER_S after the body. Then sets the
 * fault. */
bool td_fetch_upload_stalls(struct td_fetch_upload *upload, uint64_t sent, uint64_t now_ns);

#endif
