/* Built-in engines: the rules by which each engine lays out the models that it knows. If versions of an engine have
 * different layouts, each such version is an engine here. The rules come from tables (engine_*.c) that are chosen by
 * the architecture in config.json, which also gives the numbers of heads. */
#ifndef TD_SLICING_ENGINE_ENGINE_H
#define TD_SLICING_ENGINE_ENGINE_H

#include "core/text.h"
#include "slicing/plan/plan.h"
#include "slicing/plan/rule.h"

/* The number of engine names, aliases included. engine.c does not compile if its table has another length. */
enum { TD_ENGINE_NAME_COUNT = 6 };

/* Returns the i-th name ("fsdp", "nano-vllm", "none", "vllm", "vllm@0.13", "vllm@0.33"), or NULL past the last.
 * "vllm@0.33" is the layout of vLLM 0.33; "vllm" is an alias of the newest version. Static. */
const char *td_engine_name(size_t i);

/* Returns the engine's own name, for which this name may be an alias: "vllm@0.33" for "vllm". NULL when there is no
 * such engine. Static. */
const char *td_engine_own_name(struct td_text name);

/* Returns the name that files, entity tags and commits have for the engine: its own name, but "vllm" for "vllm@0.13",
 * whose files were named so before there were versions. NULL when there is no such engine. Static. */
const char *td_engine_label(struct td_text name);

/* Returns the own name of the engine with this name in tags and revisions, where '-' stands for '@', as in "vllm-0.13".
 * NULL when there is no such engine. Static. */
const char *td_engine_of_tag(struct td_text tag);

/* Returns whether the engine looks for a rank's file under the name of a sharded state,
 * model-rank-{r}-part-0.safetensors; false for an unknown engine. */
bool td_engine_reads_states(struct td_text name);

/* Finds the number of the engine of this name, 0 to 255. Commits of virtual revisions hold the number, so it never
 * changes, and no later engine gets it again. Returns false when there is no such engine. */
bool td_engine_number(struct td_text name, unsigned *number);

/* Returns the own name of the engine with this number; NULL when no engine has the number. Static. */
const char *td_engine_name_of(uint64_t number);

/* Returns whether there is an engine of this name. */
bool td_engine_exists(struct td_text name);

/* Writes all names, separated by ", ", with a NUL; cuts the text to capacity bytes. */
void td_engine_list(char *out, size_t capacity);

/* Sets TD_NOT_FOUND with all names, and returns false. */
bool td_engine_not_found(struct td_text name, struct td_error *err);

/* Does the same with the names as spelled in tags and revisions. */
bool td_engine_tag_not_found(struct td_text tag, struct td_error *err);

/* Returns whether the engine's rules depend on config.json; false for an unknown engine. */
bool td_engine_needs_config(struct td_text name);

/* Raised when a change to the tables or to the order of results changes a rank file, so that the file's entity tag
 * changes with its bytes. */
enum { TD_ENGINE_REVISION = 2 };

/* Makes the rules of an engine for a model. `config` is the text of config.json; its p is NULL without one, which
 * "none" and "fsdp" do not need. The rules live in the arena or are static. Errors:
 * - TD_NOT_FOUND: the engine is unknown.
 * - TD_INVALID_ARGUMENT: tp_size is not from 1 to TD_MAX_TP_SIZE.
 * - TD_FAILED_PRECONDITION: config.json is missing or unreadable, or lacks a number; the engine has no table for the
 *   architecture (the message lists those that it has, and points to plans with rules); the model is quantised; tp_size
 *   is more than the engine takes. If the layout is not known, the message ends with another way for the engine to load
 *   its part, if there is one.
 * - TD_RESOURCE_EXHAUSTED: memory is short. */
bool td_engine_rules(const char *engine, struct td_text config, const struct td_tensor_list *tensors, uint64_t tp_size,
                     struct td_arena *arena, struct td_rule_list *out, struct td_error *err);

#endif
