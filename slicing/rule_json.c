/* A table gives each key's kind, member and bounds; read_value reads a value by its kind, and contradiction checks the
 * keys together. The rules are counted before they are read, so that they fit into one array of the arena. */
#include "slicing/rule_json.h"

#include "core/digits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The keys of a rule, in the order of the table below. */
enum key {
    KEY_MATCH,
    KEY_OUT,
    KEY_SLOT,
    KEY_REFUSE,
    KEY_DROP,
    KEY_WHOLE,
    KEY_STACK,
    KEY_STACK_SIZE,
    KEY_DIM,
    KEY_PARTS,
    KEY_GROUPS,
    KEY_PACK,
    KEY_UNEVEN,
    KEY_PAD_TO,
    KEY_CONSTANT,
    KEY_COUNT
};

enum kind { KIND_STRING, KIND_NUMBER, KIND_FLAG, KIND_SLOT, KIND_DIM, KIND_PARTS, KIND_UNEVEN, KIND_CONSTANT };

#define AT(member) offsetof(struct td_rule, member)

static const struct rule_key {
    const char *name;
    enum kind kind;
    size_t offset;     /* of the member of td_rule, for strings, numbers and flags */
    uint64_t min, max; /* for numbers */
} keys[KEY_COUNT] = {
    [KEY_MATCH] = {"match", KIND_STRING, AT(match), 0, 0},
    [KEY_OUT] = {"out", KIND_STRING, AT(out), 0, 0},
    [KEY_SLOT] = {"slot", KIND_SLOT, 0, 0, 0},
    [KEY_REFUSE] = {"refuse", KIND_STRING, AT(refuse), 0, 0},
    [KEY_DROP] = {"drop", KIND_FLAG, AT(drop), 0, 0},
    [KEY_WHOLE] = {"whole", KIND_FLAG, AT(whole), 0, 0},
    [KEY_STACK] = {"stack", KIND_FLAG, AT(stack), 0, 0},
    [KEY_STACK_SIZE] = {"stack_size", KIND_NUMBER, AT(stack_size), 1, UINT32_MAX},
    [KEY_DIM] = {"dim", KIND_DIM, 0, 0, 0},
    [KEY_PARTS] = {"parts", KIND_PARTS, 0, 0, 0},
    [KEY_GROUPS] = {"groups", KIND_NUMBER, AT(groups), 1, UINT64_MAX},
    [KEY_PACK] = {"pack", KIND_NUMBER, AT(pack), 1, UINT64_MAX},
    [KEY_UNEVEN] = {"uneven", KIND_UNEVEN, 0, 0, 0},
    [KEY_PAD_TO] = {"pad_to", KIND_NUMBER, AT(pad_to), 1, UINT64_MAX},
    [KEY_CONSTANT] = {"constant", KIND_CONSTANT, 0, 0, 0},
};

struct rule_reader {
    const struct td_json_document *document;
    struct td_error *err;
};

static bool read_string(struct rule_reader *r, const char *key, size_t max_bytes, const cJSON *item, const char **out)
{
    if (!td_json_item_is_string(item))
        return td_json_document_fail(r->document, item, "%s must be a string", key);
    if (td_json_document_spelled(r->document, item).len > max_bytes)
        return td_json_document_fail(r->document, item, "%s is longer than %zu bytes", key, max_bytes);
    *out = td_json_document_string(r->document, item);
    if (*out != NULL && **out == '\0')
        return td_json_document_fail(r->document, item, "%s is empty", key);
    return *out != NULL;
}

static bool read_number(struct rule_reader *r, const char *key, uint64_t min, uint64_t max, const cJSON *item,
                        uint64_t *out)
{
    if (!cJSON_IsRaw(item))
        return td_json_document_fail(r->document, item, "%s must be a number", key);
    if (!td_json_document_u64(r->document, item, out))
        return false;
    if (*out < min || *out > max)
        return td_json_document_fail(r->document, item, "%s is %llu; at least %llu and at most %llu", key,
                                     (unsigned long long)*out, (unsigned long long)min, (unsigned long long)max);
    return true;
}

static bool read_flag(struct rule_reader *r, const char *key, const cJSON *item, bool *out)
{
    *out = cJSON_IsTrue(item);
    return cJSON_IsBool(item) || td_json_document_fail(r->document, item, "%s must be true or false", key);
}

