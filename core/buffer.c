#include "core/buffer.h"

#include "core/checked.h"
#include "core/digits.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void td_buffer_init(struct td_buffer *buffer)
{
    memset(buffer, 0, sizeof *buffer);
}

void td_buffer_init_budget(struct td_buffer *buffer, struct td_budget *budget)
{
    td_buffer_init(buffer);
    buffer->budget = budget;
}

void td_buffer_fini(struct td_buffer *buffer)
{
    free(buffer->data);
    td_budget_give(buffer->budget, buffer->capacity);
    memset(buffer, 0, sizeof *buffer);
}

bool td_buffer_refuse(const struct td_buffer *buffer, struct td_error *err)
{
    return buffer->lacked_bytes > 0 ? td_budget_refuse(buffer->budget, buffer->lacked_bytes, err)
                                    : td_error_no_memory(err);
}

void td_buffer_clear(struct td_buffer *buffer)
{
    buffer->len = 0;
    buffer->failed = false;
    buffer->lacked_bytes = 0;
}

bool td_buffer_reserve(struct td_buffer *buffer, size_t more)
{
    if (buffer->failed)
        return false;
    if (more <= buffer->capacity - buffer->len)
        return true;
    size_t need;
    if (!td_add_size(buffer->len, more, &need)) {
        buffer->failed = true;
        return false;
    }
    size_t grown = buffer->capacity < 128 ? 128 : buffer->capacity + buffer->capacity / 2;
    if (grown < need)
        grown = need;
    size_t added = grown - buffer->capacity;
    if (!td_budget_take(buffer->budget, added)) {
        buffer->lacked_bytes = grown;
        buffer->failed = true;
        return false;
    }
    char *data = realloc(buffer->data, grown);
    if (data == NULL) {
        td_budget_give(buffer->budget, added);
        buffer->failed = true;
        return false;
    }
    buffer->data = data;
    buffer->capacity = grown;
    return true;
}

void td_buffer_u64(struct td_buffer *buffer, uint64_t value)
{
    char digits[TD_NUMBER_BYTES];
    td_buffer_append(buffer, digits, td_number_write(value, digits));
}

void td_buffer_printf(struct td_buffer *buffer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int need = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (need < 0) {
        buffer->failed = true;
    } else if (td_buffer_reserve(buffer, (size_t)need + 1)) {
        (void)vsnprintf(buffer->data + buffer->len, (size_t)need + 1, format, again);
        buffer->len += (size_t)need;
    }
    va_end(again);
}

char *td_buffer_terminate(struct td_buffer *buffer)
{
    if (!td_buffer_reserve(buffer, 1))
        return NULL;
    buffer->data[buffer->len] = '\0';
    return buffer->data;
}

char *td_buffer_release(struct td_buffer *buffer, size_t *len)
{
    *len = buffer->failed ? 0 : buffer->len;
    char *data = *len > 0 ? realloc(buffer->data, *len) : NULL; /* frees the reserve after the contents */
    if (data == NULL && *len > 0)
        data = buffer->data; /* realloc failed: the block keeps its reserve */
    if (*len == 0)
        free(buffer->data);
    td_budget_give(buffer->budget, buffer->capacity - *len);
    memset(buffer, 0, sizeof *buffer);
    return data;
}

char *td_buffer_release_string(struct td_buffer *buffer)
{
    size_t len;
    td_buffer_putc(buffer, '\0');
    return td_buffer_release(buffer, &len);
}
