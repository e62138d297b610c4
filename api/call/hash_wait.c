#include "api/call/hash_wait.h"

unsigned td_hash_retry_s(double left_bytes, uint64_t hashed_bytes, uint64_t took_ns)
{
    const double assumed = 1e9; /* bytes/s */
    double took_s = (double)took_ns / 1e9;
    double rate = took_s < 0.1 || hashed_bytes == 0 ? assumed : (double)hashed_bytes / took_s;
    double left_s = left_bytes / rate;
    if (left_s >= TD_HASH_RETRY_MOST_S)
        return TD_HASH_RETRY_MOST_S;
    unsigned whole_s = (unsigned)left_s;
    whole_s += (double)whole_s < left_s ? 1 : 0;
    return whole_s < TD_HASH_RETRY_LEAST_S ? TD_HASH_RETRY_LEAST_S : whole_s;
}
