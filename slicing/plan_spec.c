#include "slicing/plan_spec.h"

#include "slicing/rule_json.h"

#include <inttypes.h>
#include <string.h>

/* Limits on the memory of a specification by the length of its text. The tree of a text without faults takes at most 19
 * bytes for each byte ({"match":"0","parts":[{},{},{},{},{},{},{},{}]}, takes 894), lists of tensors take 2
 * ({"name":""}, takes 24). The lists have a limit of their own, so that a tree at its limit leaves room for the lists
 * before the place where it was cut off. */
enum {
    TREE_FREE_BYTES = 64 * 1024,
    TREE_PER_BYTE = 19,
    LISTS_FREE_BYTES =
        TD_RULE_MAX_COUNT * (int)sizeof(struct td_rule) + TD_MAX_TP_SIZE * (int)sizeof(struct td_plan_items),
    LISTS_PER_BYTE = 2
};

void td_plan_spec_fini(struct td_plan_spec *spec)
{
    td_arena_fini(&spec->arena);
}

bool td_plan_spec_init_engine(struct td_plan_spec *spec, struct td_text engine, uint64_t tp_size, struct td_error *err)
{
    memset(spec, 0, sizeof *spec);
    spec->tp_size = tp_size;
    spec->engine = td_arena_strndup(&spec->arena, engine);
    return td_tp_size_check(tp_size, err) && (spec->engine != NULL || td_error_no_memory(err));
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

/* Reads the string that is a member's value; a member may be there once. */
static bool read_string(const struct td_json_document *document, const cJSON *item, const char *what, const char **out)
{
    if (*out != NULL)
        return td_json_document_fail_key(document, item, "%s is given twice", what);
    if (!td_json_item_is_string(item))
        return td_json_document_fail(document, item, "%s expected", what);
    *out = td_json_document_string(document, item);
    return *out != NULL;
}

/* The words for an item of a list in messages. */
struct item_kind {
    bool has_as;
    const char *list, *object, *keys, *without_name;
};

static const struct item_kind tensor_items = {
    .has_as = true,
    .list = "a list of tensors",
    .object = "a tensor is an object with a \"name\"",
    .keys = "a tensor has \"name\", \"as\" and \"slice\", nothing else",
    .without_name = "a tensor without a \"name\"",
};

static const struct item_kind box_items = {
    .list = "a list of boxes",
    .object = "a box is an object with a \"name\"",
    .keys = "a box has \"name\" and \"slice\", nothing else",
    .without_name = "a box without a \"name\"",
};

static bool read_item(const struct td_json_document *document, const cJSON *object, const struct item_kind *kind,
                      struct td_plan_item *out)
{
    memset(out, 0, sizeof *out);
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        bool ok;
        if (strcmp(item->string, "name") == 0)
            ok = read_string(document, item, "the tensor's name, a string,", &out->name);
        else if (kind->has_as && strcmp(item->string, "as") == 0)
            ok = read_string(document, item, "the name that the tensor gets (\"as\"), a string,", &out->as);
        else if (strcmp(item->string, "slice") == 0)
            ok = read_string(document, item, "the slice, a string such as \"0:128,:\",", &out->slice);
        else
            ok = td_json_document_unknown_key(document, item, kind->keys);
        if (!ok)
            return false;
    }
    return out->name != NULL || td_json_document_fail_end(document, object, "%s", kind->without_name);
}

static bool read_items(const struct td_json_document *document, const cJSON *list, const struct item_kind *kind,
                       struct td_arena *arena, struct td_plan_items *out, struct td_error *err)
{
    memset(out, 0, sizeof *out);
    if (!cJSON_IsArray(list))
        return td_json_document_fail(document, list, "%s expected", kind->list);
    size_t count = 0;
    struct td_plan_item checked;
    for (const cJSON *item = list->child; item != NULL; item = item->next, count++) {
        if (!cJSON_IsObject(item))
            return td_json_document_fail(document, item, "%s", kind->object);
        if (!read_item(document, item, kind, &checked))
            return false;
    }
    struct td_plan_item *items = td_arena_array(arena, count, sizeof *items);
    if (items == NULL)
        return td_arena_refuse(arena, kind->list, err);
    *out = (struct td_plan_items){.items = items, .count = count};
    for (const cJSON *item = list->child; item != NULL; item = item->next)
        (void)read_item(document, item, kind, items++);
    return true;
}

