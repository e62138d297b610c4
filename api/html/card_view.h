/* The card of a model or dataset on its page: the slots and sections of templates/part_card.html. */
#ifndef TD_API_HTML_CARD_VIEW_H
#define TD_API_HTML_CARD_VIEW_H

#include "api/call/call.h"
#include "rank/card.h"

/* A card, or why it is not shown; zeroed: the repository has no README.md. */
struct td_card_view {
    struct td_card *card;  /* NULL: there is none, or it cannot be read just now */
    struct td_error error; /* why it cannot; TD_OK otherwise */
};

/* Reads the card of the entry, which is a README.md of the call's snapshot; NULL: there is no card. Its links lead
 * below `base`, as td_card_get says; a buffer that has failed is an error of the card. A card that is not kept yet may
 * have to wait (td_may_wait). Overwrites *out, which td_card_view_fini frees. */
void td_card_view_read(const struct td_call *call, const struct td_entry *entry, const struct td_buffer *base,
                       struct td_card_view *out);

void td_card_view_fini(struct td_card_view *view);

/* Returns why the card is not shown; NULL: it is, or there is none. Valid as long as the view. */
const char *td_card_view_reason(const struct td_card_view *view);

/* Returns whether the card has HTML, which view->card->html then is. */
bool td_card_view_has_html(const struct td_card_view *view);

#endif
