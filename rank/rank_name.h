/* The names of rank files: which engine's, of how many ranks, which rank's. Pure; what paths of every facade have in
 * common. */
#ifndef TD_RANK_RANK_NAME_H
#define TD_RANK_RANK_NAME_H

#include "http/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which files: an engine's for so many ranks, or those of a plan that a client registered. Text is borrowed. */
struct td_rank_name {
    struct td_text engine; /* empty: a registered plan */
    struct td_text id;     /* of a registered one */
    uint64_t tp_size;
    bool by_engine, by_config; /* an engine's rules make them; and config.json is asked for them */
};

/* The name of an engine's files. False: there is no such engine. tp_size is not looked at: 0 may be filled in later. */
bool td_rank_name_engine(struct td_text engine, uint64_t tp_size, struct td_rank_name *out);

/* "tp{n}", n from 1 to TD_MAX_TP_SIZE. */
bool td_rank_name_read_size(struct td_text text, uint64_t *tp_size);

/* "rank{r}"; numbers as below. */
bool td_rank_name_read_rank(struct td_text text, uint64_t *rank);

/* "rank-{r}.safetensors", "rank-{r}.json", or "model-rank-{r}-part-0.safetensors", by which vLLM and SGLang ask for a
 * sharded state. Numbers have no sign and no leading zeros, and are below 10^9. */
bool td_rank_name_read_file(struct td_text text, uint64_t *rank, bool *as_json);

/* "model-rank-{r}-part-0.safetensors" alone. */
bool td_rank_name_read_state(struct td_text text, uint64_t *rank);

/* Writes "model-rank-{r}-part-0.safetensors"; its length, as snprintf's. */
int td_rank_name_write_state(uint64_t rank, char *out, size_t capacity);

#endif