/* Reads -64 to 63, for whose sign td_json_document_u64 has no room. */
static bool read_dim(struct rule_reader *r, const cJSON *item, int32_t *out)
{
    uint64_t value;
    if (!cJSON_IsRaw(item))
        return td_json_document_fail(r->document, item, "dim must be a number");
    bool negative = item->valuestring[0] == '-';
    if (!td_number_read(td_text_of(item->valuestring + (negative ? 1 : 0)), negative ? 64 : 63, &value))
        return td_json_document_fail(r->document, item, "dim must be a whole number from -64 to 63");
    *out = negative ? -(int32_t)value : (int32_t)value;
    return true;
}

static bool read_uneven(struct rule_reader *r, const cJSON *item, enum td_uneven *out)
{
    static const char *const names[] = {"error", "chunk", "balanced"};
    for (size_t i = 0; cJSON_IsString(item) && i < sizeof names / sizeof *names; i++) {
        if (strcmp(item->valuestring, names[i]) == 0) {
            *out = (enum td_uneven)i;
            return true;
        }
    }
    return td_json_document_fail(r->document, item, "uneven must be \"error\", \"chunk\" or \"balanced\"");
}

static bool read_part(struct rule_reader *r, const cJSON *object, struct td_rule_part *part)
{
    static const char *const names[] = {"count", "unit", "replicate"};
    unsigned seen = 0;
    *part = (struct td_rule_part){.unit = 1};
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        unsigned i = 0;
        while (i < 3 && strcmp(item->string, names[i]) != 0)
            i++;
        if (i == 3)
            return td_json_document_unknown_key(r->document, item,
                                                "a part has count, unit and replicate, nothing else");
        if ((seen & 1U << i) != 0)
            return td_json_document_fail_key(r->document, item, "%s is given twice in a part", names[i]);
        seen |= 1U << i;
        if (!(i == 2 ? read_flag(r, names[i], item, &part->replicate)
                     : read_number(r, names[i], 0, UINT64_MAX, item, i == 0 ? &part->count : &part->unit)))
            return false;
    }
    return true;
}

static bool read_parts(struct rule_reader *r, const cJSON *list, struct td_rule *rule)
{
    if (!cJSON_IsArray(list))
        return td_json_document_fail(r->document, list, "parts must be an array");
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        if (!cJSON_IsObject(item))
            return td_json_document_fail(r->document, item, "a part must be an object");
        if (rule->part_count == TD_RULE_MAX_PARTS)
            return td_json_document_fail(r->document, item, "more than %d parts", TD_RULE_MAX_PARTS);
        if (!read_part(r, item, &rule->parts[rule->part_count++]))
            return false;
    }
    for (uint32_t i = 0; i < rule->part_count; i++)
        if (rule->parts[i].unit == 0 && (rule->part_count > 1 || rule->parts[i].count == 0))
            return td_json_document_fail_end(r->document, list, "unit 0 is for a single part with a count");
    return rule->part_count > 0 || td_json_document_fail_end(r->document, list, "parts is empty; leave it out");
}

static bool read_slot(struct rule_reader *r, const cJSON *item, uint32_t *slot)
{
    uint64_t value = 0;
    if (!read_number(r, "slot", 0, TD_RULE_MAX_COUNT, item, &value))
        return false;
    *slot = (uint32_t)value;
    return true;
}

/* Reads a number and rounds it to F32; refuses one that is larger than the largest F32. */
static bool read_constant(struct rule_reader *r, const cJSON *item, struct td_rule *rule)
{
    if (!cJSON_IsRaw(item))
        return td_json_document_fail(r->document, item, "constant must be a number");
    rule->constant = strtof(item->valuestring, NULL);
    rule->is_constant = true;
    return isfinite(rule->constant) || td_json_document_fail(r->document, item, "constant is past the largest F32");
}

static bool read_value(struct rule_reader *r, const struct rule_key *key, const cJSON *item, struct td_rule *rule)
{
    void *to = (char *)rule + key->offset;
    switch (key->kind) {
    case KIND_STRING:
        return read_string(r, key->name, TD_RULE_MAX_PATTERN_BYTES, item, to);
    case KIND_NUMBER:
        return read_number(r, key->name, key->min, key->max, item, to);
    case KIND_FLAG:
        return read_flag(r, key->name, item, to);
    case KIND_SLOT:
        return read_slot(r, item, &rule->slot);
    case KIND_DIM:
        return read_dim(r, item, &rule->dim);
    case KIND_PARTS:
        return read_parts(r, item, rule);
    case KIND_UNEVEN:
        return read_uneven(r, item, &rule->uneven);
    case KIND_CONSTANT:
        return read_constant(r, item, rule);
    }
    return td_error_set(r->err, TD_INTERNAL, "a key of no kind");
}

