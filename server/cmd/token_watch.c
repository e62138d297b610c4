#include "server/cmd/token_watch.h"

#include "core/clock.h"
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

/* Passes the tokens and their reference to the API, and sets their number in the metrics. */
static void pass_tokens(struct td_api *api, struct td_token_set *tokens)
{
    atomic_store(&api->metrics.tokens, td_token_set_count(tokens));
    atomic_store(&api->metrics.tokens_failed, false);
    td_api_set_tokens(api, tokens);
}

/* Returns how many of the tokens have expired. */
static size_t count_expired(const struct td_token_set *tokens)
{
    int64_t now_s = td_wall_now().seconds;
    size_t expired = 0;
    for (size_t i = 0; i < td_token_set_count(tokens); i++)
        expired += td_token_has_expired(&td_token_set_tokens(tokens)[i], now_s) ? 1 : 0;
    return expired;
}

/* Logs how many tokens there are, and warns when none is valid. before, after: the text around the file's path. */
static void log_tokens(const struct td_token_watch *watch, const char *before, const char *after,
                       const struct td_token_set *tokens)
{
    size_t count = td_token_set_count(tokens);
    size_t expired = count_expired(tokens);
    td_log(TD_LOG_INFO, "%s \"%s\"%s: %zu token%s, %zu of them expired", before, watch->path, after, count,
           td_plural(count), expired);
    if (expired == count)
        td_log(TD_LOG_WARN,
               "everybody is refused, since \"%s\" has no token that is valid; make one with tensord token new NAME "
               "--tokens %s",
               watch->path, watch->path);
}

void td_token_watch_begin(struct td_token_watch *watch, struct td_api *api)
{
    if (watch->first != NULL) {
        log_tokens(watch, "requests need a token, those of", "", watch->first);
        pass_tokens(api, watch->first);
    }
    watch->first = NULL;
}

bool td_token_watch_look(struct td_token_watch *watch, struct td_api *api, bool always)
{
    struct td_token_set *tokens = NULL;
    struct td_error err = TD_ERROR_INIT;
    if (watch->path[0] == '\0' || !td_file_change_look(&watch->change, always))
        return false;
    bool is_read = td_token_file_read(watch->path, &tokens, &err);
    if (td_file_change_end(&watch->change, &err))
        td_log(TD_LOG_ERROR, "the tokens stay as they were: %s", err.message);
    if (!is_read) {
        atomic_store(&api->metrics.tokens_failed, true);
        return false;
    }
    log_tokens(watch, "read the tokens file", " again", tokens);
    pass_tokens(api, tokens);
    return true;
}

void td_token_watch_fini(struct td_token_watch *watch)
{
    td_token_set_unref(watch->first);
    watch->first = NULL;
}
