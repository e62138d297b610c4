/* A growable byte buffer for building text. Once an append fails for want of memory the buffer is marked
 * `failed` and further appends do nothing, so a builder checks once, at the end. */
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
    struct td_budget *budget; /* NULL, or what the capacity is taken from */
    size_t lacked_bytes;      /* that the budget did not have; 0: memory was short, if it failed */
};

void td_buffer_init(struct td_buffer *buffer);

/* The same with a budget that the memory is taken from, and given back to with td_buffer_fini. The budget is borrowed;
 * NULL: none. */
void td_buffer_init_budget(struct td_buffer *buffer, struct td_budget *budget);

/* Sets the error for a buffer that has failed. TD_RESOURCE_EXHAUSTED, or as td_budget_refuse. Returns false. */
bool td_buffer_refuse(const struct td_buffer *buffer, struct td_error *err);

void td_buffer_fini(struct td_buffer *buffer);

/* Returns what the buffer holds, which is borrowed until the next change. */
static inline struct td_text td_buffer_text(const struct td_buffer *buffer)
{
    return td_text_n(buffer->data == NULL ? "" : buffer->data, buffer->len);
}

/* Forgets the contents, keeps the memory, clears `failed`. */
void td_buffer_clear(struct td_buffer *buffer);

/* Makes room for `more` bytes past len. */
bool td_buffer_reserve(struct td_buffer *buffer, size_t more);

/* Inline: manifests are written in small pieces, many of them of constant length. */
static inline void td_buffer_append(struct td_buffer *buffer, const void *bytes, size_t len)
{
    if (len == 0 || ((buffer->failed || len > buffer->capacity - buffer->len) && !td_buffer_reserve(buffer, len)))
        return;
    memcpy(buffer->data + buffer->len, bytes, len);
    buffer->len += len;
}

static inline void td_buffer_puts(struct td_buffer *buffer, const char *text)
{
    td_buffer_append(buffer, text, strlen(text));
}

static inline void td_buffer_putc(struct td_buffer *buffer, char c)
{
    td_buffer_append(buffer, &c, 1);
}

void td_buffer_u64(struct td_buffer *buffer, uint64_t value);
void td_buffer_printf(struct td_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A NUL past the end (not counted in len); returns data, or NULL when failed. */
char *td_buffer_terminate(struct td_buffer *buffer);

/* Hands the memory over to the caller (free()); the buffer is empty afterwards. NULL when failed or empty. Of its
 * budget *len bytes stay taken: they are the caller's to give back. */
char *td_buffer_release(struct td_buffer *buffer, size_t *len);

#endif
