/* Counts the work of a walk over a pickle, through the linker's --wrap of the functions that a walk calls for each
 * value. The count is the same on every machine, under every sanitizer and at every load. Single-threaded. */
#ifndef TD_TESTS_UNIT_PARSER_WALK_HOOKS_H
#define TD_TESTS_UNIT_PARSER_WALK_HOOKS_H

#include <stdint.h>

/* Starts to count from zero. The call that exceeds one of the two bounds fails the running test at once, so that an
 * endless walk ends, too. A look is a call of td_pickle_kind, td_pickle_item, td_pickle_text, td_pickle_map_key or
 * td_pickle_map_value; key bytes are what td_torch_write_key appends. */
void walk_count_start(uint64_t looks_max, uint64_t key_bytes_max);

/* Lifts the bounds. */
void walk_count_end(void);

#endif
