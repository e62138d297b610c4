/* The plan. find_front_matter finds the lines between the dashes, check_directives bounds what libyaml does with them,
 * and write_document turns libyaml's events into JSON as they come: a stack of levels, one for each open list or map,
 * takes the place of recursion. The keys of all open maps are kept as places in the output, so that a map can be
 * checked for repeated keys when it ends. The JSON of a value with an anchor is copied (card_yaml.h), and copied
 * again for each of its aliases, as long as the result stays below its limits. */
#include "parser/model_card.h"

#include "core/array.h"
#include "core/json/json.h"
#include "parser/card_yaml.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* ---- where the front matter is ------------------------------------------------------------------------- */

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

/* Returns whether text[at...] begins with a line of three dashes that ends with a line feed, or with the text. */
static bool is_end(const char *text, size_t len, size_t at)
{
    if (len - at < 3 || memcmp(text + at, "---", 3) != 0)
        return false;
    at += 3;
    return at == len || text[at] == '\n' || (text[at] == '\r' && at + 1 < len && text[at + 1] == '\n');
}

/* Finds the front matter as huggingface_hub does (repocard.py, REGEX_YAML_BLOCK): from a line of three dashes, with
 * only blanks before it, to the next such line. Returns false when the text has no front matter; *open is then true
 * when front matter begins but does not end. */
static bool find_front_matter(const char *text, size_t len, size_t *begin, size_t *end, bool *open)
{
    size_t at = 0;
    while (at < len && (text[at] == ' ' || (text[at] >= '\t' && text[at] <= '\r')))
        at++;
    *open = len - at > 3 && memcmp(text + at, "---", 3) == 0 && is_newline(text[at + 3]);
    if (!*open)
        return false;
    *begin = at + 3;
    for (size_t i = *begin; i + 1 < len; i++) {
        if (is_newline(text[i]) && is_end(text, len, i + 1)) {
            *end = i;
            return true;
        }
    }
    return false;
}

size_t td_model_card_end(struct td_text text)
{
    static const struct td_text mark = TD_TEXT("\xEF\xBB\xBF");
    size_t skipped = td_text_begins(text, mark) ? mark.len : 0;
    size_t begin;
    size_t end;
    bool open;
    text = td_text_skip(text, skipped);
    if (!find_front_matter(text.p, text.len, &begin, &end, &open))
        return skipped;
    end += strlen("\n---");
    end += end < text.len && text.p[end] == '\r' ? 1 : 0;
    end += end < text.len && text.p[end] == '\n' ? 1 : 0;
    return skipped + end;
}

/* Returns the length of the line break of YAML 1.1 at p; 0 when p is not at a line break. */
static size_t break_len(const char *p, size_t left)
{
    static const char *const breaks[] = {"\n", "\r\n", "\r", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        size_t len = strlen(breaks[i]);
        if (len <= left && memcmp(p, breaks[i], len) == 0)
            return len;
    }
    return 0;
}

/* Refuses more than TD_CARD_MAX_DIRECTIVES lines that begin with "%". Front matter needs no directives (%YAML, %TAG),
 * but a quoted text may have lines that look like them, so a few are allowed anywhere. */
