/* JSON documents: small texts that are read whole, as a tree of cJSON items.
 *
 * The pull reader (json.h) checks the text and finds the tokens; the tree is built from its tokens, without recursion.
 * cJSON's own parser never sees a text: the parser recurses, holds numbers as doubles, lets bad UTF-8 pass and reports
 * no positions. cJSON's functions that look at a tree (cJSON_ArrayForEach, cJSON_IsTrue, cJSON_GetArraySize ...) work
 * on this one. The tree lives in the caller's arena, so the arena's limit or budget bounds the memory: about 80 bytes
 * for each value, and a copy of the keys, strings and numbers. No item may be changed or given to cJSON_Delete.
 *
 * Types are those of cJSON, but for two. A number is a cJSON_Raw item with the digits of the text, so that 64-bit
 * integers stay exact (td_json_document_u64). A string that holds an escaped NUL is a cJSON_Invalid item, because a C
 * string would cut it; a key that holds one is spelled as in the text, with its escapes. Members of the same name are
 * all kept, in the order of the text.
 *
 * The first fault in the order of the text is the one that is reported, as if the text were read token by token: the
 * tree of a faulty text holds what stands before the fault, and what a caller reports about that part wins. */
#ifndef TD_CORE_JSON_JSON_DOCUMENT_H
#define TD_CORE_JSON_JSON_DOCUMENT_H

#include "core/arena.h"
#include "core/error.h"
#include "core/text.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_json_document {
    const cJSON *root; /* in the arena; NULL when the text does not begin with a value, or memory is short */
    struct td_text text;
    struct td_error *err;
    struct td_error fault; /* why the tree ends before the text does; TD_OK: the tree is whole */
    size_t fault_at;       /* where in the text; SIZE_MAX without a fault */
};

/* Reads the text, which must outlive the document. Nests at most TD_JSON_MAX_DEPTH levels. `err` is borrowed and may be
 * NULL. A fault is kept in the document, for the functions below to report in *err: TD_INVALID_ARGUMENT with the
 * position in the text, TD_FAILED_PRECONDITION when the text has 4 GiB or more or the tree is larger than the arena's
 * limit, TD_RESOURCE_EXHAUSTED. The caller reports its own faults in the order of the text. */
void td_json_document_read(struct td_json_document *document, struct td_text text, struct td_arena *arena,
                           struct td_error *err);

/* Returns whether the text was read to its end. Else reports the document's fault. Call this last, after all items were
 * checked. */
bool td_json_document_end(const struct td_json_document *document);

/* Report TD_INVALID_ARGUMENT with this message at the position of an item's value, of its key, or of its closing
 * bracket (the item is an object or an array). When the document's own fault comes first in the text, report that fault
 * instead. Return false. */
bool td_json_document_fail(const struct td_json_document *document, const cJSON *item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool td_json_document_fail_key(const struct td_json_document *document, const cJSON *item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool td_json_document_fail_end(const struct td_json_document *document, const cJSON *item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reports that an item's key is unknown: names the key, at most 64 bytes of it, and adds `known`, a text about the
 * known keys. Returns false. */
bool td_json_document_unknown_key(const struct td_json_document *document, const cJSON *item, const char *known);

/* Returns the document's root when the root is an object. Else reports a fault, in which `what` names what is wanted
 * ("a plan, an object,"), and returns NULL. */
const cJSON *td_json_document_object(const struct td_json_document *document, const char *what);

/* Returns whether an item is a string, with or without a NUL. Returns false for NULL. */
bool td_json_item_is_string(const cJSON *item);

/* Returns the decoded text of an item that td_json_item_is_string accepts. The text is NUL-terminated and lives as long
 * as the arena. Reports a fault and returns NULL for a string that holds a NUL. */
const char *td_json_document_string(const struct td_json_document *document, const cJSON *item);

/* Sets *out to the value of an item that is a number. Reports a fault and returns false for a sign, a fraction, an
 * exponent or a number above 2^64-1, as td_json_u64 does. */
bool td_json_document_u64(const struct td_json_document *document, const cJSON *item, uint64_t *out);

/* Returns an item's value as it stands in the text (borrowed): of a string the part between its quotes, still
 * escaped. */
struct td_text td_json_document_spelled(const struct td_json_document *document, const cJSON *item);

#endif
