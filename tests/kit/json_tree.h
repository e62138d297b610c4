/* Compares the tree of a JSON document with the tokens of the pull reader, without recursion. For unit and fuzz tests:
 * call json_tree_matches after td_json_document_read. The other functions are its parts. */
#ifndef TD_TESTS_KIT_JSON_TREE_H
#define TD_TESTS_KIT_JSON_TREE_H

#include "core/json/json.h"
#include "core/json/json_document.h"

#include <string.h>

/* Returns whether `text`, a string of the tree, is the reader's latest KEY or STRING: decoded, or as it is spelled when
 * it holds a NUL. Sets *holds_nul to which of the two it compared. */
static inline bool json_tree_string(struct td_json json, const char *text, bool *holds_nul)
{
    char decoded[8192];
    size_t len;
    json.err = NULL;
    *holds_nul = !td_json_string(&json, decoded, sizeof decoded, &len);
    struct td_text raw = td_json_raw(&json);
    if (*holds_nul)
        return strlen(text) == raw.len && memcmp(text, raw.p, raw.len) == 0;
    return strcmp(text, decoded) == 0;
}

/* Returns whether `item` is the value that begins with the reader's latest token, `token`. Does not look at the members
 * of an object or array. */
static inline bool json_tree_value(const struct td_json_document *document, const cJSON *item,
                                   const struct td_json *json, enum td_json_token token)
{
    struct td_text raw = td_json_raw(json);
    struct td_text spelled = td_json_document_spelled(document, item);
    bool holds_nul;
    switch (token) {
    case TD_JSON_OBJECT_BEGIN:
        return cJSON_IsObject(item) && spelled.p == document->text.p + json->start;
    case TD_JSON_ARRAY_BEGIN:
        return cJSON_IsArray(item) && spelled.p == document->text.p + json->start;
    case TD_JSON_STRING:
        return td_json_item_is_string(item) && spelled.p == raw.p && spelled.len == raw.len &&
               json_tree_string(*json, item->valuestring, &holds_nul) && cJSON_IsString(item) == !holds_nul;
    case TD_JSON_NUMBER:
        return cJSON_IsRaw(item) && spelled.p == raw.p && spelled.len == raw.len &&
               strlen(item->valuestring) == raw.len && memcmp(item->valuestring, raw.p, raw.len) == 0;
    case TD_JSON_TRUE:
        return cJSON_IsTrue(item);
    case TD_JSON_FALSE:
        return cJSON_IsFalse(item);
    default:
        return token == TD_JSON_NULL && cJSON_IsNull(item);
    }
}

/* Returns whether the tree holds what the tokens say up to the end or the first fault, and nothing else, and whether
 * the document keeps that fault. Strings must have less than 8 KiB. Frees and changes nothing. */
static inline bool json_tree_matches(const struct td_json_document *document)
{
    const cJSON *open[TD_JSON_MAX_DEPTH];
    const cJSON *next = document->root;
    bool after_key = false;
    struct td_json json;
    struct td_error err = TD_ERROR_INIT;
    td_json_init(&json, document->text, 0, &err);
    for (;;) {
        unsigned depth = json.depth;
        enum td_json_token token = td_json_next(&json);
        if (token == TD_JSON_END)
            return next == NULL && document->fault.code == TD_OK;
        if (token == TD_JSON_ERROR) {
            bool ends =
                after_key ? cJSON_IsInvalid(next) && next->valuestring == NULL && next->next == NULL : next == NULL;
            for (unsigned i = 0; i < depth; i++)
                ends = ends && open[i]->next == NULL;
            return ends && document->fault.code == err.code && document->fault.pos == err.pos &&
                   document->fault_at == err.pos && strcmp(document->fault.message, err.message) == 0;
        }
        if (token == TD_JSON_OBJECT_END || token == TD_JSON_ARRAY_END) {
            struct td_text whole = td_json_document_spelled(document, open[depth - 1]);
            if (next != NULL || whole.p + whole.len != document->text.p + json.pos)
                return false;
            next = open[depth - 1]->next;
            continue;
        }
        if (next == NULL || (next->next != NULL && next->next->prev != next))
            return false;
        if (token == TD_JSON_KEY) {
            bool holds_nul;
            if (!json_tree_string(json, next->string, &holds_nul))
                return false;
            after_key = true;
            continue;
        }
        if (!json_tree_value(document, next, &json, token) || (!after_key && next->string != NULL))
            return false;
        after_key = false;
        if (token == TD_JSON_OBJECT_BEGIN || token == TD_JSON_ARRAY_BEGIN) {
            open[depth] = next;
            next = next->child;
        } else {
            next = next->next;
        }
    }
}

#endif