static bool check_directives(const char *text, size_t len, struct td_error *err)
{
    size_t line = 1;
    size_t count = 0;
    bool begins = true; /* a line begins at `at` */
    for (size_t at = 0; at < len;) {
        size_t skipped = break_len(text + at, len - at);
        if (begins && text[at] == '%' && ++count > TD_CARD_MAX_DIRECTIVES)
            return td_error_set(err, TD_INVALID_ARGUMENT,
                                "more than %d lines begin with %%, as directives do (line %zu of the front matter)",
                                TD_CARD_MAX_DIRECTIVES, line);
        begins = skipped > 0;
        line += begins;
        at += begins ? skipped : 1;
    }
    return true;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* The place of a key, with its quotes, in the output. */
struct key {
    size_t off, len;
};

struct level {
    bool is_map;
    bool has_key;     /* of a map: a key was written, and its value comes next */
    bool merges;      /* of a map: it has the key <<, whose value is merged into it */
    int anchor;       /* number of its anchor, or -1 */
    size_t start;     /* where its text begins in the output */
    size_t height;    /* nesting depth below it so far */
    size_t count;     /* items of a list, or keys of a map */
    size_t first_key; /* of a map: index into the writer's keys */
};

/* Writes by hand and not by core/message/document.h: the keys of a map are compared in the output, and its length is
 * limited while it grows. */
struct writer {
    struct td_buffer *out;
    size_t start; /* of the object in out */
    struct level levels[TD_CARD_MAX_DEPTH];
    size_t depth;
    struct key *keys; /* of all maps that are open */
    size_t key_count, key_capacity;
    struct td_card_anchors anchors;
    size_t alias_bytes; /* of all values that aliases inserted; a merge may have dropped some of them */
    const yaml_event_t *event;
    struct td_error *err;
};

static bool fail_at_line(const struct writer *w, const char *what)
{
    return td_error_set(w->err, TD_INVALID_ARGUMENT, "%s (line %zu of the front matter)", what,
                        w->event->start_mark.line + 1);
}

static bool push_key(struct writer *w, struct key key)
{
    if (!TD_ARRAY_GROW(w->keys, w->key_count, w->key_capacity, w->err)) /* no more keys than bytes read */
        return false;
    w->keys[w->key_count++] = key;
    return true;
}

static int key_compare(const void *a, const void *b, void *text)
{
    const struct key *x = a;
    const struct key *y = b;
    size_t len = x->len < y->len ? x->len : y->len;
    int order = memcmp((const char *)text + x->off, (const char *)text + y->off, len);
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

/* Refuses a map, which has ended, that has a key twice. Drops its keys. */
static bool check_keys(struct writer *w, const struct level *level)
{
    size_t count = w->key_count - level->first_key;
    w->key_count = level->first_key;
    if (count < 2)
        return true;
    struct key *keys = w->keys + level->first_key;
    qsort_r(keys, count, sizeof *keys, key_compare, w->out->data);
    for (size_t i = 1; i < count; i++)
        if (key_compare(&keys[i - 1], &keys[i], w->out->data) == 0)
            return fail_at_line(w, "a map has a key twice");
    return true;
}

/* Begins a value that is not a key: checks that it may stand here, and writes the comma before a further item. */
static bool begin_value(struct writer *w)
{
    struct level *level = w->depth == 0 ? NULL : &w->levels[w->depth - 1];
    if (level == NULL) /* the value is the document itself */
        return w->event->type == YAML_MAPPING_START_EVENT || fail_at_line(w, "it is not a map of keys and values");
    if (level->is_map && !level->has_key)
        return fail_at_line(w, "a key is not text");
    if (!level->is_map && level->count++ > 0)
        td_buffer_putc(w->out, ',');
    level->has_key = false;
    return true;
}

/* Updates the height of the innermost level for a value in it that has this height. */
static void note_height(struct writer *w, size_t height)
{
    struct level *level = w->depth == 0 ? NULL : &w->levels[w->depth - 1];
    if (level != NULL && level->height < height)
        level->height = height;
}

/* Fails with an error about anchors, aliases or merges, and adds the line unless memory was short. */
static bool fail_by(const struct writer *w, const struct td_error *why)
{
    return why->code == TD_INVALID_ARGUMENT ? fail_at_line(w, why->message) : td_error_no_memory(w->err);
}

/* Begins an anchor if the event has one. Sets *number to its number, or to -1. */
static bool begin_anchor(struct writer *w, const yaml_char_t *name, int *number)
{
    struct td_error why = TD_ERROR_INIT;
    *number = name == NULL ? -1 : td_card_anchors_begin(&w->anchors, td_text_of((const char *)name), &why);
    return name == NULL || *number >= 0 || fail_by(w, &why);
}

/* Ends the anchor of this number, whose value is the output from `start` on. Does nothing for -1. */
static bool end_anchor(struct writer *w, int number, size_t start, size_t height)
{
    struct td_error why = TD_ERROR_INIT;
    if (number < 0 || w->out->failed)
        return true;
    struct td_text json = td_text_skip(td_buffer_text(w->out), start);
    return td_card_anchors_end(&w->anchors, number, json, height, &why) || fail_by(w, &why);
}

static bool push_level(struct writer *w, bool is_map, const yaml_char_t *tag, const yaml_char_t *name)
{
    int anchor;
    static const char *const tags[] = {"tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"};
    if (tag != NULL && strcmp((const char *)tag, tags[is_map ? 1 : 0]) != 0)
        return fail_at_line(w, "a tag is not known");
    if (w->depth == TD_CARD_MAX_DEPTH)
        return fail_at_line(w, "lists and maps are nested too deep");
    if (!begin_value(w) || !begin_anchor(w, name, &anchor))
        return false;
    w->levels[w->depth++] =
        (struct level){.is_map = is_map, .anchor = anchor, .start = w->out->len, .first_key = w->key_count};
    td_buffer_putc(w->out, is_map ? '{' : '[');
    return true;
}

/* Rewrites the map that has just ended, with the members that it merges. */
static bool merge_map(struct writer *w, const struct level *level)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_buffer merged;
    td_buffer_init(&merged);
    bool ok = td_card_merge(td_text_skip(td_buffer_text(w->out), level->start), &merged, &why);
    if (ok) {
        w->out->len = level->start;
        td_buffer_append(w->out, merged.data, merged.len);
    }
    td_buffer_fini(&merged);
    return ok || fail_by(w, &why);
}

static bool pop_level(struct writer *w)
{
    const struct level *level = &w->levels[--w->depth];
    td_buffer_putc(w->out, level->is_map ? '}' : ']');
    if (w->out->failed || (level->is_map && !check_keys(w, level)) || (level->merges && !merge_map(w, level)))
        return false;
    note_height(w, level->height + 1);
    return end_anchor(w, level->anchor, level->start, level->height + 1);
}

/* ---- scalars ------------------------------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

/* Copies a number without its sign and without the underscores between digits. Returns false when the text cannot be a
 * number by its first or last character, or is too long for one. */
static bool plain_digits(const char *text, size_t len, char out[64], bool *negative)
{
    size_t used = 0;
    *negative = len > 0 && text[0] == '-';
    if (len > 0 && (text[0] == '-' || text[0] == '+')) {
        text++;
        len--;
    }
    if (len == 0 || len >= 64 || text[0] == '_' || text[len - 1] == '_')
        return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] != '_')
            out[used++] = text[i];
    out[used] = '\0';
    return true;
}

