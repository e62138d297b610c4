/* The types form a tree. Each node has a list of its children, in the order of their first appearance; a hash table
 * finds a child by its parent and name. A walk over the tokens of a row has a stack of the nodes of the objects and
 * arrays that are open. */
#include "rank/row_features.h"

#include "core/mix64.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum kind { UNKNOWN, BOOL, INT64, FLOAT64, STRING, LIST, STRUCT, JSON };

struct td_row_feature {
    enum kind kind;
    uint32_t parent, first, last, next; /* numbers of nodes; 0: none */
    uint32_t name_len;
    size_t name_at; /* offset in `names` */
    uint64_t group; /* the last group for which td_row_features_add_string added it */
};

enum { SLOTS = 2 * TD_ROW_FEATURES_MOST, NOTHING = UINT32_MAX };

/* Bytes that a td_row_features takes, without the names. */
enum { MEMORY_BYTES = TD_ROW_FEATURES_MOST * sizeof(struct td_row_feature) + SLOTS * sizeof(uint32_t) };

bool td_row_features_init(struct td_row_features *features, struct td_budget *budget, struct td_error *err)
{
    *features = (struct td_row_features){.budget = budget};
    td_buffer_init_budget(&features->names, budget);
    if (!td_budget_take(budget, MEMORY_BYTES))
        return td_budget_refuse(budget, MEMORY_BYTES, err);
    features->nodes = calloc(TD_ROW_FEATURES_MOST, sizeof *features->nodes);
    features->slots = calloc(SLOTS, sizeof *features->slots);
    if (features->nodes == NULL || features->slots == NULL) {
        td_row_features_fini(features);
        td_budget_give(budget, MEMORY_BYTES);
        return td_error_no_memory(err);
    }
    if (getrandom(&features->key, sizeof features->key, GRND_NONBLOCK) != (ssize_t)sizeof features->key)
        features->key = (uint64_t)(uintptr_t)features->nodes; /* also hard to predict */
    features->nodes[0].kind = STRUCT;
    features->count = 1;
    return true;
}

void td_row_features_fini(struct td_row_features *features)
{
    if (features->nodes != NULL && features->slots != NULL)
        td_budget_give(features->budget, MEMORY_BYTES);
    free(features->nodes);
    free(features->slots);
    td_buffer_fini(&features->names);
    *features = (struct td_row_features){0};
}

/* ---- the tree ---- */

/* Returns a keyed hash. Since nobody can predict it, no file can make lookups slow. */
static uint64_t hash_of(const struct td_row_features *features, uint32_t parent, struct td_text name)
{
    uint64_t hash = td_mix64(features->key ^ parent) ^ name.len;
    for (size_t at = 0, n; at < name.len; at += n) {
        uint64_t part = 0;
        n = name.len - at < sizeof part ? name.len - at : sizeof part;
        memcpy(&part, name.p + at, n);
        hash = td_mix64(hash ^ part) + features->key;
    }
    return td_mix64(hash);
}

/* Returns the slot of the child with this name, or the free slot for it. */
static uint32_t *slot_of(const struct td_row_features *features, uint32_t parent, struct td_text name)
{
    for (size_t slot = hash_of(features, parent, name) % SLOTS;; slot = (slot + 1) % SLOTS) {
        const struct td_row_feature *node = &features->nodes[features->slots[slot]];
        if (features->slots[slot] == 0 ||
            (node->parent == parent && node->name_len == name.len &&
             (name.len == 0 || memcmp(features->names.data + node->name_at, name.p, name.len) == 0)))
            return &features->slots[slot];
    }
}

/* Returns the child with this name, and adds it if it is missing. Returns NOTHING if there are too many nodes or memory
 * is short. */
static uint32_t child_of(struct td_row_features *features, uint32_t parent, struct td_text name)
{
    uint32_t *slot = slot_of(features, parent, name);
    if (*slot != 0)
        return *slot;
    if (features->count == TD_ROW_FEATURES_MOST || (parent == 0 && features->column_count == TD_ROW_COLUMNS_MOST))
        return NOTHING;
    uint32_t number = features->count;
    struct td_row_feature *above = &features->nodes[parent];
    features->nodes[number] =
        (struct td_row_feature){.parent = parent, .name_len = (uint32_t)name.len, .name_at = features->names.len};
    td_buffer_append(&features->names, name.p, name.len);
    if (features->names.failed)
        return NOTHING;
    if (above->first == 0)
        above->first = number;
    else
        features->nodes[above->last].next = number;
    above->last = number;
    features->column_count += parent == 0 ? 1 : 0;
    features->count++;
    *slot = number;
    return number;
}

