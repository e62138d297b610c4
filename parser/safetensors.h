/* safetensors: N as an unsigned 64-bit little-endian number, N bytes of JSON, data. As strict as the reference
 * (huggingface/safetensors tensor.rs), and stricter where the specification is: duplicate keys and names with an
 * escaped NUL are refused. */
#ifndef TD_PARSER_SAFETENSORS_H
#define TD_PARSER_SAFETENSORS_H

#include "parser/format/format.h"

extern const struct td_format td_format_safetensors;

#endif
