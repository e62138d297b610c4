/* Git LFS pointers: a few lines of text that git leaves in place of a large file that was not fetched. */
#ifndef TD_PARSER_LFS_POINTER_H
#define TD_PARSER_LFS_POINTER_H

#include "core/input.h"

#include <stdbool.h>

/* The error of a file that is a pointer. */
#define TD_LFS_POINTER_REASON "a Git LFS pointer, not the file itself; run git lfs pull"

/* A pointer has fewer bytes than this. Source: docs/spec.md of git-lfs. */
enum { TD_LFS_POINTER_BYTES = 1024 };

/* Returns whether a file that begins with these bytes can be a pointer: a pointer begins with `version` and the URL of
 * the specification. */
bool td_lfs_pointer_begins(const uint8_t *head, size_t len);

/* Sets *is to whether the input is a pointer. Reads its first bytes if it has fewer than TD_LFS_POINTER_BYTES. Returns
 * false with the input's error, and *is false, when they could not be read. */
bool td_lfs_pointer_check(const struct td_input *input, bool *is, struct td_error *err);

#endif
