/* GGUF versions 2 and 3, little-endian: counts, key-value pairs, tensor infos, aligned data. Strict, as the reference
 * (ggml's gguf.cpp), and stricter where the specification is: a bool is 0 or 1, a key has at most 65,535 bytes, and
 * neither a key nor a name holds a NUL. Every pair becomes metadata; long values are cut and say how long they were. */
#ifndef TD_PARSER_GGUF_H
#define TD_PARSER_GGUF_H

#include "parser/format.h"

extern const struct td_format td_format_gguf;

/* The pairs by which a set of split files is told: the manifest's split_number and split_count. */
#define TD_GGUF_SPLIT_NO "split.no"
#define TD_GGUF_SPLIT_COUNT "split.count"

#endif
