/* Reads messages (core/message/message.h) from protobuf's binary form and from proto3 JSON into trees in an arena.
 *
 * Both readers ignore unknown fields. Of a field that may stand once, the last value in the binary form counts, while
 * JSON with two values is refused, as google.protobuf does. They use no recursion, and take time linear in the input;
 * a tree takes at most TD_DECODE_PER_BYTE bytes for each byte. */
#ifndef TD_CORE_MESSAGE_DECODE_H
#define TD_CORE_MESSAGE_DECODE_H

#include "core/arena.h"
#include "core/error.h"
#include "core/message/document.h"
#include "core/message/message.h"
#include "core/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { TD_DECODE_DEPTH = 32, TD_DECODE_FREE_BYTES = 4096, TD_DECODE_PER_BYTE = 32 };

struct td_value {
    const struct td_field *field;
    struct td_value *next; /* in the order of the input; elements of one list may stand apart */
    union {
        uint64_t number; /* of bool, and of integers: int32 as the 64-bit integer of the same value */
        double real;
        struct td_text text;      /* of string, UTF-8, and bytes; in the arena or in the input */
        struct td_record *record; /* of a message */
    };
};

/* A message. */
struct td_record {
    const struct td_message *message;
    struct td_value *first, *last;
    uint64_t given; /* bit n: the field with the number n has a value */
};

/* Read a message of this type; the text must outlive the record. Fields of the types Timestamp and Struct are skipped.
 * Errors: TD_INVALID_ARGUMENT for a text that is no such message, and why; as td_arena_refuse. */
bool td_record_read(struct td_record *out, const struct td_message *message, struct td_text bytes,
                    struct td_arena *arena, struct td_error *err);
bool td_record_read_json(struct td_record *out, const struct td_message *message, struct td_text json,
                         struct td_arena *arena, struct td_error *err);

/* Returns the only value of the field with this name, or NULL if it has none. */
const struct td_value *td_record_get(const struct td_record *record, const char *name);

/* Returns the text, or the number, of the field with this name; empty or 0 if it has none. An int32 below 0 is a large
 * number. */
struct td_text td_record_text(const struct td_record *record, const char *name);
uint64_t td_record_number(const struct td_record *record, const char *name);

/* Adds the fields whose bit is set in `fields`, by number, as members of an open object: in REST, too, without values
 * that are 0, false or "" of fields without presence. Field masks are left out. */
void td_record_add(const struct td_record *record, uint64_t fields, struct td_document *json);

#endif
