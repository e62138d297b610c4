/* Built-in engines: which rules hold for a model of theirs. They are tables (engine_*.c), chosen by the architecture
 * that config.json names and filled with its numbers of heads. */
#ifndef TD_SLICING_ENGINE_H
#define TD_SLICING_ENGINE_H

#include "core/text.h"
#include "slicing/plan.h"
#include "slicing/rule.h"

/* How many engines there are: the table in engine.c has to agree, or it does not compile. */
enum { TD_ENGINE_COUNT = 4 };

/* The i-th engine's name ("fsdp", "nano-vllm", "none", "vllm"), NULL past the last. */
const char *td_engine_name(size_t i);

bool td_engine_exists(struct td_text name);

/* Writes the names that there are, parted by ", ". */
void td_engine_list(char *out, size_t capacity);

/* Sets TD_NOT_FOUND, with the names that there are; returns false. */
bool td_engine_not_found(struct td_text name, struct td_error *err);

/* Whether the engine's rules depend on config.json. False for an unknown one too. */
bool td_engine_needs_config(struct td_text name);

/* Counts up when a table of an engine is changed, so that what was made by the old one is not taken for the same. */
enum { TD_ENGINE_REVISION = 1 };

/* The rules of an engine for this model. config is config.json's text, NULL when there is none ("none" and "fsdp" need
 * none). Rules live in the arena or are static. Errors: TD_NOT_FOUND for an unknown engine; TD_FAILED_PRECONDITION for
 * a missing or unreadable config.json, an architecture without a table (the message names those that have one and
 * points to plans with rules), numbers of heads that are not those of the tensors, a tp_size that the engine refuses.
 */
bool td_engine_rules(const char *engine, struct td_text config, const struct td_tensor_list *tensors, uint64_t tp_size,
                     struct td_arena *arena, struct td_rule_list *out, struct td_error *err);

#endif
