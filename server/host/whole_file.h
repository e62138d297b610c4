/* Reads small files that an option names, such as a configuration or a certificate, whole. */
#ifndef TD_SERVER_HOST_WHOLE_FILE_H
#define TD_SERVER_HOST_WHOLE_FILE_H

#include "core/buffer.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Appends the content of the regular file at `path` to `out`, at most `limit` bytes. `what` names the kind of file in
 * messages: "configuration". *st describes the file; NULL: not wanted. Does not wait for the writer of a FIFO. Errors:
 * TD_IO, TD_FAILED_PRECONDITION for anything but a regular file and for a longer one, TD_RESOURCE_EXHAUSTED. */
bool td_whole_file_read(const char *path, const char *what, size_t limit, struct td_buffer *out, struct stat *st,
                        struct td_error *err);

#endif
