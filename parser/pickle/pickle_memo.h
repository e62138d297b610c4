/* The opcodes of the memo, which lets a pickle use a value again: rows of the table in pickle.c. Only for
 * parser/pickle. */
#ifndef TD_PARSER_PICKLE_PICKLE_MEMO_H
#define TD_PARSER_PICKLE_PICKLE_MEMO_H

#include "parser/pickle/pickle_machine.h"

#include <stdbool.h>

/* The functions below run the opcodes in their comments, as `run` of struct td_opcode. */

/* BINPUT, LONG_BINPUT. */
bool td_run_put(struct td_machine *m, const struct td_operand *operand);
/* BINGET, LONG_BINGET. */
bool td_run_get(struct td_machine *m, const struct td_operand *operand);
/* MEMOIZE. */
bool td_run_memoize(struct td_machine *m, const struct td_operand *operand);
/* PUT and GET, which have the index as text. */
bool td_run_put_line(struct td_machine *m, const struct td_operand *operand);
bool td_run_get_line(struct td_machine *m, const struct td_operand *operand);

#endif
