/* Writes a document, from its first member to its last, to the end of a buffer, in one of three forms: as the JSON of
 * REST, or as a message of the schema in proto3 JSON or in protobuf's binary form. One sequence of calls writes all
 * three, so that they cannot differ.
 *
 * A list of any length is written row by row; the writer itself holds no text and no memory. A failed allocation, and a
 * document that is nested more than TD_DOCUMENT_DEPTH levels deep, mark the buffer `failed`, and later calls then do
 * nothing, so the caller checks the buffer once, at the end. JSON has no insignificant whitespace.
 *
 * In the forms of a message, members that the message has no field for are left out, and so are null, values that are
 * 0, false or "" of fields without presence, and fields that the mask leaves out. Threads: one per writer. */
#ifndef TD_CORE_MESSAGE_DOCUMENT_H
#define TD_CORE_MESSAGE_DOCUMENT_H

#include "core/buffer.h"
#include "core/clock.h"
#include "core/message/message.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_DOCUMENT_DEPTH = 10 };

enum td_document_form {
    TD_DOCUMENT_REST,       /* names in snake_case, 64-bit integers as numbers */
    TD_DOCUMENT_PROTO_JSON, /* https://protobuf.dev/programming-guides/json/ */
    TD_DOCUMENT_PROTOBUF,   /* core/message/wire.h */
};

/* The form of a document, and its message. */
struct td_document_kind {
    enum td_document_form form;
    const struct td_message *message; /* of the outermost object; NULL for REST */
    const struct td_message *masked; /* in objects of this message only fields of the mask are written; NULL: all are */
    uint64_t mask;                   /* bit n: the field with the number n is written */
};

/* An object or array that is not ended. */
struct td_document_level {
    const struct td_message *message; /* of an object, or of an array's elements; NULL: none */
    const struct td_field *field;     /* of an array: that its elements belong to */
    size_t next;                      /* the field of the message after the one that was found last */
    size_t start; /* protobuf: where the contents begin; SIZE_MAX: nothing was written yet, or no length is needed */
    bool is_array, has_members;
    bool is_left_out; /* with all that is in it */
};

struct td_document {
    struct td_buffer *out; /* borrowed */
    const struct td_document_kind *kind;
    size_t depth; /* of levels */
    size_t text;  /* protobuf: where the text that was begun begins */
    struct td_document_level levels[TD_DOCUMENT_DEPTH];
};

/* Starts a document of REST at the end of the buffer, which must outlive the document. */
void td_document_init(struct td_document *document, struct td_buffer *out);

/* Does the same for a document of this kind (borrowed). */
void td_document_init_kind(struct td_document *document, struct td_buffer *out, const struct td_document_kind *kind);

/* Starts in the middle of a document of this kind: within the list `key` of the outermost object, whose elements the
 * caller then adds. has_members: there are elements before the first that is added. */
void td_document_resume(struct td_document *document, struct td_buffer *out, const struct td_document_kind *kind,
                        const char *key, bool has_members);

/* All functions below that take a key add a member to the innermost object, or with key NULL an element to the
 * innermost array, or the document's one value, an object or an array. The key needs no escapes. */

/* Open an object or an array; td_document_end closes the innermost one. */
void td_document_begin_object(struct td_document *document, const char *key);
void td_document_begin_array(struct td_document *document, const char *key);
void td_document_end(struct td_document *document);

/* Add a string; the text must be UTF-8. */
void td_document_add_text(struct td_document *document, const char *key, struct td_text text);
void td_document_add_string(struct td_document *document, const char *key, const char *text);

/* Begins a string whose text the caller appends to the buffer, without characters that JSON escapes, before it calls
 * td_document_end_text. Returns false when the value is left out: the caller then appends nothing and ends nothing. */
bool td_document_begin_text(struct td_document *document, const char *key);
void td_document_end_text(struct td_document *document);

/* Add a number: all 64 bits of an integer, or seconds with three decimals. */
void td_document_add_u64(struct td_document *document, const char *key, uint64_t value);
void td_document_add_seconds(struct td_document *document, const char *key, double seconds);

/* Adds an integer that may be below 0. In the forms of a message the field is an int32. */
void td_document_add_i32(struct td_document *document, const char *key, int32_t value);

/* Adds bytes: in JSON as base64 with padding. */
void td_document_add_bytes(struct td_document *document, const char *key, struct td_text bytes);

/* Adds a message that is a document of the field's message already, in the same form. */
void td_document_add_message(struct td_document *document, const char *key, struct td_text message);

/* Writes what precedes and follows `len` bytes in a document that is not in one buffer: between the two calls stands
 * the place of the bytes, or in JSON of their base64. In protobuf's binary form no message but the outermost may have
 * them. td_document_begin_bytes returns false when the field is left out, and then nothing is to be ended. */
bool td_document_begin_bytes(struct td_document *document, const char *key, uint64_t len);
void td_document_end_bytes(struct td_document *document);

/* Adds a time, in JSON as RFC 3339 text. */
void td_document_add_time(struct td_document *document, const char *key, struct td_wall time);

void td_document_add_bool(struct td_document *document, const char *key, bool value);
void td_document_add_null(struct td_document *document, const char *key);

/* Adds a number as td_json_write_real does. */
void td_document_add_real(struct td_document *document, const char *key, double value, bool single);

/* Adds a value that is JSON already, byte for byte. In the forms of a message the field is a google.protobuf.Struct or
 * a list of them, and is left out if the JSON does not fit it (td_struct_fits). */
void td_document_add_raw(struct td_document *document, const char *key, struct td_text json);

/* Does the same for a member with any name, UTF-8 text, of an object that is a google.protobuf.Struct. */
void td_document_add_member(struct td_document *document, struct td_text name, struct td_text json);

/* Adds members, at least one, that are JSON already: an object's text without its braces. For REST alone. */
void td_document_add_members(struct td_document *document, struct td_text members);

#endif
