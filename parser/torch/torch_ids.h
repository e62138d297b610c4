/* The storages that a pickle refers to, each described in one way. Internal to the torch readers. */
#ifndef TD_PARSER_TORCH_IDS_H
#define TD_PARSER_TORCH_IDS_H

#include "core/arena.h"
#include "core/text.h"
#include "parser/torch/torch_storage.h"

struct td_torch_ids {
    struct td_torch_storage *storages; /* sorted by key, unique */
    size_t count;
};

/* Reads every persistent id of the pickle, whether a tensor comes of it or not, as torch does. A key with two types or
 * sizes is refused, and so is a view's key with two meanings: torch keeps what it meets first. is_legacy: views and
 * ('module', ...) ids may occur. The memory shares the limit of `budget`. Call fini in every case. */
bool td_torch_ids_read(struct td_torch_ids *ids, struct td_pickle *pickle, bool is_legacy, struct td_arena *budget,
                       struct td_error *err);
void td_torch_ids_fini(struct td_torch_ids *ids);

/* The place of the storage with this key among them, or count. */
size_t td_torch_ids_find(const struct td_torch_ids *ids, struct td_text key);

#endif