static bool unknown_key(struct rule_reader *r, const cJSON *item)
{
    char known[TD_ERROR_MESSAGE_BYTES] = "a rule has ";
    size_t n = strlen(known);
    for (unsigned i = 0; i < KEY_COUNT; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i > 0 ? ", " : "", keys[i].name);
    return td_json_document_unknown_key(r->document, item, known);
}

static unsigned bit(enum key key)
{
    return 1U << key;
}

/* Returns the reason why the keys of a rule contradict each other, or NULL. `seen` has a bit for each key. */
static const char *contradiction(const struct td_rule *rule, unsigned seen)
{
    unsigned splits = bit(KEY_PARTS) | bit(KEY_GROUPS) | bit(KEY_PACK) | bit(KEY_UNEVEN) | bit(KEY_PAD_TO);
    if ((seen & bit(KEY_MATCH)) == 0)
        return "a rule has no match";
    if ((rule->drop || rule->refuse != NULL) && (seen & ~(bit(KEY_MATCH) | bit(KEY_DROP) | bit(KEY_REFUSE))) != 0)
        return "a rule with drop or refuse has nothing else but match";
    if (rule->drop && rule->refuse != NULL)
        return "a rule has both drop and refuse";
    if (rule->is_constant && (seen & ~(bit(KEY_MATCH) | bit(KEY_OUT) | bit(KEY_CONSTANT))) != 0)
        return "a rule with constant has nothing else but match and out";
    if (rule->whole && (seen & splits) != 0)
        return "a rule with whole splits nothing: no parts, groups, pack, uneven, pad_to";
    if (rule->pad_to > 1 && (rule->part_count > 1 || rule->groups > 1))
        return "pad_to is for a single part";
    if (rule->stack_size > 0 && !rule->stack)
        return "stack_size is for a rule with stack";
    return td_rule_check(rule);
}

static bool read_rule(struct rule_reader *r, const cJSON *object, struct td_rule *rule)
{
    unsigned seen = 0;
    *rule = (struct td_rule){.groups = 1, .pack = 1, .pad_to = 1};
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        enum key key = KEY_MATCH;
        while (key < KEY_COUNT && strcmp(item->string, keys[key].name) != 0)
            key++;
        if (key == KEY_COUNT)
            return unknown_key(r, item);
        if ((seen & bit(key)) != 0)
            return td_json_document_fail_key(r->document, item, "%s is given twice", keys[key].name);
        seen |= bit(key);
        if (!read_value(r, &keys[key], item, rule))
            return false;
    }
    const char *reason = contradiction(rule, seen);
    return reason == NULL || td_json_document_fail_end(r->document, object, "%s", reason);
}

static size_t count_objects(const cJSON *list)
{
    size_t count = 0;
    for (const cJSON *item = list->child; item != NULL; item = item->next)
        count += cJSON_IsObject(item) ? 1 : 0;
    return count;
}

bool td_rules_read(const struct td_json_document *document, const cJSON *list, struct td_arena *arena,
                   struct td_rule_list *out, struct td_error *err)
{
    struct rule_reader r = {.document = document, .err = err};
    if (!cJSON_IsArray(list))
        return td_json_document_fail(document, list, "an array of rules expected");
    size_t count = count_objects(list);
    if (count > TD_RULE_MAX_COUNT)
        return td_json_document_fail(document, list, "%zu rules; at most %d", count, TD_RULE_MAX_COUNT);
    struct td_rule *rules = td_arena_array(arena, count, sizeof *rules);
    if (rules == NULL)
        return td_arena_refuse(arena, "a list of rules", err);
    size_t i = 0;
    for (const cJSON *item = list->child; item != NULL; item = item->next, i++) {
        if (!cJSON_IsObject(item))
            return td_json_document_fail(document, item, "a rule (an object)%s expected",
                                         i < count ? "" : " or the end of the array");
        if (!read_rule(&r, item, &rules[i]))
            return false;
    }
    *out = (struct td_rule_list){.rules = rules, .count = count};
    return true;
}
