#include "api/native/commit_text.h"

#include "core/array.h"
#include "core/digits.h"
#include "core/json/json.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    struct td_json json;
    struct td_commit_text *out;
    struct td_error *err;
};

/* ---- values -------------------------------------------------------------------------------------------- */

/* Reads a string into the arena. `what` names it: "\"path\", a string". */
static bool read_string(struct reader *r, const char *what, const char **out)
{
    size_t len;
    if (!td_json_expect(&r->json, TD_JSON_STRING, what))
        return false;
    size_t capacity = td_json_raw(&r->json).len + 1;
    char *text = td_arena_strndup(&r->out->arena, td_json_raw(&r->json)); /* of the right size */
    if (text == NULL)
        return td_arena_refuse(&r->out->arena, "the commit", r->err);
    *out = text;
    return td_json_string(&r->json, text, capacity, &len);
}

static bool read_bool(struct reader *r, const char *what, bool *out)
{
    enum td_json_token token = td_json_next(&r->json);
    *out = token == TD_JSON_TRUE;
    return token == TD_JSON_TRUE || token == TD_JSON_FALSE || token == TD_JSON_ERROR ||
           td_json_fail(&r->json, "%s must be true or false", what);
}

static bool read_digest(struct reader *r, uint8_t sha256[TD_SHA256_BYTES])
{
    const struct td_text begin = TD_TEXT("sha256:");
    if (!td_json_expect(&r->json, TD_JSON_STRING, "\"digest\", a string"))
        return false;
    struct td_text text = td_json_raw(&r->json);
    return (td_text_begins(text, begin) && td_hex_read_bytes(td_text_skip(text, begin.len), sha256, TD_SHA256_BYTES)) ||
           td_json_fail(&r->json, "\"digest\" must be sha256: and 64 lower-case hexadecimal digits");
}

/* Returns the number of the latest key in the list (NULL-terminated), after it noted it in *seen. Returns -1 after a
 * fault: for an unknown key and for one that was there before. */
static int find_key(struct reader *r, const char *const *keys, const char *known, unsigned *seen)
{
    for (int i = 0; keys[i] != NULL; i++) {
        if (!td_json_equals(&r->json, keys[i]))
            continue;
        if ((*seen >> i & 1) != 0) {
            (void)td_json_fail(&r->json, "\"%s\" is given twice", keys[i]);
            return -1;
        }
        *seen |= 1u << i;
        return i;
    }
    struct td_text key = td_json_raw(&r->json);
    (void)td_json_fail(&r->json, "unknown member \"%.*s\"; known are %s", TD_SHOW(key, 64), known);
    return -1;
}

/* ---- lists --------------------------------------------------------------------------------------------- */

static bool refuse_many(struct reader *r, const char *what)
{
    r->out->is_too_large = true;
    return td_error_set(r->err, TD_FAILED_PRECONDITION, "the commit has more than %d %s", TD_COMMIT_MAX_FILES, what);
}

/* Reads the members of a file, whose '{' was read. */
static bool read_file(struct reader *r, struct td_commit_file *file)
{
    static const char *const keys[] = {"path", "digest", "size", NULL};
    unsigned seen = 0;
    enum td_json_token token;
    *file = (struct td_commit_file){.has_size = true};
    while ((token = td_json_next(&r->json)) == TD_JSON_KEY) {
        int key = find_key(r, keys, "\"path\", \"digest\" and \"size\"", &seen);
        bool ok = key == 0   ? read_string(r, "\"path\", a string", &file->path)
                  : key == 1 ? read_digest(r, file->sha256)
                  : key == 2 ? td_json_expect(&r->json, TD_JSON_NUMBER, "\"size\", a number") &&
                                   td_json_u64(&r->json, &file->size_bytes)
                             : false;
        if (!ok)
            return false;
    }
    for (int i = 0; token == TD_JSON_OBJECT_END && keys[i] != NULL; i++)
        if ((seen >> i & 1) == 0)
            return td_json_fail(&r->json, "\"%s\" of a file is missing", keys[i]);
    return token == TD_JSON_OBJECT_END;
}

