/* The format of torch.save before 1.6, which torch.save still writes when asked to: pickles one after another, then the
 * storages. Source: torch/serialization.py, _legacy_save and _legacy_load. */
#ifndef TD_PARSER_TORCH_TORCH_LEGACY_H
#define TD_PARSER_TORCH_TORCH_LEGACY_H

#include "core/error.h"
#include "core/input.h"
#include "parser/format/limits.h"
#include "parser/format/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of a file's beginning that are enough for td_torch_is_legacy. */
enum { TD_TORCH_LEGACY_HEAD_BYTES = 32 };

/* Returns whether a file that begins with head[0..len) has this format: a pickle that starts with torch.save's own
 * number, which protocols 0 and 1 write in decimal digits. */
bool td_torch_is_legacy(const uint8_t *head, size_t len);

/* Fills the manifest and finishes it. */
bool td_torch_parse_legacy(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                           struct td_error *err);

#endif
