/* Writes a JSON document with cJSON, from its first member to its last, into a buffer.
 *
 * A builder holds what was added since the last flush as a cJSON tree. td_json_flush prints that tree into the buffer
 * and frees it, also in the middle of a document; a list of any length is therefore written row by row, a flush for
 * each, in the memory of one row.
 *
 * A failed allocation marks the buffer `failed`, and later calls then do nothing, so the caller checks the buffer once,
 * at the end. The output has no insignificant whitespace. Texts are escaped by td_json_write_string and integers are
 * exact, because cJSON ends a text at NUL, leaves DEL as it is and holds numbers as doubles. Printing recurses as deep
 * as the document is nested, at most TD_JSON_BUILD_DEPTH. Threads: one per builder. */
#ifndef TD_CORE_JSON_JSON_BUILD_H
#define TD_CORE_JSON_JSON_BUILD_H

#include "core/buffer.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_JSON_BUILD_DEPTH = 8 };

struct cJSON;

/* An object or array that is not ended. */
struct td_json_level {
    struct cJSON *item; /* the members that are not printed; owned unless a level above owns it; NULL: none */
    bool is_array;
    bool is_printed;  /* its opening bracket is in the buffer */
    bool has_members; /* of those in the buffer */
};

/* A block that cJSON allocates from before it asks malloc. A row of a list fits, so a list costs no malloc for each
 * row. Zero at first. */
struct td_json_pool {
    char *block; /* owned; NULL before the first allocation */
    size_t used_bytes;
};

struct td_json_builder {
    struct td_buffer *out;    /* borrowed */
    struct td_buffer scratch; /* one value */
    struct td_json_pool pool; /* for the tree */
    size_t pending_bytes;     /* of the text that the next flush appends, at most */
    size_t depth;             /* of levels */
    struct td_json_level levels[TD_JSON_BUILD_DEPTH];
};

/* Starts a document at the end of the buffer, which must outlive the builder. Call td_json_builder_fini afterwards. */
void td_json_builder_init(struct td_json_builder *builder, struct td_buffer *out);

/* Frees the builder's memory. Members that are not printed are lost. */
void td_json_builder_fini(struct td_json_builder *builder);

/* All functions below that take a key add a member to the innermost object, or with key NULL an element to the
 * innermost array, or the document's one value. The key is borrowed until td_json_builder_fini, and needs no escapes.
 */

/* Open an object or an array; td_json_end closes the innermost one. The end of the outermost one prints the document.
 */
void td_json_begin_object(struct td_json_builder *builder, const char *key);
void td_json_begin_array(struct td_json_builder *builder, const char *key);
void td_json_end(struct td_json_builder *builder);

/* Appends all that was added to the buffer; objects and arrays that are open stay open. */
void td_json_flush(struct td_json_builder *builder);

/* Add a string; the text must be UTF-8 and is copied. */
void td_json_add_text(struct td_json_builder *builder, const char *key, struct td_text text);
void td_json_add_string(struct td_json_builder *builder, const char *key, const char *text);

/* Add a number: all 64 bits of an integer, or seconds with three decimals. */
void td_json_add_u64(struct td_json_builder *builder, const char *key, uint64_t value);
void td_json_add_seconds(struct td_json_builder *builder, const char *key, double seconds);

void td_json_add_bool(struct td_json_builder *builder, const char *key, bool value);
void td_json_add_null(struct td_json_builder *builder, const char *key);

/* Adds a value that is JSON already, byte for byte; copied. A long one goes to the buffer at once. */
void td_json_add_raw(struct td_json_builder *builder, const char *key, struct td_text json);

/* Adds members, at least one, that are JSON already: an object's text without its braces. */
void td_json_add_members(struct td_json_builder *builder, struct td_text members);

#endif
