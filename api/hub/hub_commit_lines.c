#include "api/hub/hub_commit_lines.h"

#include "core/array.h"
#include "core/base64.h"
#include "core/digits.h"
#include "core/json/json_document.h"

#include <string.h>

/* Most bytes of a line's tree. */
enum { TREE_BYTES = 1024 * 1024 };

enum state {
    OUTSIDE, /* of strings */
    IN_STRING,
    IN_STRING_ESCAPE,
    IN_CONTENT,
    IN_CONTENT_ESCAPE,
};

/* Reports a fault of the current line. Returns false. */
static bool fail(const struct td_hub_commit_reader *reader, struct td_error *err, const char *message)
{
    return td_error_set(err, TD_INVALID_ARGUMENT, "line %zu of the commit: %s", reader->line_number, message);
}

static void begin_line(struct td_hub_commit_reader *reader)
{
    td_buffer_clear(&reader->kept);
    reader->line_number++;
    reader->string_at = reader->string_end = 0;
    reader->depth = 0;
    reader->state = OUTSIDE;
    reader->is_after_colon = reader->in_value = reader->is_content = reader->has_content = false;
    reader->is_padded = false;
    reader->group_len = 0;
}

void td_hub_commit_reader_init(struct td_hub_commit_reader *reader, const struct td_hub_line_visitor *visitor,
                               void *context)
{
    reader->visitor = visitor;
    reader->context = context;
    reader->line_number = 0;
    reader->has_header = reader->has_failed = false;
    td_buffer_init(&reader->kept);
    begin_line(reader);
}

void td_hub_commit_reader_fini(struct td_hub_commit_reader *reader)
{
    td_buffer_fini(&reader->kept);
}

/* ---- one line ------------------------------------------------------------------------------------------ */

/* A line that has ended, while it is read. */
struct line {
    struct td_hub_commit_reader *reader;
    struct td_json_document document;
    const cJSON *value; /* the object of this name */
    struct td_hub_operation operation;
};

/* Sets *out to the text of a member of the line's value. Leaves it as it is when there is no such member, or one that
 * is null. Returns false with an error for a member of another type. */
static bool take_string(struct line *line, const char *name, const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line->value, name);
    if (item == NULL || cJSON_IsNull(item))
        return true;
    if (!td_json_item_is_string(item))
        return td_json_document_fail(&line->document, item, "\"%s\" is a string", name);
    *out = td_json_document_string(&line->document, item);
    return *out != NULL;
}

/* Does the same for a member that must be there. */
static bool need_string(struct line *line, const char *name, const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line->value, name);
    if (item == NULL || cJSON_IsNull(item))
        return td_json_document_fail_end(&line->document, line->value, "\"%s\" is missing", name);
    return take_string(line, name, out);
}

static bool read_header(struct line *line)
{
    struct td_hub_operation *operation = &line->operation;
    operation->summary = operation->description = "";
    if (line->reader->has_header)
        return td_json_document_fail(&line->document, line->value, "a second header");
    line->reader->has_header = true;
    return take_string(line, "summary", &operation->summary) &&
           take_string(line, "description", &operation->description) &&
           take_string(line, "parentCommit", &operation->parent);
}

static bool read_path(struct line *line)
{
    return need_string(line, "path", &line->operation.path);
}

/* Reads a file, whose content the filter has passed on. */
static bool read_file(struct line *line)
{
    const char *encoding = "";
    if (!read_path(line) || !need_string(line, "encoding", &encoding))
        return false;
    if (strcmp(encoding, "base64") != 0)
        return td_json_document_fail(&line->document, line->value, "\"encoding\" is \"base64\"");
    return line->reader->has_content ||
           td_json_document_fail_end(&line->document, line->value, "\"content\" is missing, or is not a plain string");
}

static bool read_lfs_file(struct line *line)
{
    struct td_hub_operation *operation = &line->operation;
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(line->value, "size");
    const char *algorithm = "sha256";
    const char *oid = "";
    if (!read_path(line) || !take_string(line, "algo", &algorithm) || !need_string(line, "oid", &oid))
        return false;
    if (strcmp(algorithm, "sha256") != 0)
        return td_json_document_fail(&line->document, line->value, "\"algo\" is \"sha256\"");
    if (!td_hex_read_bytes(td_text_of(oid), operation->sha256, TD_SHA256_BYTES))
        return td_json_document_fail(&line->document, line->value, "\"oid\" is 64 lower-case hexadecimal digits");
    operation->has_size = size != NULL && !cJSON_IsNull(size);
    return !operation->has_size || td_json_document_u64(&line->document, size, &operation->size_bytes);
}

