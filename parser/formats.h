/* The registry of checkpoint formats: a format is a td_format and a row in formats.c. Thread-safe. */
#ifndef TD_PARSER_FORMATS_H
#define TD_PARSER_FORMATS_H

#include "parser/format/format.h"

#include <stddef.h>

/* Returns the format that claims the file name by its extension in upper or lower case, or NULL when the name is not of
 * a checkpoint file. */
const struct td_format *td_format_for_name(const char *file_name);

/* Returns whether only the bytes show if a file of this name is a checkpoint file: files of torch.save and many others
 * have such names (.tar, .pkl, .model). td_format_for_name returns NULL for them. */
bool td_format_may_have_name(const char *file_name);

/* Returns the i-th registered format, or NULL past the last. */
const struct td_format *td_format_at(size_t i);

/* Parses a file into *manifest, which the caller has initialised and finalises, and sets *format. file_name is the base
 * name. It decides the format, except among PyTorch's and HDF5's extensions, where the first bytes decide: these
 * extensions are used for each other's files and for GGUF, and a .bin file may be no checkpoint at all. The same holds
 * for extensions that other programs use, too (.th, .sft), and for the names of td_format_may_have_name. A file that is
 * no checkpoint is not an error: *format is NULL and the manifest stays empty. Names a bare tensor after the file's
 * stem. Errors: those of the format's `parse`; TD_INVALID_ARGUMENT with TD_LFS_POINTER_REASON for a Git LFS pointer.
 * After an error *format is the format that was tried. */
bool td_format_parse(const char *file_name, const struct td_input *input, const struct td_limits *limits,
                     const struct td_format **format, struct td_manifest *manifest, struct td_error *err);

/* ---- Git LFS pointers ----
 * A few lines of text that git leaves in place of a large file that was not fetched. */

/* The error of a file that is a pointer. */
#define TD_LFS_POINTER_REASON "a Git LFS pointer, not the file itself; run git lfs pull"

/* A pointer has fewer bytes than this. Source: docs/spec.md of git-lfs. */
enum { TD_LFS_POINTER_BYTES = 1024 };

/* Sets *is to whether the input is a pointer. Reads its first bytes if it has fewer than TD_LFS_POINTER_BYTES. Returns
 * false with the input's error, and *is false, when they could not be read. */
bool td_lfs_pointer_check(const struct td_input *input, bool *is, struct td_error *err);

#endif
