#include "slicing/plan_spec.h"

#include <inttypes.h>
#include <string.h>

/* Limits on the memory of a specification by the length of its text: a rank's first items take 400 bytes, for at least
 * 27 bytes of text. Rules take more than their text, but there are at most TD_RULE_MAX_COUNT. */
enum { MEMORY_PER_BYTE = 32, MEMORY_FREE_BYTES = 64 * 1024 + TD_RULE_MAX_COUNT * (int)sizeof(struct td_rule) };

static void init(struct td_plan_spec *spec, size_t text_len)
{
    memset(spec, 0, sizeof *spec);
    td_arena_init(&spec->arena, MEMORY_FREE_BYTES + (size_t)MEMORY_PER_BYTE * text_len);
}

void td_plan_spec_fini(struct td_plan_spec *spec)
{
    td_arena_fini(&spec->arena);
}

bool td_plan_spec_init_engine(struct td_plan_spec *spec, struct td_text engine, uint64_t tp_size, struct td_error *err)
{
    init(spec, engine.len);
    spec->tp_size = tp_size;
    spec->engine = td_arena_strndup(&spec->arena, engine);
    return td_tp_size_check(tp_size, err) && (spec->engine != NULL || td_error_no_memory(err));
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

/* Returns a copy of the latest token, a string, in the arena. Returns NULL with an error set. */
static const char *copy_string(struct td_json *json, struct td_arena *arena, struct td_error *err)
{
    size_t len;
    char *text = td_arena_array(arena, json->value_len + 1, 1);
    if (text == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    return td_json_string(json, text, json->value_len + 1, &len) ? text : NULL;
}

/* Reads a string that is a member's value. Fails if *out is set, since a member may be given once. */
static bool read_string(struct td_json *json, struct td_arena *arena, const char *what, const char **out,
                        struct td_error *err)
{
    if (*out != NULL)
        return td_json_fail(json, "%s is there twice", what);
    if (!td_json_expect(json, TD_JSON_STRING, what))
        return false;
    *out = copy_string(json, arena, err);
    return *out != NULL;
}

/* Reads an item, whose '{' is the latest token. */
static bool read_item(struct td_json *json, struct td_arena *arena, struct td_plan_item *item, struct td_error *err)
{
    memset(item, 0, sizeof *item);
    for (;;) {
        enum td_json_token token = td_json_next(json);
        bool ok = token == TD_JSON_KEY;
        if (token == TD_JSON_OBJECT_END)
            return item->name != NULL || td_json_fail(json, "a tensor without a \"name\"");
        if (ok && td_json_equals(json, "name"))
            ok = read_string(json, arena, "the tensor's name, a string,", &item->name, err);
        else if (ok && td_json_equals(json, "as"))
            ok = read_string(json, arena, "the name that the tensor gets (\"as\"), a string,", &item->as, err);
        else if (ok && td_json_equals(json, "slice"))
            ok = read_string(json, arena, "the slice, a string such as \"0:128,:\",", &item->slice, err);
        else if (ok)
            ok = td_json_unknown_key(json, "a tensor has \"name\", \"as\" and \"slice\", nothing else");
        if (!ok)
            return false;
    }
}

bool td_plan_items_read(struct td_json *json, struct td_arena *arena, struct td_plan_items *out, struct td_error *err)
{
    struct td_plan_item *items = NULL;
    size_t capacity = 0;
    memset(out, 0, sizeof *out);
    if (!td_json_expect(json, TD_JSON_ARRAY_BEGIN, "a list of tensors"))
        return false;
    for (;;) {
        enum td_json_token token = td_json_next(json);
        if (token == TD_JSON_ARRAY_END)
            return true;
        if (token != TD_JSON_OBJECT_BEGIN)
            return td_json_fail(json, "a tensor is an object with a \"name\"");
        items = td_arena_grow(arena, items, out->count, &capacity, sizeof *items);
        if (items == NULL)
            return td_error_no_memory(err);
        if (!read_item(json, arena, &items[out->count], err))
            return false;
        out->items = items;
        out->count++;
    }
}

/* Reads a rank, {"tensors": [...]}, whose '{' is the latest token. */
static bool read_rank(struct td_json *json, struct td_arena *arena, struct td_plan_items *out, struct td_error *err)
{
    static const char known[] = "a rank has \"tensors\", nothing else";
    if (!td_json_expect(json, TD_JSON_KEY, "\"tensors\""))
        return false;
    if (!td_json_equals(json, "tensors"))
        return td_json_unknown_key(json, known);
    if (!td_plan_items_read(json, arena, out, err))
        return false;
    enum td_json_token token = td_json_next(json);
    if (token == TD_JSON_KEY && td_json_equals(json, "tensors"))
        return td_json_fail(json, "\"tensors\" is there twice");
    return token == TD_JSON_OBJECT_END || (token == TD_JSON_KEY && td_json_unknown_key(json, known));
}

static bool read_ranks(struct td_json *json, struct td_plan_spec *spec, uint64_t *count, struct td_error *err)
{
    struct td_plan_items *ranks = NULL;
    size_t capacity = 0;
    if (!td_json_expect(json, TD_JSON_ARRAY_BEGIN, "a list of ranks"))
        return false;
    for (*count = 0;; ++*count) {
        enum td_json_token token = td_json_next(json);
        if (token == TD_JSON_ARRAY_END)
            break;
        if (token != TD_JSON_OBJECT_BEGIN)
            return td_json_fail(json, "a rank is an object with \"tensors\"");
        if (*count == TD_MAX_TP_SIZE)
            return td_json_fail(json, "more than %d ranks", TD_MAX_TP_SIZE);
        ranks = td_arena_grow(&spec->arena, ranks, (size_t)*count, &capacity, sizeof *ranks);
        if (ranks == NULL)
            return td_error_no_memory(err);
        if (!read_rank(json, &spec->arena, &ranks[*count], err))
            return false;
    }
    spec->ranks = ranks;
    return *count > 0 || td_json_fail(json, "\"ranks\" is empty");
}

enum { HAS_ENGINE = 1, HAS_TP_SIZE = 2, HAS_RULES = 4, HAS_RANKS = 8 };

static bool read_tp_size(struct td_json *json, struct td_plan_spec *spec, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    if (!td_json_expect(json, TD_JSON_NUMBER, "\"tp_size\", the number of ranks,"))
        return false;
    json->err = &why;
    bool ok = td_json_u64(json, &spec->tp_size);
    json->err = err;
    return ok ? td_tp_size_check(spec->tp_size, err) : td_json_fail(json, "\"tp_size\": %s", why.message);
}

/* Reads a member of the specification, whose key is the latest token. */
static bool read_member(struct td_json *json, struct td_plan_spec *spec, unsigned *has, uint64_t *rank_count,
                        struct td_error *err)
{
    static const char *const keys[] = {"engine", "tp_size", "rules", "ranks"};
    unsigned bit = 0;
    while (bit < 4 && !td_json_equals(json, keys[bit]))
        bit++;
    if (bit == 4)
        return td_json_unknown_key(json,
                                   "a plan has \"engine\" and \"tp_size\", or \"rules\" and \"tp_size\", or \"ranks\"");
    if ((*has & 1U << bit) != 0)
        return td_json_fail(json, "\"%s\" is there twice", keys[bit]);
    *has |= 1U << bit;
    switch (1U << bit) {
    case HAS_ENGINE:
        return read_string(json, &spec->arena, "the engine's name, a string,", &spec->engine, err);
    case HAS_TP_SIZE:
        return read_tp_size(json, spec, err);
    case HAS_RULES:
        return td_rules_read(json, &spec->arena, &spec->rules, err);
    default:
        return read_ranks(json, spec, rank_count, err);
    }
}

/* Checks that the members belong together. */
static bool is_complete(struct td_plan_spec *spec, unsigned has, uint64_t rank_count, struct td_error *err)
{
    if (has == HAS_RANKS || has == (HAS_RANKS | HAS_TP_SIZE)) {
        if ((has & HAS_TP_SIZE) != 0 && spec->tp_size != rank_count)
            return td_error_set(err, TD_INVALID_ARGUMENT,
                                "tp_size is %" PRIu64 ", but %" PRIu64 " ranks are spelled out", spec->tp_size,
                                rank_count);
        spec->tp_size = rank_count;
        return true;
    }
    return has == (HAS_ENGINE | HAS_TP_SIZE) || has == (HAS_RULES | HAS_TP_SIZE) ||
           td_error_set(err, TD_INVALID_ARGUMENT,
                        "a plan has \"engine\" and \"tp_size\", or \"rules\" and \"tp_size\", or \"ranks\"");
}

bool td_plan_spec_parse(struct td_plan_spec *spec, struct td_text text, struct td_error *err)
{
    struct td_json json;
    unsigned has = 0;
    uint64_t rank_count = 0;
    init(spec, text.len);
    td_json_init(&json, text, 0, err);
    if (!td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "a plan, an object,"))
        return false;
    for (;;) {
        enum td_json_token token = td_json_next(&json);
        if (token == TD_JSON_OBJECT_END)
            break;
        if (token != TD_JSON_KEY || !read_member(&json, spec, &has, &rank_count, err))
            return false;
    }
    return td_json_expect(&json, TD_JSON_END, "nothing behind the plan") && is_complete(spec, has, rank_count, err);
}

/* ---- plans --------------------------------------------------------------------------------------------- */

bool td_plan_spec_match(const struct td_plan_spec *spec, struct td_text config, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_plan_basis *out, struct td_error *err)
{
    *out = (struct td_plan_basis){.rules = spec->rules, .budget = budget};
    td_arena_init(&out->arena, 0);
    if (spec->ranks != NULL)
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
