/* What a server lacks that others than this machine can reach. */
#ifndef TD_SERVER_CONFIG_EXPOSURE_H
#define TD_SERVER_CONFIG_EXPOSURE_H

#include "core/error.h"

#include <stdbool.h>

struct td_exposure {
    const char *url;   /* of a port that others can reach; NULL: there is none */
    bool has_tls;      /* on all ports that others can reach */
    bool has_tokens;   /* clients need one */
    bool require_tls;  /* --require-tls */
    bool require_auth; /* --require-auth */
};

/* Warns when others reach a port and can read what is sent, since there is no TLS, and when they need no token. With
 * require_tls or require_auth that is an error (TD_INVALID_ARGUMENT) that says what to do. */
bool td_exposure_judge(const struct td_exposure *exposure, struct td_error *err);

#endif
