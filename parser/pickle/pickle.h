/* Pickles, protocols 0 to 5, as data: a symbolic machine that runs the opcodes over values of its own.
 * Nothing is ever resolved, imported or called: a global stays a pair of names, and what would be a call
 * stays a record of who would be called with what, so that the tensors within can be found.
 *
 * Sources: CPython 3.11, Lib/pickletools.py (what the opcodes mean) and Modules/_pickle.c (what is
 * refused). tests/interop/test_pickle.py compares values with both of its unpicklers, verdicts with the one
 * in Python.
 *
 * Values are named by small numbers (td_pickle_ref), and a GET or a DUP repeats the number, so time and
 * memory are linear in the pickle's length whatever it shares: 16 bytes for a value, 28 for a call, 4 for
 * each place that a value is put in (twice that where a container grows) and for each memo entry. A state
 * dict takes about five times its pickle while it is read; nothing takes more than 36 times. The result is
 * a graph: values are shared, and lists, dicts, sets and objects can hold themselves. A walker must
 * therefore keep a stack of its own instead of recursing, and pass over what it has met (td_pickle_mark): a
 * few hundred bytes can unfold to 2^40 paths.
 *
 * Threads: none of this is shared; a struct td_pickle belongs to one thread at a time. */
#ifndef TD_PARSER_PICKLE_H
#define TD_PARSER_PICKLE_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value of one struct td_pickle. */
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
    TD_PICKLE_GLOBAL,     /* a module's name and a name within it */
    TD_PICKLE_PERSISTENT, /* BINPERSID: what its owner would look up elsewhere, such as a tensor's storage */
    TD_PICKLE_OBJECT,     /* REDUCE, NEWOBJ, NEWOBJ_EX: a call that is not made */
};

enum td_pickle_call { TD_PICKLE_REDUCE, TD_PICKLE_NEWOBJ, TD_PICKLE_NEWOBJ_EX };

struct td_pickle_options {
    uint64_t base;           /* where bytes[0] stands in the file: added to every position */
    size_t max_memory_bytes; /* for all that the struct td_pickle allocates, scratch included; 0 = no bound */
    bool allow_trailing;     /* bytes after STOP are left to the caller (legacy torch files); else refused */
};

/* Owns its memory; the strings point into the caller's bytes, which must outlive it. The members down to
 * `duplicate` are the result, the rest is the machine's. */
struct td_pickle {
    td_pickle_ref root;
    size_t end;               /* the byte after STOP, as an index into the caller's bytes */
    uint64_t op_count;        /* opcodes that were run, STOP included */
    uint32_t value_count;     /* values are 1..value_count */
    uint32_t memo_count;      /* memo entries: different indices that something was put at */
    uint32_t duplicate_count; /* items of dicts dropped because a later one has the same key */
    td_pickle_ref duplicate;  /* the first key found twice, or TD_PICKLE_NIL */

    const uint8_t *bytes;
    uint64_t base;
    struct td_pickle_store *store;
};

/* Runs the one pickle that begins at bytes[start] and ends at its STOP, never past bytes[len). *pickle
 * needs no initialising and must be given to td_pickle_fini whatever the outcome. Errors:
 * TD_INVALID_ARGUMENT at base + the position of the opcode (or of its operand); TD_RESOURCE_EXHAUSTED for
 * memory, the bound, or len of 4 GiB and more.
 *
 * Refused beyond what Python refuses: EXT1/2/4, INST, OBJ, PERSID, NEXT_BUFFER and READONLY_BUFFER; values
 * or marks left on the stack at STOP (as pickletools); a persistent id that is not a tuple (as torch);
 * items or a state given to a tensor that torch would rebuild, or to a value of TorchScript; a second state;
 * an OrderedDict, defaultdict or Counter made of what is no dict and no list of pairs; numbers in text that no writer
 * spells so (0x10, 1_000, 010) or of more than 4,300 digits; memo indices made up to collide. */
bool td_pickle_parse(struct td_pickle *pickle, const uint8_t *bytes, size_t len, size_t start,
                     const struct td_pickle_options *options, struct td_error *err);

void td_pickle_fini(struct td_pickle *pickle);

/* What it holds now; the caller's bytes do not count. */
size_t td_pickle_memory_bytes(const struct td_pickle *pickle);

enum td_pickle_kind td_pickle_kind(const struct td_pickle *pickle, td_pickle_ref ref);

/* "a tuple", "an int" ...: for messages. */
const char *td_pickle_kind_name(enum td_pickle_kind kind);

/* Where the value began in the file, for messages: base + the position of the opcode that made it; base for
 * NIL. */
uint64_t td_pickle_position(const struct td_pickle *pickle, td_pickle_ref ref);

/* ---- values without parts ---- */

/* BOOL's value; false for every other kind. */
bool td_pickle_bool(const struct td_pickle *pickle, td_pickle_ref ref);

/* An INT that fits; false (and *out untouched) for larger ones and for every other kind, BOOL too. */
bool td_pickle_int(const struct td_pickle *pickle, td_pickle_ref ref, int64_t *out);

/* The little-endian two's complement bytes of an INT that does not fit into 64 bits (never padded: the
 * shortest form); NULL for all else. */
const uint8_t *td_pickle_big_int(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len);

/* False (and *out untouched) unless FLOAT. */
bool td_pickle_float(const struct td_pickle *pickle, td_pickle_ref ref, double *out);

