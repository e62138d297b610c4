/* Which .json files have lines that are rows: JSON Lines (https://jsonlines.org) beside documents of JSON. */
#include "parser/rows/json_shape.h"

#include "tests/unit/unit.h"

#include <stdlib.h>

static enum td_json_shape shape_of(const char *text, size_t len, bool is_whole)
{
    char *copy = malloc(len + (len == 0)); /* a block of its own, so that the sanitizer sees a read past the end */
    assert_non_null(copy);
    memcpy(copy, text, len);
    enum td_json_shape shape = td_json_shape_of(td_text_n(copy, len), is_whole);
    free(copy);
    return shape;
}

static void shapes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum td_json_shape whole, begun; /* of a file that ends there, and of a longer file */
    } cases[] = {
        {"", TD_JSON_SHAPE_EMPTY, TD_JSON_SHAPE_OTHER},
        {" \r\n", TD_JSON_SHAPE_EMPTY, TD_JSON_SHAPE_OTHER},
        {"{}", TD_JSON_SHAPE_ONE_LINE, TD_JSON_SHAPE_ONE_LINE},
        {"{}\n", TD_JSON_SHAPE_ONE_LINE, TD_JSON_SHAPE_LINES},
        {"\xef\xbb\xbf {\"a\": [1, {\"b\": 2}]}\r\n", TD_JSON_SHAPE_ONE_LINE, TD_JSON_SHAPE_LINES},
        {"{}\n{}", TD_JSON_SHAPE_LINES, TD_JSON_SHAPE_LINES},
        {"\n{\"a\": NaN}\r\n\n {\"a\": Infinity}\n", TD_JSON_SHAPE_LINES, TD_JSON_SHAPE_LINES},
        {"{\"a\": \"}\\\"{\"}\n{\"a\":", TD_JSON_SHAPE_LINES, TD_JSON_SHAPE_LINES},
        {"{\"a\":\r1}\n{}", TD_JSON_SHAPE_LINES, TD_JSON_SHAPE_LINES}, /* a blank within a row */
        {"{}\r{}\r", TD_JSON_SHAPE_CR_LINES, TD_JSON_SHAPE_CR_LINES},
        {"{}\r", TD_JSON_SHAPE_ONE_LINE, TD_JSON_SHAPE_ONE_LINE},
        {"{} {}\n", TD_JSON_SHAPE_OTHER, TD_JSON_SHAPE_OTHER},
        {"{}\n[]\n", TD_JSON_SHAPE_OTHER, TD_JSON_SHAPE_OTHER},
        {"{}x", TD_JSON_SHAPE_OTHER, TD_JSON_SHAPE_OTHER},
        {"{\n\"a\": 1\n}\n", TD_JSON_SHAPE_OBJECT, TD_JSON_SHAPE_OBJECT},
        {"{\n", TD_JSON_SHAPE_OBJECT, TD_JSON_SHAPE_OBJECT},
        {"{\"a\": \"xxx", TD_JSON_SHAPE_OTHER, TD_JSON_SHAPE_ONE_LINE}, /* a line that is longer than the bytes read */
        {"[", TD_JSON_SHAPE_ARRAY, TD_JSON_SHAPE_ARRAY},
        {"\n[{}]", TD_JSON_SHAPE_ARRAY, TD_JSON_SHAPE_ARRAY},
        {"1\n2\n", TD_JSON_SHAPE_OTHER, TD_JSON_SHAPE_OTHER},
        {"text", TD_JSON_SHAPE_OTHER, TD_JSON_SHAPE_OTHER},
        {"}", TD_JSON_SHAPE_OTHER, TD_JSON_SHAPE_OTHER},
        {"{]", TD_JSON_SHAPE_ONE_LINE, TD_JSON_SHAPE_ONE_LINE}, /* brackets are counted, not compared */
        {"{\"\\", TD_JSON_SHAPE_OTHER, TD_JSON_SHAPE_ONE_LINE},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        enum td_json_shape whole = shape_of(cases[i].text, strlen(cases[i].text), true);
        enum td_json_shape begun = shape_of(cases[i].text, strlen(cases[i].text), false);
        CHECK(whole == cases[i].whole && begun == cases[i].begun, "case %zu: %d, %d", i, (int)whole, (int)begun);
    }
}

/* Only the first 64 KiB of a file are read. */
static void long_files(void **state)
{
    (void)state;
    size_t len = TD_JSON_SHAPE_BYTES + 10;
    char *text = malloc(len);
    assert_non_null(text);
    memset(text, ' ', len);
    text[0] = '{';
    text[TD_JSON_SHAPE_BYTES] = '\n'; /* is not seen */
    struct td_input input = td_input_memory(text, len);
    enum td_json_shape shape;
    assert_true(td_json_shape_read(&input, &shape, NULL) && shape == TD_JSON_SHAPE_ONE_LINE);
    text[TD_JSON_SHAPE_BYTES - 1] = '\n';
    assert_true(td_json_shape_read(&input, &shape, NULL) && shape == TD_JSON_SHAPE_OBJECT);
    free(text);
}

static void reasons(void **state)
{
    (void)state;
    for (enum td_json_shape shape = TD_JSON_SHAPE_EMPTY; shape <= TD_JSON_SHAPE_OTHER; shape++)
        assert_true(td_json_shape_has_lines(shape) || strlen(td_json_shape_reason(shape)) > 0);
    assert_false(td_json_shape_has_lines(TD_JSON_SHAPE_ARRAY));
    assert_true(td_json_shape_has_lines(TD_JSON_SHAPE_LINES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(long_files),
        cmocka_unit_test(reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
