/* Git LFS pointers: the few lines of text that git leaves in the place of a large file that was not fetched. */
#ifndef TD_PARSER_LFS_POINTER_H
#define TD_PARSER_LFS_POINTER_H

#include "core/input.h"

#include <stdbool.h>

/* What is said of one, as a file's error. */
#define TD_LFS_POINTER_REASON "a Git LFS pointer, not the file itself; run git lfs pull"

/* A pointer has fewer bytes. Source: docs/spec.md of git-lfs. */
enum { TD_LFS_POINTER_BYTES = 1024 };

/* Whether these first bytes of a file are a pointer's: it begins with `version` and the URL of the specification. */
bool td_lfs_pointer_begins(const uint8_t *head, size_t len);

/* Sets *is to whether the whole input is a pointer; reads some bytes of it when it is short enough for one. False: it
 * could not be read. */
bool td_lfs_pointer_check(const struct td_input *input, bool *is, struct td_error *err);

#endif
