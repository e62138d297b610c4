/* Reading mapped memory that may fault. A load from a mapping whose file was truncated, or whose disk fails,
 * raises SIGBUS; here it becomes a false result. The guard is per thread and costs nanoseconds; a SIGBUS that is
 * not ours keeps its default effect (a crash), so our own bugs are not swallowed. */
#ifndef TD_STORAGE_FAULT_GUARD_H
#define TD_STORAGE_FAULT_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Installs the process-wide SIGBUS handler; call once, before threads start. False: errno says why. */
bool td_fault_guard_install(void);

/* memcpy that returns false when the source cannot be read. out is then partly written. */
bool td_fault_guard_copy(void *out, const void *from, size_t len);

/* count runs of len bytes, stride bytes from one's beginning to the next's, packed one after another into out. */
bool td_fault_guard_gather(void *out, const void *from, size_t len, size_t count, size_t stride);

#endif
