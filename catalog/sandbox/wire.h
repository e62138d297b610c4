/* The bytes between the parser's process and the server. Both ends are the same program on one machine, so numbers have
 * the machine's byte order and no padding. A writer cannot be trusted: a reader stops at the first value that does not
 * fit, and every value after that is 0 or empty; the caller checks `failed` once, at the end of each item. */
#ifndef TD_CATALOG_SANDBOX_WIRE_H
#define TD_CATALOG_SANDBOX_WIRE_H

#include "core/arena.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that a writer collects before it hands them on. */
enum { TD_WIRE_PART_BYTES = 48 * 1024 };

/* Writes in parts, so that a long answer needs no memory of its length. */
struct td_wire_writer {
    /* Takes the bytes of a full part. Returns false when they cannot be sent; the writer has then failed. */
    bool (*take)(void *context, const void *bytes, size_t len);
    void *context;
    size_t len;
    bool failed;
    unsigned char part[TD_WIRE_PART_BYTES];
};

/* Initialises a writer that hands its parts to take(context, ...). */
void td_wire_writer_init(struct td_wire_writer *writer, bool (*take)(void *context, const void *bytes, size_t len),
                         void *context);

/* Append bytes, a number, an array of numbers, a text after its length, and a string that may be NULL. */
void td_wire_put(struct td_wire_writer *writer, const void *bytes, size_t len);
void td_wire_put_u8(struct td_wire_writer *writer, uint8_t value);
void td_wire_put_u32(struct td_wire_writer *writer, uint32_t value);
void td_wire_put_u64(struct td_wire_writer *writer, uint64_t value);
void td_wire_put_numbers(struct td_wire_writer *writer, const uint64_t *numbers, size_t count);
void td_wire_put_text(struct td_wire_writer *writer, struct td_text text);
void td_wire_put_string(struct td_wire_writer *writer, const char *string);

/* Reads bytes that it borrows. */
struct td_wire_reader {
    const unsigned char *p, *end;
    bool failed;    /* the bytes are not what a writer writes */
    bool no_memory; /* the arena of a copy gave none */
};

/* Returns a reader over bytes[0..len). */
struct td_wire_reader td_wire_reader_of(const void *bytes, size_t len);

/* Copies the next len bytes to out; zeros when there are fewer. */
void td_wire_get(struct td_wire_reader *reader, void *out, size_t len);
/* Return the next number. td_wire_get_bool takes 0 and 1 alone. */
uint8_t td_wire_get_u8(struct td_wire_reader *reader);
bool td_wire_get_bool(struct td_wire_reader *reader);
uint32_t td_wire_get_u32(struct td_wire_reader *reader);
uint64_t td_wire_get_u64(struct td_wire_reader *reader);

/* Returns the number of items that follow, each of at least item_bytes on the wire; fails when so many do not fit into
 * the bytes that are left. item_bytes is not 0. */
size_t td_wire_get_count(struct td_wire_reader *reader, size_t item_bytes);

/* Returns a copy of `count` numbers in the arena; NULL for none and when the reader has failed. */
const uint64_t *td_wire_get_numbers(struct td_wire_reader *reader, size_t count, struct td_arena *arena);

/* Returns the next text, borrowed from the reader's bytes. Fails unless it is UTF-8 without a NUL. */
struct td_text td_wire_get_text(struct td_wire_reader *reader);

/* Returns a NUL-terminated copy of the next text in the arena; NULL when the reader has failed. */
const char *td_wire_get_copy(struct td_wire_reader *reader, struct td_arena *arena);

/* Returns a copy of the next string in the arena, or NULL when NULL was written. */
const char *td_wire_get_string(struct td_wire_reader *reader, struct td_arena *arena);

/* Returns room for `count` items of `size` bytes in the arena; NULL when the reader has failed. */
void *td_wire_get_array(struct td_wire_reader *reader, struct td_arena *arena, size_t count, size_t size);

/* Append the paths of files, and read them: they are below one directory, in order, and each is there once. */
void td_wire_put_paths(struct td_wire_writer *writer, const char *const *paths, size_t count);
const char **td_wire_get_paths(struct td_wire_reader *reader, struct td_arena *arena, size_t *count);

/* Returns the memory; fails the reader for want of memory when it is NULL. */
void *td_wire_need(struct td_wire_reader *reader, void *memory);

/* Fails the reader unless the text is one item of JSON that begins with `first`; '\0': any item. */
void td_wire_check_json(struct td_wire_reader *reader, const char *text, char first);

/* Returns whether the reader has not failed; fails it when `holds` is false. */
static inline bool td_wire_check(struct td_wire_reader *reader, bool holds)
{
    reader->failed = reader->failed || !holds;
    return !reader->failed;
}

/* Sets the error for a reader that has failed: TD_RESOURCE_EXHAUSTED for want of memory, else TD_INTERNAL. Returns
 * false. */
bool td_wire_refuse(const struct td_wire_reader *in, struct td_error *err);

#endif
