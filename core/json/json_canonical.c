/* Stays with the pull reader: numbers are spelled as in the text, and a sorted object takes no tree. */
#include "core/json/json_canonical.h"

#include "core/array.h"

#include <stdlib.h>
#include <string.h>

/* Written by hand and not by core/message/document.h: the text comes from a client, so its depth is not ours.
 *
 * Members are first written in the order of the text. When an object ends, its members are the last bytes of the
 * output: they are copied aside, sorted and written over themselves, which takes the same number of bytes. */

/* One member of an object: its name and value in the output, without the comma. */
struct member {
    const char *text; /* set only while its object is sorted */
    size_t off, len;  /* of the member in the output */
    size_t name_len;  /* with the quotes */
};

/* An object or array that is open. */
struct level {
    size_t first_member; /* of an object: its index in the list of members */
    bool is_object;
};

struct writer {
    struct td_json json;
    struct td_buffer *out;
    struct td_buffer aside;
    struct member *members; /* of all open objects */
    size_t member_count, member_capacity;
    struct level levels[TD_JSON_MAX_DEPTH];
    size_t depth;
    struct td_error *err;
};

static int by_name(const void *a, const void *b)
{
    const struct member *x = a;
    const struct member *y = b;
    size_t len = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(x->text, y->text, len);
    if (order == 0)
        order = (x->name_len > y->name_len) - (x->name_len < y->name_len);
    return order != 0 ? order : (x->off > y->off) - (x->off < y->off);
}

/* Sorts the members of the innermost object, which ends now, and removes them from the list. */
static bool sort_members(struct writer *w)
{
    size_t first = w->levels[w->depth - 1].first_member;
    size_t count = w->member_count - first;
    w->member_count = first;
    if (count < 2) /* without members the list may be NULL */
        return true;
    struct member *members = w->members + first;
    size_t start = members[0].off;
    td_buffer_clear(&w->aside);
    td_buffer_append(&w->aside, w->out->data + start, w->out->len - start);
    if (w->aside.failed)
        return td_error_no_memory(w->err);
    for (size_t i = 0; i < count; i++)
        members[i].text = w->aside.data + (members[i].off - start);
    qsort(members, count, sizeof *members, by_name);
    char *to = w->out->data + start;
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            *to++ = ',';
        memcpy(to, members[i].text, members[i].len);
        to += members[i].len;
    }
    return true;
}

/* Appends the latest KEY or STRING, escaped as td_json_write_string does. */
static bool write_string(struct writer *w)
{
    struct td_json *json = &w->json;
    if (!json->escaped) {
        td_json_write_string(w->out, td_json_raw(json));
        return true;
    }
    size_t len = 0;
    char *decoded = malloc(json->value_len + 1);
    bool ok = decoded != NULL ? td_json_string(json, decoded, json->value_len + 1, &len) : td_error_no_memory(w->err);
    if (ok)
        td_json_write_string(w->out, td_text_n(decoded, len));
    free(decoded);
    return ok;
}

/* Begins a member of the innermost object: appends the latest KEY and a colon. */
static bool write_name(struct writer *w)
{
    if (!TD_ARRAY_GROW(w->members, w->member_count, w->member_capacity, w->err))
        return false;
    size_t off = w->out->len;
    if (!write_string(w))
        return false;
    w->members[w->member_count++] = (struct member){.off = off, .name_len = w->out->len - off};
    td_buffer_putc(w->out, ':');
    return true;
}

/* Notes the end of a value. Where the innermost level is an object, this is the end of a member, too. */
static void end_value(struct writer *w)
{
    if (w->depth > 0 && w->levels[w->depth - 1].is_object) {
        struct member *member = &w->members[w->member_count - 1];
        member->len = w->out->len - member->off;
    }
}

static bool write_token(struct writer *w, enum td_json_token token)
{
    const struct td_json *json = &w->json;
    switch (token) {
    case TD_JSON_KEY:
        return write_name(w);
    case TD_JSON_OBJECT_BEGIN:
    case TD_JSON_ARRAY_BEGIN:
        w->levels[w->depth++] =
            (struct level){.first_member = w->member_count, .is_object = token == TD_JSON_OBJECT_BEGIN};
        td_buffer_putc(w->out, token == TD_JSON_OBJECT_BEGIN ? '{' : '[');
        return true;
    case TD_JSON_OBJECT_END:
    case TD_JSON_ARRAY_END:
        if (token == TD_JSON_OBJECT_END && !sort_members(w))
            return false;
        w->depth--;
        td_buffer_putc(w->out, token == TD_JSON_OBJECT_END ? '}' : ']');
        break;
    case TD_JSON_STRING:
        if (!write_string(w))
            return false;
        break;
    default: /* a number or a word */
        td_buffer_append(w->out, json->text.p + json->start, json->pos - json->start);
    }
    end_value(w);
    return true;
}

static bool write_all(struct writer *w)
{
    bool comma = false; /* a value has ended at this level, so the next one needs a comma */
    for (;;) {
        enum td_json_token token = td_json_next(&w->json);
        if (token == TD_JSON_ERROR)
            return false;
        if (token == TD_JSON_END)
            return true;
        if (comma && token != TD_JSON_OBJECT_END && token != TD_JSON_ARRAY_END)
            td_buffer_putc(w->out, ',');
        if (!write_token(w, token))
            return false;
        if (w->out->failed) /* else the offsets of members would be wrong */
            return td_error_no_memory(w->err);
        comma = token != TD_JSON_KEY && token != TD_JSON_OBJECT_BEGIN && token != TD_JSON_ARRAY_BEGIN;
    }
}

bool td_json_canonical(struct td_text text, struct td_buffer *out, struct td_error *err)
{
    struct writer w = {.out = out, .err = err};
    td_json_init(&w.json, text, 0, err);
    td_buffer_init(&w.aside);
    bool ok = write_all(&w);
    td_buffer_fini(&w.aside);
    free(w.members);
    return ok;
}