/* Widens the node's kind so that it covers a value of this kind. */
static void widen_kind(struct td_row_feature *node, enum kind kind)
{
    bool are_numbers = (node->kind == INT64 && kind == FLOAT64) || (node->kind == FLOAT64 && kind == INT64);
    if (node->kind == UNKNOWN || node->kind == kind)
        node->kind = kind;
    else
        node->kind = are_numbers ? FLOAT64 : JSON;
}

/* Returns whether a whole number fits a signed integer of 64 bits. */
static bool fits_int64(struct td_text number)
{
    bool is_negative = number.len > 0 && number.p[0] == '-';
    struct td_text digits = td_text_skip(number, is_negative ? 1 : 0);
    const char *most = is_negative ? "9223372036854775808" : "9223372036854775807";
    return digits.len < 19 || (digits.len == 19 && memcmp(digits.p, most, 19) <= 0);
}

static enum kind kind_of(enum td_json_token token, const struct td_json *json)
{
    struct td_text number = td_json_raw(json);
    switch (token) {
    case TD_JSON_OBJECT_BEGIN:
        return STRUCT;
    case TD_JSON_ARRAY_BEGIN:
        return LIST;
    case TD_JSON_STRING:
        return STRING;
    case TD_JSON_TRUE:
    case TD_JSON_FALSE:
        return BOOL;
    case TD_JSON_NUMBER:
        for (size_t i = 0; i < number.len; i++)
            if (strchr(".eE", number.p[i]) != NULL)
                return FLOAT64;
        return fits_int64(number) ? INT64 : FLOAT64;
    default:
        return UNKNOWN; /* null */
    }
}

/* ---- one row ---- */

/* A walk over a row. `stack` holds the nodes of the open objects and arrays. */
struct walk {
    struct td_row_features *features;
    struct td_json *json;
    uint32_t stack[TD_ROW_FEATURES_DEPTH];
    size_t depth;
    uint32_t place; /* the node of the next value */
};

/* Skips an object or array that has just begun. */
static bool skip_rest(struct td_json *json)
{
    unsigned depth = json->depth - 1;
    while (json->depth > depth)
        if (td_json_next(json) == TD_JSON_ERROR)
            return false;
    return true;
}

/* Sets `place` to the child with this name of the innermost open object or array. If the child cannot be added, the
 * object or array as a whole becomes JSON, and `place` is its node. */
static void go_to(struct walk *walk, struct td_text name)
{
    uint32_t parent = walk->stack[walk->depth - 1], found = child_of(walk->features, parent, name);
    if (found == NOTHING)
        walk->features->nodes[parent].kind = JSON;
    walk->place = found == NOTHING ? parent : found;
}

static bool take_value(struct walk *walk, enum td_json_token token)
{
    struct td_row_feature *node = &walk->features->nodes[walk->place];
    enum kind kind = kind_of(token, walk->json);
    bool opens = kind == LIST || kind == STRUCT;
    if (kind != UNKNOWN)
        widen_kind(node, opens && walk->depth == TD_ROW_FEATURES_DEPTH ? JSON : kind);
    if (!opens)
        return true;
    if (node->kind == JSON)
        return skip_rest(walk->json);
    walk->stack[walk->depth++] = walk->place;
    return true;
}

/* Reads the rest of a value after its first token, and widens the node `place` and those below it. */
static bool read_value(struct td_row_features *features, struct td_json *json, enum td_json_token token, uint32_t place)
{
    struct walk walk = {.features = features, .json = json, .place = place};
    if (!take_value(&walk, token))
        return false;
    while (walk.depth > 0) {
        token = td_json_next(json);
        if (token == TD_JSON_ERROR)
            return false;
        if (token == TD_JSON_OBJECT_END || token == TD_JSON_ARRAY_END) {
            walk.depth--;
        } else if (token == TD_JSON_KEY) {
            go_to(&walk, td_json_raw(json));
        } else {
            if (features->nodes[walk.stack[walk.depth - 1]].kind == LIST)
                go_to(&walk, TD_TEXT(""));
            if (!take_value(&walk, token))
                return false;
        }
    }
    return true;
}

/* Sets *place to the column with this name, and adds it if it is missing. */
static bool find_column(struct td_row_features *features, struct td_text name, uint32_t *place, struct td_error *err)
{
    *place = child_of(features, 0, name);
    if (*place != NOTHING)
        return true;
    return features->names.failed
               ? td_buffer_refuse(&features->names, err)
               : td_error_set(err, TD_FAILED_PRECONDITION,
                              "the rows have more than %d columns, the most of format=json", TD_ROW_COLUMNS_MOST);
}

