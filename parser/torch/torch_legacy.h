/* What torch.save wrote before 1.6, and still does when asked to: pickles one after another, then the storages. Source:
 * torch/serialization.py, _legacy_save and _legacy_load. */
#ifndef TD_PARSER_TORCH_LEGACY_H
#define TD_PARSER_TORCH_LEGACY_H

#include "parser/format.h"

/* Whether a file that begins with head[0..len) is one: a pickle of protocol 2 or newer that starts with torch.save's
 * own number. 23 bytes are enough. */
bool td_torch_is_legacy(const uint8_t *head, size_t len);

/* Fills the manifest and finishes it. */
bool td_torch_parse_legacy(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                           struct td_error *err);

/* Gives names that occur twice a number and finishes the manifest (torch.c). */
bool td_torch_finish(struct td_manifest *manifest, struct td_error *err);

#endif
