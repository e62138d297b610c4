/* Reads and writes of descriptors that end only when all bytes are through, and files that are replaced durably. */
#ifndef TD_CORE_FILE_IO_H
#define TD_CORE_FILE_IO_H

#include "core/text.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads `len` bytes at `off` from the descriptor, and fewer only where the file ends. Returns the number of bytes that
 * were read, or -1 with errno. */
ssize_t td_read_at(int fd, void *out, size_t len, uint64_t off);

/* Writes all bytes at `off` of the descriptor, and does not move its position. Returns false, with errno, when that
 * fails; some may be written. */
bool td_write_at(int fd, const void *bytes, size_t len, uint64_t off);

/* Writes all bytes to the descriptor, which blocks. Returns false, with errno, when that fails; some may be written. */
bool td_write_all(int fd, const void *bytes, size_t len);

/* A file that is being replaced durably: the new content is written beside the file, and takes its place by a rename.
 * So a reader, and a start after a power cut, finds the old content or the new one, and each of them whole. All but
 * `fd` is private. */
struct td_durable_file {
    int fd; /* for the new content, readable and writable */
    int at;
    const char *path;
    char new_path[PATH_MAX];
};

/* Begins to replace the file at `path`, borrowed, below the directory `at`: creates PATH.new, empty and with these
 * permissions, and replaces a PATH.new of an earlier process. Returns false, with errno and nothing to end, when that
 * fails. */
bool td_durable_file_begin(struct td_durable_file *file, int at, const char *path, mode_t mode);

/* Ends it. is_written: the new content is whole; else it is dropped, and errno stays what it was. Makes content, name
 * and directory durable. Returns the descriptor of the new file, which the caller closes; or -1, with errno, and the
 * file is what it was (or, when only the directory could not be written, perhaps the new one). */
int td_durable_file_end(struct td_durable_file *file, bool is_written);

/* Replaces a file by this content. Returns false, with errno, as above. */
bool td_durable_file_write(int at, const char *path, struct td_text content, mode_t mode);

#endif
