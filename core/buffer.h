/* A growing byte buffer for building text. When an append gets no memory, the buffer is marked `failed` and later
 * appends do nothing, so the caller checks once, at the end. Threads: one at a time. */
#ifndef TD_CORE_BUFFER_H
#define TD_CORE_BUFFER_H

#include "core/budget.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct td_buffer {
    char *data; /* owned; not NUL-terminated unless td_buffer_terminate was called */
    size_t len, capacity;
    bool failed;
    struct td_budget *budget; /* NULL, or the budget that `capacity` bytes are taken from */
    size_t lacked_bytes;      /* refused by the budget; 0 in a failed buffer: malloc failed */
};

/* Initialises an empty buffer without a budget. */
void td_buffer_init(struct td_buffer *buffer);

/* Does the same with a budget (borrowed; NULL: none). The buffer takes its memory from it and gives it back in
 * td_buffer_fini. */
void td_buffer_init_budget(struct td_buffer *buffer, struct td_budget *budget);

/* Sets the error for a failed buffer: TD_RESOURCE_EXHAUSTED, or as td_budget_refuse. Returns false. */
bool td_buffer_refuse(const struct td_buffer *buffer, struct td_error *err);

/* Frees the memory. The buffer is then empty and has no budget. */
void td_buffer_fini(struct td_buffer *buffer);

/* Returns the contents, borrowed until the next change of the buffer. */
static inline struct td_text td_buffer_text(const struct td_buffer *buffer)
{
    return td_text_n(buffer->data == NULL ? "" : buffer->data, buffer->len);
}

/* Empties the buffer and clears `failed`; keeps the memory. */
void td_buffer_clear(struct td_buffer *buffer);

/* Makes room for `more` bytes after len. Returns false, and marks the buffer failed, when there is no memory; returns
 * false for a failed buffer. */
bool td_buffer_reserve(struct td_buffer *buffer, size_t more);

/* Appends len bytes. Inline, because manifests are written in small pieces, many of constant length. */
static inline void td_buffer_append(struct td_buffer *buffer, const void *bytes, size_t len)
{
    if (len == 0 || ((buffer->failed || len > buffer->capacity - buffer->len) && !td_buffer_reserve(buffer, len)))
        return;
    memcpy(buffer->data + buffer->len, bytes, len);
    buffer->len += len;
}

/* Appends a NUL-terminated string without its NUL. */
static inline void td_buffer_puts(struct td_buffer *buffer, const char *text)
{
    td_buffer_append(buffer, text, strlen(text));
}

/* Appends one byte. */
static inline void td_buffer_putc(struct td_buffer *buffer, char c)
{
    td_buffer_append(buffer, &c, 1);
}

/* Appends the number in decimal. */
void td_buffer_u64(struct td_buffer *buffer, uint64_t value);

/* Appends text as printf would write it. */
void td_buffer_printf(struct td_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes a NUL after the contents, which len does not count. Returns data (still owned by the buffer), or NULL when
 * the buffer has failed. */
char *td_buffer_terminate(struct td_buffer *buffer);

/* Returns the contents and sets *len; the caller frees them with free() and gives *len bytes back to the budget. The
 * buffer is then empty and has no budget. Returns NULL with *len 0 when the buffer has failed or is empty. */
char *td_buffer_release(struct td_buffer *buffer, size_t *len);

/* Does the same with a NUL after the contents, which counts as one of them for the budget. Returns NULL only when the
 * buffer has failed; an empty buffer becomes an empty string. */
char *td_buffer_release_string(struct td_buffer *buffer);

#endif