/* Writes a whole number: 0b101, 0o17, 0x1F, 017 (which is 17). One of more than 64 bits is written as a real number. */
static bool write_whole(struct td_buffer *out, const char *digits, bool negative)
{
    static const struct {
        const char *prefix, *digits;
        unsigned base;
    } kinds[] = {{"0b", "01", 2}, {"0o", "01234567", 8}, {"0x", "0123456789abcdefABCDEF", 16}, {"", "0123456789", 10}};
    size_t kind = 0;
    while (strncmp(digits, kinds[kind].prefix, strlen(kinds[kind].prefix)) != 0)
        kind++; /* the last kind fits every text */
    const char *text = digits + strlen(kinds[kind].prefix);
    uint64_t value = 0;
    double real = 0;
    bool exact = true;
    if (text[0] == '\0' || text[strspn(text, kinds[kind].digits)] != '\0')
        return false;
    for (; *text != '\0'; text++) {
        unsigned digit = *text <= '9' ? (unsigned)(*text - '0') : (unsigned)((*text | 32) - 'a' + 10);
        exact = exact && !__builtin_mul_overflow(value, (uint64_t)kinds[kind].base, &value) &&
                !__builtin_add_overflow(value, (uint64_t)digit, &value);
        real = real * kinds[kind].base + digit;
    }
    if (exact && (!negative || value <= (uint64_t)INT64_MAX))
        td_buffer_printf(out, "%s%" PRIu64, negative && value > 0 ? "-" : "", value);
    else
        td_json_write_real(out, negative ? -real : real, false);
    return true;
}

