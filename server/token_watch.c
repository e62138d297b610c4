#include "server/token_watch.h"

#include "core/digits.h"
#include "core/log.h"
#include "http/auth/token_file.h"

#include <string.h>

bool td_token_watch_init(struct td_token_watch *watch, const char *path, struct td_error *err)
{
    memset(watch, 0, sizeof *watch);
    watch->path = path;
    if (path[0] == '\0')
        return true;
    watch->change = (struct td_file_change){.paths = {path}};
    td_file_change_note(&watch->change);
    return td_token_file_read(path, &watch->first, err);
}

/* Gives the api the tokens, of which it takes over the reference, and shows their number in the metrics. */
static void give(struct td_api *api, struct td_token_set *tokens)
{
    atomic_store(&api->metrics.tokens, td_token_set_count(tokens));
    atomic_store(&api->metrics.tokens_failed, false);
    td_api_set_tokens(api, tokens);
}

void td_token_watch_begin(struct td_token_watch *watch, struct td_api *api)
{
    if (watch->first != NULL)
        give(api, watch->first);
    watch->first = NULL;
}

void td_token_watch_look(struct td_token_watch *watch, struct td_api *api, bool always)
{
    struct td_token_set *tokens = NULL;
    struct td_error err = TD_ERROR_INIT;
    if (watch->path[0] == '\0' || (!always && !td_file_change_look(&watch->change)))
        return;
    if (always)
        td_file_change_note(&watch->change);
    if (!td_token_file_read(watch->path, &tokens, &err)) {
        atomic_store(&api->metrics.tokens_failed, true);
        td_log(TD_LOG_ERROR, "the tokens stay as they were: %s", err.message);
        return;
    }
    size_t count = td_token_set_count(tokens);
    give(api, tokens);
    td_log(TD_LOG_INFO, "read the tokens file again: %zu token%s", count, td_plural(count));
}

void td_token_watch_fini(struct td_token_watch *watch)
{
    td_token_set_unref(watch->first);
    watch->first = NULL;
}
