/* One pass over the tokens of the pull reader. A stack of the objects and arrays that are open says where the next item
 * goes; an item joins the tree when its first token is read, so a fault leaves all that stands before it. A key adds
 * its item before the value is read: until then the item is cJSON_Invalid.
 *
 * Positions decide which fault is reported, so an object or array that is open at a fault ends where the fault is, and
 * a key without a value has its value there. */
#include "core/json/json_document.h"

#include "core/json/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* An item of a document: a cJSON item, followed by the fields that cJSON has no room for. */
struct document_item {
    cJSON json; /* first, so that a pointer to it is a pointer to this */
    uint32_t key_at, key_len;
    uint32_t at, len; /* of the value, with its quotes or brackets */
};

struct builder {
    struct td_json json;
    struct td_arena *arena;
    struct td_json_document *document;
    struct document_item *open[TD_JSON_MAX_DEPTH]; /* the first `depth` of them */
    unsigned depth;
    struct document_item *pending; /* the member whose value comes next; NULL in arrays */
};

static const struct document_item *document_item(const cJSON *item)
{
    return (const struct document_item *)(const void *)item;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static bool lacks_memory(struct builder *b)
{
    return td_arena_refuse(b->arena, "the tree of a JSON text", &b->document->fault);
}

/* Copies the latest KEY, STRING or NUMBER. Returns NULL when memory is short. Sets *is_cut and copies the string as it
 * is spelled when the string holds a NUL. */
static char *copy_latest(struct builder *b, bool *is_cut)
{
    struct td_json json = b->json; /* a NUL is no fault of the document */
    struct td_text spelled = td_json_raw(&json);
    char *copy = td_arena_strndup(b->arena, spelled);
    size_t len;
    *is_cut = false;
    if (copy == NULL) {
        (void)lacks_memory(b);
        return NULL;
    }
    json.err = NULL;
    if (json.escaped && !td_json_string(&json, copy, spelled.len + 1, &len)) {
        memcpy(copy, spelled.p, spelled.len);
        *is_cut = true;
    }
    return copy;
}

/* Adds an item after the last one of the innermost object or array, or as the root. Returns NULL when memory is short.
 */
static struct document_item *add_item(struct builder *b)
{
    struct document_item *item = td_arena_alloc(b->arena, sizeof *item);
    if (item == NULL) {
        (void)lacks_memory(b);
        return NULL;
    }
    memset(item, 0, sizeof *item);
    if (b->depth == 0) {
        b->document->root = &item->json;
        return item;
    }
    cJSON *parent = &b->open[b->depth - 1]->json;
    cJSON *first = parent->child;
    cJSON *last = first == NULL ? &item->json : first->prev; /* in cJSON the first item's prev is the last item */
    if (first == NULL)
        parent->child = &item->json;
    else
        last->next = &item->json;
    item->json.prev = last;
    parent->child->prev = &item->json;
    return item;
}

static bool read_key(struct builder *b)
{
    bool is_cut;
    char *key = copy_latest(b, &is_cut);
    struct document_item *item = key == NULL ? NULL : add_item(b);
    if (item == NULL)
        return false;
    item->key_at = (uint32_t)b->json.start;
    item->key_len = (uint32_t)b->json.value_len + 2;
    item->json.string = key;
    b->pending = item;
    return true;
}

static int type_of(enum td_json_token token)
{
    switch (token) {
    case TD_JSON_OBJECT_BEGIN:
        return cJSON_Object;
    case TD_JSON_ARRAY_BEGIN:
        return cJSON_Array;
    case TD_JSON_STRING:
        return cJSON_String;
    case TD_JSON_NUMBER:
        return cJSON_Raw;
    case TD_JSON_TRUE:
        return cJSON_True;
    case TD_JSON_FALSE:
        return cJSON_False;
    default:
        return cJSON_NULL;
    }
}

/* Adds the value that begins with the latest token. A string or number that cannot be copied stays cJSON_Invalid. */
static bool read_value(struct builder *b, enum td_json_token token)
{
    struct document_item *item = b->pending != NULL ? b->pending : add_item(b);
    bool is_cut = false;
    b->pending = NULL;
    if (item == NULL)
        return false;
    item->at = (uint32_t)b->json.start;
    item->len = (uint32_t)(b->json.pos - b->json.start);
    if (token == TD_JSON_OBJECT_BEGIN || token == TD_JSON_ARRAY_BEGIN) {
        b->open[b->depth++] = item;
    } else if (token == TD_JSON_STRING || token == TD_JSON_NUMBER) {
        item->json.valuestring = copy_latest(b, &is_cut);
        if (item->json.valuestring == NULL)
            return false;
    }
    item->json.type = is_cut ? cJSON_Invalid : type_of(token);
    return true;
}

static bool read_token(struct builder *b, enum td_json_token token)
{
    switch (token) {
    case TD_JSON_ERROR:
        return false;
    case TD_JSON_KEY:
        return read_key(b);
    case TD_JSON_OBJECT_END:
    case TD_JSON_ARRAY_END:
        b->depth--;
        b->open[b->depth]->len = (uint32_t)(b->json.pos - b->open[b->depth]->at);
        return true;
    default:
        return read_value(b, token);
    }
}

/* Ends a tree that a fault at the latest token cuts off. */
static void cut_off(struct builder *b)
{
    size_t at = b->json.start;
    b->document->fault_at = at;
    if (b->pending != NULL)
        b->pending->at = (uint32_t)at;
    for (unsigned i = 0; i < b->depth; i++)
        b->open[i]->len = (uint32_t)(at + 1 - b->open[i]->at);
}

void td_json_document_read(struct td_json_document *document, struct td_text text, struct td_arena *arena,
                           struct td_error *err)
{
    struct builder b = {.arena = arena, .document = document};
    *document = (struct td_json_document){.text = text, .err = err, .fault = TD_ERROR_INIT, .fault_at = SIZE_MAX};
    td_json_init(&b.json, text, 0, &document->fault);
    if (text.len >= UINT32_MAX) {
        (void)td_error_set(&document->fault, TD_FAILED_PRECONDITION, "a JSON text has %zu bytes; at most %u are read",
                           text.len, UINT32_MAX - 1);
        document->fault_at = 0;
        return;
    }
    enum td_json_token token;
    while ((token = td_json_next(&b.json)) != TD_JSON_END) {
        if (!read_token(&b, token)) {
            cut_off(&b);
            return;
        }
    }
}

/* ---- faults -------------------------------------------------------------------------------------------- */

bool td_json_document_end(const struct td_json_document *document)
{
    return document->fault.code == TD_OK || td_error_copy(document->err, &document->fault);
}

/* Reports a fault of the caller's, or the document's when that comes first. */
static bool __attribute__((format(printf, 3, 0)))
fail_at(const struct td_json_document *document, size_t at, const char *format, va_list args)
{
    char message[TD_ERROR_MESSAGE_BYTES];
    if (at >= document->fault_at)
        return td_json_document_end(document);
    (void)vsnprintf(message, sizeof message, format, args);
    return td_error_at(document->err, TD_INVALID_ARGUMENT, at, "%s", message);
}

bool td_json_document_fail(const struct td_json_document *document, const cJSON *item, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fail_at(document, document_item(item)->at, format, args);
    va_end(args);
    return false;
}

bool td_json_document_fail_key(const struct td_json_document *document, const cJSON *item, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fail_at(document, document_item(item)->key_at, format, args);
    va_end(args);
    return false;
}

bool td_json_document_fail_end(const struct td_json_document *document, const cJSON *item, const char *format, ...)
{
    const struct document_item *ends = document_item(item);
    va_list args;
    va_start(args, format);
    (void)fail_at(document, (size_t)ends->at + ends->len - 1, format, args);
    va_end(args);
    return false;
}

bool td_json_document_unknown_key(const struct td_json_document *document, const cJSON *item, const char *known)
{
    const struct document_item *member = document_item(item);
    struct td_text key = td_text_n(document->text.p + member->key_at + 1, member->key_len - 2);
    return td_json_document_fail_key(document, item, "unknown key \"%.*s\"; %s", TD_SHOW(key, 64), known);
}

/* ---- values -------------------------------------------------------------------------------------------- */

const cJSON *td_json_document_object(const struct td_json_document *document, const char *what)
{
    const cJSON *root = document->root;
    if (root == NULL)
        (void)td_json_document_end(document);
    else if (!cJSON_IsObject(root))
        (void)td_json_document_fail(document, root, "%s expected", what);
    else
        return root;
    return NULL;
}

bool td_json_item_is_string(const cJSON *item)
{
    return cJSON_IsString(item) || cJSON_IsInvalid(item);
}

const char *td_json_document_string(const struct td_json_document *document, const cJSON *item)
{
    if (cJSON_IsString(item))
        return item->valuestring;
    (void)td_json_document_fail(document, item, "string holds a NUL");
    return NULL;
}

bool td_json_document_u64(const struct td_json_document *document, const cJSON *item, uint64_t *out)
{
    struct td_json json;
    struct td_error why = TD_ERROR_INIT;
    td_json_init(&json, document->text, 0, &why);
    json.value = document_item(item)->at;
    json.value_len = document_item(item)->len;
    return td_json_u64(&json, out) || td_json_document_fail(document, item, "%s", why.message);
}

struct td_text td_json_document_spelled(const struct td_json_document *document, const cJSON *item)
{
    const struct document_item *value = document_item(item);
    uint32_t quote = td_json_item_is_string(item) && value->len > 0 ? 1 : 0;
    return td_text_n(document->text.p + value->at + quote, value->len - 2 * quote);
}
