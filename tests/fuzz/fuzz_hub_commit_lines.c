/* The input is the body of a commit. It reads the same in one piece and byte by byte; and each line of one that is
 * accepted is read again, whole, by the reader of JSON documents, with the content in its place. */
#include "api/hub/hub_commit_lines.h"

#include "core/base64.h"
#include "core/json/json_document.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

/* Notes on the calls: contents and operations, one after the other. */
struct notes {
    struct td_buffer text;
    struct td_buffer content; /* of the current line */
};

static bool note_content(void *context, const void *bytes, size_t len, struct td_error *err)
{
    struct notes *notes = context;
    (void)err;
    FUZZ_CHECK(len > 0 && len <= TD_HUB_GROUP_BYTES);
    td_buffer_append(&notes->content, bytes, len);
    return true;
}

static bool note_operation(void *context, const struct td_hub_operation *operation, struct td_error *err)
{
    struct notes *notes = context;
    (void)err;
    const char *path = operation->line == TD_HUB_LINE_HEADER ? operation->summary : operation->path;
    FUZZ_CHECK(path != NULL);
    td_buffer_u64(&notes->text, operation->line);
    td_buffer_append(&notes->text, path, strlen(path) + 1);
    td_buffer_u64(&notes->text, notes->content.len);
    td_buffer_append(&notes->text, notes->content.data, notes->content.len);
    FUZZ_CHECK(notes->content.len == 0 || operation->line == TD_HUB_LINE_FILE);
    td_buffer_clear(&notes->content);
    return true;
}

static const struct td_hub_line_visitor visitor = {note_content, note_operation};

static bool read_body(struct notes *notes, const uint8_t *data, size_t size, size_t piece, struct td_error *err)
{
    static struct td_hub_commit_reader reader;
    bool ok = true;
    td_hub_commit_reader_init(&reader, &visitor, notes);
    for (size_t at = 0; ok && at < size; at += piece)
        ok = td_hub_commit_reader_add(&reader, data + at, size - at < piece ? size - at : piece, err);
    ok = ok && td_hub_commit_reader_end(&reader, err);
    td_hub_commit_reader_fini(&reader);
    return ok;
}

static const char *string_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

/* Writes what a line says, read whole. */
static void read_again(struct notes *notes, struct td_text line)
{
    static const char *const keys[] = {"header", "file", "lfsFile", "deletedFile", "deletedFolder"};
    struct td_json_document document;
    struct td_arena arena;
    size_t kind = 0;
    td_arena_init(&arena, 0);
    td_json_document_read(&document, line, &arena, NULL);
    FUZZ_CHECK(td_json_document_end(&document));
    const char *key = string_of(document.root, "key");
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(document.root, "value");
    while (kind < 5 && strcmp(keys[kind], key) != 0)
        kind++;
    FUZZ_CHECK(kind < 5);
    const char *path = string_of(value, kind == 0 ? "summary" : "path");
    td_buffer_u64(&notes->text, kind);
    td_buffer_append(&notes->text, path, strlen(path) + 1);
    const char *content = kind == 1 ? string_of(value, "content") : "";
    size_t len = 0;
    char *bytes = td_arena_alloc(&arena, strlen(content) + 1);
    FUZZ_CHECK(bytes != NULL && td_base64_read(td_text_of(content), bytes, &len));
    td_buffer_u64(&notes->text, len);
    td_buffer_append(&notes->text, bytes, len);
    td_arena_fini(&arena);
}

static void check_same(const struct notes *a, const struct notes *b)
{
    FUZZ_CHECK(a->text.len == b->text.len && !a->text.failed && !b->text.failed);
    FUZZ_CHECK(a->text.len == 0 || memcmp(a->text.data, b->text.data, a->text.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct notes notes[3];
    struct td_error err[2] = {TD_ERROR_INIT, TD_ERROR_INIT};
    for (size_t i = 0; i < 3; i++) {
        td_buffer_init(&notes[i].text);
        td_buffer_init(&notes[i].content);
    }
    bool ok = read_body(&notes[0], data, size, size + 1, &err[0]);
    FUZZ_CHECK(ok == read_body(&notes[1], data, size, 1, &err[1]));
    FUZZ_CHECK(ok == (err[0].code == TD_OK) && strcmp(err[0].message, err[1].message) == 0);
    check_same(&notes[0], &notes[1]);
    if (!ok)
        fuzz_check_message(&err[0]);
    struct td_text rest = td_text_n((const char *)data, size);
    while (ok && rest.len > 0) {
        struct td_text line = td_text_take_until(&rest, '\n');
        if (td_text_trim(line, " \t\r").len > 0)
            read_again(&notes[2], line);
    }
    if (ok)
        check_same(&notes[0], &notes[2]);
    for (size_t i = 0; i < 3; i++) {
        td_buffer_fini(&notes[i].text);
        td_buffer_fini(&notes[i].content);
    }
    return 0;
}
