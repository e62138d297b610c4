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

    /* Fills *manifest (which the caller initialised and finishes with td_manifest_fini, also on failure).
     * On failure *err has the position and the reason. Reads no tensor bytes. Thread-safe. */
    bool (*parse)(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                  struct td_error *err);
};

/* The format that claims this file name by its extension, or NULL when it is no checkpoint file. */
const struct td_format *td_format_for_name(const char *file_name);

#endif
