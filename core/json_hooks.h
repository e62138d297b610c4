/* The allocator of cJSON. */
#ifndef TD_CORE_JSON_HOOKS_H
#define TD_CORE_JSON_HOOKS_H

/* Makes cJSON allocate with malloc and free as this program links them, so that tests that count or fail allocations
 * see those of cJSON. Call before any other function of cJSON; later calls do nothing. Thread-safe. */
void td_json_hooks_install(void);

#endif
