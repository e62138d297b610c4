/* The events of a card as bytes, from the parser's process to the server. */
#ifndef TD_CATALOG_SANDBOX_CARD_WIRE_H
#define TD_CATALOG_SANDBOX_CARD_WIRE_H

#include "catalog/sandbox/wire.h"
#include "core/input.h"
#include "parser/card_text.h"

/* The most bytes of events that a process sends for a card. They suffice for TD_CARD_TEXT_BYTES of Markdown unless it
 * uses an address or a title many times; short texts take more bytes as events than as HTML. */
enum { TD_CARD_WIRE_BYTES = 8 << 20 };

/* Reads a card and appends its events, at most TD_CARD_WIRE_BYTES, and the error if the card cannot be read. The input
 * has the first TD_CARD_TEXT_BYTES of the card, and one byte more if the card continues. */
void td_card_write(const struct td_input *input, struct td_wire_writer *out);

/* Reads what td_card_write wrote, and gives the events to the sink. Each of them has a known kind and node, and texts
 * of UTF-8 without a NUL; the sink checks all else. Sets *of_parser to the error that was written, and *is_cut when
 * there were more events than were written. Reads no further, and succeeds, when the sink wants no more events. Returns
 * whether the bytes are right. Errors: TD_INTERNAL when they are not; those of the sink. */
bool td_card_read(struct td_wire_reader *in, const struct td_card_sink *sink, struct td_error *of_parser, bool *is_cut,
                  struct td_error *err);

#endif
