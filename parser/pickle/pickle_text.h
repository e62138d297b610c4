/* The opcodes whose operand is a line of text, as protocol 0 writes numbers and strings: rows of the table in pickle.c.
 * Only for parser/pickle. */
#ifndef TD_PARSER_PICKLE_PICKLE_TEXT_H
#define TD_PARSER_PICKLE_PICKLE_TEXT_H

#include "parser/pickle/pickle_machine.h"

#include <stdbool.h>

/* Run the opcodes INT, LONG, FLOAT, UNICODE and STRING, as `run` of struct td_opcode. */
bool td_run_int_line(struct td_machine *m);
bool td_run_long_line(struct td_machine *m);
bool td_run_float_line(struct td_machine *m);
bool td_run_unicode_line(struct td_machine *m);
bool td_run_string_line(struct td_machine *m);

#endif
