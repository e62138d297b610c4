#include "core/decimal.h"
#include "tests/unit/unit.h"

#include <math.h>

static void check(double value, bool single, const char *wanted)
{
    struct td_buffer out;
    td_buffer_init(&out);
    td_write_decimal(&out, value, single);
    CHECK(out.len == strlen(wanted) && memcmp(out.data, wanted, out.len) == 0, "%.*s, wanted %s", (int)out.len,
          out.data, wanted);
    td_buffer_fini(&out);
}

/* The texts are those of Python's repr. */
static void doubles_as_in_python(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *repr;
    } rows[] = {
        {0x0.0p+0, "0.0"},
        {-0x0.0p+0, "-0.0"},
        {0x1.0000000000000p+0, "1.0"},
        {-0x1.8000000000000p+0, "-1.5"},
        {0x1.999999999999ap-4, "0.1"},
        {0x1.3333333333334p-2, "0.30000000000000004"},
        {0x1.a36e2eb1c432dp-14, "0.0001"},
        {0x1.02e4b6ce5dc68p-13, "0.00012345"},
        {0x1.4f8b588e368f1p-17, "1e-05"},
        {0x1.e240000000000p+16, "123456.0"},
        {0x1.c6bf526340000p+49, "1000000000000000.0"},
        {0x1.0000000000000p+53, "9007199254740992.0"},
        {0x1.1c37937e08000p+53, "1e+16"},
        {0x1.aa535d3d0c000p+53, "1.5e+16"},
        {0x1.0f0cf064dd592p+73, "1e+22"},
        {0x1.52d02c7e14af6p+76, "1e+23"},
        {0x0.0000000000001p-1022, "5e-324"},
        {0x0.fffffffffffffp-1022, "2.225073858507201e-308"},
        {0x1.0000000000000p-1022, "2.2250738585072014e-308"},
        {0x1.fffffffffffffp+1023, "1.7976931348623157e+308"},
        {0x1.5555555555555p-2, "0.3333333333333333"},
        {0x1.5555555555555p-1, "0.6666666666666666"},
        {0x1.921f9f01b866ep+1, "3.14159"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {NAN, "nan"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check(rows[i].value, false, rows[i].repr);
}

/* The texts are those of NumPy's str(float32). */
static void floats_as_in_numpy(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0x1.99999a0000000p-4, "0.1"},
        {0x1.5555560000000p-2, "0.33333334"},
        {0x1.0000000000000p-149, "1e-45"},
        {0x1.0000000000000p-126, "1.1754944e-38"},
        {0x1.fffffe0000000p+127, "3.4028235e+38"},
        {0x1.0624de0000000p-10, "0.001"},
        {0x1.1c37940000000p+53, "1e+16"},
        {0x1.0000000000000p+0, "1.0"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check(rows[i].value, true, rows[i].text);
}

static void every_power_of_two_reads_back(void **state)
{
    (void)state;
    for (int exponent = -1074; exponent < 1024; exponent++) {
        struct td_buffer out;
        td_buffer_init(&out);
        td_write_decimal(&out, ldexp(1, exponent), false);
        const char *text = td_buffer_terminate(&out);
        CHECK(text != NULL && strtod(text, NULL) == ldexp(1, exponent), "2^%d", exponent);
        td_buffer_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_as_in_python),
        cmocka_unit_test(floats_as_in_numpy),
        cmocka_unit_test(every_power_of_two_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
