/* The values of a parsed pickle (pickle.h). Every function takes any td_pickle_ref, TD_PICKLE_NIL and numbers beyond
 * the pickle's values too: these have the kind TD_PICKLE_NOTHING and hold nothing. */
#ifndef TD_PARSER_PICKLE_PICKLE_VALUE_H
#define TD_PARSER_PICKLE_PICKLE_VALUE_H

#include "parser/pickle/pickle_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the value's kind. */
enum td_pickle_kind td_pickle_kind(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns "a tuple", "an int" and so on, for messages. */
const char *td_pickle_kind_name(enum td_pickle_kind kind);

/* Returns the position in the file of the opcode that made the value, for messages; the pickle's base for NIL. */
uint64_t td_pickle_position(const struct td_pickle *pickle, td_pickle_ref ref);

/* ---- values without parts ---- */

/* Returns the value of a BOOL; false for every other kind. */
bool td_pickle_bool(const struct td_pickle *pickle, td_pickle_ref ref);

/* Reads an INT of 64 bits. Returns false, and leaves *out untouched, for larger ones and for every other kind, BOOL
 * too. */
bool td_pickle_int(const struct td_pickle *pickle, td_pickle_ref ref, int64_t *out);

/* Returns the little-endian two's complement bytes of an INT that does not fit into 64 bits, in the shortest form; NULL
 * for all else. */
const uint8_t *td_pickle_big_int(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len);

/* Reads a FLOAT. Returns false, and leaves *out untouched, for every other kind. */
bool td_pickle_float(const struct td_pickle *pickle, td_pickle_ref ref, double *out);

/* Returns the bytes of a STRING, BYTES or BYTEARRAY: not terminated, may hold NULs, live as long as the caller's bytes
 * and *pickle. Never NULL for these kinds, even when *len is 0; NULL for every other kind. */
const char *td_pickle_text(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len);

/* Returns whether the value is a STRING in UTF-8. Other strings come from "surrogatepass" (lone surrogates, as ED A0 80
 * ...) or from Python 2 (any bytes): write those only through td_utf8_escape. */
bool td_pickle_is_utf8(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns whether the value is a STRING that is exactly this text. */
bool td_pickle_string_is(const struct td_pickle *pickle, td_pickle_ref ref, const char *text);

/* ---- GLOBAL ---- */

/* Return the two STRINGs of a GLOBAL as the pickle has them; NIL for other kinds. Protocols 0 to 2 use Python 2's
 * modules (`__builtin__ set`, `copy_reg _reconstructor`). The name can have dots ("Outer.Inner"). */
td_pickle_ref td_pickle_module(const struct td_pickle *pickle, td_pickle_ref ref);
td_pickle_ref td_pickle_name(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns whether the value is the GLOBAL `name` of `module`. */
bool td_pickle_is_global(const struct td_pickle *pickle, td_pickle_ref ref, const char *module, const char *name);

/* ---- TUPLE, LIST, SET, FROZENSET, and the items appended to an OBJECT ---- */

/* Returns the number of items; for a DICT see td_pickle_map. Equal members of a set are not merged. */
uint32_t td_pickle_count(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns item i, in constant time; NIL when i is out of range. */
td_pickle_ref td_pickle_item(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t i);

/* ---- PERSISTENT ---- */

/* Returns the id of a PERSISTENT, a TUPLE; NIL for other kinds. */
td_pickle_ref td_pickle_persistent(const struct td_pickle *pickle, td_pickle_ref ref);

/* ---- OBJECT ----
 * These return NIL (or false) for other kinds. Items appended to an OBJECT (APPEND(S), ADDITEMS: a list or set
 * subclass) are its td_pickle_item, items set in it (SETITEM(S): an OrderedDict, a dict subclass) its td_pickle_map. */

/* Returns a GLOBAL, an OBJECT or a PERSISTENT (the class of a module, in legacy torch files). */
td_pickle_ref td_pickle_callable(const struct td_pickle *pickle, td_pickle_ref ref);
td_pickle_ref td_pickle_args(const struct td_pickle *pickle, td_pickle_ref ref);   /* a TUPLE */
td_pickle_ref td_pickle_kwargs(const struct td_pickle *pickle, td_pickle_ref ref); /* a DICT, or NIL */
td_pickle_ref td_pickle_state(const struct td_pickle *pickle, td_pickle_ref ref);  /* any kind, or NIL */
/* Returns which opcode recorded the call of an OBJECT; TD_PICKLE_REDUCE for other kinds. */
enum td_pickle_call td_pickle_call(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns whether the value is an OBJECT made by `name` of `module`. */
bool td_pickle_is_call(const struct td_pickle *pickle, td_pickle_ref ref, const char *module, const char *name);

/* ---- items added late ---- */

/* Returns whether items were added to a container (LIST, DICT, SET, OBJECT) after the call that made the OBJECT `call`,
 * so that the call was given fewer items. */
bool td_pickle_grew_after(const struct td_pickle *pickle, td_pickle_ref ref, td_pickle_ref call);

/* Returns whether items were added to an OBJECT's state after its BUILD. */
bool td_pickle_state_grew(const struct td_pickle *pickle, td_pickle_ref ref);

/* ---- walking ---- */

/* Marks the value; every value has one mark, for walkers. Returns whether the value had no mark before; false for NIL.
 */
bool td_pickle_mark(struct td_pickle *pickle, td_pickle_ref ref);
void td_pickle_unmark(struct td_pickle *pickle, td_pickle_ref ref);
void td_pickle_unmark_all(struct td_pickle *pickle); /* linear in value_count */

#endif
