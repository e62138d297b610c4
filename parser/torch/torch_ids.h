/* The storages that a pickle refers to, each with one description. Only for parser/torch. */
#ifndef TD_PARSER_TORCH_TORCH_IDS_H
#define TD_PARSER_TORCH_TORCH_IDS_H

#include "core/arena.h"
#include "core/text.h"
#include "parser/torch/torch_storage.h"

struct td_torch_ids {
    struct td_torch_storage *storages; /* sorted by key, unique */
    size_t count;
};

/* Reads every persistent id of the pickle, whether or not a tensor uses it, as torch does. Refuses a key with two types
 * or sizes, and a view's key with two meanings, because torch would use the first that it meets for all. is_legacy
 * allows views and ('module', ...) ids. The memory counts against the limit of `budget`. Call td_torch_ids_fini in
 * every case. */
bool td_torch_ids_read(struct td_torch_ids *ids, struct td_pickle *pickle, bool is_legacy, struct td_arena *budget,
                       struct td_error *err);
/* Frees the list. The keys belong to the pickle. */
void td_torch_ids_fini(struct td_torch_ids *ids);

/* Returns the index of the storage with this key, or count. */
size_t td_torch_ids_find(const struct td_torch_ids *ids, struct td_text key);

#endif
