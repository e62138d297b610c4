/* Compares the pull reader with a recursive reader written from RFC 8259, and checks that strings, numbers and minify
 * agree with themselves. */
#include "core/json/json_canonical.h"
#include "tests/fuzz/fuzz_error.h"
#include "tests/kit/json_tree.h"

#include <string.h>

/* The recursive reader: each function takes one symbol of the grammar off the beginning of a text, or fails. */
struct text {
    const char *p;
    const char *end;
};

static void spaces(struct text *t)
{
    while (t->p < t->end && strchr(" \t\r\n", *t->p) != NULL && *t->p != '\0')
        t->p++;
}

static bool byte(struct text *t, char c)
{
    if (t->p == t->end || *t->p != c)
        return false;
    t->p++;
    return true;
}

static bool digits(struct text *t)
{
    const char *from = t->p;
    while (t->p < t->end && *t->p >= '0' && *t->p <= '9')
        t->p++;
    return t->p > from;
}

static bool number(struct text *t)
{
    (void)byte(t, '-');
    if (!byte(t, '0') && !digits(t))
        return false;
    if (byte(t, '.') && !digits(t))
        return false;
    if (byte(t, 'e') || byte(t, 'E')) {
        if (!byte(t, '+'))
            (void)byte(t, '-');
        return digits(t);
    }
    return true;
}

static bool quad(struct text *t, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, t->p++) {
        const char *hex = "0123456789abcdef0123456789ABCDEF";
        const char *digit = t->p < t->end && *t->p != '\0' ? strchr(hex, *t->p) : NULL;
        if (digit == NULL)
            return false;
        *out = *out * 16 + (unsigned)(digit - hex) % 16;
    }
    return true;
}

static bool string(struct text *t)
{
    const char *from = t->p;
    if (!byte(t, '"'))
        return false;
    while (!byte(t, '"')) {
        unsigned first, second;
        if (t->p == t->end || (uint8_t)*t->p < 0x20)
            return false;
        if (!byte(t, '\\')) {
            t->p++;
        } else if (byte(t, 'u')) {
            if (!quad(t, &first))
                return false;
            bool high = first >= 0xD800 && first < 0xDC00;
            if (high && (!byte(t, '\\') || !byte(t, 'u') || !quad(t, &second) || second < 0xDC00 || second > 0xDFFF))
                return false;
            if (first >= 0xDC00 && first <= 0xDFFF)
                return false;
        } else if (t->p == t->end || *t->p == '\0' || strchr("\"\\/bfnrt", *t->p++) == NULL) {
            return false;
        }
    }
    return td_utf8_valid(from, (size_t)(t->p - from));
}

static bool word(struct text *t, const char *word)
{
    while (*word != '\0')
        if (!byte(t, *word++))
            return false;
    return true;
}

static bool value(struct text *t, int depth);

/* Takes members or elements up to the closing bracket. */
static bool container(struct text *t, bool object, int depth)
{
    char close = object ? '}' : ']';
    spaces(t);
    if (depth > TD_JSON_MAX_DEPTH)
        return false;
    if (byte(t, close))
        return true;
    do {
        spaces(t);
        if (object) {
            if (!string(t))
                return false;
            spaces(t);
            if (!byte(t, ':'))
                return false;
        }
        if (!value(t, depth))
            return false;
        spaces(t);
    } while (byte(t, ','));
    return byte(t, close);
}

static bool value(struct text *t, int depth)
{
    spaces(t);
    if (t->p == t->end)
        return false;
    switch (*t->p) {
    case '{':
    case '[':
        return container(t, *t->p++ == '{', depth + 1);
    case '"':
        return string(t);
    case 't':
        return word(t, "true");
    case 'f':
        return word(t, "false");
    case 'n':
        return word(t, "null");
    default:
        return number(t);
    }
}

static bool is_json(const char *data, size_t size)
{
    struct text t = {.p = data, .end = data + size};
    if (!value(&t, 0))
        return false;
    spaces(&t);
    return t.p == t.end;
}

