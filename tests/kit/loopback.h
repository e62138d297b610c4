/* The interface without a socket: a catalog over a tree, an api over the catalog, requests as text, answers flat. */
#ifndef TD_TESTS_LOOPBACK_H
#define TD_TESTS_LOOPBACK_H

#include "api/api.h"
#include "tests/kit/tree.h"

enum { LOOPBACK_HEADERS = 32 };

struct loopback {
    struct td_catalog *catalog;
    struct td_api api;
};

/* Settling is off and scans happen only when asked for, so nothing happens behind the test's back. Waits for the
 * first scan. */
void loopback_open(struct loopback *loop, const struct tree *tree);
void loopback_close(struct loopback *loop);

/* Scans again and waits for the end. */
void loopback_rescan(struct loopback *loop);
void loopback_wait_scans(struct td_catalog *catalog, uint64_t count);

/* A request of the main port over text that outlives it. lines: "Name: value\nName: value", or NULL. */
struct loopback_request {
    struct td_header headers[LOOPBACK_HEADERS];
    struct td_request request;
};
void loopback_request_init(struct loopback_request *out, const char *method, const char *target, const char *lines);

struct answer {
    struct td_response response;
    char *body; /* NUL-terminated; what GET would send, also for HEAD */
    size_t len;
};

/* Answers one request and reads its body in pieces of uneven sizes. */
void loopback_ask(struct loopback *loop, const char *method, const char *target, const char *lines, struct answer *out);
/* The same on the S3 port. */
void loopback_ask_s3(struct loopback *loop, const char *method, const char *target, const char *lines,
                     struct answer *out);
void loopback_get(struct loopback *loop, const char *target, struct answer *out);
void answer_fini(struct answer *answer);

/* The header's value as it would be sent (Content-Length aside), or NULL; copied into a buffer of the answer's
 * caller because Last-Modified is made on the fly. */
const char *answer_header(const struct answer *answer, const char *name, char buffer[128]);

#endif
