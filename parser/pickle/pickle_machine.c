#include "parser/pickle/pickle_machine.h"

#include "core/input.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- refusals ---- */

void td_machine_refuse(const struct td_machine *m, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)td_error_at(m->err, TD_INVALID_ARGUMENT, m->pickle->base + m->opcode_at, "pickle: %s %s", m->opcode->name,
                      text);
}

bool td_machine_no_memory(const struct td_machine *m)
{
    (void)td_error_at(m->err, TD_RESOURCE_EXHAUSTED, m->pickle->base + m->opcode_at,
                      "out of memory: the pickle needs more than one file's limit, or than there is");
    return false;
}

/* ---- operands ---- */

static bool take_bytes(struct td_machine *m, uint64_t len, const uint8_t **bytes)
{
    if (len > m->len - m->pos)
        return TD_REFUSE(m, "is cut off: it needs %" PRIu64 " more bytes and %zu are left", len, m->len - m->pos);
    *bytes = m->bytes + m->pos;
    m->pos += (size_t)len;
    return true;
}

static bool take_number(struct td_machine *m, unsigned width, uint64_t *number)
{
    const uint8_t *p;
    if (!take_bytes(m, width, &p))
        return false;
    switch (width) {
    case 1:
        *number = p[0];
        break;
    case 2:
        *number = td_load_le16(p);
        break;
    case 4:
        *number = td_load_le32(p);
        break;
    default:
        *number = td_load_le64(p);
        break;
    }
    return true;
}

static bool take_text(struct td_machine *m, unsigned width, bool is_signed, struct td_pickle_span *text)
{
    uint64_t len;
    const uint8_t *p;
    if (!take_number(m, width, &len))
        return false;
    if (is_signed && len > INT32_MAX)
        return TD_REFUSE(m, "has a negative length, %" PRId32, (int32_t)(uint32_t)len);
    size_t off = m->pos;
    if (!take_bytes(m, len, &p))
        return false;
    *text = (struct td_pickle_span){.off = (uint32_t)off, .len = (uint32_t)len};
    return true;
}

static bool take_line(struct td_machine *m, struct td_pickle_span *text)
{
    const uint8_t *line = m->bytes + m->pos;
    const uint8_t *newline = memchr(line, '\n', m->len - m->pos);
    if (newline == NULL)
        return TD_REFUSE(m, "has no newline after its text");
    *text = (struct td_pickle_span){.off = (uint32_t)m->pos, .len = (uint32_t)(newline - line)};
    m->pos += text->len + (size_t)1;
    return true;
}

bool td_machine_take_operand(struct td_machine *m)
{
    switch (m->opcode->operand) {
    case TD_OPERAND_NONE:
        return true;
    case TD_OPERAND_U8:
        return take_number(m, 1, &m->operand.number);
    case TD_OPERAND_U16:
        return take_number(m, 2, &m->operand.number);
    case TD_OPERAND_U32:
        return take_number(m, 4, &m->operand.number);
    case TD_OPERAND_U64:
        return take_number(m, 8, &m->operand.number);
    case TD_OPERAND_TEXT8:
        return take_text(m, 1, false, &m->operand.text);
    case TD_OPERAND_TEXT32:
        return take_text(m, 4, false, &m->operand.text);
    case TD_OPERAND_TEXT31:
        return take_text(m, 4, true, &m->operand.text);
    case TD_OPERAND_TEXT64:
        return take_text(m, 8, false, &m->operand.text);
    case TD_OPERAND_LINE:
        return take_line(m, &m->operand.text);
    default:
        return take_line(m, &m->operand.text) && take_line(m, &m->operand.second);
    }
}

/* ---- the stack ---- */

bool td_machine_needs(const struct td_machine *m, uint32_t count)
{
    uint32_t there = m->stack.count - td_machine_fence(m);
    if (there >= count)
        return true;
    return TD_REFUSE(m, "needs %" PRIu32 " values on the stack, which has %" PRIu32 "%s", count, there,
                     m->marks.count > 1 ? " since the last MARK" : "");
}

bool td_machine_push(struct td_machine *m, td_pickle_ref ref)
{
    if (ref == TD_PICKLE_NIL || !td_pickle_store_reserve(m->store, &m->stack, 1, sizeof ref))
        return td_machine_no_memory(m);
    td_machine_stack(m)[m->stack.count++] = ref;
    return true;
}

td_pickle_ref td_machine_add(struct td_machine *m, struct td_pickle_value value)
{
    value.at = (uint32_t)m->opcode_at;
    return td_pickle_store_add(m->store, value);
}

bool td_machine_push_value(struct td_machine *m, struct td_pickle_value value)
{
    return td_machine_push(m, td_machine_add(m, value));
}

bool td_machine_take_mark(struct td_machine *m, uint32_t *first, uint32_t *count)
{
    if (m->marks.count == 1)
        return TD_REFUSE(m, "has no MARK on the stack to go back to");
    *first = td_machine_fence(m);
    *count = m->stack.count - *first;
    m->marks.count--;
    return true;
}

/* ---- values ---- */

bool td_machine_push_bool(struct td_machine *m, bool truth)
{
    return td_machine_push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_BOOL, .as.truth = truth});
}

bool td_machine_push_int(struct td_machine *m, int64_t integer)
{
    return td_machine_push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_INT, .as.integer = integer});
}

uint32_t td_twos_complement_len(const uint8_t *bytes, uint32_t len)
{
    while (len > 1 &&
           ((bytes[len - 1] == 0x00 && bytes[len - 2] < 0x80) || (bytes[len - 1] == 0xff && bytes[len - 2] >= 0x80)))
        len--;
    return len;
}

int64_t td_load_twos_complement(const uint8_t *bytes, uint32_t len)
{
    uint64_t number = len > 0 && bytes[len - 1] >= 0x80 ? UINT64_MAX : 0;
    for (uint32_t i = len; i > 0; i--)
        number = number << 8 | bytes[i - 1];
    return (int64_t)number;
}

bool td_machine_push_text(struct td_machine *m, enum td_pickle_kind kind, const char *text, struct td_pickle_span span,
                          unsigned flags)
{
    if (kind == TD_PICKLE_STRING && td_utf8_valid(text, span.len))
        flags |= TD_PICKLE_FLAG_UTF8;
    return td_machine_push_value(m, (struct td_pickle_value){.kind = (uint8_t)kind,
                                                             .flags = (uint8_t)flags,
                                                             .as.text = {.off = span.off, .len = span.len}});
}
