/* Counts what a walk over a pickle does, by the linker's --wrap of the functions that it calls for each value: a
 * measure of work that is the same on every machine, under every sanitizer and at every load. Single-threaded. */
#ifndef TD_TESTS_WALK_HOOKS_H
#define TD_TESTS_WALK_HOOKS_H

#include <stdint.h>

/* Counts from zero. The call that exceeds one of the two bounds fails the running test at once, so that a walk without
 * end ends too. Looks are calls of td_pickle_kind, td_pickle_item, td_pickle_text, td_pickle_map_key and
 * td_pickle_map_value; key bytes are what td_torch_write_key appends. */
void walk_count_start(uint64_t looks_max, uint64_t key_bytes_max);

/* Lifts the bounds. */
void walk_count_end(void);

#endif