/* Returns whether the text is [0-9]+(.[0-9]*)? or .[0-9]+, with or without an exponent. */
static bool is_real(const char *text)
{
    size_t whole = strspn(text, "0123456789");
    size_t fraction = 0;
    text += whole;
    if (*text == '.') {
        fraction = strspn(++text, "0123456789");
        text += fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*text != 'e' && *text != 'E')
        return *text == '\0';
    text++;
    text += *text == '-' || *text == '+' ? 1 : 0;
    size_t exponent = strspn(text, "0123456789");
    return exponent > 0 && text[exponent] == '\0';
}

/* Writes a real number. JSON has no word for infinity and NaN, so these are null, as JSON.stringify writes them. */
static void write_real(struct td_buffer *out, const char *digits, bool negative)
{
    double value = strtod(digits, NULL);
    if (isfinite(value))
        td_json_write_real(out, negative ? -value : value, false);
    else
        td_buffer_puts(out, "null");
}

/* Writes a plain scalar as the value that it means. Returns false, and writes nothing, when it is a text. */
static bool write_plain(struct td_buffer *out, struct td_text text)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    static const char *const odd[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN", NULL};
    char digits[64];
    bool negative;
    if (strlen(text.p) != text.len)
        return false;
    if (is_one_of(text.p, nulls)) {
        td_buffer_puts(out, "null");
        return true;
    }
    if (is_one_of(text.p, trues) || is_one_of(text.p, falses)) {
        td_buffer_puts(out, is_one_of(text.p, trues) ? "true" : "false");
        return true;
    }
    if (!plain_digits(text.p, text.len, digits, &negative))
        return false;
    if (write_whole(out, digits, negative))
        return true;
    if (!is_real(digits) && !is_one_of(digits, odd))
        return false;
    write_real(out, is_real(digits) ? digits : "inf", negative);
    return true;
}

/* Returns whether a scalar is a text whatever it looks like. Sets *known to whether its tag is understood. */
static bool is_text(const yaml_event_t *event, bool *known)
{
    static const char *const typed[] = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool",
                                        "tag:yaml.org,2002:null", NULL};
    const char *tag = (const char *)event->data.scalar.tag;
    *known = true;
    if (tag == NULL)
        return event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (is_one_of(tag, typed))
        return false;
    *known = strcmp(tag, "tag:yaml.org,2002:str") == 0 || strcmp(tag, "!") == 0;
    return true;
}

/* Returns whether a key comes next. */
static bool is_at_key(const struct writer *w)
{
    return w->depth > 0 && w->levels[w->depth - 1].is_map && !w->levels[w->depth - 1].has_key;
}

/* Writes a key. is_json: the text is a JSON string already. */
static bool write_key(struct writer *w, struct td_text text, bool is_json, int anchor)
{
    struct level *level = &w->levels[w->depth - 1];
    if (level->count++ > 0)
        td_buffer_putc(w->out, ',');
    struct key key = {.off = w->out->len};
    if (is_json)
        td_buffer_append(w->out, text.p, text.len);
    else
        td_json_write_string(w->out, text);
    key.len = w->out->len - key.off;
    if (!end_anchor(w, anchor, key.off, 0))
        return false;
    td_buffer_putc(w->out, ':');
    level->has_key = true;
    return push_key(w, key);
}

/* Writes the value that an alias stands for. */
static bool write_alias(struct writer *w)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_text json;
    size_t height;
    const char *name = (const char *)w->event->data.alias.anchor;
    if (!td_card_anchors_find(&w->anchors, td_text_of(name), &json, &height, &why))
        return fail_by(w, &why);
    if (w->depth + height > TD_CARD_MAX_DEPTH)
        return fail_at_line(w, "lists and maps are nested too deep");
    if (json.len > TD_CARD_MAX_JSON_BYTES - (w->out->len - w->start) ||
        json.len > TD_CARD_MAX_JSON_BYTES - w->alias_bytes)
        return fail_at_line(w, "it is too long as JSON");
    w->alias_bytes += json.len;
    if (is_at_key(w))
        return height > 0 ? fail_at_line(w, "a key is not text") : write_key(w, json, json.p[0] == '"', -1);
    if (!begin_value(w))
        return false;
    td_buffer_append(w->out, json.p, json.len);
    note_height(w, height);
    return true;
}

