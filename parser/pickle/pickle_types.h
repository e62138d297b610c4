/* The types of a parsed pickle: references, kinds and the pickle itself. pickle.h says what they mean together. */
#ifndef TD_PARSER_PICKLE_PICKLE_TYPES_H
#define TD_PARSER_PICKLE_PICKLE_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* The number of a value of one struct td_pickle. */
typedef uint32_t td_pickle_ref;

/* No value. Every accessor takes it: it has kind TD_PICKLE_NOTHING and holds nothing. */
#define TD_PICKLE_NIL ((td_pickle_ref)0)

enum td_pickle_kind {
    TD_PICKLE_NOTHING, /* TD_PICKLE_NIL only */
    TD_PICKLE_NONE,
    TD_PICKLE_BOOL,
    TD_PICKLE_INT,
    TD_PICKLE_FLOAT,
    TD_PICKLE_STRING,
    TD_PICKLE_BYTES,
    TD_PICKLE_BYTEARRAY,
    TD_PICKLE_TUPLE,
    TD_PICKLE_LIST,
    TD_PICKLE_SET,
    TD_PICKLE_FROZENSET,
    TD_PICKLE_DICT,
    TD_PICKLE_GLOBAL,     /* the name of a module and a name within that module */
    TD_PICKLE_PERSISTENT, /* BINPERSID: the id of something stored elsewhere, such as a tensor's storage */
    TD_PICKLE_OBJECT,     /* REDUCE, NEWOBJ, NEWOBJ_EX: a call that is recorded and never made */
};

enum td_pickle_call { TD_PICKLE_REDUCE, TD_PICKLE_NEWOBJ, TD_PICKLE_NEWOBJ_EX };

/* A parsed pickle. Owns its memory; the strings point into the caller's bytes, which must outlive it. The members down
 * to `duplicate` are the result, the rest is internal. */
struct td_pickle {
    td_pickle_ref root;
    size_t end;               /* the byte after STOP, as an index into the caller's bytes */
    uint64_t op_count;        /* opcodes that were run, STOP included */
    uint32_t value_count;     /* values are 1..value_count */
    uint32_t memo_count;      /* memo entries: different indices that something was put at */
    uint32_t duplicate_count; /* items of dicts dropped because a later item has the same key */
    td_pickle_ref duplicate;  /* the first key found twice, or TD_PICKLE_NIL */

    const uint8_t *bytes;
    uint64_t base;
    struct td_pickle_store *store;
};

#endif
