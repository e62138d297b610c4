/* GGUF, versions 2 and 3, in both byte orders: counts, key-value pairs, tensor infos, aligned data. As strict as the
 * reference (ggml's gguf.cpp), and stricter where the specification is: a bool is 0 or 1, a key has at most 65,535
 * bytes, and neither a key nor a name holds a NUL. Every pair becomes metadata. Strings of more than 4,096 bytes and
 * arrays of more than 64 items are cut: {"length":N,"first":...}. */
#ifndef TD_PARSER_GGUF_H
#define TD_PARSER_GGUF_H

#include "parser/format/format.h"

extern const struct td_format td_format_gguf;

/* The keys of the pairs that split files have. Their values become the manifest's split_number and split_count. */
#define TD_GGUF_SPLIT_NO "split.no"
#define TD_GGUF_SPLIT_COUNT "split.count"

#endif