bool td_plan_items_read(const struct td_json_document *document, const cJSON *list, struct td_arena *arena,
                        struct td_plan_items *out, struct td_error *err)
{
    return read_items(document, list, &tensor_items, arena, out, err);
}

/* Reads one rank, {"tensors": [...]}. */
static bool read_rank(const struct td_json_document *document, const cJSON *object, struct td_arena *arena,
                      struct td_plan_items *out, struct td_error *err)
{
    static const char known[] = "a rank has \"tensors\", nothing else";
    const cJSON *list = object->child;
    if (list == NULL)
        return td_json_document_fail_end(document, object, "\"tensors\" expected");
    if (strcmp(list->string, "tensors") != 0)
        return td_json_document_unknown_key(document, list, known);
    if (!td_plan_items_read(document, list, arena, out, err))
        return false;
    if (list->next == NULL)
        return true;
    if (strcmp(list->next->string, "tensors") == 0)
        return td_json_document_fail_key(document, list->next, "\"tensors\" is given twice");
    return td_json_document_unknown_key(document, list->next, known);
}

static bool read_ranks(const struct td_json_document *document, const cJSON *list, struct td_plan_spec *spec,
                       uint64_t *count, struct td_error *err)
{
    if (!cJSON_IsArray(list))
        return td_json_document_fail(document, list, "a list of ranks expected");
    int size = cJSON_GetArraySize(list);
    size_t most = size < TD_MAX_TP_SIZE ? (size_t)size : TD_MAX_TP_SIZE;
    struct td_plan_items *ranks = td_arena_array(&spec->arena, most, sizeof *ranks);
    if (ranks == NULL)
        return td_arena_refuse(&spec->arena, "a list of ranks", err);
    *count = 0;
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        if (!cJSON_IsObject(item))
            return td_json_document_fail(document, item, "a rank is an object with \"tensors\"");
        if (*count == TD_MAX_TP_SIZE)
            return td_json_document_fail(document, item, "more than %d ranks", TD_MAX_TP_SIZE);
        if (!read_rank(document, item, &spec->arena, &ranks[*count], err))
            return false;
        ++*count;
    }
    spec->ranks = ranks;
    return *count > 0 || td_json_document_fail_end(document, list, "\"ranks\" is empty");
}

static bool read_boxes(const struct td_json_document *document, const cJSON *list, struct td_plan_spec *spec,
                       struct td_error *err)
{
    struct td_plan_items *boxes = td_arena_array(&spec->arena, 1, sizeof *boxes);
    if (boxes == NULL)
        return td_arena_refuse(&spec->arena, box_items.list, err);
    spec->boxes = boxes;
    spec->tp_size = 1;
    return read_items(document, list, &box_items, &spec->arena, boxes, err);
}

enum { HAS_ENGINE = 1, HAS_TP_SIZE = 2, HAS_RULES = 4, HAS_RANKS = 8, HAS_BOXES = 16, HAS_MANIFEST = 32 };

static const char forms[] =
    "a plan has \"engine\" and \"tp_size\", or \"rules\" and \"tp_size\", or \"ranks\", or \"boxes\"; "
    "\"manifest\" may be added";

static bool read_tp_size(const struct td_json_document *document, const cJSON *item, struct td_plan_spec *spec,
                         struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_json_document asked = *document;
    asked.err = &why;
    if (!cJSON_IsRaw(item))
        return td_json_document_fail(document, item, "\"tp_size\", the number of ranks, expected");
    if (!td_json_document_u64(&asked, item, &spec->tp_size))
        return td_json_document_fail(document, item, "\"tp_size\": %s", why.message);
    return td_tp_size_check(spec->tp_size, err);
}

