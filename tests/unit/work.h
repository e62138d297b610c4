/* Counts the work of the sources that td_count_work names in CMakeLists.txt: they are compiled once more for the test,
 * so that each basic block that runs is counted (-fsanitize-coverage=trace-pc). The number is the same on every machine
 * and at every load. The work of the C library (memcpy, strcmp) is not counted. */
#ifndef TD_TESTS_UNIT_WORK_H
#define TD_TESTS_UNIT_WORK_H

#include <stdint.h>

/* Returns the number of basic blocks that this thread has run. */
uint64_t work_now(void);

/* Fails the test when twice the input took more than 2.5 times the work (`whole`, against `half`). n log n passes; n^2
 * takes four times the work. */
void check_linear(uint64_t half, uint64_t whole, const char *what);

#endif
