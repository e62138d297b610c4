#include "tests/unit/work.h"

#include "tests/unit/unit.h"

#include <inttypes.h>

static _Thread_local uint64_t blocks;

/* The compiler inserts a call of this function at the beginning of each basic block. */
void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void)
{
    blocks++;
}

uint64_t work_now(void)
{
    return blocks;
}

void check_linear(uint64_t half, uint64_t whole, const char *what)
{
    CHECK(half > 0 && whole > half && whole / 5 <= half / 2, "%s: %" PRIu64 " blocks, for half of it %" PRIu64, what,
          whole, half);
}
