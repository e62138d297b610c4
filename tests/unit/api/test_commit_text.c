/* The order of a commit as JSON, by docs/publish.md. */
#include "api/native/commit_text.h"

#include "tests/unit/unit.h"

#define HEX "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define FILE_OF(path) "{\"path\":\"" path "\",\"digest\":\"sha256:" HEX "\",\"size\":0}"

static bool read_text(const char *text, struct td_commit_text *out, struct td_error *err)
{
    return td_commit_text_read(td_text_of(text), out, err);
}

static void all_members(void **state)
{
    struct td_commit_text text;
    struct td_error err = TD_ERROR_INIT;
    uint8_t empty[TD_SHA256_BYTES];
    (void)state;
    td_sha256("", 0, empty);
    assert_true(
        read_text(" {\"files\": [" FILE_OF("a/\\u00e4.txt") "," FILE_OF(
                      "b") "], \"keep\": true, \"delete\": "
                           "[\"x\", \"y\\/\"],\"revision\":\"dev\",\"from\":\"main\",\"parent\":\"\",\"message\":"
                           "\"a \\\"b\\\"\\n\",\"dry_run\":true} ",
                  &text, &err));
    const struct td_commit_order *order = &text.order;
    assert_int_equal(order->file_count, 2);
    assert_string_equal(order->files[0].path, "a/\xc3\xa4.txt");
    assert_memory_equal(order->files[1].sha256, empty, sizeof empty);
    assert_true(order->files[1].has_size && order->files[1].size_bytes == 0);
    assert_true(order->keep && order->is_dry_run);
    assert_int_equal(order->deletion_count, 2);
    assert_string_equal(order->deletions[1], "y/");
    assert_string_equal(order->revision, "dev");
    assert_string_equal(order->from, "main");
    assert_string_equal(order->parent, "");
    assert_string_equal(order->message, "a \"b\"\n");
    td_commit_text_fini(&text);
}

static void defaults(void **state)
{
    struct td_commit_text text;
    struct td_error err = TD_ERROR_INIT;
    (void)state;
    assert_true(read_text("{\"files\":[]}", &text, &err));
    assert_string_equal(text.order.revision, "main");
    assert_string_equal(text.order.message, "");
    assert_true(text.order.parent == NULL && text.order.from == NULL && !text.order.keep);
    assert_false(text.order.is_dry_run);
    assert_true(text.order.file_count == 0 && text.order.deletion_count == 0);
    td_commit_text_fini(&text);
    assert_true(read_text("{\"keep\":true}", &text, &err));
    td_commit_text_fini(&text);
}

static void faults_have_places(void **state)
{
    static const struct {
        const char *text;
        uint64_t pos;
    } faults[] = {
        {"", 0},
        {"[]", 0},
        {"{}", 1},
        {"{\"files\":[]", 11},
        {"{\"files\":[]}x", 12},
        {"{\"files\":[],\"files\":[]}", 12},
        {"{\"files\":[],\"file\":[]}", 12},
        {"{\"files\":{}}", 9},
        {"{\"files\":[1]}", 10},
        {"{\"files\":[{}]}", 11},
        {"{\"files\":[{\"path\":1}]}", 18},
        {"{\"files\":[{\"path\":\"a\",\"path\":\"b\"}]}", 22},
        {"{\"files\":[{\"digest\":\"sha256:\"}]}", 20},
        {"{\"files\":[{\"digest\":\"sha512:" HEX "\"}]}", 20},
        {"{\"files\":[{\"size\":1.5}]}", 18},
        {"{\"files\":[{\"size\":\"1\"}]}", 18},
        {"{\"files\":[],\"keep\":1}", 19},
        {"{\"files\":[],\"delete\":[\"a\",2]}", 26},
        {"{\"files\":[],\"message\":\"\\u0000\"}", 22},
        {"{\"files\":[],\"message\":\"\xff\"}", 23},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        struct td_commit_text text;
        struct td_error err = TD_ERROR_INIT;
        CHECK(!read_text(faults[i].text, &text, &err) && err.code == TD_INVALID_ARGUMENT && err.pos == faults[i].pos,
              "%s: %d at %d: %s", faults[i].text, (int)err.code, (int)err.pos, err.message);
        td_commit_text_fini(&text);
    }
}

/* Appends `count` copies of an item between brackets. */
static void append_list(struct td_buffer *out, const char *item, size_t count)
{
    td_buffer_putc(out, '[');
    for (size_t i = 0; i < count; i++)
        td_buffer_printf(out, "%s%s", i > 0 ? "," : "", item);
    td_buffer_putc(out, ']');
}

static void lists_are_bounded(void **state)
{
    static const char *const items[] = {FILE_OF("a"), "\"a\""};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(items); i++) {
        for (size_t more = 0; more < 2; more++) {
            struct td_buffer json;
            struct td_commit_text text;
            struct td_error err = TD_ERROR_INIT;
            td_buffer_init(&json);
            td_buffer_printf(&json, "{\"keep\":true,\"%s\":", i == 0 ? "files" : "delete");
            append_list(&json, items[i], TD_COMMIT_MAX_FILES + more);
            td_buffer_putc(&json, '}');
            assert_int_equal(td_commit_text_read(td_buffer_text(&json), &text, &err), more == 0);
            assert_int_equal(text.is_too_large, more == 1);
            td_commit_text_fini(&text);
            td_buffer_fini(&json);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members),
        cmocka_unit_test(defaults),
        cmocka_unit_test(faults_have_places),
        cmocka_unit_test(lists_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
