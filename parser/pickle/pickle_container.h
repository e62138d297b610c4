/* The opcodes of tuples, lists, sets and dicts: rows of the table in pickle.c. Only for parser/pickle. */
#ifndef TD_PARSER_PICKLE_PICKLE_CONTAINER_H
#define TD_PARSER_PICKLE_PICKLE_CONTAINER_H

#include "parser/pickle/pickle_machine.h"

#include <stdbool.h>

/* Returns the name of an OBJECT that no items and no state can be given to ("a tensor"); NULL for every other value. */
const char *td_machine_made_by_torch(const struct td_machine *m, td_pickle_ref ref);

/* Copies the items that a REDUCE was called with into the object that it made, when that object is a mapping. */
bool td_machine_fill_mapping(struct td_machine *m, td_pickle_ref made);

/* The functions below run the opcodes in their comments, as `run` of struct td_opcode. */

/* TUPLE. */
bool td_run_tuple(struct td_machine *m);
/* EMPTY_TUPLE, TUPLE1, TUPLE2, TUPLE3. */
bool td_run_tuple_n(struct td_machine *m);
/* EMPTY_LIST, EMPTY_DICT, EMPTY_SET. */
bool td_run_empty(struct td_machine *m);
/* APPEND. */
bool td_run_append(struct td_machine *m);
/* APPENDS, ADDITEMS. */
bool td_run_appends(struct td_machine *m);
/* SETITEM. */
bool td_run_setitem(struct td_machine *m);
/* SETITEMS. */
bool td_run_setitems(struct td_machine *m);
/* LIST, DICT, FROZENSET: make the container from the values above the last MARK. */
bool td_run_make(struct td_machine *m);

#endif
