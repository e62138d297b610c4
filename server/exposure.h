/* What a server lacks that others than this machine can reach. */
#ifndef TD_SERVER_EXPOSURE_H
#define TD_SERVER_EXPOSURE_H

#include "core/error.h"

#include <stdbool.h>

struct td_exposure {
    const char *url;  /* of a port that others can reach; NULL: there is none */
    bool has_tls;     /* on all ports that others can reach */
    bool has_tokens;  /* clients need one */
    bool require_tls; /* --require-tls */
};

/* Warns when others can read what is sent: they reach a port, and there is no TLS. With require_tls that is an error
 * (TD_INVALID_ARGUMENT) that says what to do. */
bool td_exposure_judge_tls(const struct td_exposure *exposure, struct td_error *err);

#endif
