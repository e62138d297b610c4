#include "server/exposure.h"

#include "core/log.h"

#include <stddef.h>

bool td_exposure_judge_tls(const struct td_exposure *exposure, struct td_error *err)
{
    if (exposure->url == NULL || exposure->has_tls)
        return true;
    if (exposure->require_tls)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "--require-tls: others reach %s, and it has no TLS; give --tls-cert and --tls-key, or "
                            "listen on 127.0.0.1",
                            exposure->url);
    td_log(
        TD_LOG_WARN,
        "others reach %s without TLS: whoever is on the way can read %s and change what is sent; give --tls-cert and "
        "--tls-key, or listen on 127.0.0.1",
        exposure->url, exposure->has_tokens ? "tokens and models" : "models");
    return true;
}
