#include "storage/fetch/fetch_backoff.h"

#define FIRST_NS UINT64_C(250000000)
#define MOST_NS UINT64_C(15000000000)
#define SECOND_NS UINT64_C(1000000000)

uint64_t td_fetch_backoff_ns(unsigned failures, uint64_t retry_after_s, uint64_t random)
{
    uint64_t whole = FIRST_NS;
    for (unsigned i = 1; i < failures && whole < MOST_NS; i++)
        whole *= 2;
    if (whole > MOST_NS)
        whole = MOST_NS;
    uint64_t ns = whole / 2 + random % (whole / 2 + 1);
    uint64_t told = retry_after_s < UINT64_MAX / SECOND_NS ? retry_after_s * SECOND_NS : UINT64_MAX;
    return told > ns ? told : ns;
}
