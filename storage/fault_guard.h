/* Copies from mapped memory that may fault. A load from a mapping raises SIGBUS when the file was truncated or the disk
 * fails; these functions then return false. Each thread has its own guard, which costs nanoseconds. Any other SIGBUS
 * keeps its default effect (a crash), so bugs are not hidden. */
#ifndef TD_STORAGE_FAULT_GUARD_H
#define TD_STORAGE_FAULT_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Installs the SIGBUS handler of the process. Call once, before threads start. Returns false with errno set on
 * failure. */
bool td_fault_guard_install(void);

/* Copies len bytes to out. Returns false when `from` cannot be read; out is then partly written. */
bool td_fault_guard_copy(void *out, const void *from, size_t len);

/* Copies `count` runs of `len` bytes to out, one after the other; run i begins at from + i * stride. Returns false as
 * td_fault_guard_copy does. */
bool td_fault_guard_gather(void *out, const void *from, size_t len, size_t count, size_t stride);

/* Reads a byte of each page of [from, from+len), so that all of them are in memory; waits for the disk. Returns false
 * when a page cannot be read. A system call that meets a page which is not in memory may wait for the disk with a lock
 * held: send, with that of the socket. */
bool td_fault_guard_touch(const void *from, size_t len);

#endif