/* Checks that a string that is decoded and written again is the same string. */
static void check_string(struct td_json json)
{
    char *out = malloc(json.value_len + 1);
    size_t len;
    struct td_error err = TD_ERROR_INIT;
    FUZZ_CHECK(out != NULL);
    json.err = &err;
    if (!td_json_string(&json, out, json.value_len + 1, &len)) {
        FUZZ_CHECK(json.escaped && strstr(err.message, "NUL") != NULL);
        free(out);
        return;
    }
    FUZZ_CHECK(len <= json.value_len && strlen(out) == len && td_utf8_valid(out, len));
    FUZZ_CHECK(td_json_equals_n(&json, td_text_n(out, len)) && td_json_equals(&json, out));
    FUZZ_CHECK(json.escaped || len == json.value_len);
    struct td_buffer written;
    td_buffer_init(&written);
    td_json_write_string(&written, td_text_n(out, len));
    FUZZ_CHECK(!written.failed && is_json(written.data, written.len));
    struct td_json again;
    td_json_init(&again, td_buffer_text(&written), 0, &err);
    FUZZ_CHECK(td_json_next(&again) == TD_JSON_STRING && td_json_equals_n(&again, td_text_n(out, len)));
    td_buffer_fini(&written);
    free(out);
}

static void check_number(struct td_json json)
{
    const char *p = json.text.p + json.value;
    unsigned __int128 wanted = 0;
    bool whole = true;
    for (size_t i = 0; i < json.value_len; i++) {
        whole = whole && p[i] >= '0' && p[i] <= '9';
        if (whole && wanted <= UINT64_MAX)
            wanted = wanted * 10 + (unsigned)(p[i] - '0');
    }
    uint64_t value64 = 0;
    json.err = NULL;
    FUZZ_CHECK(td_json_u64(&json, &value64) == (whole && wanted <= UINT64_MAX));
    FUZZ_CHECK(!whole || wanted > UINT64_MAX || value64 == (uint64_t)wanted);
}

static bool walk(const char *data, size_t size, struct td_error *err)
{
    struct td_json json;
    td_json_init(&json, td_text_n(data, size), 0, err);
    for (;;) {
        size_t before = json.pos;
        enum td_json_token token = td_json_next(&json);
        FUZZ_CHECK(json.start <= size && json.pos <= size && json.depth <= TD_JSON_MAX_DEPTH);
        if (token == TD_JSON_ERROR || token == TD_JSON_END)
            return token == TD_JSON_END;
        FUZZ_CHECK(json.pos > before && json.start >= before && json.start < json.pos);
        if (token == TD_JSON_KEY || token == TD_JSON_STRING)
            check_string(json);
        if (token == TD_JSON_NUMBER)
            check_number(json);
    }
}

static void check_minify(const char *data, size_t size, bool good)
{
    struct td_buffer once, twice;
    td_buffer_init(&once);
    td_buffer_init(&twice);
    FUZZ_CHECK(td_json_minify(td_text_n(data, size), &once, NULL) == good);
    if (good) {
        FUZZ_CHECK(once.len <= size && is_json(once.data, once.len));
        FUZZ_CHECK(td_json_minify(td_buffer_text(&once), &twice, NULL));
        FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    }
    td_buffer_fini(&once);
    td_buffer_fini(&twice);
}

/* Checks that the canonical form is JSON, has the same tokens in another order, and is its own canonical form. A text
 * with an escaped NUL has no canonical form. */
static void check_canonical(const char *data, size_t size, bool good)
{
    struct td_buffer once, twice;
    td_buffer_init(&once);
    td_buffer_init(&twice);
    bool ok = td_json_canonical(td_text_n(data, size), &once, NULL);
    FUZZ_CHECK(good || !ok);
    if (ok) {
        FUZZ_CHECK(is_json(once.data, once.len));
        FUZZ_CHECK(td_json_canonical(td_buffer_text(&once), &twice, NULL));
        FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    }
    td_buffer_fini(&once);
    td_buffer_fini(&twice);
}

