/* Ids that the server makes are the numbers from a random start on, mixed by a bijection (td_mix64), so that they are
 * unique in this process, hardly meet those of another one, and look different from each other. */
#include "http/request_id.h"

#include "core/clock.h"
#include "core/digits.h"
#include "core/mix64.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

static _Atomic uint64_t next_number;
static pthread_once_t started = PTHREAD_ONCE_INIT;

static void seed_number(void)
{
    uint64_t first;
    if (getrandom(&first, sizeof first, GRND_NONBLOCK) != (ssize_t)sizeof first)
        first = td_clock_ns();
    atomic_store(&next_number, first);
}

static void make_id(char *id)
{
    enum { DIGITS = 16 };
    (void)pthread_once(&started, seed_number);
    uint64_t number = td_mix64(atomic_fetch_add_explicit(&next_number, 1, memory_order_relaxed));
    for (size_t i = DIGITS; i > 0; i--, number >>= 4)
        id[i - 1] = "0123456789ABCDEF"[number & 15];
    id[DIGITS] = '\0';
}

static bool is_well_formed(struct td_text id)
{
    if (id.len == 0 || id.len >= TD_REQUEST_ID_BYTES)
        return false;
    for (size_t i = 0; i < id.len; i++)
        if (id.p[i] <= ' ' || id.p[i] > '~' || id.p[i] == '"' || id.p[i] == '\'' || id.p[i] == '\\')
            return false;
    return true;
}

void td_request_id_choose(const struct td_request *request, char id[TD_REQUEST_ID_BYTES])
{
    const struct td_header *sent = td_request_single_header(request, "X-Request-Id");
    if (sent == NULL || !is_well_formed(sent->value)) {
        make_id(id);
        return;
    }
    memcpy(id, sent->value.p, sent->value.len);
    id[sent->value.len] = '\0';
}

/* ---- the trace ------------------------------------------------------------------------------------------ */

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
