/* Facts of a model as bytes, from the parser's process to the server. */
#ifndef TD_CATALOG_SANDBOX_FACTS_WIRE_H
#define TD_CATALOG_SANDBOX_FACTS_WIRE_H

#include "catalog/model/facts.h"
#include "catalog/sandbox/wire.h"

/* Appends the facts. NULL stands for no facts. */
void td_facts_write(const struct td_facts *facts, struct td_wire_writer *out);

/* Reads what td_facts_write wrote. Sets *out, which the caller destroys, or NULL for none and on failure. Trusts no
 * value: the texts are UTF-8, the JSON is one object, and the tags have known keys. Errors: TD_INTERNAL when the bytes
 * are no facts; TD_RESOURCE_EXHAUSTED. */
bool td_facts_receive(struct td_wire_reader *in, struct td_facts **out, struct td_error *err);

#endif