/* Whether cJSON's parser may read the value otherwise: it cuts strings at a NUL and numbers after 63 bytes. */
static bool cjson_may_differ(const cJSON *item)
{
    const cJSON *child;
    if (cJSON_IsInvalid(item) || (cJSON_IsRaw(item) && strlen(item->valuestring) > 60) ||
        (item->string != NULL && strstr(item->string, "\\u0000") != NULL))
        return true;
    cJSON_ArrayForEach(child, item) if (cjson_may_differ(child)) return true;
    return false;
}

/* The same value, as the document and as cJSON's parser give it. */
static void check_same(const cJSON *ours, const cJSON *theirs)
{
    FUZZ_CHECK(ours != NULL && theirs != NULL);
    FUZZ_CHECK((ours->string == NULL) == (theirs->string == NULL));
    FUZZ_CHECK(ours->string == NULL || strcmp(ours->string, theirs->string) == 0);
    if (cJSON_IsRaw(ours)) {
        FUZZ_CHECK(cJSON_IsNumber(theirs) && strtod(ours->valuestring, NULL) == theirs->valuedouble);
        return;
    }
    FUZZ_CHECK(ours->type == theirs->type);
    FUZZ_CHECK(!cJSON_IsString(ours) || strcmp(ours->valuestring, theirs->valuestring) == 0);
    const cJSON *a = ours->child;
    const cJSON *b = theirs->child;
    for (; a != NULL; a = a->next, b = b->next)
        check_same(a, b);
    FUZZ_CHECK(b == NULL);
}

/* Faults at any place are reported in the order of the text, and nothing is read past the arena's limit. */
static void check_document(const char *data, size_t size, const struct td_error *wanted)
{
    struct td_arena arena;
    struct td_json_document document;
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&arena, 0);
    td_json_document_read(&document, td_text_n(data, size), &arena, &err);
    FUZZ_CHECK(json_tree_matches(&document));
    FUZZ_CHECK(td_json_document_end(&document) == (wanted->code == TD_OK));
    FUZZ_CHECK(err.pos == wanted->pos && strcmp(err.message, wanted->message) == 0);
    if (document.root != NULL) {
        struct td_error mine = TD_ERROR_INIT;
        document.err = &mine;
        FUZZ_CHECK(!td_json_document_fail_end(&document, document.root, "mine"));
        FUZZ_CHECK(mine.pos < size || wanted->code != TD_OK);
        FUZZ_CHECK((strcmp(mine.message, "mine") == 0) == (mine.pos < wanted->pos));
    }
    if (wanted->code == TD_OK && !cjson_may_differ(document.root)) {
        cJSON *theirs = cJSON_ParseWithLength(data, size);
        check_same(document.root, theirs);
        cJSON_Delete(theirs);
    }
    size_t half = arena.used_bytes / 2;
    td_arena_fini(&arena);
    if (half == 0)
        return;
    struct td_error refused = TD_ERROR_INIT;
    td_arena_init(&arena, half);
    td_json_document_read(&document, td_text_n(data, size), &arena, &refused);
    FUZZ_CHECK(!td_json_document_end(&document) && arena.used_bytes <= half);
    FUZZ_CHECK(refused.code == TD_FAILED_PRECONDITION);
    td_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct td_error err = TD_ERROR_INIT;
    bool good = walk(text, size, &err);
    FUZZ_CHECK(good == is_json(text, size));
    FUZZ_CHECK(good == (err.code == TD_OK));
    if (!good)
        fuzz_check_refusal(&err, size);
    check_minify(text, size, good);
    check_canonical(text, size, good);
    check_document(text, size, &err);
    struct td_json json;
    td_json_init(&json, td_text_n(text, size), 0, NULL);
    FUZZ_CHECK((td_json_skip(&json) && td_json_next(&json) == TD_JSON_END) == good);
    return 0;
}
