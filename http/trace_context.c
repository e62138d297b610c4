#include "http/trace_context.h"

#include "core/digits.h"

/* The places of the parts of "00-{trace_id}-{parent_id}-{flags}". */
enum {
    VERSION_LEN = 2,
    TRACE_AT = 3,
    TRACE_LEN = 32,
    PARENT_AT = TRACE_AT + TRACE_LEN + 1,
    PARENT_LEN = 16,
    FLAGS_AT = PARENT_AT + PARENT_LEN + 1,
    FLAGS_LEN = 2,
    ALL_LEN = FLAGS_AT + FLAGS_LEN
};

static bool is_all_zero(struct td_text digits)
{
    for (size_t i = 0; i < digits.len; i++)
        if (digits.p[i] != '0')
            return false;
    return true;
}

bool td_trace_context_read(struct td_text value, struct td_trace_context *out)
{
    if (value.len < ALL_LEN)
        return false;
    struct td_text version = td_text_n(value.p, VERSION_LEN);
    struct td_text trace_id = td_text_n(value.p + TRACE_AT, TRACE_LEN);
    struct td_text parent_id = td_text_n(value.p + PARENT_AT, PARENT_LEN);
    struct td_text flags = td_text_n(value.p + FLAGS_AT, FLAGS_LEN);
    if (value.p[TRACE_AT - 1] != '-' || value.p[PARENT_AT - 1] != '-' || value.p[FLAGS_AT - 1] != '-' ||
        !td_hex_is_lower(version) || !td_hex_is_lower(trace_id) || !td_hex_is_lower(parent_id) ||
        !td_hex_is_lower(flags) || td_text_equals(version, "ff") || is_all_zero(trace_id) || is_all_zero(parent_id))
        return false;
    if (value.len > ALL_LEN && (td_text_equals(version, "00") || value.p[ALL_LEN] != '-'))
        return false;
    *out = (struct td_trace_context){.trace_id = trace_id, .parent_id = parent_id};
    return true;
}