static bool read_member(const struct td_json_document *document, const cJSON *item, struct td_plan_spec *spec,
                        unsigned *has, uint64_t *rank_count, struct td_error *err)
{
    static const char *const keys[] = {"engine", "tp_size", "rules", "ranks", "boxes", "manifest"};
    enum { KEYS = sizeof keys / sizeof *keys };
    unsigned bit = 0;
    while (bit < KEYS && strcmp(item->string, keys[bit]) != 0)
        bit++;
    if (bit == KEYS)
        return td_json_document_unknown_key(document, item, forms);
    if ((*has & 1U << bit) != 0)
        return td_json_document_fail_key(document, item, "\"%s\" is given twice", keys[bit]);
    *has |= 1U << bit;
    switch (1U << bit) {
    case HAS_ENGINE:
        return read_string(document, item, "the engine's name, a string,", &spec->engine);
    case HAS_TP_SIZE:
        return read_tp_size(document, item, spec, err);
    case HAS_RULES:
        return td_rules_read(document, item, &spec->arena, &spec->rules, err);
    case HAS_BOXES:
        return read_boxes(document, item, spec, err);
    case HAS_MANIFEST:
        return read_string(document, item, "the manifest's tag, a string,", &spec->manifest);
    default:
        return read_ranks(document, item, spec, rank_count, err);
    }
}

/* Checks that the members belong together. */
static bool is_complete(struct td_plan_spec *spec, unsigned has, uint64_t rank_count, struct td_error *err)
{
    has &= ~(unsigned)HAS_MANIFEST;
    if (has == HAS_RANKS || has == (HAS_RANKS | HAS_TP_SIZE)) {
        if ((has & HAS_TP_SIZE) != 0 && spec->tp_size != rank_count)
            return td_error_set(err, TD_INVALID_ARGUMENT,
                                "tp_size is %" PRIu64 ", but %" PRIu64 " ranks are spelled out", spec->tp_size,
                                rank_count);
        spec->tp_size = rank_count;
        return true;
    }
    return has == (HAS_ENGINE | HAS_TP_SIZE) || has == (HAS_RULES | HAS_TP_SIZE) || has == HAS_BOXES ||
           td_error_set(err, TD_INVALID_ARGUMENT, "%s", forms);
}

bool td_plan_spec_parse(struct td_plan_spec *spec, struct td_text text, struct td_budget *budget, struct td_error *err)
{
    struct td_json_document document;
    unsigned has = 0;
    uint64_t rank_count = 0;
    memset(spec, 0, sizeof *spec);
    td_arena_init_budget(&spec->arena, TREE_FREE_BYTES + TREE_PER_BYTE * text.len, budget);
    td_json_document_read(&document, text, &spec->arena, err);
    spec->arena.limit_bytes = spec->arena.used_bytes + LISTS_FREE_BYTES + LISTS_PER_BYTE * text.len;
    const cJSON *root = td_json_document_object(&document, "a plan, an object,");
    if (root == NULL)
        return false;
    for (const cJSON *item = root->child; item != NULL; item = item->next)
        if (!read_member(&document, item, spec, &has, &rank_count, err))
            return false;
    return td_json_document_end(&document) && is_complete(spec, has, rank_count, err);
}

/* ---- plans --------------------------------------------------------------------------------------------- */

bool td_plan_spec_match(const struct td_plan_spec *spec, struct td_text config, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_plan_basis *out, struct td_error *err)
{
    *out = (struct td_plan_basis){.rules = spec->rules, .budget = budget};
    td_arena_init(&out->arena, 0);
    if (spec->ranks != NULL || spec->boxes != NULL)
        return true;
    return (spec->engine == NULL ||
            td_engine_rules(spec->engine, config, tensors, spec->tp_size, &out->arena, &out->rules, err)) &&
           td_plan_match(&out->rules, tensors, budget, &out->match, err);
}

void td_plan_basis_fini(struct td_plan_basis *basis)
{
    td_plan_match_fini(&basis->match);
    td_arena_fini(&basis->arena);
}

bool td_plan_spec_rank(const struct td_plan_spec *spec, const struct td_plan_basis *basis,
                       const struct td_tensor_list *tensors, uint64_t tp_rank, struct td_plan *out,
                       struct td_error *err)
{
    if (spec->ranks == NULL)
        return td_plan_from_match(&basis->match, spec->tp_size, tp_rank, out, err);
    const struct td_plan_items *items = &spec->ranks[tp_rank];
    struct td_error why = TD_ERROR_INIT;
    if (!td_plan_from_items(items->items, items->count, tensors, basis->budget, out, &why))
        return td_error_set(err, why.code, "rank %" PRIu64 ": %s", tp_rank, why.message);
    out->tp_size = spec->tp_size;
    out->tp_rank = tp_rank;
    return true;
}
