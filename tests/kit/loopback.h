/* The server's interface without a socket: a catalog over a tree, an api over the catalog, requests as text, and
 * answers as flat bytes. */
#ifndef TD_TESTS_KIT_LOOPBACK_H
#define TD_TESTS_KIT_LOOPBACK_H

#include "api/api.h"
#include "tests/kit/tree.h"

enum { LOOPBACK_HEADERS = 32 };

struct loopback {
    struct td_catalog *catalog;
    struct td_api api;
};

/* Opens the interface over a tree and waits for the first scan. Settling is off, and later scans run only when asked
 * for, so nothing changes by itself. */
void loopback_open(struct loopback *loop, const struct tree *tree);
void loopback_close(struct loopback *loop);

/* Scans again and waits until the scan has ended. */
void loopback_rescan(struct loopback *loop);

/* Waits until `count` scans have ended since the start and none is running; ends the process after 120 s. */
void loopback_wait_scans(struct td_catalog *catalog, uint64_t count);

/* Waits until all files of datasets have indexes or errors; ends the process after 120 s. */
void loopback_wait_indexed(struct td_catalog *catalog);

/* A request on the main port. Its text must outlive it. `lines` is "Name: value\nName: value", or NULL. */
struct loopback_request {
    struct td_header headers[LOOPBACK_HEADERS];
    struct td_request request;
};
void loopback_request_init(struct loopback_request *out, const char *method, const char *target, const char *lines);

struct answer {
    struct td_response response;
    char *body; /* NUL-terminated; for HEAD the body that GET would have sent */
    size_t len;
};

/* Answers one request on the main port and reads its body in pieces of uneven sizes. `lines` as in a loopback_request.
 * The caller calls answer_fini. */
void loopback_ask(struct loopback *loop, const char *method, const char *target, const char *lines, struct answer *out);
/* Does the same on the S3 port. */
void loopback_ask_s3(struct loopback *loop, const char *method, const char *target, const char *lines,
                     struct answer *out);
void loopback_get(struct loopback *loop, const char *target, struct answer *out);
/* Sends a request with a body that goes to a sink, as the server does: the body is not sent when the answer comes
 * before it. */
void loopback_send(struct loopback *loop, const struct td_facade *port, const char *method, const char *target,
                   const char *lines, struct td_text body, struct answer *out);
void answer_fini(struct answer *answer);

/* Returns the header's value as it would be sent (except Content-Length), or NULL. Writes it to `buffer`, because
 * Last-Modified is made on demand. */
const char *answer_header(const struct answer *answer, const char *name, char buffer[128]);

#endif
