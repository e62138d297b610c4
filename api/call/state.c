#include "api/call/state.h"

#include "http/rendered.h"
#include "http/reservation.h"
#include "rank/made_document.h"
#include "rank/rank_store.h"
#include "rank/row_answer.h"

#include <string.h>

static bool init_caches(struct td_api *api)
{
    if (td_lru_init(&api->manifests, &td_rendered_index_class, TD_MANIFEST_CACHE_BYTES)) {
        if (td_lru_init(&api->plans, &td_plan_store_class, TD_PLAN_STORE_BYTES)) {
            if (td_lru_init(&api->documents, &td_made_documents_class, TD_MADE_STORE_BYTES)) {
                if (td_rank_store_init(&api->ranks, api->catalog)) {
                    if (td_card_store_init(&api->cards, api->catalog))
                        return true;
                    td_rank_store_fini(&api->ranks);
                }
                td_lru_fini(&api->documents);
            }
            td_lru_fini(&api->plans);
        }
        td_lru_fini(&api->manifests);
    }
    return false;
}

static void fini_caches(struct td_api *api)
{
    td_lru_fini(&api->manifests);
    td_lru_fini(&api->plans);
    td_lru_fini(&api->documents);
    td_rank_store_fini(&api->ranks);
    td_card_store_fini(&api->cards);
}

bool td_api_init(struct td_api *api, struct td_catalog *catalog, struct td_error *err)
{
    memset(api, 0, sizeof *api);
    api->catalog = catalog;
    if (pthread_mutex_init(&api->tokens_lock, NULL) != 0)
        return td_error_set(err, TD_INTERNAL, "cannot create a lock");
    (void)pthread_mutex_init(&api->joint_lock, NULL); /* cannot fail without attributes (glibc) */
    (void)pthread_mutex_init(&api->events.lock, NULL);
    (void)pthread_cond_init(&api->joint_changed, NULL);
    td_shared_budget_init(&api->lists, TD_LISTS_BYTES, "lists and descriptions");
    td_shared_budget_init(&api->rows, TD_ROWS_BUDGET_BYTES, "answers with rows");
    td_shared_budget_init(&api->commits, TD_COMMITS_BYTES, "commits");
    if (init_caches(api)) {
        if (td_virtual_hasher_create(&api->virtual_hasher, err)) {
            if (td_patch_store_create(&api->ranks, &api->patches, err))
                return true;
            td_virtual_hasher_destroy(api->virtual_hasher);
        }
        fini_caches(api);
    }
    (void)pthread_cond_destroy(&api->joint_changed);
    (void)pthread_mutex_destroy(&api->events.lock);
    (void)pthread_mutex_destroy(&api->joint_lock);
    (void)pthread_mutex_destroy(&api->tokens_lock);
    return td_error_set(err, TD_INTERNAL, "cannot create a lock"); /* unless there is another error already */
}

bool td_api_keep_state(struct td_api *api, const char *state_dir, uint64_t max_patch_bytes, const char *root,
                       struct td_error *err)
{
    td_patch_store_keep(api->patches, max_patch_bytes, state_dir, root);
    return td_virtual_digests_keep(td_virtual_hasher_digests(api->virtual_hasher), state_dir, root, err);
}

void td_api_fini(struct td_api *api)
{
    td_patch_store_destroy(api->patches);
    td_virtual_hasher_destroy(api->virtual_hasher); /* its bodies are of files in the rank store */
    fini_caches(api);
    td_token_set_unref(api->tokens);
    (void)pthread_cond_destroy(&api->joint_changed);
    (void)pthread_mutex_destroy(&api->events.lock);
    (void)pthread_mutex_destroy(&api->joint_lock);
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
