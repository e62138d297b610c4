/* The registry of checkpoint formats: each is a td_format and a row in formats.c. Thread-safe. */
#ifndef TD_PARSER_FORMATS_H
#define TD_PARSER_FORMATS_H

#include "parser/format.h"

#include <stddef.h>

/* The format that claims this file name by its extension, or NULL when it is no checkpoint file. */
const struct td_format *td_format_for_name(const char *file_name);

/* The registered formats one after another; NULL past the last. */
const struct td_format *td_format_at(size_t i);

/* Parses a file whose name td_format_for_name knows. Its first bytes decide where the name leaves it open: PyTorch's
 * extensions and HDF5's are used for each other's files and for GGUF, and a .bin may be no checkpoint at all. *format
 * is what was found; NULL (and true, and an empty manifest) for a file that is none. A bare tensor is named by the
 * file's stem. A Git LFS pointer in the place of a file is refused as such. */
bool td_format_parse(const char *file_name, const struct td_input *input, const struct td_limits *limits,
                     const struct td_format **format, struct td_manifest *manifest, struct td_error *err);

#endif
