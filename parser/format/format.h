/* The interface of every checkpoint format. A parser is a pure function of its input: no paths, no descriptors, no
 * globals, no recursion. parser/formats.c lists all formats. */
#ifndef TD_PARSER_FORMAT_FORMAT_H
#define TD_PARSER_FORMAT_FORMAT_H

#include "core/error.h"
#include "core/input.h"
#include "parser/format/limits.h"
#include "parser/format/manifest.h"

#include <stdbool.h>

struct td_format {
    const char *name;              /* as manifests show it: "safetensors" */
    const char *const *extensions; /* NULL-terminated, with the dot: ".safetensors" */
    /* Writers split models of this format into groups of files, stem-00001-of-00003, without an index. */
    bool splits;

    /* Fills *manifest, which the caller has initialised with limits->max_memory_bytes. Reads no tensor bytes. A file
     * that is one bare tensor gives the tensor the name "" and sets manifest->bare. The caller calls td_manifest_fini
     * in every case. Errors: TD_INVALID_ARGUMENT with the position when the bytes are wrong; TD_RESOURCE_EXHAUSTED past
     * the limits (TD_INVALID_ARGUMENT in ONNX past max_header_bytes) or when memory is short; those of the input.
     * Thread-safe. */
    bool (*parse)(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                  struct td_error *err);
};

#endif
