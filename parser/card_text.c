/* md4c calls enter_block() ... read_text() below, which turn its calls into events. An error of the sink travels back
 * through md4c as the result -1; md4c 0.4.8 does not stop for positive ones. */
#include "parser/card_text.h"

#include "core/buffer.h"
#include "core/digits.h"
#include "core/utf8.h"
#include "parser/model_card.h"

#include <md4c.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"

struct reader {
    const struct td_card_sink *sink;
    struct td_error *err;
    struct td_text source;        /* the text that md4c parses */
    bool has_stopped;             /* the sink wants no more, or memory is short */
    size_t span_count;            /* parts of a line that have begun and not ended */
    struct td_buffer text, title; /* of the latest link or image */
};

/* Gives an event to the sink. Returns 0, or -1 to stop md4c. */
static int give(struct reader *r, const struct td_card_event *event)
{
    if (r->sink->take(r->sink->context, event, r->err))
        return 0;
    r->has_stopped = true;
    return -1;
}

/* Stops md4c, which may read past its lines in some texts: these bytes are not of the card. Returns -1. */
static int refuse_text(struct reader *r)
{
    r->has_stopped = true;
    (void)td_error_set(r->err, TD_INVALID_ARGUMENT, "its Markdown leads the parser out of its text");
    return -1;
}

/* Returns whether a text is a part of the card, or one of the blanks and line ends that md4c puts between parts. */
static bool is_of_card(const struct reader *r, const char *text, size_t len)
{
    enum { MOST_BLANKS = 16 };
    const uintptr_t at = (uintptr_t)text;
    const uintptr_t start = (uintptr_t)r->source.p;
    if (at >= start && at - start <= r->source.len)
        return len <= r->source.len - (at - start);
    return len <= MOST_BLANKS && strspn(text, " \n") >= len;
}

static int give_begin(struct reader *r, enum td_card_node node, uint32_t number)
{
    return give(r, &(struct td_card_event){.kind = TD_CARD_BEGIN, .node = node, .number = number});
}

static int give_end(struct reader *r)
{
    return give(r, &(struct td_card_event){.kind = TD_CARD_END});
}

/* ---- blocks -------------------------------------------------------------------------------------------- */

/* With MD_FLAG_NOHTML no block of HTML comes. */
static const enum td_card_node blocks[] = {
    [MD_BLOCK_QUOTE] = TD_CARD_QUOTE,     [MD_BLOCK_UL] = TD_CARD_BULLETS,      [MD_BLOCK_OL] = TD_CARD_NUMBERS,
    [MD_BLOCK_LI] = TD_CARD_ITEM,         [MD_BLOCK_HR] = TD_CARD_RULE,         [MD_BLOCK_H] = TD_CARD_HEADING,
    [MD_BLOCK_CODE] = TD_CARD_CODE_BLOCK, [MD_BLOCK_HTML] = TD_CARD_CODE_BLOCK, [MD_BLOCK_P] = TD_CARD_PARAGRAPH,
    [MD_BLOCK_TABLE] = TD_CARD_TABLE,     [MD_BLOCK_THEAD] = TD_CARD_HEAD,      [MD_BLOCK_TBODY] = TD_CARD_BODY,
    [MD_BLOCK_TR] = TD_CARD_ROW,          [MD_BLOCK_TH] = TD_CARD_HEAD_CELL,    [MD_BLOCK_TD] = TD_CARD_CELL,
};

/* Returns the number of the event for a block. */
static uint32_t number_of(MD_BLOCKTYPE type, const void *detail)
{
    static const enum td_card_align aligns[] = {[MD_ALIGN_DEFAULT] = TD_CARD_ALIGN_NONE,
                                                [MD_ALIGN_LEFT] = TD_CARD_ALIGN_LEFT,
                                                [MD_ALIGN_CENTER] = TD_CARD_ALIGN_CENTER,
                                                [MD_ALIGN_RIGHT] = TD_CARD_ALIGN_RIGHT};
    switch (type) {
    case MD_BLOCK_OL:
        return ((const MD_BLOCK_OL_DETAIL *)detail)->start;
    case MD_BLOCK_LI: {
        const MD_BLOCK_LI_DETAIL *item = detail;
        return item->is_task == 0 ? 0 : item->task_mark == ' ' ? 1 : 2;
    }
    case MD_BLOCK_H:
        return ((const MD_BLOCK_H_DETAIL *)detail)->level;
    case MD_BLOCK_TH:
    case MD_BLOCK_TD:
        return (uint32_t)aligns[((const MD_BLOCK_TD_DETAIL *)detail)->align];
    default:
        return 0;
    }
}