/* The bytes of a STRING, BYTES or BYTEARRAY: not terminated, may hold NULs, live as long as the caller's
 * bytes and *pickle. Never NULL for these kinds, len 0 too; NULL for every other kind. */
const char *td_pickle_text(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len);

/* True when a STRING is UTF-8. Others come from "surrogatepass" (lone surrogates, as ED A0 80 ...) or from
 * Python 2 (any bytes): never put them out but through td_utf8_escape. False for other kinds. */
bool td_pickle_is_utf8(const struct td_pickle *pickle, td_pickle_ref ref);

/* True for a STRING that is exactly this text. */
bool td_pickle_string_is(const struct td_pickle *pickle, td_pickle_ref ref, const char *text);

/* ---- GLOBAL ---- */

/* STRINGs, as written: protocols 0 to 2 use Python 2's modules (`__builtin__ set`, `copy_reg
 * _reconstructor`). The name can have dots ("Outer.Inner"). NIL unless GLOBAL. */
td_pickle_ref td_pickle_module(const struct td_pickle *pickle, td_pickle_ref ref);
td_pickle_ref td_pickle_name(const struct td_pickle *pickle, td_pickle_ref ref);

/* True for the GLOBAL `name` of `module`. */
bool td_pickle_is_global(const struct td_pickle *pickle, td_pickle_ref ref, const char *module, const char *name);

/* ---- TUPLE, LIST, SET, FROZENSET, and what was appended to an OBJECT ---- */

/* How many items; for a DICT see td_pickle_map. Sets are as written: equal members are not merged. */
uint32_t td_pickle_count(const struct td_pickle *pickle, td_pickle_ref ref);

/* Item i, in constant time; NIL when there is none. */
td_pickle_ref td_pickle_item(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t i);

/* ---- PERSISTENT ---- */

/* The id, a TUPLE; NIL unless PERSISTENT. */
td_pickle_ref td_pickle_persistent(const struct td_pickle *pickle, td_pickle_ref ref);

/* ---- OBJECT ----
 * All NIL (false) unless OBJECT. Items appended to it (APPEND(S), ADDITEMS: a list or set subclass) are its
 * td_pickle_item, items set in it (SETITEM(S): an OrderedDict, a dict subclass) its td_pickle_map. */

/* A GLOBAL, an OBJECT or a PERSISTENT (the class of a module, in legacy torch files). */
td_pickle_ref td_pickle_callable(const struct td_pickle *pickle, td_pickle_ref ref);
td_pickle_ref td_pickle_args(const struct td_pickle *pickle, td_pickle_ref ref);   /* a TUPLE */
td_pickle_ref td_pickle_kwargs(const struct td_pickle *pickle, td_pickle_ref ref); /* a DICT, or NIL */
td_pickle_ref td_pickle_state(const struct td_pickle *pickle, td_pickle_ref ref);  /* anything, or NIL */
enum td_pickle_call td_pickle_call(const struct td_pickle *pickle, td_pickle_ref ref);

/* True for an OBJECT made by `name` of `module`. */
bool td_pickle_is_call(const struct td_pickle *pickle, td_pickle_ref ref, const char *module, const char *name);

/* ---- mappings ---- */

/* The items of a DICT or of something like it, in the order in which they were set, keys unique: of items
 * with equal keys the last value counts, at the first one's place, as in Python. (Equal: None; Bool, Int
 * and Float by value; strings; bytes; all else only when it is the same value. Tuples are not compared.) */
struct td_pickle_map {
    td_pickle_ref owner; /* holds the items */
    uint32_t count;
};

/* A DICT, an OBJECT with items, or one of collections OrderedDict, defaultdict or Counter, empty too. What a
 * REDUCE of these is given, a mapping or pairs (OrderedDict as Python 2 wrote it), is copied when it is called,
 * as Python does. False (and an empty map) for all else. */
bool td_pickle_map(const struct td_pickle *pickle, td_pickle_ref ref, struct td_pickle_map *map);

/* Key and value of item i < map->count; NIL beyond. */
td_pickle_ref td_pickle_map_key(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i);
td_pickle_ref td_pickle_map_value(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i);

/* The value of the STRING key that is exactly this text, or NIL. Logarithmic. */
td_pickle_ref td_pickle_map_find(const struct td_pickle *pickle, const struct td_pickle_map *map, const char *key);

/* The same in one step: NIL where ref is no mapping. */
td_pickle_ref td_pickle_get(const struct td_pickle *pickle, td_pickle_ref ref, const char *key);

/* ---- what came later ---- */

/* True when items were added to a container (LIST, DICT, SET, OBJECT) after the call that made the OBJECT `call`, which
 * then was given fewer of them. */
bool td_pickle_grew_after(const struct td_pickle *pickle, td_pickle_ref ref, td_pickle_ref call);

/* True when items were added to an OBJECT's state after its BUILD. */
bool td_pickle_state_grew(const struct td_pickle *pickle, td_pickle_ref ref);

/* ---- walking ---- */

/* One mark per value, for walkers. Marks it; true when it was not marked before (NIL never is). */
bool td_pickle_mark(struct td_pickle *pickle, td_pickle_ref ref);
void td_pickle_unmark(struct td_pickle *pickle, td_pickle_ref ref);
void td_pickle_unmark_all(struct td_pickle *pickle); /* linear in value_count */

#endif
