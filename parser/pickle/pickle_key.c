#include "parser/pickle/pickle_key.h"

#include "parser/pickle/pickle_store.h"

#include <math.h>
#include <string.h>

struct td_pickle_key td_pickle_key_of_text(enum td_pickle_key_class class, struct td_text text)
{
    struct td_pickle_key key = {.class = class, .text = text};
    for (size_t i = 0; i < sizeof key.prefix; i++)
        key.prefix = key.prefix << 8 | (i < text.len ? (uint8_t)text.p[i] : 0);
    return key;
}

/* 1, 1.0 and True are the same key. A NaN equals only itself, the same value. */
static struct td_pickle_key key_of_float(double real, td_pickle_ref ref)
{
    if (isnan(real))
        return (struct td_pickle_key){.class = TD_KEY_IDENTITY, .prefix = ref};
    if (real >= -0x1p63 && real < 0x1p63 && real == (double)(int64_t)real)
        return (struct td_pickle_key){.class = TD_KEY_NUMBER, .prefix = (uint64_t)(int64_t)real};
    struct td_pickle_key key = {.class = TD_KEY_FLOAT};
    memcpy(&key.prefix, &real, sizeof key.prefix);
    return key;
}

struct td_pickle_key td_pickle_key_of(const struct td_pickle *pickle, td_pickle_ref ref)
{
    const struct td_pickle_value *value = td_pickle_store_value(pickle->store, ref);
    switch (value->kind) {
    case TD_PICKLE_NONE:
        return (struct td_pickle_key){.class = TD_KEY_NONE};
    case TD_PICKLE_BOOL:
        return (struct td_pickle_key){.class = TD_KEY_NUMBER, .prefix = value->as.truth ? 1 : 0};
    case TD_PICKLE_INT:
        if ((value->flags & TD_PICKLE_FLAG_BIG) == 0)
            return (struct td_pickle_key){.class = TD_KEY_NUMBER, .prefix = (uint64_t)value->as.integer};
        return td_pickle_key_of_text(TD_KEY_BIG_INT, td_pickle_store_text(pickle, value));
    case TD_PICKLE_FLOAT:
        return key_of_float(value->as.real, ref);
    case TD_PICKLE_STRING:
        return td_pickle_key_of_text(TD_KEY_STRING, td_pickle_store_text(pickle, value));
    case TD_PICKLE_BYTES:
        return td_pickle_key_of_text(TD_KEY_BYTES, td_pickle_store_text(pickle, value));
    default:
        return (struct td_pickle_key){.class = TD_KEY_IDENTITY, .prefix = ref};
    }
}

int td_pickle_key_compare(const struct td_pickle_key *a, const struct td_pickle_key *b)
{
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return a->text.p == NULL ? 0 : td_text_compare(a->text, b->text);
}
