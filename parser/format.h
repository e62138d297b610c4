/* What every checkpoint format is to the rest of the program. A parser is a pure function of its input: no paths, no
 * descriptors, no globals, no recursion. parser/formats.c lists all formats. */
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

#endif
