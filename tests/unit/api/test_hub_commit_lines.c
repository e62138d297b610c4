/* The body of a commit: what its lines say, pieces of any length, faults with their line, and bounds. */
#include "api/hub/hub_commit_lines.h"
#include "tests/unit/unit.h"

#include "core/base64.h"
#include "core/digits.h"

#define HEADER "{\"key\": \"header\", \"value\": {\"summary\": \"s\", \"description\": \"\"}}\n"

/* Writes down what the reader passes on. */
struct notes {
    struct td_buffer text;
    size_t content_bytes;
    bool fails;
};

static bool note_content(void *context, const void *bytes, size_t len, struct td_error *err)
{
    struct notes *notes = context;
    assert_true(len > 0 && len <= TD_HUB_GROUP_BYTES);
    notes->content_bytes += len;
    if (notes->content_bytes < 1000)
        td_buffer_append(&notes->text, bytes, len);
    return !notes->fails || td_error_set(err, TD_RESOURCE_EXHAUSTED, "no room");
}

static bool note_operation(void *context, const struct td_hub_operation *operation, struct td_error *err)
{
    static const char *const words[] = {"header", "file", "lfs", "deleted", "folder"};
    struct notes *notes = context;
    char hex[TD_SHA256_TEXT_BYTES];
    (void)err;
    td_buffer_printf(&notes->text, "<%s", words[operation->line]);
    if (operation->line == TD_HUB_LINE_HEADER)
        td_buffer_printf(&notes->text, " %s|%s|%s", operation->summary, operation->description,
                         operation->parent == NULL ? "any" : operation->parent);
    else
        td_buffer_printf(&notes->text, " %s", operation->path);
    if (operation->line == TD_HUB_LINE_LFS_FILE) {
        td_hex_write(operation->sha256, TD_SHA256_BYTES, hex);
        td_buffer_printf(&notes->text, " %.4s", hex);
        if (operation->has_size)
            td_buffer_printf(&notes->text, " %llu", (unsigned long long)operation->size_bytes);
    }
    td_buffer_putc(&notes->text, '>');
    return true;
}

static const struct td_hub_line_visitor visitor = {note_content, note_operation};

/* Reads the body in pieces of this length. */
static bool read_body(struct notes *notes, const char *body, size_t piece, struct td_error *err)
{
    static struct td_hub_commit_reader reader;
    size_t len = strlen(body);
    bool ok = true;
    td_error_init(err);
    td_buffer_clear(&notes->text);
    notes->content_bytes = 0;
    td_hub_commit_reader_init(&reader, &visitor, notes);
    for (size_t at = 0; ok && at < len; at += piece)
        ok = td_hub_commit_reader_add(&reader, body + at, len - at < piece ? len - at : piece, err);
    ok = ok && td_hub_commit_reader_end(&reader, err);
    td_hub_commit_reader_fini(&reader);
    return ok;
}

/* Checks what a body says, however it is cut. */
static void expect(const char *body, const char *said)
{
    struct notes notes = {.fails = false};
    struct td_error err;
    td_buffer_init(&notes.text);
    for (size_t piece = 1; piece <= strlen(body) + 1; piece++) {
        CHECK(read_body(&notes, body, piece, &err), "%s: %s", body, err.message);
        assert_string_equal(td_buffer_terminate(&notes.text), said);
    }
    td_buffer_fini(&notes.text);
}

/* Checks that a body, which may follow a header, is refused with these words. */
static void refuse(const char *body, const char *words)
{
    struct notes notes = {.fails = false};
    struct td_error err;
    td_buffer_init(&notes.text);
    for (size_t piece = 1; piece <= strlen(body) + 1; piece++) {
        CHECK(!read_body(&notes, body, piece, &err), "%s was taken", body);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        CHECK(strstr(err.message, words) != NULL, "%s: %s", body, err.message);
    }
    td_buffer_fini(&notes.text);
}

#define OID "\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\""

static void test_operations(void **state)
{
    (void)state;
    expect(HEADER, "<header s||any>");
    expect("\n \r\n{\"key\":\"header\",\"value\":{\"parentCommit\":\"ab\",\"summary\":\"\\u00e9\",\"x\":[{}]}}",
           "<header \xc3\xa9||ab>");
    expect("{\"key\":\"header\",\"value\":{\"parentCommit\":null}}", "<header ||any>");
    expect(HEADER "{\"key\": \"file\", \"value\": {\"content\": \"aGVsbG8=\", \"path\": \"a/b\", \"encoding\": "
                  "\"base64\"}}\n",
           "<header s||any>hello<file a/b>");
    expect(HEADER "{\"value\": {\"encoding\":\"base64\",\"path\":\"p\\n\" , \"content\" :\t\"\"}, \"key\": \"file\"}",
           "<header s||any><file p\n>");
    expect(HEADER "{\"key\":\"file\",\"value\":{\"content\":\"Pz8\\/\",\"path\":\"p\",\"encoding\":\"base64\"}}",
           "<header s||any>\?\?\?<file p>");
    expect(HEADER "{\"key\":\"lfsFile\",\"value\":{\"path\":\"m\",\"algo\":\"sha256\",\"oid\":" OID ",\"size\":7}}\n"
                  "{\"key\":\"lfsFile\",\"value\":{\"path\":\"n\",\"oid\":" OID "}}\n"
                  "{\"key\":\"deletedFile\",\"value\":{\"path\":\"o\"}}\n"
                  "{\"key\":\"deletedFolder\",\"value\":{\"path\":\"d/\"}}\n",
           "<header s||any><lfs m 0011 7><lfs n 0011><deleted o><folder d/>");
}

