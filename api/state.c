#include "api/state.h"

#include "http/rendered.h"
#include "http/reservation.h"
#include "rank/plan_store.h"
#include "rank/row_answer.h"

#include <string.h>

bool td_api_init(struct td_api *api, struct td_catalog *catalog, struct td_error *err)
{
    memset(api, 0, sizeof *api);
    api->catalog = catalog;
    td_shared_budget_init(&api->lists, TD_LISTS_BYTES, "lists and descriptions");
    td_shared_budget_init(&api->rows, TD_ROWS_BUDGET_BYTES, "answers with rows");
    if (td_lru_init(&api->manifests, &td_rendered_index_class, TD_MANIFEST_CACHE_BYTES)) {
        if (td_lru_init(&api->plans, &td_plan_store_class, TD_PLAN_STORE_BYTES)) {
            if (td_rank_store_init(&api->ranks, catalog))
                return true;
            td_lru_fini(&api->plans);
        }
        td_lru_fini(&api->manifests);
    }
    return td_error_set(err, TD_INTERNAL, "cannot create a lock");
}

void td_api_fini(struct td_api *api)
{
    td_lru_fini(&api->manifests);
    td_lru_fini(&api->plans);
    td_rank_store_fini(&api->ranks);
}