/* Ends the parts of a line that md4c has not ended: none goes past its block. */
static int end_spans(struct reader *r)
{
    for (; r->span_count > 0; r->span_count--)
        if (give_end(r) != 0)
            return -1;
    return 0;
}

static int enter_block(MD_BLOCKTYPE type, void *detail, void *context)
{
    if (end_spans(context) != 0)
        return -1;
    return type == MD_BLOCK_DOC ? 0 : give_begin(context, blocks[type], number_of(type, detail));
}

static int leave_block(MD_BLOCKTYPE type, void *detail, void *context)
{
    (void)detail;
    if (end_spans(context) != 0)
        return -1;
    return type == MD_BLOCK_DOC ? 0 : give_end(context);
}

/* ---- parts of a line ----------------------------------------------------------------------------------- */

uint32_t td_card_entity_number(struct td_text entity)
{
    enum { LAST = 0x10FFFF, FIRST_SURROGATE = 0xD800, LAST_SURROGATE = 0xDFFF, UNKNOWN = 0xFFFD };
    uint32_t value = 0;
    if (entity.len < 4 || entity.p[0] != '&' || entity.p[1] != '#' || entity.p[entity.len - 1] != ';')
        return 0;
    bool is_hex = entity.p[2] == 'x' || entity.p[2] == 'X';
    size_t at = is_hex ? 3 : 2;
    if (at == entity.len - 1)
        return 0;
    for (; at < entity.len - 1; at++) {
        int digit = td_hex_digit(entity.p[at]);
        if (digit < 0 || digit >= (is_hex ? 16 : 10))
            return 0;
        value = value > LAST ? value : value * (is_hex ? 16 : 10) + (uint32_t)digit;
    }
    bool is_character = value > 0 && value <= LAST && (value < FIRST_SURROGATE || value > LAST_SURROGATE);
    return is_character ? value : UNKNOWN;
}

/* Returns the character that an entity stands for, as HTML decodes it in an address; 0 for a name that is not one of
 * those with a meaning there. Such an entity stays in the address as it is written. */
