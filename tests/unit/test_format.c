#include "parser/format.h"
#include "parser/safetensors.h"
#include "tests/unit/unit.h"

static void extension_decides(void **state)
{
    (void)state;
    static const char *const ours[] = {
        "model.safetensors", "a.safetensors",  "model-00001-of-00002.safetensors",
        "a.b.safetensors",   ".a.safetensors", " .safetensors"};
    static const char *const others[] = {"",
                                         "safetensors",
                                         ".safetensors", /* an extension without a name */
                                         "model.safetensors.index.json",
                                         "model.safetensors.tmp",
                                         "model.SafeTensors",
                                         "model.safetensor",
                                         "modelsafetensors",
                                         "model.bin",
                                         "config.json"};
    for (size_t i = 0; i < COUNT_OF(ours); i++)
        CHECK(td_format_for_name(ours[i]) == &td_format_safetensors, "%s", ours[i]);
    for (size_t i = 0; i < COUNT_OF(others); i++)
        CHECK(td_format_for_name(others[i]) == NULL, "%s", others[i]);
}

static void format_knows_its_name(void **state)
{
    (void)state;
    assert_string_equal(td_format_safetensors.name, "safetensors");
    assert_string_equal(td_format_safetensors.extensions[0], ".safetensors");
    assert_null(td_format_safetensors.extensions[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extension_decides),
        cmocka_unit_test(format_knows_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
