/* Reads and writes of descriptors that end only when all bytes are through. */
#ifndef TD_CORE_FILE_IO_H
#define TD_CORE_FILE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads `len` bytes at `off` from the descriptor, and fewer only where the file ends. Returns the number of bytes that
 * were read, or -1 with errno. */
ssize_t td_read_at(int fd, void *out, size_t len, uint64_t off);

/* Writes all bytes to the descriptor, which blocks. Returns false, with errno, when that fails; some may be written. */
bool td_write_all(int fd, const void *bytes, size_t len);

#endif