static uint32_t character_of(struct td_text entity)
{
    static const struct {
        const char *name;
        char c;
    } names[] = {{"&amp;", '&'},    {"&lt;", '<'},       {"&gt;", '>'},    {"&quot;", '"'},  {"&apos;", '\''},
                 {"&Tab;", '\t'},   {"&NewLine;", '\n'}, {"&colon;", ':'}, {"&sol;", '/'},   {"&bsol;", '\\'},
                 {"&period;", '.'}, {"&num;", '#'},      {"&quest;", '?'}, {"&percnt;", '%'}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (td_text_equals(entity, names[i].name))
            return (uint32_t)names[i].c;
    return td_card_entity_number(entity);
}

/* Appends an attribute to out. Plain: the text itself; else the text with entities. */
static void append_attribute(const MD_ATTRIBUTE *attribute, bool is_plain, struct td_buffer *out)
{
    char bytes[4];
    for (size_t i = 0; attribute->size > 0 && attribute->substr_offsets[i] < attribute->size; i++) {
        MD_OFFSET off = attribute->substr_offsets[i];
        struct td_text part = td_text_n(attribute->text + off, attribute->substr_offsets[i + 1] - off);
        bool is_entity = attribute->substr_types[i] == MD_TEXT_ENTITY;
        uint32_t c = is_plain && is_entity ? character_of(part) : 0;
        if (attribute->substr_types[i] == MD_TEXT_NULLCHAR)
            td_buffer_puts(out, REPLACEMENT);
        else if (c != 0)
            td_buffer_append(out, bytes, td_utf8_encode(c, bytes));
        else if (is_plain || is_entity)
            td_buffer_append(out, part.p, part.len);
        else
            for (size_t k = 0; k < part.len; k++)
                td_buffer_append(out, part.p[k] == '&' ? "&amp;" : part.p + k, part.p[k] == '&' ? 5 : 1);
    }
}

static int give_link(struct reader *r, enum td_card_node node, const MD_ATTRIBUTE *address, const MD_ATTRIBUTE *title)
{
    enum { SCHEME_BYTES = 7 }; /* "mailto:", which md4c adds */
    if (address->size > r->source.len + SCHEME_BYTES || title->size > r->source.len)
        return refuse_text(r);
    td_buffer_clear(&r->text);
    td_buffer_clear(&r->title);
    append_attribute(address, true, &r->text);
    append_attribute(title, false, &r->title);
    if (r->text.failed || r->title.failed) {
        r->has_stopped = true;
        (void)td_error_no_memory(r->err);
        return -1;
    }
    return give(r, &(struct td_card_event){.kind = TD_CARD_BEGIN,
                                           .node = node,
                                           .text = td_buffer_text(&r->text),
                                           .title = td_buffer_text(&r->title)});
}

static int enter_span(MD_SPANTYPE type, void *detail, void *context)
{
    struct reader *r = context;
    const MD_SPAN_A_DETAIL *link = detail;
    const MD_SPAN_IMG_DETAIL *image = detail;
    r->span_count++;
    switch (type) {
    case MD_SPAN_STRONG:
        return give_begin(r, TD_CARD_STRONG, 0);
    case MD_SPAN_DEL:
        return give_begin(r, TD_CARD_STRIKE, 0);
    case MD_SPAN_CODE:
        return give_begin(r, TD_CARD_CODE, 0);
    case MD_SPAN_A:
        return give_link(r, TD_CARD_LINK, &link->href, &link->title);
    case MD_SPAN_IMG:
        return give_link(r, TD_CARD_IMAGE, &image->src, &image->title);
    default:
        return give_begin(r, TD_CARD_EMPHASIS, 0);
    }
}

/* md4c may end parts of a line in another order than they began, and an end that has no beginning is left out. */
static int leave_span(MD_SPANTYPE type, void *detail, void *context)
{
    struct reader *r = context;
    (void)type;
    (void)detail;
    if (r->span_count == 0)
        return 0;
    r->span_count--;
    return give_end(r);
}

static int read_text(MD_TEXTTYPE type, const MD_CHAR *text, MD_SIZE len, void *context)
{
    static const enum td_card_event_kind kinds[] = {
        [MD_TEXT_NORMAL] = TD_CARD_TEXT,     [MD_TEXT_NULLCHAR] = TD_CARD_TEXT, [MD_TEXT_BR] = TD_CARD_LINE_BREAK,
        [MD_TEXT_SOFTBR] = TD_CARD_LINE_END, [MD_TEXT_ENTITY] = TD_CARD_ENTITY, [MD_TEXT_CODE] = TD_CARD_TEXT,
        [MD_TEXT_HTML] = TD_CARD_TEXT,       [MD_TEXT_LATEXMATH] = TD_CARD_TEXT};
    struct td_card_event event = {.kind = kinds[type]};
    if (type != MD_TEXT_NULLCHAR && !is_of_card(context, text, len))
        return refuse_text(context);
    if (event.kind == TD_CARD_TEXT || event.kind == TD_CARD_ENTITY)
        event.text = type == MD_TEXT_NULLCHAR ? TD_TEXT(REPLACEMENT) : td_text_n(text, len);
    return give(context, &event);
}

/* ---- the card ------------------------------------------------------------------------------------------ */

/* Gives the text as one block of code. */
static void give_as_it_is(struct reader *r, struct td_text text)
{
    const uint8_t *p = (const uint8_t *)text.p;
    for (size_t i = 0; i < text.len;) {
        size_t n = td_utf8_sequence(p + i, text.len - i);
        if (n == 0 || p[i] == '\0')
            td_buffer_puts(&r->text, REPLACEMENT);
        else
            td_buffer_append(&r->text, text.p + i, n);
        i += n == 0 ? 1 : n;
    }
    if (r->text.failed) {
        (void)td_error_no_memory(r->err);
        return;
    }
    const struct td_card_event event = {.kind = TD_CARD_TEXT, .text = td_buffer_text(&r->text)};
    (void)(give_begin(r, TD_CARD_CODE_BLOCK, 0) == 0 && give(r, &event) == 0 && give_end(r) == 0);
}

bool td_card_text_read(struct td_text card, const struct td_card_sink *sink, struct td_error *err)
{
    const MD_PARSER parser = {.flags = MD_FLAG_NOHTML | MD_FLAG_TABLES | MD_FLAG_STRIKETHROUGH | MD_FLAG_TASKLISTS |
                                       MD_FLAG_PERMISSIVEURLAUTOLINKS,
                              .enter_block = enter_block,
                              .leave_block = leave_block,
                              .enter_span = enter_span,
                              .leave_span = leave_span,
                              .text = read_text};
    struct td_error why = TD_ERROR_INIT;
    struct reader r = {.sink = sink, .err = &why};
    card.len = td_text_shown(card, TD_CARD_TEXT_BYTES);
    struct td_text text = td_text_skip(card, td_model_card_end(card));
    r.source = text;
    td_buffer_init(&r.text);
    td_buffer_init(&r.title);
    if (text.len > 0 && (memchr(text.p, '\0', text.len) != NULL || !td_utf8_valid(text.p, text.len)))
        give_as_it_is(&r, text);
    else if (md_parse(text.p, (MD_SIZE)text.len, &parser, &r) != 0 && !r.has_stopped)
        (void)td_error_no_memory(&why); /* md4c fails for nothing else */
    td_buffer_fini(&r.text);
    td_buffer_fini(&r.title);
    return why.code == TD_OK || td_error_copy(err, &why);
}
