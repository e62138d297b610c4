/* The registry of checkpoint formats. A format is one file in parser/ that fills one td_format and one line
 * in format.c. A parser is a pure function of its input: no paths, no descriptors, no globals, no
 * recursion. */
#ifndef TD_PARSER_FORMAT_H
#define TD_PARSER_FORMAT_H

#include "core/error.h"
#include "core/input.h"
#include "parser/manifest.h"

#include <stdbool.h>

struct td_format {
    const char *name;              /* "safetensors", as manifests show it */
    const char *const *extensions; /* NULL-terminated, with the dot: ".safetensors" */
    bool
        splits; /* its files are made to come in groups, stem-00001-of-00003, that are known by the stem alone */

    /* Fills *manifest (which the caller initialised with limits->max_memory_bytes and finishes with
     * td_manifest_fini, also on failure). On failure *err has the position and the reason. Reads no tensor bytes.
     * A file that is one bare tensor gives it the name "". Thread-safe. */
    bool (*parse)(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                  struct td_error *err);
};

/* The format that claims this file name by its extension, or NULL when it is no checkpoint file. */
const struct td_format *td_format_for_name(const char *file_name);

/* The registered formats one after another; NULL past the last. */
const struct td_format *td_format_at(size_t i);

/* Parses a file whose name td_format_for_name knows. Its first bytes decide where the name leaves it open: a .bin may
 * hold GGUF or something that is no checkpoint at all. *format is what was found; NULL (and true, and an empty manifest)
 * for such a file. A bare tensor is named by the file's stem. */
bool td_format_parse(const char *file_name, const struct td_input *input, const struct td_limits *limits,
                     const struct td_format **format, struct td_manifest *manifest, struct td_error *err);

#endif
