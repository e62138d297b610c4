/* Checks that a server which other machines can reach has TLS and tokens. */
#ifndef TD_SERVER_CONFIG_EXPOSURE_H
#define TD_SERVER_CONFIG_EXPOSURE_H

#include "core/error.h"

#include <stdbool.h>

struct td_exposure {
    const char *url;   /* of a port that other machines can reach; NULL: only this machine reaches the ports */
    bool has_tls;      /* on all ports that other machines can reach */
    bool has_tokens;   /* clients need one */
    bool require_tls;  /* --require-tls */
    bool require_auth; /* --require-auth */
};

/* Warns when other machines reach a port without TLS, so that others can read the traffic, and when they need no token.
 * With require_tls or require_auth either is an error (TD_INVALID_ARGUMENT) that says what to do. */
bool td_exposure_judge(const struct td_exposure *exposure, struct td_error *err);

#endif