/* "content" is the content of a file in its place alone. */
static void test_content_elsewhere(void **state)
{
    (void)state;
    expect("{\"content\":\"?\",\"key\":\"header\",\"value\":{\"summary\":\"content\",\"x\":{\"content\":\"?\"}}}",
           "<header content||any>");
    expect("{\"x\":{\"content\":\"?\"},\"key\":\"header\",\"value\":{}}", "<header ||any>");
    expect("{\"key\":\"header\",\"value\":{\"a\":[\"content\",\"x\"],\"content\":1}}", "<header ||any>");
    refuse(HEADER "{\"key\":\"deletedFile\",\"value\":{\"path\":\"p\",\"content\":\"aGVsbG8=\"}}",
           "line 2 of the commit: \"content\" is for files");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"path\":\"p\",\"encoding\":\"base64\",\"content\":\"\","
                  "\"content\":\"\"}}",
           "a second \"content\"");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"path\":\"p\",\"encoding\":\"base64\",\"con\\u0074ent\":\"\"}}",
           "is not a plain string");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"path\":\"p\",\"encoding\":\"base64\",\"content\":[\"\"]}}",
           "is not a plain string");
}

static void test_faults(void **state)
{
    (void)state;
    refuse("", "no header");
    refuse("\n\n", "no header");
    refuse("[]", "line 1");
    refuse(HEADER HEADER, "a second header");
    refuse("{\"key\":\"deletedFile\",\"value\":{\"path\":\"p\"}}", "the header comes first");
    refuse("{\"key\":\"head\",\"value\":{}}", "\"key\" is \"header\", \"file\"");
    refuse("{\"key\":1,\"value\":{}}", "\"key\" is a string");
    refuse("{\"key\":\"header\"}", "\"value\" is an object");
    refuse("{\"key\":\"header\",\"value\":{\"summary\":1}}", "\"summary\" is a string");
    refuse("{\"key\":\"header\",\"value\":{\"summary\":\"a\\u0000\"}}", "line 1");
    refuse("{\"key\":\"header\",\"value\":{}} x", "line 1");
    refuse("{\"key\":\"header\",\"value\":{}", "line 1");
    refuse("{\"key\":\"head\ner\",\"value\":{}}", "line 1");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"path\":\"p\",\"content\":\"\"}}", "\"encoding\" is missing");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"path\":\"p\",\"encoding\":\"utf-8\",\"content\":\"\"}}",
           "\"encoding\" is \"base64\"");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"encoding\":\"base64\",\"content\":\"\"}}", "\"path\" is missing");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"content\":\"a\"}}", "\"content\" is not base64");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"content\":\"aGVs\nbG8=\"}}", "\"content\" is not base64");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"content\":\"aGVsbG8\\u003d\"}}", "\"content\" is not base64");
    refuse(HEADER "{\"key\":\"file\",\"value\":{\"content\":\"aGVs", "ends in the \"content\"");
    refuse(HEADER "{\"key\":\"lfsFile\",\"value\":{\"path\":\"m\",\"oid\":\"00\"}}", "64 lower-case");
    refuse(HEADER "{\"key\":\"lfsFile\",\"value\":{\"path\":\"m\",\"algo\":\"md5\",\"oid\":" OID "}}", "\"algo\"");
    refuse(HEADER "{\"key\":\"lfsFile\",\"value\":{\"path\":\"m\",\"oid\":" OID ",\"size\":-1}}", "line 2");
}

/* A content takes no memory of its own; what else is in a line is bounded. */
static void test_long_lines(void **state)
{
    enum { CONTENT = 3 * 1024 * 1024 };
    struct notes notes = {.fails = false};
    struct td_error err;
    struct td_buffer body;
    char *bytes = calloc(1, CONTENT);
    char *text = malloc(TD_BASE64_LEN(CONTENT) + 1);
    (void)state;
    assert_true(bytes != NULL && text != NULL);
    td_base64_write(bytes, CONTENT, text);
    td_buffer_init(&notes.text);
    td_buffer_init(&body);
    td_buffer_puts(&body, HEADER "{\"key\":\"file\",\"value\":{\"content\":\"");
    td_buffer_puts(&body, text);
    td_buffer_puts(&body, "\",\"path\":\"p\",\"encoding\":\"base64\"}}\n");
    assert_true(read_body(&notes, td_buffer_terminate(&body), 4001, &err));
    assert_int_equal(notes.content_bytes, CONTENT);
    notes.fails = true;
    assert_false(read_body(&notes, td_buffer_terminate(&body), 4001, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    text[4096 + 2] = '='; /* padding at the end of a group, before the end of the content */
    text[4096 - 1] = text[4096 - 2] = '=';
    notes.fails = false;
    td_buffer_clear(&body);
    td_buffer_puts(&body, HEADER "{\"key\":\"file\",\"value\":{\"content\":\"");
    td_buffer_append(&body, text, 8192);
    td_buffer_puts(&body, "\",\"path\":\"p\",\"encoding\":\"base64\"}}\n");
    assert_false(read_body(&notes, td_buffer_terminate(&body), 4001, &err));
    td_buffer_clear(&body);
    td_buffer_puts(&body, "{\"key\":\"header\",\"value\":{\"summary\":\"");
    memset(bytes, 'x', TD_HUB_LINE_BYTES);
    td_buffer_append(&body, bytes, TD_HUB_LINE_BYTES);
    td_buffer_puts(&body, "\"}}");
    assert_false(read_body(&notes, td_buffer_terminate(&body), 4001, &err));
    assert_non_null(strstr(err.message, "line 1 of the commit: too long"));
    td_buffer_fini(&body);
    td_buffer_fini(&notes.text);
    free(bytes);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_content_elsewhere),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_long_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
