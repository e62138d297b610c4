/* The events of a model card (parser/card_text.h) as HTML for a page of this server. The writer allows, and does not
 * forbid: no tag, attribute or address is written but those that are named in card_html.c, and all else becomes text.
 * It trusts neither the order of the events nor their texts, which a parser's process may have made up.
 *
 *   links      http, https and mailto; paths below the model's folder; fragments of the card. All others are text.
 *              Links to other sites have rel="noreferrer nofollow noopener".
 *   images     files of the model. An image of another site becomes a link to it, with its description.
 *   headings   one level lower than in the card, since the page has a heading of its own, with the id "card-" and the
 *              words of the heading, which fragments in the card lead to. Nothing else has an id or a name.
 *
 * The HTML is well-formed for any events: each part ends where the part around it ends. Pure; one thread at a time. */
#ifndef TD_RANK_CARD_HTML_H
#define TD_RANK_CARD_HTML_H

#include "core/buffer.h"
#include "core/error.h"
#include "parser/card_text.h"

enum {
    TD_CARD_HTML_BYTES = 2 << 20, /* most bytes of HTML; a longer card is cut, and says so */
    TD_CARD_LEVELS = 32,          /* most elements within each other; deeper ones are left out, their texts stay */
    TD_CARD_IDS = 1000,           /* headings with an id; the others have none */
};

/* A heading's id without its "card-". All members are private. */
struct td_card_id {
    size_t off, len; /* of its text in td_card_html.ids */
    unsigned next;   /* the number that the next heading of the same words gets */
};

/* How an image is written. */
enum td_card_image { TD_CARD_IMAGE_TEXT, TD_CARD_IMAGE_FILE, TD_CARD_IMAGE_LINK };

/* The writer. All members are private. */
struct td_card_html {
    struct td_buffer *out;
    size_t start;          /* of the HTML in out */
    struct td_text base;   /* of the links to files */
    struct td_buffer open; /* a byte for each part that has begun: its node, and whether it was written */
    size_t levels;         /* elements that are open */
    size_t images;         /* images that are open, within each other */
    enum td_card_image image;
    size_t image_at; /* where the description of the outermost image begins */
    bool in_link;    /* a link is open */
    size_t link_at;  /* where its text begins */
    bool in_heading;
    size_t heading_at;      /* where the heading's text begins */
    unsigned heading_level; /* of its tag */
    unsigned task;          /* the number of an item whose mark is not written yet; 0: none */
    bool is_full;
    struct td_buffer url; /* of the latest link */
    struct td_buffer path;
    struct td_buffer words; /* of the heading, as an id */
    struct td_buffer ids;
    struct td_card_id *items;
    size_t item_count, item_capacity;
};

/* Begins a card whose links to files begin with `base`: the percent-encoded path of the model's folder, with a '/' at
 * its end. Borrows base and out. The caller ends the writer by td_card_html_end. */
void td_card_html_begin(struct td_card_html *html, struct td_text base, struct td_buffer *out);

/* Takes an event, as td_card_sink.take; `context` is the writer. Returns false without an error when the HTML is full.
 * Errors: TD_INTERNAL for an event that cannot come here, as a cell outside of a table; TD_RESOURCE_EXHAUSTED. */
bool td_card_html_take(void *context, const struct td_card_event *event, struct td_error *err);

/* Ends all that is open, and frees the writer. is_cut: the card continues after the events; the HTML then says so.
 * Errors: TD_RESOURCE_EXHAUSTED; out then has no whole card. */
bool td_card_html_end(struct td_card_html *html, bool is_cut, struct td_error *err);

#endif
