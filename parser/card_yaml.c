#include "parser/card_yaml.h"

#include "core/array.h"
#include "core/json/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- anchors ---- */

static struct td_text part_of(const struct td_card_anchors *anchors, size_t off, size_t len)
{
    return td_text_skip(td_text_n(td_buffer_text(&anchors->texts).p, off + len), off);
}

/* Appends a text if the limit allows it. */
static bool append_text(struct td_card_anchors *anchors, struct td_text text, struct td_error *err)
{
    if (text.len > TD_CARD_MAX_ANCHOR_BYTES - anchors->texts.len)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the values of its anchors are too long");
    td_buffer_append(&anchors->texts, text.p, text.len);
    return !anchors->texts.failed || td_error_no_memory(err);
}

/* Returns the number of the latest anchor of this name, or -1. */
static int find_anchor(const struct td_card_anchors *anchors, struct td_text name)
{
    for (size_t i = anchors->count; i-- > 0;)
        if (td_text_compare(part_of(anchors, anchors->items[i].name_off, anchors->items[i].name_len), name) == 0)
            return (int)i;
    return -1;
}

int td_card_anchors_begin(struct td_card_anchors *anchors, struct td_text name, struct td_error *err)
{
    int before = find_anchor(anchors, name);
    if (before >= 0 && anchors->items[before].json_len > 0) {
        anchors->items[before].json_len = 0;
        return before;
    }
    if (anchors->count == TD_CARD_MAX_ANCHORS) {
        (void)td_error_set(err, TD_INVALID_ARGUMENT, "it has more than %d anchors", TD_CARD_MAX_ANCHORS);
        return -1;
    }
    struct td_card_anchor *anchor = &anchors->items[anchors->count];
    *anchor = (struct td_card_anchor){.name_off = anchors->texts.len, .name_len = name.len};
    return append_text(anchors, name, err) ? (int)anchors->count++ : -1;
}

bool td_card_anchors_end(struct td_card_anchors *anchors, int number, struct td_text json, size_t height,
                         struct td_error *err)
{
    struct td_card_anchor *anchor = &anchors->items[number];
    size_t off = anchors->texts.len;
    if (!append_text(anchors, json, err))
        return false;
    anchor->json_off = off;
    anchor->json_len = json.len;
    anchor->height = height;
    return true;
}

bool td_card_anchors_find(const struct td_card_anchors *anchors, struct td_text name, struct td_text *json,
                          size_t *height, struct td_error *err)
{
    int number = find_anchor(anchors, name);
    if (number < 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "an alias has no anchor before it");
    const struct td_card_anchor *anchor = &anchors->items[number];
    if (anchor->json_len == 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "an alias stands for a value that holds it");
    *json = part_of(anchors, anchor->json_off, anchor->json_len);
    *height = anchor->height;
    return true;
}

void td_card_anchors_fini(struct td_card_anchors *anchors)
{
    td_buffer_fini(&anchors->texts);
}

/* ---- the merge key ---- */

static const char merge_key[] = "\"<<\"";

struct member {
    struct td_text key, value; /* the key with its quotes */
    size_t order;
};

struct members {
    struct member *items;
    size_t count, capacity;
    struct td_error *err;
};

/* Takes the next value of an object or array, and the ',', ':' or bracket after it. */
static struct td_text take_value(struct td_text *rest)
{
    size_t len = td_json_value_len(*rest);
    struct td_text value = td_text_n(rest->p, len);
    *rest = td_text_skip(*rest, len < rest->len ? len + 1 : len);
    return value;
}

/* Adds the members of an object. */
static bool add_members(struct members *members, struct td_text object)
{
    struct td_text rest = td_text_skip(object, 1);
    while (rest.len > 1 || (rest.len == 1 && rest.p[0] != '}')) {
        struct member member = {.key = take_value(&rest), .order = members->count};
        member.value = take_value(&rest);
        if (!TD_ARRAY_GROW(members->items, members->count, members->capacity, members->err))
            return false;
        members->items[members->count++] = member;
    }
    return true;
}

/* Adds the members of the value of "<<". */
static bool add_merged(struct members *members, struct td_text value)
{
    if (value.p[0] == '{')
        return add_members(members, value);
    struct td_text rest = td_text_skip(value, value.p[0] == '[' ? 1 : 0);
    bool ok = value.p[0] == '[';
    while (ok && rest.len > 0 && rest.p[0] != ']') {
        struct td_text each = take_value(&rest);
        ok = each.len > 0 && each.p[0] == '{';
        if (ok && !add_members(members, each))
            return false;
    }
    return ok || td_error_set(members->err, TD_INVALID_ARGUMENT, "the value of << is neither a map nor a list of maps");
}

static int compare_keys(const void *a, const void *b)
{
    const struct member *x = a;
    const struct member *y = b;
    int order = td_text_compare(x->key, y->key);
    return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

static int compare_order(const void *a, const void *b)
{
    const struct member *x = a;
    const struct member *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

/* Keeps the first member of each key, in the order in which they were added. */
static void keep_first(struct members *members)
{
    size_t kept = 0;
    qsort(members->items, members->count, sizeof *members->items, compare_keys);
    for (size_t i = 0; i < members->count; i++)
        if (kept == 0 || td_text_compare(members->items[kept - 1].key, members->items[i].key) != 0)
            members->items[kept++] = members->items[i];
    members->count = kept;
    qsort(members->items, members->count, sizeof *members->items, compare_order);
}

bool td_card_merge(struct td_text object, struct td_buffer *out, struct td_error *err)
{
    struct members members = {.err = err};
    struct td_text merged = TD_TEXT("[]");
    size_t written = 0;
    bool ok = add_members(&members, object);
    for (size_t i = 0; ok && i < members.count; i++)
        if (td_text_equals(members.items[i].key, merge_key))
            merged = members.items[i].value;
    ok = ok && add_merged(&members, merged);
    if (ok && members.count > 0)
        keep_first(&members);
    td_buffer_putc(out, '{');
    for (size_t i = 0; ok && i < members.count; i++) {
        const struct member *member = &members.items[i];
        if (td_text_equals(member->key, merge_key))
            continue;
        if (written++ > 0)
            td_buffer_putc(out, ',');
        td_buffer_append(out, member->key.p, member->key.len);
        td_buffer_putc(out, ':');
        td_buffer_append(out, member->value.p, member->value.len);
    }
    td_buffer_putc(out, '}');
    free(members.items);
    return ok && (!out->failed || td_error_no_memory(err));
}