static bool write_scalar(struct writer *w)
{
    const char *text = (const char *)w->event->data.scalar.value;
    size_t len = w->event->data.scalar.length;
    bool known;
    bool as_text = is_text(w->event, &known);
    int anchor;
    if (!known)
        return fail_at_line(w, "a tag is not known");
    if (w->depth == 0 && len == 0)
        return true; /* an empty document */
    if (!begin_anchor(w, w->event->data.scalar.anchor, &anchor))
        return false;
    if (is_at_key(w)) {
        struct level *level = &w->levels[w->depth - 1];
        level->merges = level->merges || (!as_text && strcmp(text, "<<") == 0);
        return write_key(w, td_text_n(text, len), false, anchor);
    }
    if (!begin_value(w))
        return false;
    size_t start = w->out->len;
    if (as_text || !write_plain(w->out, td_text_n(text, len)))
        td_json_write_string(w->out, td_text_n(text, len));
    return end_anchor(w, anchor, start, 0);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static bool write_event(struct writer *w)
{
    switch (w->event->type) {
    case YAML_SCALAR_EVENT:
        return write_scalar(w);
    case YAML_SEQUENCE_START_EVENT:
        return push_level(w, false, w->event->data.sequence_start.tag, w->event->data.sequence_start.anchor);
    case YAML_MAPPING_START_EVENT:
        return push_level(w, true, w->event->data.mapping_start.tag, w->event->data.mapping_start.anchor);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return pop_level(w);
    case YAML_ALIAS_EVENT:
        return write_alias(w);
    default:
        return true;
    }
}

static bool parser_failed(const yaml_parser_t *parser, struct td_error *err)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return td_error_no_memory(err);
    return td_error_set(err, TD_INVALID_ARGUMENT, "not valid YAML%s%s (line %zu of the front matter)",
                        parser->problem == NULL ? "" : ": ", parser->problem == NULL ? "" : parser->problem,
                        parser->problem_mark.line + 1);
}

/* Writes all events of one document. */
static bool write_document(struct writer *w, yaml_parser_t *parser)
{
    size_t documents = 0;
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return parser_failed(parser, w->err);
        w->event = &event;
        more = event.type != YAML_STREAM_END_EVENT;
        bool ok =
            event.type != YAML_DOCUMENT_START_EVENT || documents++ == 0 || fail_at_line(w, "a second document begins");
        ok = ok && write_event(w);
        if (ok && w->out->len - w->start > TD_CARD_MAX_JSON_BYTES)
            ok = fail_at_line(w, "it is too long as JSON");
        yaml_event_delete(&event);
        w->event = NULL;
        if (w->out->failed)
            return td_error_no_memory(w->err);
        if (!ok)
            return false;
    }
    return true;
}

bool td_model_card_read(struct td_text text, bool is_cut, struct td_buffer *json, struct td_error *err)
{
    size_t begin;
    size_t end;
    bool open;
    yaml_parser_t parser;
    if (!find_front_matter(text.p, text.len, &begin, &end, &open))
        return !open || !is_cut ||
               td_error_set(err, TD_INVALID_ARGUMENT, "its front matter has no end in the first %d bytes",
                            TD_CARD_MAX_BYTES);
    if (!check_directives(text.p + begin, end - begin, err))
        return false;
    if (!yaml_parser_initialize(&parser))
        return td_error_no_memory(err);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.p + begin, end - begin);
    struct writer w = {.out = json, .start = json->len, .err = err};
    bool ok = write_document(&w, &parser);
    free(w.keys);
    td_card_anchors_fini(&w.anchors);
    yaml_parser_delete(&parser);
    return ok;
}
