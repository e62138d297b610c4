#include "server/config/listen_address.h"

#include "tests/unit/unit.h"

static void only_what_others_reach_is_refused(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 64; bits++) {
        struct td_error err = TD_ERROR_INIT;
        const struct td_exposure exposure = {.url = (bits & 1) != 0 ? "http://0.0.0.0:80" : NULL,
                                             .has_tls = (bits & 2) != 0,
                                             .has_tokens = (bits & 4) != 0,
                                             .require_tls = (bits & 8) != 0,
                                             .require_auth = (bits & 16) != 0,
                                             .publish_any = (bits & 32) != 0};
        bool lacks_tls = exposure.url != NULL && !exposure.has_tls && exposure.require_tls;
        bool lacks_tokens =
            exposure.url != NULL && !exposure.has_tokens && (exposure.require_auth || exposure.publish_any);
        bool is_judged_good = td_exposure_judge(&exposure, &err);
        CHECK(is_judged_good == !(lacks_tls || lacks_tokens), "%u", bits);
        if (is_judged_good)
            continue;
        CHECK(err.code == TD_INVALID_ARGUMENT && strstr(err.message, "http://0.0.0.0:80") != NULL, "%s", err.message);
        CHECK(strstr(err.message, lacks_tokens ? "--tokens FILE" : "--tls-cert") != NULL, "%s", err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_others_reach_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
