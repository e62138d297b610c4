/* The registry of checkpoint formats. A format is a td_format, in a file of parser/ or in several, and a line in
 * format.c. A parser is a pure function of its input: no paths, no descriptors, no globals, no recursion. */
#ifndef TD_PARSER_FORMAT_H
#define TD_PARSER_FORMAT_H

#include "core/error.h"
#include "core/input.h"
#include "parser/limits.h"
#include "parser/manifest.h"

#include <stdbool.h>

struct td_format {
    const char *name;              /* "safetensors", as manifests show it */
    const char *const *extensions; /* NULL-terminated, with the dot: ".safetensors" */
    /* Its files are made to come in groups, stem-00001-of-00003, that are known by the stem alone. */
    bool splits;

    /* Fills *manifest (which the caller initialised with limits->max_memory_bytes and finishes with
     * td_manifest_fini, also on failure). On failure *err has the position and the reason. Reads no tensor bytes.
     * A file that is one bare tensor gives it the name "" and says so: manifest->bare. Thread-safe. */
    bool (*parse)(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                  struct td_error *err);
};

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
