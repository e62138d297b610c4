#include "api/state.h"

#include "http/rendered.h"
#include "http/reservation.h"
#include "rank/made_document.h"
#include "rank/plan_store.h"
#include "rank/row_answer.h"

#include <string.h>

bool td_api_init(struct td_api *api, struct td_catalog *catalog, struct td_error *err)
{
    memset(api, 0, sizeof *api);
    api->catalog = catalog;
    if (pthread_mutex_init(&api->tokens_lock, NULL) != 0)
        return td_error_set(err, TD_INTERNAL, "cannot create a lock");
    td_shared_budget_init(&api->lists, TD_LISTS_BYTES, "lists and descriptions");
    td_shared_budget_init(&api->rows, TD_ROWS_BUDGET_BYTES, "answers with rows");
    if (td_lru_init(&api->manifests, &td_rendered_index_class, TD_MANIFEST_CACHE_BYTES)) {
        if (td_lru_init(&api->plans, &td_plan_store_class, TD_PLAN_STORE_BYTES)) {
            if (td_lru_init(&api->documents, &td_made_documents_class, TD_MADE_STORE_BYTES)) {
                if (td_rank_store_init(&api->ranks, catalog))
                    return true;
                td_lru_fini(&api->documents);
            }
            td_lru_fini(&api->plans);
        }
        td_lru_fini(&api->manifests);
    }
    (void)pthread_mutex_destroy(&api->tokens_lock);
    return td_error_set(err, TD_INTERNAL, "cannot create a lock");
}

void td_api_fini(struct td_api *api)
{
    td_lru_fini(&api->manifests);
    td_lru_fini(&api->plans);
    td_lru_fini(&api->documents);
    td_rank_store_fini(&api->ranks);
    td_token_set_unref(api->tokens);
    (void)pthread_mutex_destroy(&api->tokens_lock);
}

void td_api_set_tokens(struct td_api *api, struct td_token_set *tokens)
{
    pthread_mutex_lock(&api->tokens_lock);
    struct td_token_set *before = api->tokens;
    api->tokens = tokens;
    pthread_mutex_unlock(&api->tokens_lock);
    td_token_set_unref(before);
}

struct td_token_set *td_api_tokens(struct td_api *api)
{
    pthread_mutex_lock(&api->tokens_lock);
    struct td_token_set *tokens = api->tokens == NULL ? NULL : td_token_set_ref(api->tokens);
    pthread_mutex_unlock(&api->tokens_lock);
    return tokens;
}
