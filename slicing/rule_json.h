/* Rules as JSON. Pure. */
#ifndef TD_SLICING_RULE_JSON_H
#define TD_SLICING_RULE_JSON_H

#include "core/json/json_document.h"
#include "slicing/plan/rule.h"

/* Reads a JSON array of rules, an item of the document. The rules are put into the arena; their strings stay in the
 * document's. Errors: TD_INVALID_ARGUMENT with a position for an unknown or repeated key, a wrong type, a value out of
 * range, a pattern that td_rule_check refuses, keys that contradict each other, or more than TD_RULE_MAX_COUNT rules;
 * TD_RESOURCE_EXHAUSTED; a fault of the document that comes before those. */
bool td_rules_read(const struct td_json_document *document, const cJSON *list, struct td_arena *arena,
                   struct td_rule_list *out, struct td_error *err);

#endif
