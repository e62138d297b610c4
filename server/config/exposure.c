#include "server/config/exposure.h"

#include "core/log.h"

#include <stddef.h>

static bool judge_tokens(const struct td_exposure *exposure, struct td_error *err)
{
    if (exposure->has_tokens)
        return true;
    if (exposure->require_auth)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "--require-auth: others reach %s, and it asks for no tokens; make one with tensord token "
                            "new NAME --tokens FILE and give --tokens FILE, or listen on 127.0.0.1",
                            exposure->url);
    td_log(TD_LOG_WARN,
           "others reach %s without a token: every client that can connect can read every model; make a token with "
           "tensord token new NAME --tokens FILE and give --tokens FILE, or listen on 127.0.0.1",
           exposure->url);
    return true;
}

static bool judge_tls(const struct td_exposure *exposure, struct td_error *err)
{
    if (exposure->has_tls)
        return true;
    if (exposure->require_tls)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "--require-tls: others reach %s, and it has no TLS; give --tls-cert and --tls-key, or "
                            "listen on 127.0.0.1",
                            exposure->url);
    td_log(
        TD_LOG_WARN,
        "others reach %s without TLS: others on the network path can read %s and change what is sent; give --tls-cert "
        "and --tls-key, or listen on 127.0.0.1",
        exposure->url, exposure->has_tokens ? "tokens and models" : "models");
    return true;
}

bool td_exposure_judge(const struct td_exposure *exposure, struct td_error *err)
{
    return exposure->url == NULL || (judge_tokens(exposure, err) && judge_tls(exposure, err));
}
