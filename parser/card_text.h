/* The text of a model card: the Markdown of a README.md after its front matter, as events. md4c parses the Markdown:
 * CommonMark 0.29 with tables, ~~strike~~, task lists, and links of bare addresses. HTML in the Markdown is text.
 *
 * The card is not trusted, and neither is md4c. This module runs in the parser's process, and the module that takes the
 * events trusts neither their order nor their texts (rank/card_html.h). */
#ifndef TD_PARSER_CARD_TEXT_H
#define TD_PARSER_CARD_TEXT_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stdint.h>

/* The parts of a document that have a beginning and an end. */
enum td_card_node {
    /* blocks */
    TD_CARD_QUOTE,
    TD_CARD_BULLETS,
    TD_CARD_NUMBERS, /* number: the first number of the list */
    TD_CARD_ITEM,    /* number: 1 a task that is open, 2 a task that is done, else 0 */
    TD_CARD_RULE,
    TD_CARD_HEADING, /* number: 1 to 6 */
    TD_CARD_CODE_BLOCK,
    TD_CARD_PARAGRAPH,
    TD_CARD_TABLE,
    TD_CARD_HEAD, /* the rows of a table with its headings */
    TD_CARD_BODY,
    TD_CARD_ROW,
    TD_CARD_HEAD_CELL, /* number: enum td_card_align */
    TD_CARD_CELL,
    /* parts of a line */
    TD_CARD_EMPHASIS,
    TD_CARD_STRONG,
    TD_CARD_STRIKE,
    TD_CARD_CODE,
    TD_CARD_LINK,  /* text: the address; title */
    TD_CARD_IMAGE, /* the same; the texts within it are its description */
    TD_CARD_NODES,
};

enum td_card_align { TD_CARD_ALIGN_NONE, TD_CARD_ALIGN_LEFT, TD_CARD_ALIGN_CENTER, TD_CARD_ALIGN_RIGHT };

enum td_card_event_kind {
    TD_CARD_BEGIN,
    TD_CARD_END,        /* of the part that began last and has not ended */
    TD_CARD_TEXT,       /* text: plain */
    TD_CARD_ENTITY,     /* text: a character by its name or number in HTML, "&auml;", "&#228;" */
    TD_CARD_LINE_END,   /* a line of the source ends, which readers may fill up */
    TD_CARD_LINE_BREAK, /* a line ends for readers, too */
    TD_CARD_EVENTS,
};

/* One event. The texts are borrowed until the function that takes the event returns. */
struct td_card_event {
    enum td_card_event_kind kind;
    enum td_card_node node; /* of TD_CARD_BEGIN, as `number` */
    uint32_t number;
    struct td_text text;
    struct td_text title; /* in it, '&' begins an entity: a plain one is written "&amp;" */
};

/* Takes the events of a card. */
struct td_card_sink {
    /* Returns false to get no more events: with *err unset when they are enough, else with the reason of a failure. */
    bool (*take)(void *context, const struct td_card_event *event, struct td_error *err);
    void *context;
};

/* Returns the character that an entity names by its number, "&#228;" or "&#xE4;"; U+FFFD when no character has the
 * number. Returns 0 for any other text. */
uint32_t td_card_entity_number(struct td_text entity);

/* The most bytes of a card that are read. */
enum { TD_CARD_TEXT_BYTES = 1 << 20 };

/* Reads the first TD_CARD_TEXT_BYTES of a card and gives its events to the sink. Leaves out the front matter. A text
 * that is not UTF-8, or has a NUL, becomes one block of code, with U+FFFD in place of the bytes that are no characters.
 * Returns true, too, when the sink wanted no more events. Errors: those of the sink; TD_INVALID_ARGUMENT when md4c
 * reads outside of the card; TD_RESOURCE_EXHAUSTED. */
bool td_card_text_read(struct td_text card, const struct td_card_sink *sink, struct td_error *err);

#endif
