#include "api/html/card_view.h"

void td_card_view_read(const struct td_call *call, const struct td_entry *entry, const struct td_buffer *base,
                       struct td_card_view *out)
{
    out->card = NULL;
    td_error_init(&out->error);
    if (entry == NULL)
        return;
    if (base->failed)
        (void)td_error_no_memory(&out->error);
    else
        (void)td_card_get(&call->api->cards, call->snapshot, entry, td_buffer_text(base), &out->card, &out->error);
}

void td_card_view_fini(struct td_card_view *view)
{
    td_card_unref(view->card);
    view->card = NULL;
}

const char *td_card_view_reason(const struct td_card_view *view)
{
    if (view->card != NULL)
        return view->card->html == NULL ? view->card->reason : NULL;
    return view->error.code != TD_OK ? view->error.message : NULL;
}

bool td_card_view_has_html(const struct td_card_view *view)
{
    return view->card != NULL && view->card->html != NULL;
}
