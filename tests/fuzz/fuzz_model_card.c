/* The input is a whole README.md. The result must be one JSON object of bounded length in which no key occurs twice,
 * and must have the same meaning when it is read again as YAML, which includes JSON. */
#include "core/json/json.h"
#include "parser/model_card.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

static void check_json(const struct td_buffer *json)
{
    struct td_json reader;
    struct td_error err = TD_ERROR_INIT;
    td_json_init(&reader, td_buffer_text(json), 0, &err);
    FUZZ_CHECK(td_json_next(&reader) == TD_JSON_OBJECT_BEGIN);
    for (enum td_json_token token = TD_JSON_OBJECT_BEGIN; token != TD_JSON_END; token = td_json_next(&reader)) {
        FUZZ_CHECK(token != TD_JSON_ERROR);
        FUZZ_CHECK(reader.depth <= TD_CARD_MAX_DEPTH);
    }
}

/* Returns whether the text has a line break of YAML 1.1 that JSON does not know, and that YAML folds: U+0085, U+2028,
 * U+2029. */
static bool has_other_breaks(const struct td_buffer *json)
{
    return memmem(json->data, json->len, "\xc2\x85", 2) != NULL ||
           memmem(json->data, json->len, "\xe2\x80\xa8", 3) != NULL ||
           memmem(json->data, json->len, "\xe2\x80\xa9", 3) != NULL;
}

/* Reads the JSON again as YAML. libyaml refuses some texts of JSON: characters that it does not print, and keys of more
 * than 1,024 bytes. */
static void check_again(const struct td_buffer *json)
{
    struct td_buffer text;
    struct td_buffer again;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&text);
    td_buffer_init(&again);
    td_buffer_puts(&text, "---\n");
    td_buffer_append(&text, json->data, json->len);
    td_buffer_puts(&text, "\n---\n");
    FUZZ_CHECK(!text.failed);
    if (td_model_card_read(td_buffer_text(&text), false, &again, &err))
        FUZZ_CHECK(again.len == json->len && memcmp(again.data, json->data, json->len) == 0);
    td_buffer_fini(&text);
    td_buffer_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_buffer json;
    struct td_error err = TD_ERROR_INIT;
    if (size > TD_CARD_MAX_BYTES)
        return 0;
    td_buffer_init(&json);
    if (td_model_card_read(td_text_n((const char *)data, size), true, &json, &err)) {
        FUZZ_CHECK(json.len <= TD_CARD_MAX_JSON_BYTES + 64);
        if (json.len > 0) {
            check_json(&json);
            if (!has_other_breaks(&json))
                check_again(&json);
        }
    } else {
        fuzz_check_message(&err);
    }
    td_buffer_fini(&json);
    return 0;
}