static bool read_files(struct reader *r)
{
    struct td_commit_text *out = r->out;
    enum td_json_token token;
    if (!td_json_expect(&r->json, TD_JSON_ARRAY_BEGIN, "\"files\", a list"))
        return false;
    while ((token = td_json_next(&r->json)) == TD_JSON_OBJECT_BEGIN) {
        if (out->order.file_count >= TD_COMMIT_MAX_FILES)
            return refuse_many(r, "files");
        if (!TD_ARRAY_GROW(out->files, out->order.file_count, out->file_capacity, r->err) ||
            !read_file(r, &out->files[out->order.file_count++]))
            return false;
    }
    return token == TD_JSON_ARRAY_END || token == TD_JSON_ERROR ||
           td_json_fail(&r->json, "a file must be an object with \"path\", \"digest\" and \"size\"");
}

static bool read_deletions(struct reader *r)
{
    struct td_commit_text *out = r->out;
    if (!td_json_expect(&r->json, TD_JSON_ARRAY_BEGIN, "\"delete\", a list"))
        return false;
    for (;;) {
        struct td_json ahead = r->json;
        ahead.err = NULL;
        if (td_json_next(&ahead) == TD_JSON_ARRAY_END) {
            (void)td_json_next(&r->json);
            return true;
        }
        if (out->order.deletion_count >= TD_COMMIT_MAX_FILES)
            return refuse_many(r, "paths to delete");
        if (!TD_ARRAY_GROW(out->deletions, out->order.deletion_count, out->deletion_capacity, r->err) ||
            !read_string(r, "a path to delete, a string", &out->deletions[out->order.deletion_count]))
            return false;
        out->order.deletion_count++;
    }
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static bool read_member(struct reader *r, int key)
{
    struct td_commit_order *order = &r->out->order;
    switch (key) {
    case 0:
        return read_files(r);
    case 1:
        return read_bool(r, "\"keep\"", &order->keep);
    case 2:
        return read_deletions(r);
    case 3:
        return read_string(r, "\"revision\", a string", &order->revision);
    case 4:
        return read_string(r, "\"from\", a string", &order->from);
    case 5:
        return read_string(r, "\"parent\", a string", &order->parent);
    case 6:
        return read_string(r, "\"message\", a string", &order->message);
    case 7:
        return read_bool(r, "\"dry_run\"", &order->is_dry_run);
    default:
        return false;
    }
}

bool td_commit_text_read(struct td_text text, struct td_commit_text *out, struct td_error *err)
{
    static const char *const keys[] = {"files",  "keep",    "delete",  "revision", "from",
                                       "parent", "message", "dry_run", NULL};
    struct reader r = {.out = out, .err = err};
    unsigned seen = 0;
    enum td_json_token token;
    *out = (struct td_commit_text){.order = {.revision = "main", .message = ""}};
    td_arena_init(&out->arena, 0);
    td_json_init(&r.json, text, 0, err);
    if (!td_json_expect(&r.json, TD_JSON_OBJECT_BEGIN, "a commit, an object,"))
        return false;
    while ((token = td_json_next(&r.json)) == TD_JSON_KEY)
        if (!read_member(&r, find_key(&r, keys,
                                      "\"files\", \"keep\", \"delete\", \"revision\", \"from\", \"parent\", "
                                      "\"message\" and \"dry_run\"",
                                      &seen)))
            return false;
    if (token != TD_JSON_OBJECT_END)
        return false;
    if ((seen & 1) == 0 && !out->order.keep)
        return td_json_fail(&r.json, "\"files\" is missing; without \"keep\" the revision then has exactly these");
    out->order.files = out->files;
    out->order.deletions = out->deletions;
    return td_json_expect(&r.json, TD_JSON_END, "nothing more");
}

void td_commit_text_fini(struct td_commit_text *text)
{
    td_arena_fini(&text->arena);
    free(text->files);
    free(text->deletions);
}
