/* A TLS client for `tensord health`, over a connected blocking socket with a limit on each wait (SO_RCVTIMEO,
 * SO_SNDTIMEO). One thread. */
#ifndef TD_SERVER_CMD_HTTPS_CLIENT_H
#define TD_SERVER_CMD_HTTPS_CLIENT_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* How to verify the server's certificate. */
struct td_https_trust {
    const char *ca; /* a file of authorities in PEM; NULL: those of the system. The name and the dates must be right */
    const char *pinned; /* a file with the certificate that the server must have, whatever its name and dates; NULL:
                           the certificate is judged by `ca` */
};

struct td_https;

/* Makes the handshake with the server of this name or address. The socket stays the caller's, and must outlive *out.
 * Errors say what is wrong with the server's certificate: TD_PERMISSION_DENIED for one that is not trusted, else
 * TD_FAILED_PRECONDITION, TD_IO for a file that cannot be read, TD_UNAVAILABLE for a server that does not answer,
 * TD_RESOURCE_EXHAUSTED. */
bool td_https_begin(int fd, const char *host, const struct td_https_trust *trust, struct td_https **out,
                    struct td_error *err);

/* Sends all bytes. Returns false on failure. */
bool td_https_send(struct td_https *https, const char *bytes, size_t len);

/* Receives up to capacity bytes. Returns their number, 0 at the end, or -1 on failure, or when the server is silent for
 * too long. */
ssize_t td_https_receive(struct td_https *https, char *bytes, size_t capacity);

/* Returns whether the server ended the connection with an alert; if so, sets *err to the alert and its meaning. */
bool td_https_was_refused(const struct td_https *https, struct td_error *err);

/* Frees it. NULL is allowed. */
void td_https_end(struct td_https *https);

#endif
