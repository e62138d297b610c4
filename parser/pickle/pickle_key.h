/* Keys of dicts in the form in which they are compared. Only for parser/pickle. */
#ifndef TD_PARSER_PICKLE_PICKLE_KEY_H
#define TD_PARSER_PICKLE_PICKLE_KEY_H

#include "core/text.h"
#include "parser/pickle/pickle_types.h"

#include <stdint.h>

enum td_pickle_key_class {
    TD_KEY_NONE,
    TD_KEY_NUMBER,
    TD_KEY_FLOAT,
    TD_KEY_BIG_INT,
    TD_KEY_STRING,
    TD_KEY_BYTES,
    TD_KEY_IDENTITY,
};

/* Two keys are equal, as in Python, where all members are equal. */
struct td_pickle_key {
    uint64_t prefix; /* of a text the first 8 bytes; of other keys all that counts */
    enum td_pickle_key_class class;
    struct td_text text;
};

/* Returns the key that the value is. The text is borrowed from the pickle. */
struct td_pickle_key td_pickle_key_of(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns a key of class BIG_INT, STRING or BYTES. The text is borrowed. */
struct td_pickle_key td_pickle_key_of_text(enum td_pickle_key_class class, struct td_text text);

/* Orders keys by prefix, then by class, then by text. Returns <0, 0 or >0. */
int td_pickle_key_compare(const struct td_pickle_key *a, const struct td_pickle_key *b);

#endif
