#include "server/exposure.h"

#include "tests/unit/unit.h"

static void only_what_others_reach_without_tls_is_refused(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 16; bits++) {
        struct td_error err = TD_ERROR_INIT;
        const struct td_exposure exposure = {.url = (bits & 1) != 0 ? "http://0.0.0.0:80" : NULL,
                                             .has_tls = (bits & 2) != 0,
                                             .has_tokens = (bits & 4) != 0,
                                             .require_tls = (bits & 8) != 0};
        bool is_refused = exposure.url != NULL && !exposure.has_tls && exposure.require_tls;
        CHECK(td_exposure_judge_tls(&exposure, &err) == !is_refused, "%u", bits);
        CHECK(!is_refused || (err.code == TD_INVALID_ARGUMENT && strstr(err.message, "http://0.0.0.0:80") != NULL &&
                              strstr(err.message, "--tls-cert") != NULL),
              "%s", err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_others_reach_without_tls_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
