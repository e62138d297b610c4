/* Writes to descriptors. */
#ifndef TD_CORE_WRITE_ALL_H
#define TD_CORE_WRITE_ALL_H

#include <stdbool.h>
#include <stddef.h>

/* Writes all bytes to the descriptor, which blocks. Returns false, with errno, when that fails; some may be written. */
bool td_write_all(int fd, const void *bytes, size_t len);

#endif
