#include "catalog/model/reserved_id.h"

static const char *const words[] = {"tensors", "files", "plans", "shards", "versions", "changes", "model.safetensors"};

bool td_id_is_reserved(struct td_text id)
{
    struct td_text last = td_text_take_last(&id, '/');
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (td_text_equals(last, words[i]))
            return true;
    return false;
}
