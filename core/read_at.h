/* Reads at a place of a file. */
#ifndef TD_CORE_READ_AT_H
#define TD_CORE_READ_AT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads `len` bytes at `off` from the descriptor, and fewer only where the file ends. Returns the number of bytes that
 * were read, or -1 with errno. */
ssize_t td_read_at(int fd, void *out, size_t len, uint64_t off);

#endif
