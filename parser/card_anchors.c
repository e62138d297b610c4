#include "parser/card_anchors.h"

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
