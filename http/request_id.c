/* Ids are the numbers from a random start on, mixed by a bijection (td_mix64), so that they are
 * unique in this process, hardly meet those of another one, and look different from each other. */
#include "http/request_id.h"

#include "core/clock.h"
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
