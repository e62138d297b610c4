#include "rank/rank_name.h"

#include "core/digits.h"
#include "slicing/engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool td_rank_name_engine(struct td_text engine, uint64_t tp_size, struct td_rank_name *out)
{
    const char *own = td_engine_own_name(engine);
    *out = (struct td_rank_name){.tp_size = tp_size, .by_engine = true};
    if (own == NULL)
        return false;
    out->engine = td_text_of(own);
    out->by_config = td_engine_needs_config(engine);
    return true;
}

static bool read_number(struct td_text text, uint64_t *out)
{
    return td_number_read_strict(text, 999999999, out);
}

/* Sets *out to the text between a prefix and a suffix. */
static bool take_between(struct td_text text, const char *prefix, const char *suffix, struct td_text *out)
{
    size_t before = strlen(prefix);
    size_t after = strlen(suffix);
    if (text.len < before + after || !td_text_begins(text, td_text_of(prefix)) ||
        memcmp(text.p + text.len - after, suffix, after) != 0)
        return false;
    *out = td_text_n(text.p + before, text.len - before - after);
    return true;
}

bool td_rank_name_read_size(struct td_text text, uint64_t *tp_size)
{
    struct td_text number;
    return take_between(text, "tp", "", &number) && read_number(number, tp_size) && *tp_size >= 1 &&
           *tp_size <= TD_MAX_TP_SIZE;
}

bool td_rank_name_read_rank(struct td_text text, uint64_t *rank)
{
    struct td_text number;
    return take_between(text, "rank", "", &number) && read_number(number, rank);
}

bool td_rank_name_read_file(struct td_text text, uint64_t *rank, bool *as_json)
{
    struct td_text number;
    *as_json = take_between(text, "rank-", ".json", &number);
    return *as_json || take_between(text, "rank-", ".safetensors", &number) ? read_number(number, rank)
                                                                            : td_rank_name_read_state(text, rank);
}

bool td_rank_name_read_state(struct td_text text, uint64_t *rank)
{
    struct td_text number;
    return take_between(text, "model-rank-", "-part-0.safetensors", &number) && read_number(number, rank);
}

int td_rank_name_write_state(uint64_t rank, char *out, size_t capacity)
{
    return snprintf(out, capacity, "model-rank-%" PRIu64 "-part-0.safetensors", rank);
}