static const struct kind {
    const char *key;
    enum td_hub_line line;
    bool (*read)(struct line *line);
} kinds[] = {
    {"header", TD_HUB_LINE_HEADER, read_header},
    {"file", TD_HUB_LINE_FILE, read_file},
    {"lfsFile", TD_HUB_LINE_LFS_FILE, read_lfs_file},
    {"deletedFile", TD_HUB_LINE_DELETED_FILE, read_path},
    {"deletedFolder", TD_HUB_LINE_DELETED_FOLDER, read_path},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* Returns the line's kind. Reports a fault and returns NULL for another key. */
static const struct kind *find_kind(struct line *line, const cJSON *root)
{
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(root, "key");
    if (key == NULL || !td_json_item_is_string(key)) {
        (void)td_json_document_fail(&line->document, root, "\"key\" is a string");
        return NULL;
    }
    for (size_t i = 0; i < KINDS; i++)
        if (cJSON_IsString(key) && strcmp(key->valuestring, kinds[i].key) == 0)
            return &kinds[i];
    (void)td_json_document_fail(&line->document, key,
                                "\"key\" is \"header\", \"file\", \"lfsFile\", \"deletedFile\" or \"deletedFolder\"");
    return NULL;
}

/* Reads the line's text into line->operation. */
static bool read_line(struct line *line)
{
    const cJSON *root = td_json_document_object(&line->document, "an object with \"key\" and \"value\"");
    const struct kind *kind = root == NULL ? NULL : find_kind(line, root);
    if (kind == NULL)
        return false;
    line->value = cJSON_GetObjectItemCaseSensitive(root, "value");
    if (!cJSON_IsObject(line->value))
        return td_json_document_fail(&line->document, line->value == NULL ? root : line->value,
                                     "\"value\" is an object");
    line->operation.line = kind->line;
    if (kind->line != TD_HUB_LINE_FILE && line->reader->has_content)
        return td_json_document_fail(&line->document, line->value, "\"content\" is for files");
    if (kind->line != TD_HUB_LINE_HEADER && !line->reader->has_header)
        return td_json_document_fail(&line->document, root, "the header comes first");
    return kind->read(line) && td_json_document_end(&line->document);
}

static bool is_blank(const struct td_buffer *text)
{
    return td_text_trim(td_buffer_text(text), " \t\r").len == 0;
}

/* Takes the line that has ended, and begins the next one. */
static bool end_line(struct td_hub_commit_reader *reader, struct td_error *err)
{
    struct td_arena arena;
    struct td_error fault = TD_ERROR_INIT;
    struct line line = {.reader = reader};
    if (is_blank(&reader->kept)) {
        begin_line(reader);
        return true;
    }
    td_arena_init(&arena, TREE_BYTES);
    td_json_document_read(&line.document, td_buffer_text(&reader->kept), &arena, &fault);
    bool ok = read_line(&line);
    if (!ok && fault.code == TD_RESOURCE_EXHAUSTED)
        *err = fault;
    else if (!ok)
        (void)fail(reader, err, fault.message);
    ok = ok && reader->visitor->operation(reader->context, &line.operation, err);
    td_arena_fini(&arena);
    begin_line(reader);
    return ok;
}

/* ---- content ------------------------------------------------------------------------------------------- */

/* Decodes what is in the group, and passes it on. */
static bool decode_group(struct td_hub_commit_reader *reader, struct td_error *err)
{
    uint8_t bytes[TD_HUB_GROUP_BYTES];
    size_t len = 0;
    if (reader->group_len == 0)
        return true;
    if (reader->is_padded || !td_base64_read(td_text_n(reader->group, reader->group_len), bytes, &len))
        return fail(reader, err, "\"content\" is not base64");
    reader->is_padded = len < reader->group_len / 4 * 3;
    reader->group_len = 0;
    return len == 0 || reader->visitor->content(reader->context, bytes, len, err);
}

static bool add_to_group(struct td_hub_commit_reader *reader, const char *text, size_t len, struct td_error *err)
{
    while (len > 0) {
        size_t n = td_array_fill(reader->group, sizeof reader->group, &reader->group_len, text, len);
        text += n;
        len -= n;
        if (reader->group_len == sizeof reader->group && !decode_group(reader, err))
            return false;
    }
    return true;
}

/* Takes the next bytes of a content, at least one. Sets *taken. */
static bool add_content(struct td_hub_commit_reader *reader, const char *text, size_t len, size_t *taken,
                        struct td_error *err)
{
    size_t n = 0;
    if (reader->state == IN_CONTENT_ESCAPE) { /* the only character of base64 that JSON may escape */
        *taken = 1;
        reader->state = IN_CONTENT;
        return text[0] == '/' ? add_to_group(reader, text, 1, err) : fail(reader, err, "\"content\" is not base64");
    }
    while (n < len && text[n] != '"' && text[n] != '\\')
        n++;
    *taken = n < len ? n + 1 : n;
    if (!add_to_group(reader, text, n, err))
        return false;
    if (n == len)
        return true;
    reader->state = text[n] == '"' ? OUTSIDE : IN_CONTENT_ESCAPE;
    return text[n] != '"' || decode_group(reader, err);
}

/* ---- the filter ------------------------------------------------------------------------------------------ */

static bool keep(struct td_hub_commit_reader *reader, char c, struct td_error *err)
{
    if (reader->kept.len == TD_HUB_LINE_BYTES)
        return fail(reader, err, "too long, without the content of its file");
    td_buffer_putc(&reader->kept, c);
    return !reader->kept.failed || td_buffer_refuse(&reader->kept, err);
}

/* Returns whether the latest string is this word, spelled without escapes. */
static bool is_latest(const struct td_hub_commit_reader *reader, const char *word)
{
    return td_text_equals(td_text_n(reader->kept.data + reader->string_at, reader->string_end - reader->string_at),
                          word);
}

/* Begins a string: an ordinary one, or the content of a file. */
static bool begin_string(struct td_hub_commit_reader *reader, struct td_error *err)
{
    bool is_content = reader->is_after_colon && reader->depth == 2 && reader->in_value && reader->is_content;
    reader->is_after_colon = false;
    reader->string_at = reader->string_end = reader->kept.len;
    reader->state = is_content ? IN_CONTENT : IN_STRING;
    if (!is_content)
        return true;
    if (reader->has_content)
        return fail(reader, err, "a second \"content\"");
    reader->has_content = true;
    return keep(reader, '"', err);
}

/* Takes a character that is not in a string and is kept already. */
static bool follow(struct td_hub_commit_reader *reader, char c, struct td_error *err)
{
    if (c == '"')
        return begin_string(reader, err);
    if (c == ' ' || c == '\t' || c == '\r')
        return true;
    reader->is_after_colon = c == ':';
    if (c == ':' && reader->depth == 1)
        reader->in_value = is_latest(reader, "value");
    else if (c == ':' && reader->depth == 2)
        reader->is_content = is_latest(reader, "content");
    else if (c == '{' || c == '[')
        reader->depth++;
    else if ((c == '}' || c == ']') && reader->depth > 0)
        reader->depth--;
    return true;
}

/* Takes a character that is not in a content. */
static bool add_char(struct td_hub_commit_reader *reader, char c, struct td_error *err)
{
    if (c == '\n') /* no string of JSON has one: the line reports it */
        return end_line(reader, err);
    if (!keep(reader, c, err))
        return false;
    switch (reader->state) {
    case OUTSIDE:
        return follow(reader, c, err);
    case IN_STRING_ESCAPE:
        reader->state = IN_STRING;
        return true;
    default:
        if (c == '\\')
            reader->state = IN_STRING_ESCAPE;
        if (c == '"') {
            reader->state = OUTSIDE;
            reader->string_end = reader->kept.len - 1;
        }
        return true;
    }
}

static bool is_in_content(const struct td_hub_commit_reader *reader)
{
    return reader->state == IN_CONTENT || reader->state == IN_CONTENT_ESCAPE;
}

bool td_hub_commit_reader_add(struct td_hub_commit_reader *reader, const void *bytes, size_t len, struct td_error *err)
{
    const char *text = bytes;
    bool ok = !reader->has_failed || td_error_set(err, TD_INVALID_ARGUMENT, "the commit has a fault");
    for (size_t at = 0, taken; ok && at < len; at += taken) {
        taken = 1;
        ok = is_in_content(reader) ? add_content(reader, text + at, len - at, &taken, err)
                                   : add_char(reader, text[at], err);
    }
    reader->has_failed = !ok;
    return ok;
}

bool td_hub_commit_reader_end(struct td_hub_commit_reader *reader, struct td_error *err)
{
    if (reader->has_failed)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the commit has a fault");
    if (is_in_content(reader))
        return fail(reader, err, "ends in the \"content\" of a file");
    if (!end_line(reader, err))
        return false;
    return reader->has_header || td_error_set(err, TD_INVALID_ARGUMENT, "the commit has no header");
}
