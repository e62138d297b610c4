#include "api/html/views.h"

#include "api/html/ranks_page.h"
#include "api/html/tensor_page.h"
#include "api/html/tensors_page.h"

/* A page: the first segment of its path, and whether a '/' and a name follow, which call->rest then has. The name may
 * be empty: a tensor's may. */
struct view {
    const char *word;
    bool has_rest;
    void (*answer)(const struct td_call *call);
};

/* NULL ends them. */
static const struct view views[] = {
    {"tensors", false, td_html_tensors},
    {"tensor", true, td_html_tensor},
    {"ranks", false, td_html_ranks},
    {NULL, false, NULL},
};

void td_html_view(const struct td_call *call)
{
    struct td_call inner = *call;
    struct td_text word = td_text_take_until(&inner.rest, '/');
    for (const struct view *view = views; view->word != NULL; view++) {
        const bool fits = view->has_rest ? call->rest.len > word.len : inner.rest.len == 0;
        if (!td_text_equals(word, view->word) || !fits)
            continue;
        view->answer(&inner);
        return;
    }
    td_response_fail(call->response, 404, NULL, "model \"%.*s\" has no page \"%.*s\"",
                     TD_SHOW(td_text_of(call->model->id), 400), TD_SHOW(call->rest, 200));
}
