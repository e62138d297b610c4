/* safetensors: u64le N, N bytes of JSON, data. Strict, as the reference (huggingface/safetensors tensor.rs),
 * and stricter where the specification is: duplicate keys are refused, and so are names with an escaped
 * NUL. */
#ifndef TD_PARSER_SAFETENSORS_H
#define TD_PARSER_SAFETENSORS_H

#include "parser/format.h"

extern const struct td_format td_format_safetensors;

#endif
