/* The names of rank files, which the paths of all facades share: the engine or plan, the number of ranks, the rank.
 * Pure. */
#ifndef TD_RANK_RANK_NAME_H
#define TD_RANK_RANK_NAME_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Identifies the rank files of an engine for some number of ranks, or those of a registered plan. Text is borrowed. */
struct td_rank_name {
    struct td_text engine;     /* its own name; empty for a registered plan */
    struct td_text stands_for; /* own name of the engine that a registered plan gives by an alias; else empty */
    struct td_text id;         /* id of a registered plan; else empty */
    uint64_t tp_size;          /* number of ranks */
    bool by_engine, by_config; /* an engine's rules make the files; these rules read config.json */
    bool is_boxes;             /* a registered plan of boxes: it has one file, which is not for a rank */
};

/* Sets *out to the name of an engine's files for tp_size ranks; "vllm" becomes the name of its newest version. Returns
 * false when there is no such engine. Does not check tp_size: a caller that does not know it yet gives 0 and sets
 * out->tp_size later. */
bool td_rank_name_engine(struct td_text engine, uint64_t tp_size, struct td_rank_name *out);

/* Reads "tp{n}", n from 1 to TD_MAX_TP_SIZE. The next functions read a whole text in the same way:
 * numbers have no sign and no leading zeros and are below 10^9; any other text returns false, with *out values
 * undefined. */
bool td_rank_name_read_size(struct td_text text, uint64_t *tp_size);

/* Reads "rank{r}". Does not compare the rank with a number of ranks. */
bool td_rank_name_read_rank(struct td_text text, uint64_t *rank);

/* Reads "rank-{r}.safetensors", "rank-{r}.json" (sets *as_json), or "model-rank-{r}-part-0.safetensors", the name by
 * which vLLM and SGLang ask for a sharded state. */
bool td_rank_name_read_file(struct td_text text, uint64_t *rank, bool *as_json);

/* Reads "model-rank-{r}-part-0.safetensors" alone. */
bool td_rank_name_read_state(struct td_text text, uint64_t *rank);

/* Writes "model-rank-{r}-part-0.safetensors" and a NUL to out[capacity]. Returns its length, as snprintf does. */
int td_rank_name_write_state(uint64_t rank, char *out, size_t capacity);

#endif
