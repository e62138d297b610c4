#include "core/extension.h"

#include "tests/unit/unit.h"

static void names_and_extensions(void **state)
{
    (void)state;
    static const struct {
        const char *name, *extension;
        bool has, any_case;
    } cases[] = {
        {"model.bin", ".bin", true, true},
        {"a.bin", ".bin", true, true},
        {"MODEL.BIN", ".bin", false, true},
        {"model.Bin", ".bin", false, true},
        {".bin", ".bin", false, false},
        {"bin", ".bin", false, false},
        {"", ".bin", false, false},
        {"model.bin ", ".bin", false, false},
        {"model.bin.tmp", ".bin", false, false},
        {"modelbin", ".bin", false, false},
        {"model.bin.tmp", ".tmp", true, true},
        {"a.safetensors.index.json", ".index.json", true, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        CHECK(td_has_extension(cases[i].name, cases[i].extension) == cases[i].has, "%s", cases[i].name);
        CHECK(td_has_extension_any_case(cases[i].name, cases[i].extension) == cases[i].any_case, "%s", cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_extensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