bool td_row_features_read(struct td_row_features *features, struct td_text row, bool *is_object, struct td_error *err)
{
    struct td_json json;
    uint32_t place;
    td_json_init(&json, row, 0, err);
    enum td_json_token token = td_json_next(&json);
    *is_object = token == TD_JSON_OBJECT_BEGIN;
    if (token == TD_JSON_ERROR)
        return false;
    if (!*is_object) {
        if (!find_column(features, TD_TEXT("row"), &place, err) || !read_value(features, &json, token, place))
            return false;
        return td_json_expect(&json, TD_JSON_END, "nothing behind the value");
    }
    while ((token = td_json_next(&json)) == TD_JSON_KEY)
        if (!find_column(features, td_json_raw(&json), &place, err) ||
            !read_value(features, &json, td_json_next(&json), place))
            return false;
    return token == TD_JSON_OBJECT_END && td_json_expect(&json, TD_JSON_END, "nothing behind the object");
}

bool td_row_features_add_string(struct td_row_features *features, struct td_text name, uint64_t group, bool *again,
                                struct td_error *err)
{
    uint32_t place;
    if (!find_column(features, name, &place, err))
        return false;
    *again = features->nodes[place].group == group;
    features->nodes[place].group = group;
    widen_kind(&features->nodes[place], STRING);
    return true;
}

/* ---- writing ---- */

static void write_name(const struct td_row_features *features, const struct td_row_feature *node, struct td_buffer *out)
{
    td_buffer_putc(out, '"');
    if (node->name_len > 0)
        td_buffer_append(out, features->names.data + node->name_at, node->name_len);
    td_buffer_putc(out, '"');
}

/* Writes the part of a type before its children; for a type without children, all of it. */
static void open_type(const struct td_row_feature *node, struct td_buffer *out)
{
    static const char *const dtypes[] = {
        [UNKNOWN] = "null", [BOOL] = "bool", [INT64] = "int64", [FLOAT64] = "float64", [STRING] = "string"};
    if (node->kind == STRUCT)
        td_buffer_putc(out, '{');
    else if (node->kind == LIST)
        td_buffer_puts(out, "{\"feature\":");
    else if (node->kind == JSON)
        td_buffer_puts(out, "{\"_type\":\"Json\"}");
    else
        td_buffer_printf(out, "{\"dtype\":\"%s\",\"_type\":\"Value\"}", dtypes[node->kind]);
}

static void close_type(const struct td_row_feature *node, struct td_buffer *out)
{
    if (node->kind == STRUCT)
        td_buffer_putc(out, '}');
    else if (node->kind == LIST)
        td_buffer_puts(out, node->first == 0 ? "{\"dtype\":\"null\",\"_type\":\"Value\"},\"_type\":\"List\"}"
                                             : ",\"_type\":\"List\"}");
}

static bool has_children(const struct td_row_feature *node)
{
    return node->first != 0 && (node->kind == STRUCT || node->kind == LIST);
}

/* Writes the type of a column, in a walk over the nodes below it. */
static void write_type(const struct td_row_features *features, uint32_t column, struct td_buffer *out)
{
    const struct td_row_feature *nodes = features->nodes;
    uint32_t at = column;
    for (;;) {
        open_type(&nodes[at], out);
        if (has_children(&nodes[at])) {
            bool named = nodes[at].kind == STRUCT;
            at = nodes[at].first;
            if (named) {
                write_name(features, &nodes[at], out);
                td_buffer_putc(out, ':');
            }
            continue;
        }
        close_type(&nodes[at], out);
        while (at != column && nodes[at].next == 0) {
            at = nodes[at].parent;
            close_type(&nodes[at], out);
        }
        if (at == column)
            return;
        at = nodes[at].next;
        td_buffer_putc(out, ',');
        write_name(features, &nodes[at], out);
        td_buffer_putc(out, ':');
    }
}

void td_row_features_write(const struct td_row_features *features, struct td_buffer *out)
{
    const struct td_row_feature *nodes = features->nodes;
    uint32_t number = 0;
    td_buffer_putc(out, '[');
    for (uint32_t at = nodes[0].first; at != 0; at = nodes[at].next) {
        td_buffer_puts(out, number > 0 ? ",{\"feature_idx\":" : "{\"feature_idx\":");
        td_buffer_u64(out, number++);
        td_buffer_puts(out, ",\"name\":");
        write_name(features, &nodes[at], out);
        td_buffer_puts(out, ",\"type\":");
        write_type(features, at, out);
        td_buffer_putc(out, '}');
    }
    td_buffer_putc(out, ']');
}
