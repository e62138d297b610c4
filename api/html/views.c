#include "api/html/views.h"

/* A page: the first segment of its path, and whether another one follows, which call->rest then has. */
struct view {
    const char *word;
    bool has_rest;
    void (*answer)(const struct td_call *call);
};

/* NULL ends them. */
static const struct view views[] = {
    {NULL, false, NULL},
};

void td_html_view(const struct td_call *call)
{
    struct td_call inner = *call;
    struct td_text word = td_text_take_until(&inner.rest, '/');
    for (const struct view *view = views; view->word != NULL; view++) {
        if (!td_text_equals(word, view->word) || (inner.rest.len > 0) != view->has_rest)
            continue;
        view->answer(&inner);
        return;
    }
    td_response_fail(call->response, 404, NULL, "model \"%.400s\" has no page \"%.*s\"", call->model->id,
                     TD_SHOW(call->rest, 200));
}
